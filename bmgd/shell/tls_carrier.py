"""The bytes of a link under TLS, between its socket and the engine of links.

The engine has no descriptor for such a link: it is fed plain bytes and emptied of plain bytes, and it
splits, routes and queues them like all others. While ciphertext waits to be written, nothing more is
taken out of the engine. So frames wait in the outbox, whose bounds hold.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Protocol

from bmgd.shell.tls import READ_BYTES, TlsRefused, TlsSession
from bmgd.types import LinkId

_TAKE_BYTES = 64 * 1024
_UNWRITTEN_MAX = _TAKE_BYTES + READ_BYTES
"""Beyond it all that waits is answers to key updates, of an end that asks for them and reads nothing."""


class FedLinks(Protocol):
    """What a carrier needs of the links, see `bmgd.shell.links.Links`."""

    def feed(self, link: LinkId, data: bytes) -> None: ...

    def finish(self, link: LinkId, errno: int) -> None: ...

    def take(self, link: LinkId, limit: int) -> bytes: ...


class TlsCarrier:
    """Carries one link.

    Args:
        links: where it is fed and emptied.
        link: its id.
        sock: non-blocking, watched by nobody.
        session: whose handshake is over.
        unwritten: ciphertext that was not written yet.
    """

    __slots__ = (
        "_ending",
        "_fd",
        "_link",
        "_links",
        "_loop",
        "_over",
        "_session",
        "_sock",
        "_unwritten",
        "_writing",
    )

    def __init__(
        self,
        links: FedLinks,
        link: LinkId,
        sock: socket.socket,
        session: TlsSession,
        unwritten: bytes,
    ) -> None:
        self._links = links
        self._link = link
        self._sock = sock
        self._fd = sock.fileno()
        self._session = session
        self._unwritten = unwritten
        self._loop = asyncio.get_running_loop()
        self._writing = self._ending = self._over = False

    def start(self) -> None:
        """Begin to read; call it once the link is adopted."""
        self._loop.add_reader(self._fd, self.read)
        self.on_waiting()

    def read(self) -> bool:
        """Read once; whether anything came."""
        if self._over:
            return False
        try:
            data = self._sock.recv(READ_BYTES)
            plain = self._session.receive(data) if data else b""
        except BlockingIOError:
            return False
        except (ssl.SSLError, TlsRefused):
            self._finish(errno.EPROTO)
            return False
        except OSError as error:
            self._finish(error.errno or errno.EIO)
            return False
        if plain:
            self._links.feed(self._link, plain)
        # A key update wants an answer.
        self._unwritten += self._session.take()
        if self._unwritten:
            self._write()
        if len(self._unwritten) > _UNWRITTEN_MAX:
            self._finish(errno.EPROTO)
            return False
        if not data or self._session.ended:
            self._finish(0)
            return False
        return True

    def _finish(self, number: int) -> None:
        if not self._over:
            self._loop.remove_reader(self._fd)
            self._links.finish(self._link, number)

    # --- writing ------------------------------------------------------------------------------

    def on_waiting(self) -> None:
        """Something waits in the outbox."""
        if not self._writing:
            self._write()

    def end_writing(self) -> None:
        """All is taken: say so, and end the socket's writing side when it is out."""
        self._ending = True
        self._session.say_end()
        self._unwritten += self._session.take()
        if not self._writing:
            self._write()

    def _write(self) -> None:
        while not self._over:
            if not self._unwritten:
                self._session.put(self._links.take(self._link, _TAKE_BYTES))
                self._unwritten = self._session.take()
            if not self._unwritten:
                self._pause(wait=False)
                if self._ending:
                    self._shut_down()
                return
            try:
                written = self._sock.send(self._unwritten)
            except BlockingIOError:
                self._pause(wait=True)
                return
            except OSError as error:
                self._pause(wait=False)
                self._finish(error.errno or errno.EIO)
                return
            self._unwritten = self._unwritten[written:]

    def _pause(self, *, wait: bool) -> None:
        if wait and not self._writing:
            self._loop.add_writer(self._fd, self._write)
        elif self._writing and not wait:
            self._loop.remove_writer(self._fd)
        self._writing = wait

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._finish(error.errno or errno.EIO)

    def close(self) -> None:
        """The link is gone."""
        if not self._over:
            self._over = True
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._sock.close()
