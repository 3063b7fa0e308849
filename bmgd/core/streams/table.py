"""All streams out of this node, their ids, and the room that programs have.

Theory of operation. A stream has an id on the wire only from its first segment on, a count of this life
and destination that is never used again. Every segment names the lowest id that is open (`floor`), so a
destination may forget what is below. The span between the lowest and the next is at most `SPAN`. Before
it fills the oldest idle stream gives its id up, and goes on under a new one, which names the old.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.membership.membership import Standing
from bmgd.core.streams.gathering import Gathering
from bmgd.core.streams.stream_out import NEVER_NS, StreamOut
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.bounds import STREAM_ID_MAX
from bmgd.wire.segments import COST_MAX
from bmgd.wire.stream_messages import SegmentAck, StreamReset

STREAM_TIMER = "stream"
PUT_BYTES_MAX = 64 * 1024 * 1024
"""Of all programs' segments that are not confirmed, beyond one for each stream."""
SPAN = 4096
"""Ids between the lowest open one and the next."""


@dataclass(slots=True)
class Peer:
    """What this life has used towards one destination; it outlives the destination's death.

    Args:
        next_id: of the stream that begins next.
        open: the streams that have an id, by it, the lowest first.
        waiting: those that wait for one, by key.
    """

    next_id: int = 1
    open: dict[int, StreamOut] = field(default_factory=dict)
    waiting: dict[int, StreamOut] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        """The lowest id that is open."""
        return next(iter(self.open), self.next_id)


class StreamTable:
    """All streams out of one node.

    Attributes:
        streams: by key.
        owned: those of programs, by the request that opened them.
        abandoned: those whose programs wait for nothing, while something of them is not confirmed.
        shared: those of messages sent singly, by destination and topic; the one used last is at the end.
        peers: by destination.
        extra_bytes: what programs may put beyond one segment for each stream.
        sent_count: how many messages sent singly are not answered; a multicast counts for each node.
        gatherings: multicasts that are not answered, by request.
    """

    def __init__(self, context: Context, forwarding: Forwarding) -> None:
        self._context = context
        self._forwarding = forwarding
        self.streams: dict[int, StreamOut] = {}
        self.owned: dict[int, StreamOut] = {}
        self.abandoned: dict[int, StreamOut] = {}
        self.shared: dict[tuple[NodeId, str], StreamOut] = {}
        self.peers: dict[NodeId, Peer] = {}
        self.extra_bytes = 0
        self.sent_count = 0
        self.gatherings: dict[int, Gathering] = {}
        self._last_key = 0

    def inherit(self, former: StreamTable) -> None:
        """Count on: answers that wait for a program name questions of the node that this was before."""
        self._last_key = former._last_key

    def new_stream(
        self, owner: int, destination: NodeId, topic: str, priority: int, best_effort: bool
    ) -> StreamOut:
        """A stream without a segment; `owner` is the request that opened it, or 0."""
        self._last_key += 1
        stream = StreamOut(self._last_key, owner, destination, topic, priority, best_effort)
        self.streams[stream.key] = stream
        return stream

    def known_tag(self, destination: NodeId) -> int:
        """The tag of the life of a node that is known; 0 for none."""
        return incarnation_tag(self._context.membership.incarnation(destination))

    def take_id(self, stream: StreamOut) -> bool:
        """Give a stream its id; False while too many older ones are open."""
        peer = self.peers.setdefault(stream.destination, Peer())
        while peer.next_id - peer.floor >= SPAN - 1:
            oldest = peer.open[peer.floor]
            if oldest.underway or oldest.is_within_long:
                peer.waiting[stream.key] = stream
                return False
            del peer.open[oldest.id]
            # What waits in it for a way tries again when it would have.
            resend_ns = oldest.resend_ns
            oldest.drop_id()
            oldest.resend_ns = resend_ns
        if peer.next_id > STREAM_ID_MAX:
            return False
        stream.id = peer.next_id
        peer.open[stream.id] = stream
        peer.next_id += 1
        stream.way = self._forwarding.way_to(stream.destination)
        return True

    def find(self, answer: SegmentAck | StreamReset) -> StreamOut | None:
        """The stream that an answer to this life is about, unless a former life gave it."""
        context, route = self._context, answer.route
        if route.destination_tag != context.own_tag:
            return None
        peer = self.peers.get(route.source)
        stream = peer.open.get(route.sequence >> 32) if peer else None
        if stream is None:
            return None
        standing = context.standing(route.source, route.source_incarnation)
        return stream if standing is Standing.CURRENT else None

    def grant(self, stream: StreamOut) -> None:
        """One segment always; beyond that twice the window, while there is room for all."""
        if not stream.owner:
            return
        base = stream.done_cost + COST_MAX
        free = max(0, PUT_BYTES_MAX - self.extra_bytes + stream.extra)
        stream.granted = max(stream.granted, base + min(2 * stream.window, free))
        extra = max(0, stream.granted - base)
        self.extra_bytes += extra - stream.extra
        stream.extra = extra

    def set_timer(self, stream: StreamOut) -> None:
        """One deadline: for what waits for an answer, and for what may not wait longer."""
        if self.streams.get(stream.key) is not stream:
            return
        waits = stream.underway or (stream.queue and stream.resend_ns != NEVER_NS)
        at_ns = stream.resend_ns if waits else NEVER_NS
        if stream.is_idle:
            stream.earliest_ns = NEVER_NS
        at_ns = min(at_ns, stream.earliest_ns)
        timers, now_ns = self._context.timers, self._context.now_ns
        key = (STREAM_TIMER, stream.key, 0)
        planned_ns = timers.due_ns(key)
        if at_ns >= NEVER_NS:
            timers.cancel(key)
        elif planned_ns is None or max(at_ns, planned_ns) > now_ns:
            # A deadline in the past would say that this node was late, and has heard nobody. One
            # that is due already keeps its turn among all that are.
            timers.set(key, max(at_ns, now_ns))
