"""Who waits for the same thing, one behind the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Line:
    """Those who wait in the order in which they came.

    Who comes while others are in line goes to its end, whether what they wait for is there or not: so
    nobody overtakes one that was told of it and has not run yet.

    Attributes:
        count: how many are in line, with the one whose turn it is.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until those before are gone; the next one's turn begins when the block is left."""
        self.count += 1
        try:
            async with self._lock:
                yield
        finally:
            self.count -= 1
