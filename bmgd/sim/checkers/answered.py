"""That a destination answers what comes of a stream, and in what time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.commands import PutSegment
from bmgd.core.effects import Effect, Send
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import NodeId, incarnation_tag, outranks
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag, SharedSegment, StreamReset

ANSWERED_NS: Final = 20_000_000
"""What waits for the answer to a question waits longest."""
SLACK_NS: Final = 80_000_000
"""For a busy host; its source would ask again only after 150 ms."""

_Name = tuple[NodeId, int]
"""The source of a stream, and its id."""


class SegmentsAreAnswered(Checker):
    """What comes of a stream is answered within 20 ms, unless it is behind a segment that was refused.

    Looked at are streams whose source, in the life that sent it, is linked all the while: else there may
    be no way for an answer, or nobody who waits for it. A life that is known to be over is not answered,
    though its links stay until it has heard so. What it sent is acknowledged to nobody, and not taken.
    What waits to be answered with the answer to a question goes with the first that is put.
    """

    name: ClassVar[str] = "segments-are-answered"
    events: ClassVar[Kinds] = (Segment, SharedSegment, CommandIssued, Look)
    effects: ClassVar[Kinds] = (SegmentAck, StreamReset)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._waiting: dict[NodeId, dict[_Name, int]] = {}
        """Since when each stream is owed an answer."""

    def on_boot(self, journal: Journal) -> None:
        self._waiting[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        waiting = self._waiting[journal.place]
        former: dict[_Name, int] = {}
        if isinstance(event, CommandIssued) and isinstance(event.command, PutSegment):
            self._check_put(journal, event.request, event.command)
        for segment in segments_that_came(event):
            route = segment.route
            name = route.source, route.sequence >> 32
            if outranks(journal.inside.membership.vouched(route.source), route.source_incarnation):
                former[name] = incarnation_tag(route.source_incarnation)
            if route.destination == journal.host.id and self._is_owed(journal, segment):
                waiting.setdefault(name, journal.now_ns)
        if not waiting and not former:
            return
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, SegmentAck | StreamReset):
                route = effect.message.route
                name = route.destination, route.sequence >> 32
                if route.source != journal.host.id:
                    continue
                if isinstance(effect.message, SegmentAck) and (
                    former.get(name) == route.destination_tag
                ):
                    text = f"acknowledges stream {name[1]} of a former life of {name[0]}"
                    self.violate(journal, text)
                if name in waiting:
                    self._check(journal, name, waiting.pop(name))
        if is_deadline(event):
            limit_ns = ANSWERED_NS + SLACK_NS + journal.longest_lag_ns
            for name, since_ns in list(waiting.items()):
                if journal.now_ns - since_ns > limit_ns:
                    self._check(journal, name, waiting.pop(name))

    def _check_put(self, journal: Journal, request: int, put: PutSegment) -> None:
        stream = journal.inside.outbound.table.owned.get(request)
        if stream is None or not put.answers:
            return
        if stream.destination in journal.inside.inbound.acknowledging._with_answers:
            text = f"an answer goes to {stream.destination}, and an acknowledgement still waits"
            self.violate(journal, text)

    @staticmethod
    def _is_owed(journal: Journal, segment: Segment) -> bool:
        """Whether a segment that just came is one that an answer is due for."""
        route = segment.route
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return False
        if not journal.inside.believes(route.source, route.source_incarnation):
            return False
        stream = journal.inside.stream_in(route.source, route.sequence >> 32)
        if stream is None or stream.closed or stream.incarnation != route.source_incarnation:
            return False
        number = route.sequence & 0xFFFF_FFFF
        return number < stream.next or (number in stream.kept and not stream.full)

    def _check(self, journal: Journal, name: _Name, since_ns: int) -> None:
        waited_ns = journal.now_ns - since_ns
        if waited_ns <= ANSWERED_NS + SLACK_NS + journal.longest_lag_ns:
            return
        stream = journal.inside.stream_in(*name)
        if stream is None or stream.closed:
            return
        links = [link for link in journal.to(name[0]) if link.incarnation == stream.incarnation]
        if any(link.opened_ns <= since_ns for link in links):
            text = f"answers what came of stream {name[1]} of {name[0]}"
            self.violate(journal, f"{text} after {waited_ns / 1e6:.0f} ms, or not yet")
