"""What a source sends again: only what its destination lacks, the lowest first, and for a reason.

Theory of operation. Of each stream out that has an id, what was sent and what was answered is written
down, as docs/wire-protocol.md says that a source sees it:

    sent --acknowledged--> done, and never sent again
         --named in a gap--> there: not sent again, unless nothing else is left to ask with
         --silence, FULL, 20 ms old behind a gap, UNREACHABLE--> lost: sent again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.effects import Effect, ForwardingChanged, Send
from bmgd.core.events import Event, Received
from bmgd.core.membership.membership import Standing
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_of, segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.segments import cost_of
from bmgd.wire.stream_messages import (
    Segment,
    SegmentAck,
    SegmentFlag,
    SharedSegment,
    StreamReset,
    Unreachable,
)

SILENCE_NS: Final = 150_000_000
"""An answer is waited for so long at least: 200 ms, and a quarter of that by chance."""
REORDER_NS: Final = 20_000_000
REROUTE_NS: Final = 150_000_000
"""After another next hop the lowest segment is sent within 20 ms, and later where many streams wait."""
WINDOW_FIRST: Final = 128 * 1024
WINDOW_MAX: Final = 4 * 1024 * 1024

_Name = tuple[Incarnation, NodeId, int]
"""The life of a source, the destination, and the id of the stream."""


@dataclass(slots=True)
class _Sent:
    """A segment that is not acknowledged.

    Args:
        at_ns, order: when it was sent last, and how many sendings of its stream were before.
    """

    cost: int
    at_ns: int
    order: int


@dataclass(slots=True)
class _Out:
    """A stream as its source can know it.

    Args:
        sent: what is not acknowledged, by number, the lowest first.
        following: the highest number that the destination said to expect.
        there: what it named in gaps the last time. lost: what may be sent again.
        refused: its last answer was FULL, and when it came.
        tag: of the life that answers; 0 for none yet.
        orders: how often something was sent.
        confirmed: the cost of all that was acknowledged.
        asked_ns: since when an answer is waited for.
        has_lost: whether anything was ever sent again.
        is_due: since the last answer a hint has set a deadline to ask at, whatever is sent before.
    """

    sent: dict[int, _Sent] = field(default_factory=dict)
    following: int = 1
    there: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    hinted: set[int] = field(default_factory=set)
    refused_ns: int | None = None
    tag: int = 0
    orders: int = 0
    confirmed: int = 0
    asked_ns: int = 0
    highest: int = 0
    has_lost: bool = False
    is_due: bool = False

    def lowest(self) -> int:
        """The lowest segment that the destination has not said to have; without one, the lowest."""
        lacking = (number for number in self.sent if number not in self.there)
        return next(lacking, next(iter(self.sent), 0))

    @property
    def flying(self) -> int:
        """The cost of what is underway and not known to be there."""
        return sum(sent.cost for number, sent in self.sent.items() if number not in self.there)


class OnlyWhatLacksIsSentAgain(Checker):
    """A source sends again only what its destination lacks, the lowest first, and for a reason.

    Not before an answer has had time to come, what is missing before a gap is 20 ms old, or its next hop
    changed. What was refused waits, and so does what is behind it. Until something was lost no more is
    underway than the first window and all that was confirmed.
    """

    name: ClassVar[str] = "only-what-lacks-is-sent-again"
    events: ClassVar[Kinds] = (SegmentAck, Unreachable, Segment, SharedSegment)
    effects: ClassVar[Kinds] = (Segment, SharedSegment, ForwardingChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._streams: dict[NodeId, dict[_Name, _Out]] = {}
        self._rerouted_ns: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._streams[journal.place] = {}
        self._rerouted_ns[journal.place] = -REROUTE_NS

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received):
            if isinstance(event.message, SegmentAck):
                self._on_ack(journal, event.message)
            elif isinstance(event.message, Unreachable):
                self._on_hint(journal, event.message.target, event.message.route.sequence)
        back = {
            (segment.route.destination, segment.route.sequence)
            for segment in segments_that_came(event)
            if segment.route.source == journal.host.id
        }
        for peer, sequence in back:
            # It may find no way on from here.
            self._on_hint(journal, peer, sequence)
        for effect in effects:
            if isinstance(effect, ForwardingChanged):
                self._rerouted_ns[journal.place] = journal.now_ns
            for segment in segments_of(effect.message) if isinstance(effect, Send) else ():
                route = segment.route
                is_own = (route.source, route.source_incarnation) == (
                    journal.host.id,
                    journal.incarnation,
                )
                is_counted = not segment.flags & SegmentFlag.BEST_EFFORT
                # One that came back, by a search or from a link that is gone, is only passed on.
                if is_own and is_counted and (route.destination, route.sequence) not in back:
                    self._on_sent(journal, event, segment)

    def _stream(self, journal: Journal, peer: NodeId, sequence: int) -> _Out | None:
        name = journal.incarnation, peer, sequence >> 32
        return self._streams[journal.place].get(name)

    # --- what is answered ---------------------------------------------------------------------

    def _on_ack(self, journal: Journal, ack: SegmentAck) -> None:
        route = ack.route
        if route.destination != journal.host.id:
            return
        if route.destination_tag != incarnation_tag(journal.incarnation):
            return
        stream = self._stream(journal, route.source, route.sequence)
        context = journal.inside.context
        standing = context.standing(route.source, route.source_incarnation)
        if stream is None or standing is not Standing.CURRENT or stream.tag not in (0, ack.tag):
            return
        following = route.sequence & 0xFFFF_FFFF
        if not stream.following <= following <= stream.highest + 1:
            return
        stream.tag, stream.following, stream.is_due = ack.tag, following, False
        done = [number for number in stream.sent if number < following]
        for number in done:
            stream.confirmed += stream.sent.pop(number).cost
        if done:
            stream.asked_ns = journal.now_ns
        stream.lost = {number for number in stream.lost if number >= following}
        if ack.full:
            stream.there.discard(following)
            stream.lost.add(following)
            if stream.refused_ns is None:
                stream.refused_ns = journal.now_ns
            return
        stream.refused_ns = None
        self._on_gaps(stream, ack, journal.now_ns)

    @staticmethod
    def _on_gaps(stream: _Out, ack: SegmentAck, now_ns: int) -> None:
        there = {n for first, last in ack.gaps for n in range(first, last + 1) if n in stream.sent}
        taken_back = stream.there - there
        stream.lost |= taken_back
        stream.hinted |= taken_back
        stream.there = there
        stream.lost -= there
        for number, sent in stream.sent.items():
            if number < max(there, default=0) and now_ns - sent.at_ns > REORDER_NS:
                stream.lost.add(number)

    def _on_hint(self, journal: Journal, peer: NodeId, sequence: int) -> None:
        """There is no way to a destination, or was none."""
        stream = self._stream(journal, peer, sequence)
        if stream is not None:
            number = sequence & 0xFFFF_FFFF
            stream.lost.add(number)
            stream.hinted.add(number)
            stream.asked_ns = -SILENCE_NS
            stream.is_due = True

    # --- what is sent -------------------------------------------------------------------------

    def _on_sent(self, journal: Journal, event: Event, segment: Segment) -> None:
        route, now_ns = segment.route, journal.now_ns
        name = journal.incarnation, route.destination, route.sequence >> 32
        streams = self._streams[journal.place]
        if name not in streams:
            streams[name] = _Out()
            former = streams.get((journal.incarnation, route.destination, segment.replaces))
            if former is not None:
                # A stream that goes on under a new id keeps its window.
                streams[name].confirmed = former.confirmed
        stream = streams[name]
        number, cost = route.sequence & 0xFFFF_FFFF, cost_of(segment.body)
        before = stream.sent.get(number)
        if number <= stream.highest:
            answers_reset = isinstance(event, Received) and isinstance(event.message, StreamReset)
            if before is None:
                self.violate(journal, f"sends {number} to {route.destination} again, which it has")
            elif not answers_reset:
                in_time = is_deadline(event)
                self._check_again(journal, route.destination, stream, number, in_time=in_time)
        else:
            self._check_new(journal, route.destination, stream, cost)
            stream.highest = number
        if not stream.sent:
            stream.asked_ns = now_ns
        stream.orders += 1
        stream.sent[number] = _Sent(cost, now_ns, stream.orders)
        stream.there.discard(number)
        stream.lost.discard(number)
        stream.hinted.discard(number)

    def _check_again(
        self, journal: Journal, peer: NodeId, stream: _Out, number: int, *, in_time: bool
    ) -> None:
        now_ns, text = journal.now_ns, f"sends {number} to {peer} again, "
        stream.has_lost = True
        # A host that was late after the change has looked at its streams then.
        limit_ns = REROUTE_NS + journal.longest_lag_ns
        is_rerouted = now_ns - self._rerouted_ns[journal.place] < limit_ns
        if stream.refused_ns is not None:
            is_soon = now_ns - stream.refused_ns < SILENCE_NS
            if is_soon and not (is_rerouted and number == stream.lowest()):
                self.violate(journal, text + "which was refused a moment ago")
            # It may be sent over another link before this one is answered.
            stream.refused_ns = None
        if number in stream.there and number != stream.lowest():
            self.violate(journal, text + "which is there, behind what is missing")
        is_silent = now_ns - stream.asked_ns >= SILENCE_NS
        asks = number == stream.lowest() and (
            is_silent or is_rerouted or (in_time and stream.is_due)
        )
        if number not in stream.lost and not asks:
            self.violate(journal, text + "and nothing says that it is lost")
        if number not in stream.lost or asks:
            # By the lowest one its destination is asked; what is behind it may be lost as well.
            stream.lost |= stream.sent.keys() - stream.there
            if in_time:
                # What an answer or a way that opened makes it send puts off no deadline.
                stream.asked_ns = now_ns
        if number not in stream.hinted:
            order = stream.sent[number].order
            before = [
                known
                for known, sent in stream.sent.items()
                if known < number and sent.order < order and known not in stream.there
            ]
            if before:
                self.violate(journal, text + f"before {before[0]}, which is missing, too")

    def _check_new(self, journal: Journal, peer: NodeId, stream: _Out, cost: int) -> None:
        if stream.refused_ns is not None and stream.sent:
            self.violate(journal, f"sends more to {peer}, which has just refused what is before it")
        window = min(WINDOW_FIRST + stream.confirmed, WINDOW_MAX)
        if stream.sent and not stream.has_lost and stream.flying + cost > window:
            self.violate(journal, f"sends beyond a window of {window} bytes to {peer}")
