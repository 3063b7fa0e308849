"""When segments are acknowledged, and what an acknowledgement says.

Theory of operation. An acknowledgement goes out at once, unless segments come close together: then one
for all that comes within `ACK_PAUSE_NS` of the last one. A source that waits for each acknowledgement
before it sends again is never made to wait: what it sends next comes alone, and not before
`ROUND_TRIP_NS` are over. What comes sooner is gathered, and where several were gathered what follows is
gathered too, until they do not come together any more. Of a stream that flows, long segments in
order, every `FLOW_COST` is acknowledged; or after `FLOW_PAUSE_NS`, and then it is seen anew whether it
flows. That of a short question goes with the first answer to its source, if there is one within
`ANSWER_PAUSE_NS`: one wake-up less for everybody on the way. Streams that are *owed* one share a timer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.streams.granting import Granting, Key
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.bounds import GAPS_MAX
from bmgd.wire.segments import COST_MAX
from bmgd.wire.stream_messages import Segment, SegmentAck

ACK_TIMER: Final = "acknowledge"
ACK_PAUSE_NS: Final = 500_000
ROUND_TRIP_NS: Final = 100_000
"""No acknowledgement is there, and the next segment here, so soon."""
FLOW_BEGIN: Final = 1024 * 1024
"""Of cost: after so much a stream flows, and its source's window is wider than `FLOW_COST`."""
FLOW_COST: Final = 4 * COST_MAX
FLOW_PAUSE_NS: Final = 5_000_000
ANSWER_PAUSE_NS: Final = 20_000_000
SHORT_BYTES: Final = 4096
"""A question of more bytes is acknowledged like any other segment."""
ACKS_PER_STEP: Final = 64


class Acknowledging:
    """The acknowledgements of all streams into this node."""

    def __init__(self, context: Context, forwarding: Forwarding, granting: Granting) -> None:
        self._context = context
        self._forwarding = forwarding
        self._granting = granting
        self._owed: dict[Key, StreamIn] = {}
        self._with_answers: dict[NodeId, dict[int, StreamIn]] = {}
        """Of the streams owed one, those whose goes with an answer to their source."""

    @property
    def owed(self) -> Mapping[Key, StreamIn]:
        """The streams that are owed an acknowledgement."""
        return self._owed

    def on_segment(self, stream: StreamIn, segment: Segment) -> None:
        """A segment of a stream is dealt with: acknowledge it now, or soon."""
        if self._goes_with_answer(stream, segment):
            self._with_answers.setdefault(stream.source, {})[stream.id] = stream
            self.owe(stream, self._context.now_ns + ANSWER_PAUSE_NS)
        else:
            self.acknowledge(stream)

    def acknowledge(self, stream: StreamIn, *, at_once: bool = False) -> None:
        """Say how far a stream is, now or when its pause is over."""
        since_ns, is_owed = self._context.now_ns - stream.acked_ns, stream.key in self._owed
        if _flows(stream):
            pause_ns, is_due = FLOW_PAUSE_NS, stream.taken - stream.acked >= FLOW_COST
        else:
            stream.gathered &= is_owed or since_ns < ACK_PAUSE_NS
            comes_alone = not is_owed and not stream.gathered and since_ns >= ROUND_TRIP_NS
            pause_ns, is_due = ACK_PAUSE_NS, comes_alone or not stream.acked_ns
        if is_due or at_once or since_ns >= pause_ns:
            self._tell(stream)
        else:
            stream.gathered = is_owed
            self.owe(stream, stream.acked_ns + pause_ns)

    def owe(self, stream: StreamIn, at_ns: int) -> None:
        """Acknowledge a stream at this time, or earlier with another one."""
        self._owed[stream.key] = stream
        self._plan(at_ns)

    def on_answer_put(self, asker: NodeId) -> None:
        """An answer goes to a node: what waits to be acknowledged to it goes with that."""
        for stream in list(self._with_answers.get(asker, {}).values()):
            self._tell(stream)

    def on_ack_timer(self, key: TimerKey) -> None:
        """Acknowledge what came meanwhile, one for each stream."""
        for owed in list(self._owed)[:ACKS_PER_STEP]:
            stream = self._owed.get(owed)
            if stream is not None:
                # Its source may wait for this.
                stream.flowing = 0
                self._tell(stream)
        if self._owed:
            self._plan(self._context.now_ns + ACK_PAUSE_NS)

    def forget(self, stream: StreamIn) -> None:
        """It is over: nothing more is acknowledged of it."""
        if self._owed.get(stream.key) is stream:
            self._settle(stream)

    def _goes_with_answer(self, stream: StreamIn, segment: Segment) -> bool:
        """Whether the acknowledgement of a segment waits a moment for the answer to what it asks."""
        return (
            segment.inbox > 0
            and not segment.size
            and len(segment.body) <= SHORT_BYTES
            and stream.acked_ns > 0
            and not (stream.full or stream.kept)
            and stream.credit - stream.taken >= COST_MAX
        )

    def _settle(self, stream: StreamIn) -> None:
        """A stream is owed nothing any more."""
        self._owed.pop(stream.key, None)
        if not self._owed:
            self._context.timers.cancel((ACK_TIMER, 0, 0))
        waiting = self._with_answers.get(stream.source)
        if waiting is not None:
            waiting.pop(stream.id, None)
            if not waiting:
                del self._with_answers[stream.source]

    def _plan(self, at_ns: int) -> None:
        timers, key = self._context.timers, (ACK_TIMER, 0, 0)
        planned_ns = timers.due_ns(key)
        if planned_ns is None or planned_ns > at_ns:
            timers.set(key, max(at_ns, self._context.now_ns))

    def _tell(self, stream: StreamIn) -> None:
        self._settle(stream)
        is_refusal, stream.refused = stream.refused, False
        stream.acked_ns, stream.acked = self._context.now_ns, stream.taken
        if not stream.closed:
            self._granting.grant(stream)
        route = self._forwarding.route_to(
            stream.source,
            tag=incarnation_tag(stream.incarnation),
            sequence=stream.id << 32 | stream.next,
        )
        ack = SegmentAck(route, self._context.own_tag, stream.credit, is_refusal, _gaps_of(stream))
        self._forwarding.originate(ack)


def _flows(stream: StreamIn) -> bool:
    """Whether so much comes that one acknowledgement for several segments holds nobody up."""
    return (
        stream.flowing > FLOW_BEGIN
        and not (stream.full or stream.kept or stream.awaited)
        and stream.credit - stream.taken > 2 * FLOW_COST
    )


def _gaps_of(stream: StreamIn) -> tuple[tuple[int, int], ...]:
    """(first, last) of the runs beyond the next segment that are here."""
    gaps: list[tuple[int, int]] = []
    here = [stream.next] if stream.awaited else []
    for number in (*here, *sorted(stream.kept)):
        if gaps and gaps[-1][1] == number - 1:
            gaps[-1] = gaps[-1][0], number
        elif len(gaps) == GAPS_MAX:
            break
        else:
            gaps.append((number, number))
    return tuple(gaps)
