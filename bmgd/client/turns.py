"""Who waits for room in a stream, in the order in which they came.

A writer that is called adds its message itself, in its next turn of the loop, and nobody overtakes it
meanwhile. So one that is cancelled has added nothing. As many are called together as there is room for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from bmgd.client.backlog import FULL_BYTES, PREFIX_BYTES


class Turns:
    """Those who wait, and those who are called and have not run yet.

    All it does takes O(1) for each writer: thousands may be called, or give up, at the same time.

    Attributes:
        count: how many they are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        """What they have to add, in bytes."""
        self._called_bytes = 0
        """What those have who are called."""
        self._last = 0
        self._in_line: OrderedDict[int, None] = OrderedDict()
        """All of them, by the order in which they came."""

    @property
    def following(self) -> int:
        """The place of the writer that comes next."""
        return self._last + 1

    def has_before(self, place: int) -> bool:
        """Whether a writer before that place has not added its message yet."""
        return bool(self._in_line) and next(iter(self._in_line)) < place

    async def wait(self, size: int) -> None:
        """Wait to be called; the caller adds its message at once, or sees that it cannot be added.

        Args:
            size: of the message, in bytes; one longer than a segment waits until all before it are put.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.count += 1
        self._last = place = self._last + 1
        self._in_line[place] = None
        self._waiting[turn] = size
        try:
            await turn
        finally:
            self.count -= 1
            del self._in_line[place]
            if self._waiting.pop(turn, None) is None:
                self._called_bytes -= size + PREFIX_BYTES

    def call(self, room: int, *, may_begin_long: bool) -> None:
        """Call those for whom there is room.

        Args:
            room: in bytes, until the stream is full; the last message may have more.
            may_begin_long: whether no long message is being put.
        """
        while self._waiting and self._called_bytes < room:
            size = next(iter(self._waiting.values()))
            is_next = self._called_bytes == 0 and room == FULL_BYTES and may_begin_long
            if size > FULL_BYTES and not is_next:
                return
            self._call_first()

    def call_all(self) -> None:
        """Call everybody: nothing can be added any more."""
        while self._waiting:
            self._call_first()

    def _call_first(self) -> None:
        turn, size = self._waiting.popitem(last=False)
        self._called_bytes += size + PREFIX_BYTES
        if not turn.done():
            turn.set_result(None)
