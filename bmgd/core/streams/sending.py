"""Segments on their way out of this node, and what programs are told of them.

Theory of operation. `pump` sends of a stream what its window, its credit and an id allow: what is lost
first, then what waits, unless `held_bulk.py` holds it. A step sends at most `BURST` segments of a
stream; what is left follows as `Work`, in turns. What is for this node itself goes to its topics at
once. Whatever becomes of a segment, its program hears of it here: how far the stream is, what more may
be put, how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bmgd.core.context import Context
from bmgd.core.effects import Reply, StreamEnded, StreamMoved
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.streams.held_bulk import HeldBulk
from bmgd.core.streams.stream_out import NEVER_NS, NUMBER_MAX, RESEND_MAX_NS, Sending, StreamOut
from bmgd.core.streams.table import STREAM_TIMER, StreamTable
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.errors import BmgdError, DeliveryError, NewLifeError, NoReaderError
from bmgd.types import NodeId
from bmgd.wire.stream_messages import Segment, SegmentFlag

BURST = 32
"""Segments that one event sends of its stream; the rest goes in turns, one segment each."""
RETRY_MIN_NS = 10_000_000
ABANDONED_NS = 60_000_000_000
RESTED_NS = 300_000_000_000
"""A stream that sent nothing for so long takes a new id: half of the time after which its destination may
have forgotten it, if it holds this node dead (`inbound.GONE_NS`)."""
"""What a program that went away has put is sent for so long."""
CLOSING_MAX = 2048
"""Streams beyond which one that closes does not wait for the confirmation of that."""


class StreamSending:
    """Sends what streams hold."""

    def __init__(
        self,
        context: Context,
        forwarding: Forwarding,
        topics: Topics,
        work: Work,
        table: StreamTable,
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._topics = topics
        self._work = work
        self._table = table
        self._ready: dict[int, StreamOut] = {}
        self.held = HeldBulk(forwarding, self._wake)

    def pump(self, stream: StreamOut, most: int = BURST) -> None:
        """Send what may be sent, at most so many segments now and the rest in turns."""
        if self._table.streams.get(stream.key) is not stream:
            return
        if stream.destination == self._context.id:
            more = self._hand_over(stream, most)
        elif stream.best_effort:
            more = self._scatter(stream, most)
        else:
            more = self._send_some(stream, most)
        if more:
            self._ready[stream.key] = stream
            self._begin_turns()
        self._table.set_timer(stream)

    def pump_all(self, streams: Sequence[StreamOut]) -> None:
        """Send what these may send, of a few now and of the rest in turns."""
        for stream in streams[:BURST]:
            self.pump(stream)
        if streams[BURST:]:
            self._ready.update((stream.key, stream) for stream in streams[BURST:])
            self._begin_turns()
            for stream in streams[BURST:]:
                self._table.set_timer(stream)

    def _turns(self) -> Iterator[None]:
        """Streams that have more to send than a step does of one, in turns."""
        while self._ready:
            key = next(iter(self._ready))
            stream = self._ready.pop(key)
            if self._table.streams.get(key) is stream:
                self.pump(stream, 1)
            yield

    def _wake(self, held: Iterable[StreamOut]) -> None:
        """Let streams send again, in turns."""
        streams = self._table.streams
        self._ready.update((one.key, one) for one in held if one.key in streams)
        self._begin_turns()

    def _begin_turns(self) -> None:
        if self._ready and "streams" not in self._work:
            self._work.begin("streams", self._turns)

    def _send_some(self, stream: StreamOut, left: int) -> bool:
        if stream.losses and not stream.blocked:
            for sending in list(stream.underway.values()):
                if not sending.lost:
                    continue
                if not left:
                    return True
                if not stream.may_resend(sending.cost) or not self.transmit(stream, sending):
                    return False
                left -= 1
        while stream.queue and stream.may_send(stream.queue[0].cost):
            if not left:
                return True
            if self.held.holds(stream):
                return False
            sending = stream.queue[0]
            if not self.transmit(stream, sending):
                return False
            stream.queue.popleft()
            left -= 1
        return False

    def transmit(self, stream: StreamOut, sending: Sending) -> bool:
        """Send a segment; False where there is no way, or no id, for it now."""
        if not self.prepare(stream, sending):
            return False
        context = self._context
        if not self._forwarding.originate(self.segment_of(stream, sending)):
            stream.hints += 1
            pause_ns = min(RETRY_MIN_NS << min(stream.hints - 1, 8), RESEND_MAX_NS)
            stream.resend_ns = context.now_ns + context.jitter(pause_ns)
            return False
        self.on_transmitted(stream, sending)
        self.held.on_sent(stream, sending.cost)
        return True

    def prepare(self, stream: StreamOut, sending: Sending) -> bool:
        """See to it that a stream has an id, and is for the life that a segment was put for."""
        if not stream.underway and self._is_worn(stream, sending):
            self.give_id_up(stream)
        if not stream.id and not self._table.take_id(stream):
            return False
        if not stream.tag and not stream.underway:
            stream.tag = sending.tag or self._table.known_tag(stream.destination)
        if sending.tag and stream.tag not in (0, sending.tag):
            detail = "it began a new life, and the stream is for another one"
            self.end(stream, NewLifeError(stream.destination, detail))
            return False
        return True

    def _is_worn(self, stream: StreamOut, sending: Sending) -> bool:
        """Whether the next segment had better begin a new id: numbers end, or the id may be forgotten."""
        rested_ns = self._context.now_ns - stream.sent_ns
        goes_on = sending.size and not sending.first
        was_used = stream.next_sequence > 1
        may_be_forgotten = was_used and rested_ns > RESTED_NS and not goes_on
        return stream.next_sequence >= NUMBER_MAX or may_be_forgotten

    def on_transmitted(self, stream: StreamOut, sending: Sending) -> None:
        """A segment was put into an outbox: an answer is waited for."""
        context = self._context
        if not stream.underway or stream.resend_ns == NEVER_NS:
            stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        if sending.transmissions:
            context.counts.add("segments_resent")
        stream.on_sent(sending, context.now_ns)

    def segment_of(self, stream: StreamOut, sending: Sending) -> Segment:
        """A segment as it is sent now, at best effort or under its stream's id."""
        sequence = 0 if stream.best_effort else sending.sequence or stream.next_sequence
        opens = sequence == 1 or stream.best_effort
        flags = 0
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
        peer = self._table.peers.get(stream.destination)
        return Segment(
            self._forwarding.route_to(
                stream.destination,
                tag=stream.tag,
                sequence=stream.id << 32 | sequence,
                priority=stream.priority,
            ),
            flags,
            stream.topic if opens else "",
            stream.replaces if opens and stream.id else 0,
            0 if peer is None or stream.best_effort else peer.floor,
            sending.count,
            sending.size,
            sending.body,
            stream.inbox if sending.body else 0,
            sending.question,
        )

    def _scatter(self, stream: StreamOut, left: int) -> bool:
        """Best effort: each segment once, and done with it."""
        while stream.queue:
            if not left:
                return True
            sending = stream.queue.popleft()
            stream.tag = self._table.known_tag(stream.destination)
            if not self._forwarding.originate(self.segment_of(stream, sending)):
                self._context.observe("unreachable", stream.destination, detail="best effort")
            self.done(stream, sending.put_cost)
            left -= 1
        self.told(stream)
        return False

    def give_id_up(self, stream: StreamOut) -> None:
        """What is underway under this id is over; the next segment takes a new one."""
        peer = self._table.peers.get(stream.destination)
        if peer is not None and stream.id:
            peer.open.pop(stream.id, None)
        stream.underway.clear()
        stream.drop_id()
        self.serve_waiting(stream.destination)

    def serve_waiting(self, destination: NodeId) -> None:
        """Streams to a node that wait for an id try again."""
        peer = self._table.peers.get(destination)
        if peer is None or not peer.waiting:
            return
        waiting, peer.waiting = peer.waiting, {}
        for key, stream in waiting.items():
            if self._table.streams.get(key) is stream:
                self._ready[key] = stream
        self._work.begin("streams", self._turns)

    def remove(self, stream: StreamOut) -> None:
        """Forget a stream: nothing of it is sent any more."""
        self._context.timers.cancel((STREAM_TIMER, stream.key, 0))
        self._table.streams.pop(stream.key, None)
        self._table.owned.pop(stream.owner, None)
        self._table.abandoned.pop(stream.key, None)
        self._ready.pop(stream.key, None)
        self._table.extra_bytes -= stream.extra
        stream.extra = 0
        shared = self._table.shared.get((stream.destination, stream.topic))
        if shared is stream:
            del self._table.shared[stream.destination, stream.topic]
        peer = self._table.peers.get(stream.destination)
        if peer is not None:
            peer.waiting.pop(stream.key, None)
            if stream.id and peer.open.pop(stream.id, None) is not None:
                self.serve_waiting(stream.destination)

    # --- to this node itself ------------------------------------------------------------------

    def _hand_over(self, stream: StreamOut, left: int) -> bool:
        """Offer so many segments at most to the topics here; whether more may be offered now."""
        context, before, more = self._context, stream.done_cost, False
        while stream.queue and not stream.underway and not stream.blocked:
            if not left:
                more = True
                break
            left -= 1
            sending = stream.queue[0]
            offer = self._offer_here(stream, sending)
            if offer is Offer.FULL:
                if stream.best_effort:
                    self._topics.dropped += sending.count
                else:
                    stream.blocked = True
                    stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
                    break
            stream.queue.popleft()
            if offer is Offer.NO_READER:
                stream.queue.appendleft(sending)
                self.end(stream, NoReaderError(context.id, stream.no_reader_text))
                return False
            if offer is Offer.AWAITED:
                stream.on_sent(sending, context.now_ns)
                stream.resend_ns = NEVER_NS
                break
            self._confirm(stream, sending)
        if stream.done_cost != before or stream.is_idle:
            # What was taken is told, though what follows may have to wait for long.
            self.told(stream)
        return more

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
            inbox=stream.inbox,
            question=sending.question,
        )
        return self._topics.offer(stream.topic, taken)

    def on_room(self, topic: str) -> None:
        """A topic here has room again: streams of this node's own to it go on."""
        for stream in list(self._table.streams.values()):
            if stream.blocked and stream.topic == topic and stream.destination == self._context.id:
                stream.blocked = False
                self._ready[stream.key] = stream
        self._work.begin("streams", self._turns)

    # --- what programs hear -------------------------------------------------------------------

    def _confirm(self, stream: StreamOut, sending: Sending) -> None:
        self.done(stream, sending.put_cost)
        self.answer(stream, sending)

    def answer(self, stream: StreamOut, sending: Sending) -> None:
        """A segment is confirmed."""
        self._context.counts.add("segments_confirmed")
        if sending.request and not sending.doubted:
            self.reply(stream, sending, None)

    def reply(self, stream: StreamOut, sending: Sending, error: BmgdError | None) -> None:
        """Answer a message that was sent singly."""
        self._table.sent_count -= 1
        request, sending.request = sending.request, 0
        gathering = self._table.gatherings.get(request)
        if gathering is None:
            self._context.emit(Reply(request, error=error))
            return
        gathering.settle(stream.destination, error)
        if not gathering.left:
            del self._table.gatherings[request]
            self._context.emit(Reply(request, gathering.report()))

    def done(self, stream: StreamOut, cost: int) -> None:
        """So much of what its program put into a stream is over."""
        stream.done_cost += cost

    def told(self, stream: StreamOut) -> None:
        """Let the program know how far its stream is, and what more it may put."""
        self._table.grant(stream)
        if stream.owner:
            self._context.emit(StreamMoved(stream.owner, stream.next_done, stream.granted))
        self.finish_if_idle(stream)

    def finish_if_idle(self, stream: StreamOut) -> None:
        """End a stream that closes, once nothing of it is left to do."""
        if not stream.closing or not stream.is_idle or stream.key not in self._table.streams:
            return
        if stream.owner:
            self._context.emit(StreamEnded(stream.owner, stream.next_number, stream.next_number))
            self._table.owned.pop(stream.owner, None)
            stream.owner = 0
        self._table.abandoned.pop(stream.key, None)
        if stream.id and not stream.ending and len(self._table.streams) <= CLOSING_MAX:
            stream.ending = True
            self.add_mark(stream, closes=True)
        else:
            self.remove(stream)

    def add_mark(self, stream: StreamOut, *, closes: bool) -> None:
        """An empty segment, which ends a long message that is not whole, or the stream."""
        until_ns = self._context.now_ns + ABANDONED_NS if closes else NEVER_NS
        mark = Sending(stream.next_number, 0, b"", 0, False, False, until_ns, closes=closes)
        stream.earliest_ns = min(stream.earliest_ns, until_ns)
        stream.queue.append(mark)
        self.pump(stream)

    def end(self, stream: StreamOut, error: BmgdError, taken_below: int | None = None) -> None:
        """End a stream with an error; nothing more of it is sent.

        Args:
            taken_below: the destination took nothing from this sequence on, if it said so.
        """
        self._context.counts.add("streams_failed")
        if stream.destination == self._context.id:
            self._topics.abort(stream.destination, -stream.key, "its stream ended")
        underway, queued = list(stream.underway.values()), list(stream.queue)
        self.remove(stream)
        if taken_below is not None:
            for sending in underway:
                if sending.sequence < taken_below:
                    self.answer(stream, sending)
            underway = [s for s in underway if s.sequence >= taken_below]
        sent = [s for s in underway if s.may_be_taken and taken_below is None]
        for sending in (*underway, *queued):
            if sending.request:
                self.reply(stream, sending, _with_sent(error, sent=sending in sent))
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


def _with_sent(error: BmgdError, *, sent: bool) -> BmgdError:
    if isinstance(error, DeliveryError):
        return type(error)(error.destination, error.detail, sent=sent or error.sent)
    return error
