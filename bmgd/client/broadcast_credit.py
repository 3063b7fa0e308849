"""The credit of one subscription's broadcasts: what the daemon counts as here and not finished.

Theory of operation. Broadcasts, pieces of long ones and what was missed of them share one credit, in the
order in which they come, and a program finishes them in that order. But while it reads a long one in
parts, what comes between the pieces waits behind it; once that has used up the credit, the next piece
would wait for ever. So while the program waits for a piece, the credit of what waits behind it goes back
early. Those items stay here until the program takes them:

    here --finished--> its credit goes back
    here --the program waits for a piece--> its credit goes back early --finished--> nothing more to do

As much as `EARLY_BYTES_MAX` is kept so. Beyond it the long broadcast does not go on, and is missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from bmgd.wire.control import BROADCASTS_MAX

CREDIT_BYTES: Final = 2**20
"""With as many bytes here, or `BROADCASTS_MAX` items, the daemon sends no further one."""
EARLY_BYTES_MAX: Final = 16 * 2**20
EARLY_MAX: Final = 4096
"""Of so many bytes and items the credit goes back before the program has finished them."""


class BroadcastCredit:
    """What came of broadcasts and was not finished.

    Args:
        give_back: tells the daemon that so many items more are finished.
    """

    def __init__(self, give_back: Callable[[int], None]) -> None:
        self._give_back = give_back
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another daemon counts from the beginning."""
        self._here = deque[int]()
        self._here_bytes = 0
        self._early = deque[int]()
        self._early_bytes = 0
        self._waits = 0
        self._freed_s = float("-inf")

    @property
    def _is_used_up(self) -> bool:
        return len(self._here) >= BROADCASTS_MAX or self._here_bytes >= CREDIT_BYTES

    def came(self, size_bytes: int) -> None:
        """An item came."""
        self._here.append(size_bytes)
        self._here_bytes += size_bytes
        if self._waits:
            self._give_early()

    def finished(self, count: int) -> None:
        """The program has finished so many items more."""
        while count and self._early:
            self._early_bytes -= self._early.popleft()
            count -= 1
        self._free(count)

    def begin_waiting(self) -> None:
        """The program waits for a piece of a long broadcast."""
        self._waits += 1
        self._give_early()

    def end_waiting(self) -> None:
        """It has come, or the program does not wait any more."""
        self._waits -= 1

    def was_there_for(self, seconds: float) -> bool:
        """Whether the daemon could have sent something for so long, or never will be able to."""
        if self._here and not self._waits:
            return False
        return asyncio.get_running_loop().time() - self._freed_s >= seconds

    def _give_early(self) -> None:
        count = 0
        for size in self._here:
            kept = self._early_bytes + size
            if kept > EARLY_BYTES_MAX or len(self._early) >= EARLY_MAX:
                break
            self._early.append(size)
            self._early_bytes = kept
            count += 1
        self._free(count)

    def _free(self, count: int) -> None:
        if not count:
            return
        if self._is_used_up:
            self._freed_s = asyncio.get_running_loop().time()
        for _ in range(min(count, len(self._here))):
            self._here_bytes -= self._here.popleft()
        self._give_back(count)
