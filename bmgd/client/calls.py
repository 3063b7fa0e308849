"""The calls of one connection that send something, from their beginning until their outcome.

`flush` waits for the streams, and for these calls: a call that waits for its daemon or for its turn has
put nothing into a stream yet, and a broadcast never does. Requests are not among them. They wait for
the answer of another program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from bmgd.errors import ALL_NODES


class SendingCalls:
    """Which are underway, and to which node."""

    def __init__(self) -> None:
        self._underway: dict[int, int] = {}
        self._last = 0
        self._ended = asyncio.Event()

    def begin(self, destination: int = ALL_NODES) -> int:
        """A call begins; returns its number."""
        self._last = number = self._last + 1
        self._underway[number] = destination
        return number

    def end(self, number: int) -> None:
        """It has its outcome."""
        del self._underway[number]
        self._ended.set()

    @contextmanager
    def one(self, destination: int = ALL_NODES) -> Iterator[None]:
        """One of them, from here to the end of the block."""
        number = self.begin(destination)
        try:
            yield
        finally:
            self.end(number)

    @property
    def oldest(self) -> int | None:
        """The node that the oldest is for; None where there is none."""
        return next(iter(self._underway.values()), None)

    async def until_over(self) -> None:
        """Wait until all that have begun before have their outcome."""
        last = self._last
        while self._underway and next(iter(self._underway)) <= last:
            self._ended.clear()
            await self._ended.wait()
