"""Who waits for room in a stream, in the order in which they came.

A writer that is called adds its message itself, in its next turn of the loop, and nobody overtakes it
meanwhile. So one that is cancelled has added nothing. As many are called together as there is room for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from bmgd.client.backlog import FULL_BYTES, PREFIX_BYTES


class Turns(OrderedDict[asyncio.Future[None], int]):
    """What those who wait have to add, in bytes; those who are called, and have not run yet, among them.

    All it does takes O(1) for each writer that is called.
    """

    async def wait(self, size: int) -> None:
        """Wait to be called; the caller adds its message at once, or sees that it cannot be added.

        Args:
            size: of the message, in bytes; one longer than a segment waits until all before it are put.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self[turn] = size
        try:
            await turn
        finally:
            del self[turn]

    def call(self, room: int, *, may_begin_long: bool) -> None:
        """Call those for whom there is room.

        Args:
            room: in bytes, until the stream is full; the last message may have more.
            may_begin_long: whether no long message is being put.
        """
        for turn, size in self.items():
            if room <= 0:
                return
            if size > FULL_BYTES and (room < FULL_BYTES or not may_begin_long):
                return
            _call(turn)
            room -= size + PREFIX_BYTES

    def call_all(self) -> None:
        """Call everybody: nothing can be added any more."""
        for turn in self:
            _call(turn)


def _call(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
