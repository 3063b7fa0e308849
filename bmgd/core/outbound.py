"""Streams out of this node: from a program to one topic at one life of another node, once, in order.

Theory of operation. `stream_out.py` has the state of one stream; here are all of them, what programs
and other nodes do to them, and the order in which they are served. A stream has an id on the wire only
from its first segment on, a count of this life and destination that is never used again. Every segment
names the lowest id that is open (`floor`), so a destination may forget what is below; the span between
the lowest and the next is at most `SPAN`, and before it fills the oldest idle stream gives its id up and
goes on under a new one, which names the old. A segment ends in exactly one of these:

    queue --the window, credit and an id allow--> underway --acknowledged--> confirmed
      |--its time is over--> withdrawn                |--its time is over--> in doubt, and stays underway
      |                                               |--refused each time (FULL), and over--> withdrawn
      +--death, new life, reset--> not sent           +--death, new life, reset--> sent, not confirmed

When everything underway is in doubt the stream goes on under a new id. Silence sends the lowest
segment again, and holds the rest to be lost: it follows within the halved window. One deadline per
stream serves all of that. A step sends at most `BURST` segments of a stream; what is left follows as
`Work`, in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bmgd.core.commands import CloseStream, OpenStream, PutSegment, SendTo, Withdraw
from bmgd.core.context import Context
from bmgd.core.effects import Reply, StreamEnded, StreamMoved
from bmgd.core.forwarding import Forwarding
from bmgd.core.show import gone_text
from bmgd.core.stream_out import NEVER_NS, NUMBER_MAX, RESEND_MAX_NS, Sending, StreamOut
from bmgd.core.timers import TimerKey
from bmgd.core.topics import Offer, Taken, Topics
from bmgd.core.work import Work
from bmgd.errors import (
    BmgdError,
    DeadError,
    DeliveryError,
    NewLifeError,
    NoQuorumError,
    NoReaderError,
    QueueFullError,
    ReaderLostError,
    RequestError,
    UnreachableError,
)
from bmgd.types import NodeId, NodeState, incarnation_tag
from bmgd.wire.messages import (
    LONG_BYTES_MAX,
    MESSAGES_PER_SEGMENT_MAX,
    PAYLOAD_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    STREAM_ID_MAX,
    TOPIC_BYTES_MAX,
    ResetReason,
    Segment,
    SegmentAck,
    SegmentFlag,
    StreamReset,
    Unreachable,
)
from bmgd.wire.segments import COST_MAX, packed

STREAM_TIMER = "stream"
STREAMS_MAX = 1024
"""Open streams of all programs; each may put one segment whatever the others do."""
SHARED_MAX = 256
"""Streams that messages sent singly share, beyond those of programs."""
PUT_BYTES_MAX = 64 * 1024 * 1024
"""Of all programs' segments that are not confirmed, beyond one for each stream."""
SENT_MAX = 8192
"""Messages sent singly that are not answered."""
SPAN = 4096
"""Ids between the lowest open one and the next."""
BURST = 32
"""Segments that one event sends of its stream; the rest goes in turns, one segment each."""
RETRY_MIN_NS = 10_000_000
REROUTE_NS = 20_000_000
"""Within so long a stream whose next hop changed sends its lowest segment again."""
ABANDONED_NS = 60_000_000_000
"""What a program that went away has put is sent for so long."""


@dataclass(slots=True)
class _Peer:
    """What this life has used towards one destination; it outlives the destination's death."""

    next_id: int = 1
    open: dict[int, StreamOut] = field(default_factory=dict)
    waiting: dict[int, StreamOut] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        return next(iter(self.open), self.next_id)


class Outbound:
    """All streams out of one node."""

    def __init__(
        self, context: Context, forwarding: Forwarding, topics: Topics, work: Work
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._topics = topics
        self._work = work
        self._streams: dict[int, StreamOut] = {}
        self._owned: dict[int, StreamOut] = {}
        self._shared: dict[tuple[NodeId, str], StreamOut] = {}
        self._peers: dict[NodeId, _Peer] = {}
        self._ready: dict[int, StreamOut] = {}
        self._last_key = 0
        self._extra_bytes = 0
        self._sent_count = 0
        self._generation = -1

    @property
    def underway(self) -> int:
        """How many segments wait for their confirmation."""
        return sum(len(s.underway) + len(s.queue) for s in self._streams.values())

    # --- what programs ask --------------------------------------------------------------------

    def open(self, request: int, command: OpenStream) -> None:
        """Open a stream; `Reply` with its first credit follows, or an error."""
        error = self._refusal(command.destination, command.topic)
        if error is None and len(self._owned) >= STREAMS_MAX:
            error = RequestError(f"more than {STREAMS_MAX} streams of all programs at a time")
        if error is not None:
            self._context.emit(Reply(request, error=error))
            return
        stream = self._new_stream(
            request, command.destination, command.topic, command.priority, command.best_effort
        )
        self._owned[request] = stream
        self._grant(stream)
        self._context.emit(Reply(request, {"credit": stream.granted}))

    def _new_stream(
        self, owner: int, destination: NodeId, topic: str, priority: int, best_effort: bool
    ) -> StreamOut:
        self._last_key += 1
        stream = StreamOut(self._last_key, owner, destination, topic, priority, best_effort)
        stream.used_ns = self._context.now_ns
        self._streams[stream.key] = stream
        return stream

    def _refusal(self, destination: NodeId, topic: str) -> BmgdError | None:
        membership = self._context.membership
        if not 0 < len(topic.encode()) <= TOPIC_BYTES_MAX:
            return RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes")
        if self._context.state is NodeState.LEAVING:
            return RequestError("this node is leaving")
        if self._context.stands_aside:
            return NoQuorumError(destination, "this node is in a minority, and stands aside")
        if membership.status_of(destination) is None:
            return RequestError(f"no node has the id {destination}")
        if destination != self._context.id and membership.is_gone(destination):
            return DeadError(destination, gone_text(membership, destination))
        return None

    def put(self, request: int, command: PutSegment) -> None:
        """Take a segment of a program's stream; nothing happens when the stream has ended."""
        stream = self._owned.get(request)
        if stream is None or stream.closing:
            return
        now_ns = self._context.now_ns
        sending = Sending(
            stream.next_number,
            command.count,
            command.body,
            command.size,
            command.first,
            command.last,
            now_ns + command.timeout_ns if command.timeout_ns else NEVER_NS,
        )
        wrong = self._wrong(stream, sending)
        if wrong:
            self._end(stream, RequestError(wrong))
            return
        refusal = self._refusal(stream.destination, stream.topic)
        if refusal is None and not self._is_for_this_life(stream):
            detail = "it began a new life, and the stream was for the former one"
            refusal = NewLifeError(stream.destination, detail)
        if refusal is not None:
            self._end(stream, refusal)
            return
        stream.next_number += 1
        if not stream.cutting or sending.first or not sending.size:
            stream.unfinished = bool(sending.size) and not sending.last
        self._add(stream, sending)

    def _known_tag(self, destination: NodeId) -> int:
        return incarnation_tag(self._context.membership.incarnation(destination))

    def _is_for_this_life(self, stream: StreamOut) -> bool:
        """Whether a stream leads to the life that is known; one that nothing was put into now does."""
        known = self._known_tag(stream.destination)
        if not stream.tag or (stream.next_number == 1 and stream.is_idle):
            stream.tag = known if not stream.underway else stream.tag
        return stream.best_effort or not known or stream.tag in (0, known)

    def _wrong(self, stream: StreamOut, sending: Sending) -> str:
        if not 0 < len(sending.body) <= SEGMENT_BYTES_MAX:
            return f"a segment has 1 to {SEGMENT_BYTES_MAX} bytes"
        if not 0 <= sending.count <= min(MESSAGES_PER_SEGMENT_MAX, len(sending.body)):
            return "a segment that does not hold so many messages"
        if bool(sending.count) == bool(sending.size) or sending.size > LONG_BYTES_MAX:
            return "a segment has whole messages, or one piece of a long one"
        follows = stream.unfinished or stream.cutting
        if sending.size and (stream.unfinished if sending.first else not follows):
            return "a piece out of turn"
        if sending.size and stream.best_effort:
            return "a long message is not sent by best effort"
        if stream.put_cost + sending.cost > stream.granted and not stream.is_idle:
            return "more was put than the stream's credit allows"
        return ""

    def _add(self, stream: StreamOut, sending: Sending) -> None:
        if stream.cutting and sending.size and not sending.first:
            # Of a long message that was withdrawn.
            stream.put_cost += sending.cost
            self._done(stream, sending.cost)
            self._told(stream)
            return
        stream.cutting = False
        sending.tag = self._known_tag(stream.destination)
        stream.put_cost += sending.cost
        stream.queue.append(sending)
        stream.used_ns = self._context.now_ns
        self._pump(stream)
        if sending.deadline_ns < stream.earliest_ns:
            stream.earliest_ns = sending.deadline_ns
            self._set_timer(stream)

    def send(self, request: int, command: SendTo) -> None:
        """Take a message from a program; one `Reply` follows, at the latest at the deadline."""
        context = self._context
        error = self._refusal(command.destination, command.topic)
        if len(command.payload) > PAYLOAD_BYTES_MAX:
            error = RequestError(f"a payload holds at most {PAYLOAD_BYTES_MAX} bytes")
        elif error is None and self._sent_count >= SENT_MAX:
            error = RequestError("too many messages underway")
        stream = None if error else self._shared_stream(command.destination, command.topic)
        if stream is None:
            error = error or RequestError("messages to too many topics are underway")
            context.emit(Reply(request, error=error))
            return
        deadline_ns = context.now_ns + command.timeout_ns
        sending = Sending(
            stream.next_number,
            1,
            packed(command.payload),
            0,
            False,
            False,
            deadline_ns,
            request,
        )
        stream.next_number += 1
        self._sent_count += 1
        self._add(stream, sending)

    def _shared_stream(self, destination: NodeId, topic: str) -> StreamOut | None:
        stream = self._shared.pop((destination, topic), None)
        if stream is None:
            if len(self._shared) >= SHARED_MAX:
                idle = next((k for k, s in self._shared.items() if s.is_idle), None)
                if idle is None:
                    return None
                self._remove(self._shared[idle])
            stream = self._new_stream(0, destination, topic, 2, False)
        elif not self._is_for_this_life(stream):
            if stream.is_idle:
                self._give_id_up(stream)
                stream.replaces, stream.tag = 0, self._known_tag(destination)
            else:
                # What is underway to the former life fails when that is certain; the rest goes on.
                stream = self._new_stream(0, destination, topic, 2, False)
        # The one used last is at the end.
        self._shared[destination, topic] = stream
        return stream

    def withdraw(self, request: int, command: Withdraw) -> None:
        """The program does not want to wait for a segment any more."""
        stream = self._owned.get(request)
        if stream is None:
            return
        if not command.number:
            if stream.unfinished:
                self._cut_long(stream)
            return
        for sending in (*stream.queue, *stream.underway.values()):
            if sending.number == command.number and not sending.doubted:
                sending.deadline_ns = self._context.now_ns
                self._expire(stream, "withdrawn")
                return

    def close(self, request: int, command: CloseStream) -> None:
        """No further segment comes; `StreamEnded` follows when what was put is confirmed."""
        stream = self._owned.get(request)
        if stream is None or stream.closing:
            return
        if stream.unfinished:
            self._cut_long(stream)
        stream.closing = True
        if command.abandon and stream.owner:
            stream.abandoned = True
            del self._owned[request]
            stream.owner = 0
            self._limit(stream)
        self._finish_if_idle(stream)

    def _limit(self, stream: StreamOut) -> None:
        """Nobody waits for a stream any more: what it has yet to send has a bound."""
        until_ns = self._context.now_ns + ABANDONED_NS
        for sending in (*stream.queue, *stream.underway.values()):
            sending.deadline_ns = min(sending.deadline_ns, until_ns)
        stream.earliest_ns = min(stream.earliest_ns, until_ns)
        self._set_timer(stream)

    def _cut_long(self, stream: StreamOut) -> None:
        """Send nothing more of the long message put last; its reader is told by what follows."""
        stream.unfinished, stream.cutting = False, True
        while stream.queue and stream.queue[-1].size:
            sending = stream.queue.pop()
            self._done(stream, sending.cost)
            if sending.first:
                return
        self._add_mark(stream, closes=False)

    def _add_mark(self, stream: StreamOut, *, closes: bool) -> None:
        """An empty segment, which ends a long message that is not whole, or the stream."""
        until_ns = self._context.now_ns + ABANDONED_NS if closes else NEVER_NS
        mark = Sending(stream.next_number, 0, b"", 0, False, False, until_ns, closes=closes)
        stream.earliest_ns = min(stream.earliest_ns, until_ns)
        stream.put_cost += mark.cost
        stream.queue.append(mark)
        self._pump(stream)

    # --- sending ------------------------------------------------------------------------------

    def _pump(self, stream: StreamOut, most: int = BURST) -> None:
        """Send what may be sent, at most so many segments now and the rest in turns."""
        if self._streams.get(stream.key) is not stream:
            return
        if stream.destination == self._context.id:
            more = self._hand_over(stream, most)
        elif stream.best_effort:
            more = self._scatter(stream, most)
        else:
            more = self._send_some(stream, most)
        if more:
            self._ready[stream.key] = stream
            if "streams" not in self._work:
                self._work.begin("streams", self._turns)
        self._set_timer(stream)

    def _turns(self) -> Iterator[None]:
        """Streams that have more to send than a step does of one, in turns."""
        while self._ready:
            key = next(iter(self._ready))
            stream = self._ready.pop(key)
            if self._streams.get(key) is stream:
                self._pump(stream, 1)
            yield

    def _send_some(self, stream: StreamOut, left: int) -> bool:
        if stream.losses and not stream.blocked:
            for sending in list(stream.underway.values()):
                if not sending.lost:
                    continue
                if not left:
                    return True
                if not stream.may_resend(sending.cost) or not self._transmit(stream, sending):
                    return False
                left -= 1
        while stream.queue and stream.may_send(stream.queue[0].cost):
            if not left:
                return True
            sending = stream.queue[0]
            if not self._transmit(stream, sending):
                return False
            stream.queue.popleft()
            left -= 1
        return False

    def _transmit(self, stream: StreamOut, sending: Sending) -> bool:
        """Send a segment; False where there is no way, or no id, for it now."""
        if stream.next_sequence >= NUMBER_MAX and not stream.underway:
            self._give_id_up(stream)
        if not stream.id and not self._take_id(stream):
            return False
        if not stream.tag and not stream.underway:
            stream.tag = sending.tag or self._known_tag(stream.destination)
        if sending.tag and stream.tag not in (0, sending.tag):
            detail = "it began a new life, and the stream is for another one"
            self._end(stream, NewLifeError(stream.destination, detail))
            return False
        context = self._context
        sequence = sending.sequence or stream.next_sequence
        if not self._forwarding.originate(self._segment(stream, sending, sequence)):
            stream.hints += 1
            pause_ns = min(RETRY_MIN_NS << min(stream.hints - 1, 8), RESEND_MAX_NS)
            stream.resend_ns = context.now_ns + context.jitter(pause_ns)
            return False
        if not stream.underway or stream.resend_ns == NEVER_NS:
            stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        if sending.transmissions:
            context.counts.add("segments_resent")
        stream.on_sent(sending, context.now_ns)
        return True

    def _segment(self, stream: StreamOut, sending: Sending, sequence: int) -> Segment:
        opens = sequence == 1 or stream.best_effort
        flags = SegmentFlag(0)
        if opens and not stream.best_effort:
            flags |= SegmentFlag.OPEN
        if stream.best_effort:
            flags |= SegmentFlag.BEST_EFFORT
        if sending.first:
            flags |= SegmentFlag.FIRST
        if sending.last:
            flags |= SegmentFlag.LAST
        if sending.closes:
            flags |= SegmentFlag.CLOSE
        peer = self._peers.get(stream.destination)
        return Segment(
            self._forwarding.route_to(
                stream.destination,
                tag=stream.tag,
                sequence=stream.id << 32 | sequence,
                priority=stream.priority,
            ),
            int(flags),
            stream.topic if opens else "",
            stream.replaces if opens and stream.id else 0,
            0 if peer is None or stream.best_effort else peer.floor,
            sending.count,
            sending.size,
            sending.body,
        )

    def _take_id(self, stream: StreamOut) -> bool:
        """Give a stream its id; False while too many older ones are open."""
        peer = self._peers.setdefault(stream.destination, _Peer())
        while peer.next_id - peer.floor >= SPAN - 1:
            oldest = peer.open[peer.floor]
            if oldest.underway or oldest.unfinished:
                peer.waiting[stream.key] = stream
                return False
            del peer.open[oldest.id]
            oldest.drop_id()
        if peer.next_id > STREAM_ID_MAX:
            return False
        stream.id = peer.next_id
        peer.open[stream.id] = stream
        peer.next_id += 1
        stream.way = self._forwarding.way_to(stream.destination)
        return True

    def _give_id_up(self, stream: StreamOut) -> None:
        """What is underway under this id is over; the next segment takes a new one."""
        peer = self._peers.get(stream.destination)
        if peer is not None and stream.id:
            peer.open.pop(stream.id, None)
        stream.underway.clear()
        stream.drop_id()
        self._serve_waiting(stream.destination)

    def _serve_waiting(self, destination: NodeId) -> None:
        peer = self._peers.get(destination)
        if peer is None or not peer.waiting:
            return
        waiting, peer.waiting = peer.waiting, {}
        for key, stream in waiting.items():
            if self._streams.get(key) is stream:
                self._ready[key] = stream
        self._work.begin("streams", self._turns)

    def _scatter(self, stream: StreamOut, left: int) -> bool:
        """Best effort: each segment once, and done with it."""
        while stream.queue:
            if not left:
                return True
            sending = stream.queue.popleft()
            stream.tag = self._known_tag(stream.destination)
            if not self._forwarding.originate(self._segment(stream, sending, 0)):
                self._context.observe("unreachable", stream.destination, detail="best effort")
            self._done(stream, sending.cost)
            left -= 1
        self._told(stream)
        return False

    # --- to this node itself ------------------------------------------------------------------

    def _hand_over(self, stream: StreamOut, left: int) -> bool:
        context = self._context
        while stream.queue and not stream.underway and not stream.blocked:
            if not left:
                return True
            left -= 1
            sending = stream.queue[0]
            offer = self._offer_here(stream, sending)
            if offer is Offer.FULL:
                if stream.best_effort:
                    self._topics.dropped += sending.count
                else:
                    stream.blocked = True
                    stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
                    return False
            stream.queue.popleft()
            if offer is Offer.NO_READER:
                stream.queue.appendleft(sending)
                detail = f"nobody reads {stream.topic!r} there, or takes long messages"
                self._end(stream, NoReaderError(context.id, detail))
                return False
            if offer is Offer.AWAITED:
                stream.on_sent(sending, context.now_ns)
                stream.resend_ns = NEVER_NS
                return False
            self._confirm(stream, sending)
        self._told(stream)
        return False

    def _offer_here(self, stream: StreamOut, sending: Sending) -> Offer:
        here = self._context.id
        if not sending.size:
            self._topics.abort(here, -stream.key, "its program withdrew it")
        if not sending.body:
            return Offer.TAKEN
        taken = Taken(
            here,
            self._context.incarnation,
            -stream.key,
            sending.count,
            sending.body,
            sending.size,
            sending.first,
            sending.last,
        )
        return self._topics.offer(stream.topic, taken)

    def on_room(self, topic: str) -> None:
        """A topic here has room again: streams of this node's own to it go on."""
        for stream in list(self._streams.values()):
            if stream.blocked and stream.topic == topic and stream.destination == self._context.id:
                stream.blocked = False
                self._ready[stream.key] = stream
        self._work.begin("streams", self._turns)

    def on_long_settled(self, key: int, taken: bool) -> None:
        """A reader here has taken a long message of this node's own, or went away."""
        stream = self._streams.get(key)
        if stream is None:
            return
        if not taken:
            detail = "the program that read it went away"
            self._end(stream, ReaderLostError(stream.destination, detail, sent=True))
            return
        for sending in stream.confirm(stream.next_sequence, self._context.now_ns):
            self._answer(stream, sending)
        self._told(stream)
        self._pump(stream)

    # --- silence ------------------------------------------------------------------------------

    def _set_timer(self, stream: StreamOut) -> None:
        """One deadline: for what waits for an answer, and for what may not wait longer."""
        if self._streams.get(stream.key) is not stream:
            return
        waits = stream.underway or (stream.queue and stream.resend_ns != NEVER_NS)
        at_ns = stream.resend_ns if waits else NEVER_NS
        if not stream.is_idle:
            at_ns = min(at_ns, stream.earliest_ns)
        key = (STREAM_TIMER, stream.key, 0)
        if at_ns >= NEVER_NS:
            self._context.timers.cancel(key)
        else:
            self._context.timers.set(key, at_ns)

    def on_timer(self, key: TimerKey) -> None:
        """Something took too long: an answer, or the time that a segment has."""
        stream = self._streams[key[1]]
        now_ns = self._context.now_ns
        if stream.earliest_ns <= now_ns:
            self._expire(stream, "")
        if self._streams.get(stream.key) is stream and stream.resend_ns <= now_ns:
            self._on_silence(stream)
        self._set_timer(stream)

    def _on_silence(self, stream: StreamOut) -> None:
        context = self._context
        stream.resend_ns = NEVER_NS
        if stream.destination == context.id or not stream.underway:
            stream.blocked = False
            self._pump(stream, 1)
            return
        if stream.blocked:
            stream.blocked = False
        else:
            context.counts.add("stream_silences")
            stream.narrow()
            stream.lose_all()
        stream.backoff += 1
        lowest = stream.lowest()
        if lowest is not None and self._transmit(stream, lowest):
            stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())

    def _expire(self, stream: StreamOut, why: str) -> None:
        """What has no time left is withdrawn, or in doubt."""
        now_ns = self._context.now_ns
        withdrawn = self._take_expired(stream)
        doubted = [s for s in stream.underway.values() if s.deadline_ns <= now_ns and not s.doubted]
        refused = next(iter(stream.underway.values()), None)
        if refused in doubted and refused is not None and not refused.may_be_taken:
            # The destination said each time that it did not take it: so it took nothing behind it.
            self._take_back(stream)
            withdrawn += self._take_expired(stream)
            doubted = []
        was_full = stream.blocked or bool(withdrawn and withdrawn[0].fulls)
        for sending in doubted:
            sending.doubted = True
        self._tell_expired(stream, withdrawn, doubted, was_full, why)
        if stream.underway and all(s.doubted for s in stream.underway.values()):
            self._done(stream, sum(s.cost for s in stream.underway.values()))
            self._give_id_up(stream)
        if withdrawn or doubted:
            self._told(stream)
        waiting = (*stream.queue, *stream.underway.values())
        stream.earliest_ns = min(
            (s.deadline_ns for s in waiting if not s.doubted), default=NEVER_NS
        )
        self._pump(stream, 1)
        self._finish_if_idle(stream)

    def _take_expired(self, stream: StreamOut) -> list[Sending]:
        """Take what is over out of the queue; of a long message all that is left."""
        now_ns = self._context.now_ns
        kept: list[Sending] = []
        expired: list[Sending] = []
        # A long message goes on only as a whole: if a piece underway is over, so are those that wait.
        goes = any(s.size and s.deadline_ns <= now_ns for s in _unfinished(stream))
        for sending in stream.queue:
            if sending.first or not sending.size:
                goes = False
            if sending.deadline_ns <= now_ns or goes:
                goes = bool(sending.size)
                while goes and not sending.first and kept and kept[-1].size and not kept[-1].last:
                    expired.append(kept.pop())
                expired.append(sending)
            else:
                kept.append(sending)
        if goes and stream.unfinished:
            stream.cutting, stream.unfinished = True, False
        if len(kept) == len(stream.queue):
            if goes:
                self._add_mark(stream, closes=False)
            return []
        expired.sort(key=lambda sending: sending.number)
        stream.queue.clear()
        stream.queue.extend(kept)
        self._done(stream, sum(s.cost for s in expired))
        if expired[0].size and not expired[0].first:
            # Its beginning is underway: what follows tells the destination that no end comes.
            mark = Sending(expired[0].number, 0, b"", 0, False, False, NEVER_NS)
            stream.put_cost += mark.cost
            stream.queue.appendleft(mark)
        return expired

    def _take_back(self, stream: StreamOut) -> None:
        """What is underway was not taken: it waits again, for a new id."""
        back = list(stream.underway.values())
        self._give_id_up(stream)
        for sending in reversed(back):
            sending.sequence = sending.transmissions = 0
            sending.flying = sending.held = sending.lost = False
            stream.queue.appendleft(sending)

    def _tell_expired(
        self,
        stream: StreamOut,
        withdrawn: list[Sending],
        doubted: list[Sending],
        was_full: bool,
        why: str,
    ) -> None:
        if not withdrawn and not doubted:
            return
        if was_full:
            detail = "its queue for that topic is full"
        elif why:
            detail = why
        else:
            detail = (
                "no confirmation before the deadline" if doubted else "no way was found in time"
            )
        kind: type[DeliveryError] = QueueFullError if was_full else UnreachableError
        for sending in (*withdrawn, *doubted):
            if sending.request:
                error = kind(stream.destination, detail, sent=sending in doubted)
                self._reply(sending, error)
        if stream.owner:
            self._context.emit(
                StreamMoved(
                    stream.owner,
                    stream.next_done,
                    stream.granted,
                    tuple(s.number for s in withdrawn),
                    tuple(s.number for s in doubted),
                    kind.__name__,
                    detail,
                )
            )

    # --- what becomes of it -------------------------------------------------------------------

    def on_ack(self, ack: SegmentAck) -> None:
        """The destination told what it has of a stream."""
        stream = self._find(ack)
        if stream is None:
            return
        if stream.tag and ack.tag != stream.tag:
            return
        context, following = self._context, ack.route.sequence & 0xFFFF_FFFF
        if following > stream.next_sequence:
            return
        stream.tag = ack.tag
        done = stream.confirm(following, context.now_ns)
        if following < next(iter(stream.underway), stream.next_sequence):
            # An old one that was overtaken.
            return
        stream.answered = True
        stream.credit = max(stream.credit, ack.credit) if not ack.full else ack.credit
        for sending in done:
            self._answer(stream, sending)
        first = stream.underway.get(following)
        if ack.full and first is not None:
            first.fulls += 1
            stream.lose(first)
            if not stream.blocked:
                stream.blocked = True
                stream.backoff += 1
                stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        else:
            if stream.blocked:
                stream.blocked = False
                stream.backoff = 0
            if ack.gaps or stream.has_held:
                stream.hold(ack.gaps, context.now_ns)
            if done:
                stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        if done:
            self._told(stream)
            self._serve_waiting(stream.destination)
        self._pump(stream)
        self._finish_if_idle(stream)

    def _find(self, answer: SegmentAck | StreamReset) -> StreamOut | None:
        """The stream that an answer to this life is about, unless a former life gave it."""
        context, route = self._context, answer.route
        if route.destination_tag != context.own_tag:
            return None
        peer = self._peers.get(route.source)
        stream = peer.open.get(route.sequence >> 32) if peer else None
        if stream is None or route.source_incarnation < context.membership.incarnation(
            route.source
        ):
            return None
        context.membership.learn_life(route.source, route.source_incarnation)
        return stream

    def _confirm(self, stream: StreamOut, sending: Sending) -> None:
        self._done(stream, sending.cost)
        self._answer(stream, sending)

    def _answer(self, stream: StreamOut, sending: Sending) -> None:
        self._context.counts.add("segments_confirmed")
        if sending.request and not sending.doubted:
            self._reply(sending, None)

    def _reply(self, sending: Sending, error: BmgdError | None) -> None:
        self._sent_count -= 1
        self._context.emit(Reply(sending.request, error=error))
        sending.request = 0

    def _done(self, stream: StreamOut, cost: int) -> None:
        stream.done_cost += cost

    def _told(self, stream: StreamOut) -> None:
        """Let the program know how far its stream is, and what more it may put."""
        self._grant(stream)
        if stream.owner:
            self._context.emit(StreamMoved(stream.owner, stream.next_done, stream.granted))
        self._finish_if_idle(stream)

    def _grant(self, stream: StreamOut) -> None:
        """One segment always; beyond that twice the window, while there is room for all."""
        if not stream.owner:
            return
        base = stream.done_cost + COST_MAX
        free = max(0, PUT_BYTES_MAX - self._extra_bytes + stream.extra)
        stream.granted = max(stream.granted, base + min(2 * stream.window, free))
        extra = max(0, stream.granted - base)
        self._extra_bytes += extra - stream.extra
        stream.extra = extra

    def _finish_if_idle(self, stream: StreamOut) -> None:
        if not stream.closing or not stream.is_idle or stream.key not in self._streams:
            return
        if stream.owner:
            self._context.emit(StreamEnded(stream.owner, stream.next_number, stream.next_number))
            self._owned.pop(stream.owner, None)
            stream.owner = 0
        if stream.id and not stream.ending and len(self._streams) <= 2 * STREAMS_MAX:
            stream.ending = True
            self._add_mark(stream, closes=True)
        else:
            self._remove(stream)

    def _remove(self, stream: StreamOut) -> None:
        self._context.timers.cancel((STREAM_TIMER, stream.key, 0))
        self._streams.pop(stream.key, None)
        self._owned.pop(stream.owner, None)
        self._ready.pop(stream.key, None)
        self._extra_bytes -= stream.extra
        stream.extra = 0
        shared = self._shared.get((stream.destination, stream.topic))
        if shared is stream:
            del self._shared[stream.destination, stream.topic]
        peer = self._peers.get(stream.destination)
        if peer is not None:
            peer.waiting.pop(stream.key, None)
            if stream.id and peer.open.pop(stream.id, None) is not None:
                self._serve_waiting(stream.destination)

    def _end(self, stream: StreamOut, error: BmgdError, taken_below: int | None = None) -> None:
        """End a stream with an error; nothing more of it is sent.

        Args:
            taken_below: the destination took nothing from this sequence on, if it said so.
        """
        self._context.counts.add("streams_failed")
        if stream.destination == self._context.id:
            self._topics.abort(stream.destination, -stream.key, "its stream ended")
        underway, queued = list(stream.underway.values()), list(stream.queue)
        self._remove(stream)
        if taken_below is not None:
            for sending in underway:
                if sending.sequence < taken_below:
                    self._answer(stream, sending)
            underway = [s for s in underway if s.sequence >= taken_below]
        sent = [s for s in underway if s.may_be_taken and taken_below is None]
        for sending in (*underway, *queued):
            if sending.request:
                self._reply(sending, _with_sent(error, sent=sending in sent))
        if stream.owner:
            unsent = [s.number for s in (*underway, *queued) if s not in sent]
            following = [s.number for s in (*underway, *queued)]
            self._context.emit(
                StreamEnded(
                    stream.owner,
                    min(following, default=stream.next_number),
                    min(unsent, default=stream.next_number),
                    _with_sent(error, sent=bool(sent)),
                )
            )

    def on_reset(self, reset: StreamReset) -> None:
        """The destination takes nothing more of a stream."""
        stream = self._find(reset)
        if stream is None:
            return
        destination, number = stream.destination, reset.route.sequence & 0xFFFF_FFFF
        if reset.reason == ResetReason.FOREIGN_TAG:
            self._on_foreign_tag(stream, reset.tag)
            return
        if stream.tag not in (0, reset.tag):
            return
        match reset.reason:
            case ResetReason.LEAVING:
                detail = "it is leaving, and did not take the message"
                self._end(stream, DeadError(destination, detail), number)
            case ResetReason.NO_READER:
                detail = f"nobody reads {stream.topic!r} there, or takes long messages"
                self._end(stream, NoReaderError(destination, detail), number)
            case ResetReason.READER_LOST:
                detail = "the program that read it went away"
                self._end(stream, ReaderLostError(destination, detail))
            case _:
                detail = "it does not know the stream any more; it may have taken the messages"
                self._end(stream, UnreachableError(destination, detail))

    def _on_foreign_tag(self, stream: StreamOut, tag: int) -> None:
        if stream.tag == tag:
            return
        first = next(iter(stream.underway.values()), None)
        if not stream.tag and not stream.answered and first and first.transmissions == 1:
            stream.tag = tag
            self._transmit(stream, first)
            self._set_timer(stream)
            return
        detail = "it began a new life; the former one may have taken the message"
        self._end(stream, NewLifeError(stream.destination, detail))

    def on_unreachable(self, hint: Unreachable) -> None:
        """A relay found no way: only a hint, try again shortly."""
        peer = self._peers.get(hint.target)
        stream = peer.open.get(hint.route.sequence >> 32) if peer else None
        sending = stream.underway.get(hint.route.sequence & 0xFFFF_FFFF) if stream else None
        if stream is None or sending is None or stream.blocked:
            return
        stream.lose(sending)
        stream.hints += 1
        pause_ns = min(RETRY_MIN_NS << min(stream.hints - 1, 8), RESEND_MAX_NS)
        at_ns = self._context.now_ns + self._context.jitter(pause_ns)
        stream.resend_ns = min(stream.resend_ns, at_ns)
        self._set_timer(stream)

    def on_gone(self, peer: NodeId) -> None:
        """A death is known: what was for that node has failed, a stream a piece."""

        def ends() -> Iterator[None]:
            membership = self._context.membership
            for stream in list(self._streams.values()):
                to_gone = stream.destination == peer and membership.is_gone(peer)
                if to_gone and self._streams.get(stream.key) is stream:
                    detail = gone_text(membership, peer)
                    self._end(stream, DeadError(peer, detail))
                    yield

        self._work.begin(f"ends {peer}", ends)

    def on_ways_changed(self) -> None:
        """The snapshot of next hops has changed: streams that left by another link ask at once."""
        if any(stream.underway for stream in self._streams.values()):
            self._work.begin("reroute", self._reroutes)

    def _reroutes(self) -> Iterator[None]:
        context = self._context
        for stream in list(self._streams.values()):
            if self._streams.get(stream.key) is not stream or not stream.underway:
                continue
            way = self._forwarding.way_to(stream.destination)
            # Without a next hop it was a search, whose way nobody knows.
            is_same = way is not None and way == stream.way
            if is_same or stream.blocked or stream.destination == context.id:
                continue
            stream.way = way
            at_ns = context.now_ns + context.random.randrange(1, REROUTE_NS)
            stream.resend_ns = min(stream.resend_ns, at_ns)
            self._set_timer(stream)
            yield

    def on_own_new_life(self) -> None:
        """This node began a new life: what the former one sent is no longer confirmed."""
        self.abandon("this node began a new life before the confirmation came")
        self._peers.clear()

    def abandon(self, why: str) -> None:
        """Give up everything that is underway; its programs are told."""
        for stream in list(self._streams.values()):
            if stream.is_idle and not stream.owner:
                self._remove(stream)
            else:
                self._end(stream, UnreachableError(stream.destination, why))


def _unfinished(stream: StreamOut) -> list[Sending]:
    """The pieces underway of a long message whose last piece is not underway."""
    pieces: list[Sending] = []
    for sending in stream.underway.values():
        if sending.first or not sending.size:
            pieces.clear()
        if sending.size:
            pieces.append(sending)
        if sending.last:
            pieces.clear()
    return pieces


def _with_sent(error: BmgdError, *, sent: bool) -> BmgdError:
    if isinstance(error, DeliveryError):
        return type(error)(error.destination, error.detail, sent=sent or error.sent)
    return error
