"""Long messages whose source gave them up: their readers hear of it from what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Deliver, Effect
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.wire.stream_messages import Segment, SegmentFlag


class UnfinishedAreAborted(Checker):
    """What follows an unfinished long message in its stream, and is no piece of it, aborts it at once.

    Its reader would wait for a piece that never comes, with its credit in use.
    """

    name: ClassVar[str] = "unfinished-are-aborted"
    events: ClassVar[Kinds] = (Segment,)
    before_events: ClassVar[Kinds] = (Segment,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._unfinished = 0
        """The long message, by its number, that the segment which comes now does not go on with."""

    def before(self, journal: Journal, event: Event) -> None:
        self._unfinished = 0
        if not isinstance(event, Received) or not isinstance(event.message, Segment):
            return
        segment, inside = event.message, journal.inside
        if segment.size and not segment.flags & SegmentFlag.FIRST:
            return
        source, stream_id = segment.route.source, segment.route.sequence >> 32
        long = inside.topics.longs.by_stream.get((source, stream_id))
        if long is not None and not long.complete and self._is_next(journal, segment):
            self._unfinished = long.number

    @staticmethod
    def _is_next(journal: Journal, segment: Segment) -> bool:
        """Whether it is what a stream into this node waits for."""
        route = segment.route
        if route.destination != journal.host.id:
            return False
        stream = journal.inside.stream_in(route.source, route.sequence >> 32)
        number = route.sequence & 0xFFFF_FFFF
        return (
            stream is not None
            and not stream.closed
            and (stream.incarnation, stream.next) == (route.source_incarnation, number)
        )

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not self._unfinished:
            return
        assert isinstance(event, Received)
        assert isinstance(event.message, Segment)
        if self._is_next(journal, event.message):
            # It was not taken: the stream waits for it still.
            return
        deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
        if not any(each.long == self._unfinished and each.aborted for each in deliveries):
            source = event.message.route.source
            self.violate(journal, f"goes on behind an unfinished long message of {source}")
