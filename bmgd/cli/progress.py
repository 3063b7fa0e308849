"""What a long send says of itself on a terminal: how much of it has gone, and how long it takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from bmgd.client import Daemon

EVERY_S: Final = 1.0
_CLEAR_LINE: Final = "\r\x1b[K"
_COLUMNS: Final = 80
"""Of a terminal that does not say how wide it is."""

T = TypeVar("T")


async def with_progress(name: str, sending: Awaitable[T], gone: Callable[[], str]) -> T:
    """Wait for a send; meanwhile one line on stderr, if that is a terminal, changes once a second.

    Args:
        name: the command's.
        sending: what it waits for.
        gone: how much has gone; "" leaves the line as it is.
    """
    if not sys.stderr.isatty():
        return await sending
    line = _Line(name, gone)
    try:
        return await sending
    finally:
        line.end()


def bytes_gone(daemon: Daemon, payload_bytes: int, copies: int = 1) -> Callable[[], str]:
    """How much of a message has gone, in words; a short one goes as a whole.

    Args:
        daemon: over which nothing else is sent.
        payload_bytes: the length of the message.
        copies: how many nodes get one of their own.
    """
    from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

    if payload_bytes <= PAYLOAD_BYTES_MAX:
        return lambda: f"{payload_bytes:,} bytes"
    total_bytes = payload_bytes * copies
    return lambda: f"{daemon.long_bytes:,} of {total_bytes:,} bytes"


class _Line:
    def __init__(self, name: str, gone: Callable[[], str]) -> None:
        import asyncio

        self._name, self._gone = name, gone
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._is_shown = False
        self._planned = self._loop.call_later(EVERY_S, self._tell)

    def _tell(self) -> None:
        gone = self._gone()
        if gone:
            spent_s = self._loop.time() - self._began_s
            text = f"bmgd {self._name}: {gone}, {spent_s:.0f} s"
            self._show(text[: _columns() - 1])
            self._is_shown = True
        self._planned = self._loop.call_later(EVERY_S, self._tell)

    def end(self) -> None:
        """Leave the terminal as it was."""
        self._planned.cancel()
        if self._is_shown:
            self._show("")

    @staticmethod
    def _show(text: str) -> None:
        # A terminal that is gone is no reason to end.
        with suppress(OSError):
            print(f"{_CLEAR_LINE}{text}", end="", file=sys.stderr, flush=True)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS
