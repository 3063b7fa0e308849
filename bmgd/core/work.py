"""Work that takes longer than one step may: done a piece at a time, in the steps that follow.

Theory of operation. A part that would go over many messages, records or peers at once hands a maker
of an iterator to `Work`. Each `next` of it is one *piece*. A step does at most `PIECES_PER_STEP`
pieces of all work under way, in turns of one piece each; what is left is due at once, as a deadline.
Before a deadline the sockets are read, so news goes before work, and no step is long:

    begin(name) --not under way--> first piece at the next deadline ... last piece --> done
    begin(name) --under way------> once more, from its beginning, after its last piece

So the same work, asked for by each of many deaths, is done twice at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bmgd.core.context import Context
from bmgd.core.timers import TimerKey

WORK_TIMER = "work"
PIECES_PER_STEP = 128
"""Pieces of one step; a piece is about one message written or one record looked at."""

Pieces = Callable[[], Iterator[object]]


class Work:
    """The work under way in one node, by name, in the order in which it was asked for."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._underway: dict[str, Iterator[object]] = {}
        self._again: dict[str, Pieces] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._underway

    @property
    def is_underway(self) -> bool:
        """Whether any work is."""
        return bool(self._underway)

    def begin(self, name: str, pieces: Pieces) -> None:
        """Do this work from the next deadline on; again from its beginning if it is under way.

        Args:
            name: of the work; at most one of a name is under way, and one more waits.
            pieces: makes the iterator, when the work begins. Between two pieces other events are
                handled, so it must look again at whatever it remembered.
        """
        if name in self._underway:
            self._again[name] = pieces
            return
        self._underway[name] = pieces()

    def stop(self, name: str) -> None:
        """Forget this work; nothing happens when it is not under way."""
        self._underway.pop(name, None)
        self._again.pop(name, None)

    def on_timer(self, key: TimerKey) -> None:
        """Do the pieces of one step."""
        left = PIECES_PER_STEP
        while self._underway and left > 0:
            for name in list(self._underway):
                self._do_piece(name)
                left -= 1
                if left == 0:
                    break

    def settle(self) -> None:
        """At the end of a step: what is left is due at once, after the sockets have been read."""
        key = (WORK_TIMER, 0, 0)
        if self._underway and key not in self._context.timers:
            self._context.timers.set(key, self._context.now_ns)

    def _do_piece(self, name: str) -> None:
        pieces = self._underway.pop(name, None)
        if pieces is None:
            return
        try:
            next(pieces)
        except StopIteration:
            again = self._again.pop(name, None)
            if again is not None:
                self._underway[name] = again()
        else:
            # At the end of the line: the works take turns.
            self._underway[name] = pieces
