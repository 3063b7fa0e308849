"""Names to addresses, one thread per lookup.

The event loops look names up in a small pool of threads that all dials share (uvloop gives slow ones
two), so the lookups of a few dead hosts, which no server answers, would delay the dials to living ones.
The threads are daemon threads: the end of the process does not wait for a lookup.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any

LOOKUPS_MAX = 64

Found = tuple[socket.AddressFamily, tuple[Any, ...]]


def lookup_failure(address: str, error: OSError) -> str:
    """What a log says of a lookup that found nothing.

    Args:
        address: HOST:PORT, as it was given.
        error: what `Resolver.resolve` raised, or that its time was over.
    """
    if isinstance(error, TimeoutError):
        return f"{address}: looking up its name took too long"
    return f"{address}: its name was not found: {error.strerror or error}"


class Resolver:
    """Looks names up; at most `LOOKUPS_MAX` at once, one more fails at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._underway = 0

    async def resolve(self, host: str, port: int) -> Found:
        """The first address of a name.

        Raises:
            OSError: there is none, or too many lookups are under way.
        """
        if self._underway >= LOOKUPS_MAX:
            raise OSError(errno.ENOBUFS, "too many names are being looked up")
        self._underway += 1
        answer: asyncio.Future[Found] = self._loop.create_future()
        thread = threading.Thread(target=self._look_up, args=(host, port, answer), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._underway -= 1
            raise OSError(errno.ENOMEM, "no thread is left to look names up") from error
        return await answer

    def _look_up(self, host: str, port: int, answer: asyncio.Future[Found]) -> None:
        found: Found | OSError
        try:
            family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            found = family, target
        except OSError as error:
            found = error
        except UnicodeError:
            # What the name codec refuses (an empty label, one above 63 bytes) is no name at all.
            found = OSError("not a name")
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish, answer, found)

    def _finish(self, answer: asyncio.Future[Found], found: Found | OSError) -> None:
        self._underway -= 1
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)
