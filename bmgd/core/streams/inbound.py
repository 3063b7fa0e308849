"""Streams into this node: each segment once and in order, whatever the network repeats or overtakes.

Theory of operation. Of each source's life this node knows the streams from the *floor* up, which every
segment names. A segment of a stream is

    below the next expected ---------> there already: acknowledged again
    the next expected ---------------> offered to its topic --taken-----> the next one is expected
                                                            --no room---> FULL: asked for again
                                                            --no reader-> RESET (of long messages only)
    beyond it, within the credit ----> kept, and told as a gap; the farthest gives way
    of an unknown stream, not OPEN --> RESET
    for another life, or for none ---> RESET with the tag of this one; what was for none is sent again

`granting.py` says how much a stream may send, `acknowledging.py` when its source hears of it. A stream
that is closed is remembered until the floor has passed it, or a late copy of its first segment would
open it again. *Dead* forgets nothing, for it may be refuted, but ends long messages that are not whole; a
source that is gone for `GONE_NS` shrinks to the highest id that it used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.membership.membership import Standing
from bmgd.core.streams.acknowledging import Acknowledging
from bmgd.core.streams.granting import GRANTED_MAX, Granting
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.timers import TimerKey
from bmgd.core.topics.inboxes import is_inbox
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.types import Incarnation, NodeId, NodeState, Status, incarnation_tag
from bmgd.wire.segments import cost_of
from bmgd.wire.stream_messages import ResetReason, Segment, SegmentAck, SegmentFlag, StreamReset

GONE_TIMER: Final = "gone source"
SOURCES_MAX: Final = 65_536
"""Sources whose streams are remembered; one that left makes room, else a new one is not answered."""
STREAMS_MAX: Final = 65_536
"""Streams remembered in all; beyond, a new one is answered FULL."""
SPAN: Final = 4096
FLOW_BYTES: Final = 16 * 1024
"""A segment with a shorter body is none of a flow."""
LINES_MAX: Final = 256
"""Replaced streams of a source whose first id is remembered; of one more the oldest is forgotten, and
what was taken under it, and still waits, may be overtaken by a long message."""
KEPT_MAX: Final = 1024
"""Segments of one stream that wait behind a gap."""
ADVANCE_MAX: Final = 64
"""Segments that one event takes of what was kept; the rest goes in turns, one segment each."""
GONE_NS: Final = 600_000_000_000


@dataclass(slots=True, eq=False)
class _Source:
    """What one life of one source has sent here."""

    incarnation: Incarnation
    floor: int = 0
    highest: int = 0
    shrunk_to: int = 0
    streams: dict[int, StreamIn] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)
    """The first id of a stream, by one that took its place; a stream itself is forgotten sooner."""

    def line_of(self, stream_id: int, former_id: int) -> int:
        """The first id of a new stream that takes the place of another one; 0 where it takes none."""
        line = self.lines.get(former_id, former_id)
        if line:
            self.lines[stream_id] = line
            if len(self.lines) > LINES_MAX:
                del self.lines[next(iter(self.lines))]
        return line


class Inbound:
    """All streams into one node."""

    def __init__(
        self, context: Context, forwarding: Forwarding, topics: Topics, work: Work
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._topics = topics
        self._work = work
        self._began_ns = context.now_ns
        self._sources: dict[NodeId, _Source] = {}
        self._stream_count = 0
        self._kept_bytes = 0
        self.granting = Granting(context, topics)
        self.acknowledging = Acknowledging(context, forwarding, self.granting)
        self._advancing: dict[tuple[NodeId, int], StreamIn] = {}

    # --- what comes ---------------------------------------------------------------------------

    def on_segment(self, segment: Segment) -> None:
        """A segment for this node came."""
        context, route = self._context, segment.route
        if not self._is_believed(segment):
            return
        if segment.flags & SegmentFlag.BEST_EFFORT:
            # It is sent once: a former life that could have had it as well does not matter.
            if route.destination_tag in (0, context.own_tag):
                self._on_best_effort(segment)
            return
        if route.destination_tag != context.own_tag:
            # Nor is it taken where it is for no life: its source would send it to the next one, too.
            if route.destination_tag or not self._may_be_followed():
                self._reset(segment, ResetReason.FOREIGN_TAG)
            return
        source = self._source_of(route.source, route.source_incarnation)
        if source is None:
            return
        self._raise_floor(source, route.source, segment.floor)
        stream = self._stream_of(source, segment)
        if stream is not None:
            self._on_stream_segment(stream, segment)

    def _is_believed(self, segment: Segment) -> bool:
        """Whether its source is somebody, in a life that is not over."""
        context, route = self._context, segment.route
        status = context.membership.status_of(route.source)
        if status is None:
            return False
        standing = context.standing(route.source, route.source_incarnation)
        if standing is Standing.FORMER and status is not Status.LEFT:
            context.observe("stale source", route.source, route.source_incarnation)
        return standing is Standing.CURRENT and status is not Status.LEFT

    def _may_be_followed(self) -> bool:
        """Whether this life may soon be told of a former one, and be followed: its tag would not last."""
        context = self._context
        is_young = context.now_ns - self._began_ns < context.settings.join_ns
        return not context.has_been_ready and is_young and not context.followed

    def _on_best_effort(self, segment: Segment) -> None:
        route = segment.route
        taken = Taken(
            route.source, route.source_incarnation, 0, segment.count, segment.body, segment.size
        )
        is_leaving = self._context.state is NodeState.LEAVING
        if segment.size or is_leaving or self._topics.offer(segment.topic, taken) is Offer.FULL:
            self._topics.dropped += segment.count

    def _source_of(self, source_id: NodeId, incarnation: Incarnation) -> _Source | None:
        """What is remembered of a source's life; None for a new source where there is no room."""
        source = self._sources.get(source_id)
        if source is not None and source.incarnation == incarnation:
            return source
        if source is None and len(self._sources) >= SOURCES_MAX and not self._forget_who_left():
            return None
        if source is not None:
            for stream in list(source.streams.values()):
                self._forget(stream, "its source began a new life")
        source = self._sources[source_id] = _Source(incarnation)
        return source

    def _forget_who_left(self) -> bool:
        """Forget a source that has left, and so is not believed any more; whether there was one."""
        status_of = self._context.membership.status_of
        left = next((known for known in self._sources if status_of(known) is Status.LEFT), None)
        if left is None:
            return False
        for stream in self._sources.pop(left).streams.values():
            self._forget(stream, "its source left")
        return True

    def _raise_floor(self, source: _Source, source_id: NodeId, floor: int) -> None:
        if floor <= source.floor:
            return
        source.floor = floor
        for stream in [s for s in source.streams.values() if s.id < floor]:
            del source.streams[stream.id]
            self._forget(stream, "its source gave the stream up")

    def _stream_of(self, source: _Source, segment: Segment) -> StreamIn | None:
        """The stream that a segment is of; one that cannot be is answered, or dropped."""
        context, route = self._context, segment.route
        stream_id = route.sequence >> 32
        if not max(source.floor, 1) <= stream_id < source.floor + SPAN:
            return None
        stream = source.streams.get(stream_id)
        if stream is not None:
            return stream
        if not segment.flags & SegmentFlag.OPEN or stream_id <= source.shrunk_to:
            self._reset(segment, ResetReason.UNKNOWN)
            return None
        if context.state is NodeState.LEAVING and not is_inbox(segment.topic):
            # Its programs may not live to read it, and the source can still be told.
            self._reset(segment, ResetReason.LEAVING)
            return None
        former_id = segment.replaces if source.floor <= segment.replaces < stream_id else 0
        former = source.streams.get(former_id)
        if self._stream_count + bool(former_id and former is None) >= STREAMS_MAX:
            self._answer(segment, full=True)
            return None
        if former_id:
            # Known or not: a late copy of its first segment must not open it any more.
            former = former or self._new_stream(source, segment, former_id)
            self._close(former, "its source began another stream")
        # What was taken of a stream that it took the place of may still wait for a reader.
        line = source.line_of(stream_id, segment.replaces)
        return self._new_stream(source, segment, stream_id, line)

    def _new_stream(
        self, source: _Source, segment: Segment, stream_id: int, line: int = 0
    ) -> StreamIn:
        route = segment.route
        stream = StreamIn(
            route.source,
            route.source_incarnation,
            stream_id,
            segment.topic,
            route.priority,
            line=line,
        )
        source.streams[stream_id] = stream
        source.highest = max(source.highest, stream_id)
        self._stream_count += 1
        return stream

    def _on_stream_segment(self, stream: StreamIn, segment: Segment) -> None:
        number = segment.route.sequence & 0xFFFF_FFFF
        if number != stream.next or len(segment.body) < FLOW_BYTES:
            stream.flowing = 0
        else:
            stream.flowing += cost_of(segment.body)
        stream.heard_ns = self._context.now_ns
        if not stream.closed and number == stream.next and not stream.awaited:
            self._take(stream, segment)
        elif not stream.closed and number > stream.next and number not in stream.kept:
            self._keep(stream, segment, number)
        if stream.closed and number >= stream.next:
            if stream.reason is not None:
                self._tell_reset(stream, stream.reason)
        elif number <= stream.next or not stream.full:
            # Behind a refused one nothing is news, and an answer without *full* would ask for more.
            self.acknowledging.on_segment(stream, segment)

    # --- taking in order ----------------------------------------------------------------------

    def _take(self, stream: StreamIn, segment: Segment) -> None:
        """The next segment is here: offer it, and what was kept behind it."""
        if self._context.state is NodeState.LEAVING and not is_inbox(stream.topic):
            self._end(stream, ResetReason.LEAVING)
            return
        if self._offer(stream, segment) and stream.next in stream.kept:
            self._advance(stream)

    def _advance(self, stream: StreamIn, most: int = ADVANCE_MAX) -> None:
        """Offer what was kept, as far as it goes; at most so much of it now, the rest in turns."""
        for _ in range(most):
            segment = stream.kept.get(stream.next)
            if segment is None or stream.awaited or stream.closed:
                return
            if not self._offer(stream, segment):
                return
        if stream.next in stream.kept:
            self._advancing[stream.key] = stream
            if "advance" not in self._work:
                self._work.begin("advance", self._advances)

    def _advances(self) -> Iterator[None]:
        while self._advancing:
            stream = self._advancing.pop(next(iter(self._advancing)))
            self._advance(stream, 1)
            if not stream.closed:
                self.acknowledging.acknowledge(stream)
            yield

    def _offer(self, stream: StreamIn, segment: Segment) -> bool:
        """Offer the next segment; whether the one behind it is the next now."""
        if stream.next in stream.kept:
            # Whatever becomes of it: what was refused must not be taken later.
            self._drop_kept(stream, stream.next)
        stream.full = stream.refused = False
        if stream.long and (not segment.size or segment.flags & SegmentFlag.FIRST):
            self._topics.abort(stream.source, stream.id, "its source aborted it")
            stream.long = False
        if segment.size and not segment.flags & SegmentFlag.LAST and self._is_dead(stream.source):
            # It would hold others up, and nobody would end it.
            self._end(stream, ResetReason.UNKNOWN)
            return False
        if segment.body:
            offer = self._topics.offer(stream.topic, self._taken(stream, segment))
            if offer is Offer.FULL:
                stream.full = stream.refused = True
                return False
            if offer is Offer.NO_READER:
                self._end(stream, ResetReason.NO_READER)
                return False
            stream.long = bool(segment.size)
            if offer is Offer.AWAITED:
                stream.awaited = True
                stream.taken += cost_of(segment.body)
                stream.credit = max(stream.credit, stream.taken)
                return False
        self._pass(stream, segment)
        if segment.flags & SegmentFlag.CLOSE:
            self._close(stream, "its source closed the stream")
        return True

    def _is_dead(self, source: NodeId) -> bool:
        return self._context.membership.is_gone(source)

    def _taken(self, stream: StreamIn, segment: Segment) -> Taken:
        return Taken(
            stream.source,
            stream.incarnation,
            stream.id,
            segment.count,
            segment.body,
            segment.size,
            bool(segment.flags & SegmentFlag.FIRST),
            bool(segment.flags & SegmentFlag.LAST),
            inbox=segment.inbox,
            question=segment.question,
            line=stream.line,
        )

    def _pass(self, stream: StreamIn, segment: Segment) -> None:
        stream.next += 1
        stream.taken += cost_of(segment.body)
        stream.credit = max(stream.credit, stream.taken)

    def on_long_settled(self, source: NodeId, stream_id: int, taken: bool) -> None:
        """A reader has taken the whole of a long message, or went away before."""
        known = self._sources.get(source)
        stream = known.streams.get(stream_id) if known else None
        if stream is None or stream.closed or not stream.long:
            return
        if not taken:
            self._end(stream, ResetReason.READER_LOST)
            return
        stream.long = stream.awaited = False
        stream.next += 1
        stream.credit = max(stream.credit, stream.taken)
        self._advance(stream)
        self.acknowledging.acknowledge(stream, at_once=True)

    # --- what came too early ------------------------------------------------------------------

    def _keep(self, stream: StreamIn, segment: Segment, number: int) -> None:
        cost = cost_of(segment.body)
        if len(stream.kept) >= KEPT_MAX or stream.taken + stream.kept_cost + cost > stream.credit:
            farthest = max(stream.kept, default=0)
            if farthest <= number:
                return
            self._drop_kept(stream, farthest)
        if self._kept_bytes + cost > GRANTED_MAX:
            return
        if segment.route.search is not None:
            # It is in no count, and nothing asks for it any more.
            segment = replace(segment, route=replace(segment.route, search=None))
        stream.kept[number] = segment
        stream.kept_cost += cost
        self._kept_bytes += cost

    def _drop_kept(self, stream: StreamIn, number: int) -> None:
        cost = cost_of(stream.kept.pop(number).body)
        stream.kept_cost -= cost
        self._kept_bytes -= cost

    # --- ending -------------------------------------------------------------------------------

    def _end(self, stream: StreamIn, reason: ResetReason) -> None:
        """Take nothing more of a stream, and say so."""
        self._close(stream, "the stream was reset")
        stream.reason = reason
        self._tell_reset(stream, reason)

    def _tell_reset(self, stream: StreamIn, reason: ResetReason) -> None:
        route = self._forwarding.route_to(
            stream.source,
            tag=incarnation_tag(stream.incarnation),
            sequence=stream.id << 32 | stream.next,
        )
        self._forwarding.originate(StreamReset(route, self._context.own_tag, reason))

    def _close(self, stream: StreamIn, why: str) -> None:
        """What was taken in order stays; a long message that is not whole goes."""
        stream.closed = True
        self._let_go(stream)
        self._topics.abort(stream.source, stream.id, why)

    def _forget(self, stream: StreamIn, why: str) -> None:
        self._close(stream, why)
        self._stream_count -= 1

    def _let_go(self, stream: StreamIn) -> None:
        self._kept_bytes -= stream.kept_cost
        stream.kept.clear()
        stream.kept_cost = 0
        self.acknowledging.forget(stream)
        if self._advancing.get(stream.key) is stream:
            del self._advancing[stream.key]
        self.granting.forget(stream)

    # --- answers ------------------------------------------------------------------------------

    def on_room(self, topic: str) -> None:
        """A topic has room again: those who wait for it hear how much."""
        for stream in self.granting.on_room(topic):
            self.acknowledging.owe(stream, self._context.now_ns)

    def _answer(self, segment: Segment, *, full: bool) -> None:
        """Acknowledge nothing of a stream that there is no room for."""
        route = segment.route
        back = self._forwarding.route_to(
            route.source,
            tag=incarnation_tag(route.source_incarnation),
            sequence=route.sequence >> 32 << 32 | 1,
        )
        self._forwarding.originate(SegmentAck(back, self._context.own_tag, 0, full))

    def _reset(self, segment: Segment, reason: ResetReason) -> None:
        route = segment.route
        back = self._forwarding.route_to(
            route.source,
            tag=incarnation_tag(route.source_incarnation),
            sequence=route.sequence,
        )
        self._forwarding.originate(StreamReset(back, self._context.own_tag, reason))

    # --- those who go -------------------------------------------------------------------------

    def on_gone(self, source_id: NodeId) -> None:
        """A source is held dead: its streams are remembered, for that may be refuted.

        A long message that is not whole is not waited for: it would hold others of its reader up. A
        source that goes on with it is told that its stream is not known.
        """
        source = self._sources.get(source_id)
        if source is None:
            return
        self._context.timers.set((GONE_TIMER, source_id, 0), self._context.now_ns + GONE_NS)
        for number in self._topics.longs.streams_of(source_id):
            stream = source.streams.get(number)
            if stream is not None and not stream.awaited:
                stream.reason = ResetReason.UNKNOWN
                self._close(stream, "its source died")

    def on_gone_timer(self, key: TimerKey) -> None:
        """A source is gone for so long that only the highest id that it used is remembered."""
        source_id = NodeId(key[1])
        source = self._sources.get(source_id)
        if source is None or not self._context.membership.is_gone(source_id):
            return
        source.shrunk_to = source.highest
        for stream in list(source.streams.values()):
            self._forget(stream, "its source is gone")
        source.streams.clear()

    def on_own_new_life(self) -> None:
        """This node began a new life: streams to the former one are over."""
        self._topics.questions.forget_all()
        for source in self._sources.values():
            for stream in source.streams.values():
                self._forget(stream, "this node began a new life")
        self._sources.clear()
