"""How long programs are served in one turn of the event loop, so that links are read between two turns.

A program can write hundreds of requests at once, each of which takes a millisecond. If all that has come
were done at once, many such programs would keep the daemon from its links until others hold it dead.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, Protocol

TURN_NS: Final = 10_000_000
"""All programs together are served for so long, and for one frame more, before the loop goes on."""


class Served(Protocol):
    """What waits for a turn."""

    def serve(self) -> None:
        """Go on: until nothing is left, or the turn is over and this waits again."""


class Turns:
    """Shares a turn of the event loop among those that are served, and lets the others wait.

    Theory of operation. Whoever has something to do asks before each piece of work whether the turn is
    over, and waits if it is. Those that wait are served in their order in the loop's next turn:

        is_over() --no--> work, is_over() …
           |
           yes --wait()--> … the loop's next turn … --serve()--> is_over() …
    """

    def __init__(self) -> None:
        self._ends_ns = 0
        """When this turn is over; 0 before its first work."""
        self._waiting: deque[Served] = deque()

    def is_over(self) -> bool:
        """Whether nothing more may be done in this turn of the loop."""
        now_ns = time.monotonic_ns()
        if not self._ends_ns:
            self._ends_ns = now_ns + TURN_NS
            asyncio.get_running_loop().call_soon(self._begin)
        return now_ns >= self._ends_ns

    def wait(self, served: Served) -> None:
        """Serve this in a later turn, behind those that wait already; the turn is over."""
        self._waiting.append(served)

    def _begin(self) -> None:
        self._ends_ns = 0
        for _ in range(len(self._waiting)):
            if self.is_over():
                return
            self._waiting.popleft().serve()
