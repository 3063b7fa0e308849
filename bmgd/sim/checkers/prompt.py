"""When acknowledgements go: the first at once, later ones for several segments, and none too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.core.streams.acknowledging import ACK_TIMER
from bmgd.core.streams.stream_in import StreamIn
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId
from bmgd.wire.segments import COST_MAX, cost_of
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag, SharedSegment

TOGETHER_NS: Final = 100_000
"""No source has had an acknowledgement, and sent what that made it send, so soon."""
PAUSE_NS: Final = 500_000
FLOW_COST: Final = 4 * COST_MAX

_Name = tuple[Incarnation, NodeId, Incarnation, int]
"""The life of a node, a source and its life, and the id of the stream."""


@dataclass(slots=True)
class _Answered:
    """A stream that was acknowledged.

    Args:
        at_ns: when the last time. cost: of what came since.
        was_held_up: something waits behind a gap, or did since then.
    """

    at_ns: int
    cost: int = 0
    was_held_up: bool = False


class AcksComeInTime(Checker):
    """The first segment of a stream is acknowledged at once, for its source has no credit before that.

    What comes within 0.1 ms of an acknowledgement is not acknowledged at once: more comes with it. Where
    a stream is held up, by a gap or by a reader that has yet to consume a long message, its source hears
    within 0.5 ms of what came. Not looked at are questions, whose answers acknowledge them, and what is
    for no life, or for another one: it is answered by a reset (ADR 58).
    """

    name: ClassVar[str] = "acks-come-in-time"
    events: ClassVar[Kinds] = (Segment, SharedSegment)
    effects: ClassVar[Kinds] = (SegmentAck,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._answered: dict[NodeId, dict[_Name, _Answered]] = {}
        self._of_questions: dict[NodeId, set[_Name]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._answered[journal.place] = {}
        self._of_questions[journal.place] = set()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        told = {
            (effect.message.route.destination, effect.message.route.sequence >> 32)
            for effect in effects
            if isinstance(effect, Send)
            and isinstance(effect.message, SegmentAck)
            and effect.message.route.source == journal.host.id
            and not _comes_back(journal, event)
        }
        came = [
            segment
            for segment in segments_that_came(event)
            if segment.route.destination == journal.host.id
            and segment.route.destination_tag == journal.inside.context.own_tag
            and not segment.flags & SegmentFlag.BEST_EFFORT
        ]
        for segment in came:
            self._on_came(journal, segment, told)
        for source, stream_id in told:
            stream = journal.inside.stream_in(source, stream_id)
            if stream is not None:
                name = journal.incarnation, source, stream.incarnation, stream_id
                answered = _Answered(journal.now_ns, was_held_up=bool(stream.kept))
                self._answered[journal.place][name] = answered

    def _on_came(self, journal: Journal, segment: Segment, told: set[tuple[NodeId, int]]) -> None:
        route = segment.route
        source, stream_id = route.source, route.sequence >> 32
        stream = journal.inside.stream_in(source, stream_id)
        if stream is None or stream.closed or stream.incarnation != route.source_incarnation:
            return
        name = journal.incarnation, source, stream.incarnation, stream_id
        of_questions = self._of_questions[journal.place]
        if segment.inbox:
            of_questions.add(name)
        known = self._answered[journal.place]
        answered = known.get(name)
        if answered is None:
            known[name] = _Answered(-TOGETHER_NS)
        else:
            answered.cost += cost_of(segment.body)
            answered.was_held_up |= bool(stream.kept)
        is_told, text = (source, stream_id) in told, f"stream {stream_id} of {source}"
        if answered is None:
            is_first = route.sequence & 0xFFFF_FFFF == 1 and self._is_linked(journal, stream)
            if is_first and not is_told:
                self.violate(journal, f"does not acknowledge the first segment of {text} at once")
        elif name in of_questions:
            return
        elif is_told:
            since_ns = journal.now_ns - answered.at_ns
            is_flow = answered.cost >= FLOW_COST or answered.was_held_up
            if since_ns < TOGETHER_NS and not is_flow:
                self.violate(journal, f"acknowledges {text} again after {since_ns / 1e3:g} us")
        elif (
            (stream.kept or stream.awaited) and not stream.full and self._is_linked(journal, stream)
        ):
            due_ns = journal.inside.context.timers.due_ns((ACK_TIMER, 0, 0))
            if due_ns is None or due_ns > journal.now_ns + PAUSE_NS:
                self.violate(journal, f"lets the source of {text} wait, which is held up")

    @staticmethod
    def _is_linked(journal: Journal, stream: StreamIn) -> bool:
        """Whether there is a way for an answer, over a link to the source itself, which is not gone."""
        is_gone = journal.inside.membership.is_gone(stream.source)
        return not is_gone and any(
            link.incarnation == stream.incarnation for link in journal.to(stream.source)
        )


def _comes_back(journal: Journal, event: Event) -> bool:
    """Whether an own acknowledgement was on its way already, and is here again as it found no other."""
    came = event.message if isinstance(event, Received) else None
    return isinstance(came, SegmentAck) and came.route.source == journal.host.id
