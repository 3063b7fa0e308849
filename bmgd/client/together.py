"""Which long messages a program puts together now: as many as fit into a bound, the others wait.

waiting --there is room, or no other is put together--> now --whole, or ended before--> gone
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from bmgd.client.message import Pieces


class Together:
    """The long messages of one subscription that are put together, in the order in which they began.

    Args:
        bytes_max: of all that are put together now; a single one may have more.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Pieces] = deque()
        self._now: set[Pieces] = set()
        self._bytes = 0

    def __contains__(self, pieces: Pieces) -> bool:
        """Whether it is put together now."""
        return pieces in self._now

    def add(self, pieces: Pieces) -> None:
        """A message has begun: it waits for room."""
        self._waiting.append(pieces)

    def begin(self) -> Iterator[Pieces]:
        """Those that there is room for, one by one: what one gives back is there for the next."""
        while self._waiting:
            pieces = self._waiting[0]
            if self._now and self._bytes + pieces.size > self._bytes_max:
                return
            self._now.add(self._waiting.popleft())
            self._bytes += pieces.size
            yield pieces

    def remove(self, pieces: Pieces) -> None:
        """It is whole, or ended before; it may be none of these."""
        if pieces in self._now:
            self._now.remove(pieces)
            self._bytes -= pieces.size
        elif pieces in self._waiting:
            self._waiting.remove(pieces)

    def clear(self) -> None:
        """All have ended."""
        self._waiting.clear()
        self._now.clear()
        self._bytes = 0
