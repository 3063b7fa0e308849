"""What was taken for this node's programs: a queue per topic, bounded in bytes, read by subscriptions.

Theory of operation. A *segment* is the unit: some whole messages of one stream, or a piece of a long
message. Each segment goes to one reader of its topic, to those with credit, in turn; without a
reader it waits, and expires with its topic. It leaves this node's hands when the reader says that it
has consumed the messages in it; what a reader that goes away has not consumed goes back to the front
of the queue, marked as redelivered. A segment is cut only for a reader whose whole credit is smaller.

A long message is never put together here. Its first piece binds it to one reader, the others follow:

    first piece --no reader that takes long ones--> NO_READER
                --a reader--> bound --pieces, as its credit allows--> last piece consumed --> taken
                                    --reader gone--> lost   --source's stream gone--> aborted

Questions go to readers that take long messages too, and never wait for one: without such a reader, or
when it ends, their asker is told (`questions.py`). Answers come to an inbox (`inboxes.py`), which is a
topic that ends with its one reader.

Room. A topic holds at most half of what is free of `HELD_BYTES_MAX`; one with a reader that holds
nothing always takes one segment more. What an empty topic without a reader takes is bounded by
`queue_messages` too: nobody is there whose pace could be kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum

from bmgd.core.context import Context, LongSettled, RoomFreed
from bmgd.core.effects import Deliver, Reply
from bmgd.core.inboxes import Inboxes, is_inbox, topic_of
from bmgd.core.questions import Asker, Questions
from bmgd.core.timers import TimerKey
from bmgd.core.work import Work
from bmgd.types import Incarnation, NodeId
from bmgd.wire.segments import COST_MAX, OVERHEAD_BYTES, count_within, end_of, packed

TOPICS_MAX = 1024
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""Of a topic without a reader."""
HELD_BYTES_MAX = 64 * 1024 * 1024
"""Of all topics together, until consumed."""
SUBSCRIPTIONS_MAX = 1024
HAND_OUT_MAX = 128
"""Segments that one event hands out; the rest follows."""
CREDIT_BYTES_MAX = HELD_BYTES_MAX
INBOX_CREDIT = 1 << 20
"""Answers that can be on their way to a program, as far as their bytes allow."""
LONGS_MAX = 1024
"""Long messages that are being read."""
EXPIRY_NS = 600_000_000_000
"""A topic without a reader, and without anything new, is forgotten after so long."""
EXPIRY_TIMER = "expiry"


class Offer(Enum):
    """What became of a segment that was offered."""

    TAKEN = "taken"
    FULL = "full"
    NO_READER = "no reader"
    """Of pieces, and of answers: who could take them is gone, or was never there."""
    AWAITED = "awaited"
    """The last piece of a long message: `LongSettled` tells when its reader has taken the whole."""


@dataclass(slots=True, eq=False)
class Taken:
    """A segment that this node answers for until a program has consumed it.

    Args:
        stream: of the source; 0 for none.
        count: whole messages in the body; 0 of a piece.
        size, first, last: of a piece, see `bmgd.core.commands.PutSegment`.
        inbox, question: of questions, see `bmgd.wire.messages.Segment`.
    """

    source: NodeId
    incarnation: Incarnation
    stream: int
    count: int
    body: bytes = field(repr=False)
    size: int = 0
    first: bool = False
    last: bool = False
    redelivered: bool = False
    consumed: int = 0
    inbox: int = 0
    question: int = 0

    @property
    def cost(self) -> int:
        """What it costs in memory and credit, in bytes."""
        return len(self.body) + OVERHEAD_BYTES

    @property
    def asker(self) -> Asker:
        """Who asked, of questions."""
        return Asker(self.source, self.incarnation, self.inbox)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the questions in it, or of the one that it is a piece of."""
        return tuple(range(self.question, self.question + max(1, self.count)))


@dataclass(slots=True, eq=False)
class _Long:
    """A long message on its way to its reader."""

    number: int
    topic: str
    source: NodeId
    stream: int
    reader: _Subscription
    asker: Asker | None = None
    question: int = 0
    waiting: deque[Taken] = field(default_factory=deque)
    unconsumed: deque[Taken] = field(default_factory=deque)
    complete: bool = False


@dataclass(slots=True, eq=False)
class _Topic:
    waiting: deque[Taken] = field(default_factory=deque)
    waiting_count: int = 0
    waiting_bytes: int = 0
    held_bytes: int = 0
    touched_ns: int = 0
    starved: bool = False
    readers: deque[_Subscription] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Subscription:
    request: int
    topic: str
    credit: int
    credit_bytes: int
    takes_long: bool
    unconsumed: deque[Taken] = field(default_factory=deque)
    count: int = 0
    bytes: int = 0
    longs: dict[int, _Long] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether it has consumed everything."""
        return not self.bytes


class Topics:
    """The queues of one node, and who reads them."""

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self._work = work
        self._topics: dict[str, _Topic] = {}
        self._subscriptions: dict[int, _Subscription] = {}
        self._longs: dict[tuple[NodeId, int], _Long] = {}
        self._held_bytes = 0
        self._long_count = 0
        self.inboxes = Inboxes()
        self.questions = Questions(context)
        self.dropped = 0
        """Messages of best effort that had no room, and of topics that expired."""

    def inherit(self, former: Topics) -> None:
        """Take over the queues and readers of the node that this process was before."""
        for long in list(former._longs.values()):
            former._abort(long, "this node is given a new id")
        self._topics, self._subscriptions = former._topics, former._subscriptions
        self.inboxes = former.inboxes
        self._held_bytes, self._long_count = former._held_bytes, former._long_count
        self._context.effects += former._context.effects
        former._context.effects = []
        for name, entry in self._topics.items():
            entry.starved = False
            entry.touched_ns = self._context.now_ns
            self._plan_expiry(name, entry)

    # --- taking -------------------------------------------------------------------------------

    def room(self, topic: str) -> int:
        """How many bytes of cost this topic may take now."""
        entry = self._topics.get(topic)
        free = HELD_BYTES_MAX - self._held_bytes + self.inboxes.covered_bytes
        if entry is None:
            return free // 3 if self._topic_count < TOPICS_MAX else 0
        inbox = self.inboxes.of(topic)
        if inbox is not None:
            beyond = inbox.held_bytes - inbox.covered_bytes
            spare = COST_MAX if not inbox.held_bytes else 0
            reserved = inbox.reserved_bytes - inbox.held_bytes
            return max((free - 2 * beyond) // 3, reserved, spare)
        most = (free - 2 * entry.held_bytes) // 3
        if entry.readers:
            return max(most, 0 if entry.held_bytes else COST_MAX)
        if entry.waiting_count >= self._context.settings.queue_messages:
            return 0
        return max(0, min(most, QUEUE_BYTES_MAX - entry.waiting_bytes))

    @property
    def _topic_count(self) -> int:
        return len(self._topics) - len(self.inboxes)

    def has_reader(self, topic: str) -> bool:
        """Whether a program reads this topic now."""
        entry = self._topics.get(topic)
        return entry is not None and bool(entry.readers)

    def offer(self, topic: str, segment: Taken) -> Offer:
        """Answer for a segment from now on, if there is room.

        A piece that does not follow the one before it in its stream must not be offered.
        """
        if is_inbox(topic) and self.inboxes.of(topic) is None:
            return Offer.NO_READER
        if segment.size:
            return self._offer_piece(topic, segment)
        if segment.inbox and not self._has_able_reader(topic):
            # Taken, and answered by that: what else its stream asks has an outcome of its own.
            self.questions.lost(segment.asker, segment.numbers, handed=False)
            return Offer.TAKEN
        if not self._may_take(topic, segment):
            self._starve(topic)
            return Offer.FULL
        entry = self._topics.get(topic)
        if entry is None:
            entry = self._topics[topic] = _Topic()
        entry.waiting.append(segment)
        self._count_in(entry, segment)
        self._hold(topic, entry, segment)
        if not entry.readers and (EXPIRY_TIMER, 0, 0) not in self._context.timers:
            self._plan_expiry(topic, entry)
        self._hand_out(topic, entry)
        return Offer.TAKEN

    def _has_able_reader(self, topic: str) -> bool:
        """Whether somebody reads a topic who can answer questions."""
        entry = self._topics.get(topic)
        return entry is not None and any(reader.takes_long for reader in entry.readers)

    def take(self, topic: str, source: NodeId, incarnation: Incarnation, payload: bytes) -> bool:
        """Answer for one message that belongs to no stream, if there is room."""
        segment = Taken(source, incarnation, 0, 1, packed(payload))
        return self.offer(topic, segment) is Offer.TAKEN

    def _may_take(self, topic: str, segment: Taken) -> bool:
        if self.room(topic) < segment.cost:
            return False
        entry = self._topics.get(topic)
        if entry is None or entry.readers or not entry.waiting:
            return True
        return entry.waiting_count + segment.count <= self._context.settings.queue_messages

    def _starve(self, topic: str) -> None:
        entry = self._topics.get(topic)
        if entry is not None:
            entry.starved = True

    def ask_for_room(self, topic: str) -> None:
        """Let `RoomFreed` tell when this topic's readers have consumed something, or one came."""
        self._starve(topic)

    def _hold(self, topic: str, entry: _Topic, segment: Taken) -> None:
        entry.held_bytes += segment.cost
        entry.touched_ns = self._context.now_ns
        self._held_bytes += segment.cost
        self.inboxes.hold(topic, segment.cost)

    def _release(self, topic: str, entry: _Topic, cost: int) -> None:
        entry.held_bytes -= cost
        self._held_bytes -= cost
        self.inboxes.hold(topic, -cost)
        if entry.starved:
            entry.starved = False
            self._context.tell(RoomFreed(topic))

    @staticmethod
    def _count_in(entry: _Topic, segment: Taken) -> None:
        entry.waiting_count += segment.count - segment.consumed
        entry.waiting_bytes += segment.cost

    @staticmethod
    def _count_out(entry: _Topic, segment: Taken) -> None:
        entry.waiting_count -= segment.count - segment.consumed
        entry.waiting_bytes -= segment.cost

    # --- long messages ------------------------------------------------------------------------

    def _offer_piece(self, topic: str, piece: Taken) -> Offer:
        key = piece.source, piece.stream
        long = self._longs.get(key)
        if piece.first:
            if long is not None:
                self._abort(long, "its source began another one")
            long = self._bind(topic, piece)
        if long is None:
            return Offer.NO_READER
        entry = self._topics[topic]
        if self.room(topic) < piece.cost and (long.waiting or long.unconsumed):
            entry.starved = True
            return Offer.FULL
        long.waiting.append(piece)
        long.complete = piece.last
        self._hold(topic, entry, piece)
        self._hand_out_pieces(long)
        return Offer.AWAITED if piece.last else Offer.TAKEN

    def _bind(self, topic: str, piece: Taken) -> _Long | None:
        entry = self._topics.get(topic)
        able = [r for r in entry.readers if r.takes_long] if entry is not None else []
        if not able or len(self._longs) >= LONGS_MAX:
            return None
        reader = min(able, key=lambda r: len(r.longs))
        self._long_count += 1
        long = _Long(self._long_count, topic, piece.source, piece.stream, reader)
        self._longs[piece.source, piece.stream] = long
        reader.longs[long.number] = long
        if piece.inbox:
            long.asker, long.question = piece.asker, piece.question
            self.questions.handed(reader.request, piece.asker, piece.numbers)
        return long

    def _hand_out_pieces(self, long: _Long) -> None:
        reader = long.reader
        while long.waiting:
            piece = long.waiting[0]
            if long.unconsumed and reader.bytes + piece.cost > reader.credit_bytes:
                return
            long.waiting.popleft()
            long.unconsumed.append(piece)
            reader.bytes += piece.cost
            self._context.emit(
                Deliver(
                    reader.request,
                    piece.source,
                    piece.incarnation,
                    long.topic,
                    0,
                    piece.body,
                    long=long.number,
                    size=piece.size,
                    last=piece.last,
                    inbox=piece.inbox,
                    question=piece.question,
                )
            )

    def abort(self, source: NodeId, stream: int, why: str) -> None:
        """No further piece of the long message of this stream comes; its reader is told."""
        long = self._longs.get((source, stream))
        if long is not None:
            self._abort(long, why)

    def _abort(self, long: _Long, why: str) -> None:
        if not long.complete or long.waiting:
            source = long.source
            self._context.emit(
                Deliver(
                    long.reader.request,
                    source,
                    Incarnation(0),
                    long.topic,
                    0,
                    b"",
                    long=long.number,
                    aborted=why,
                )
            )
            if long.asker is not None:
                self.questions.forget(long.reader.request, long.asker, long.question)
        self._forget_long(long)

    def _forget_long(self, long: _Long) -> None:
        del self._longs[long.source, long.stream]
        long.reader.longs.pop(long.number, None)
        long.reader.bytes -= sum(piece.cost for piece in long.unconsumed)
        cost = sum(piece.cost for piece in (*long.unconsumed, *long.waiting))
        entry = self._topics.get(long.topic)
        if entry is not None:
            self._release(long.topic, entry, cost)

    def _consumed_pieces(self, reader: _Subscription, number: int, count: int) -> None:
        long = reader.longs.get(number)
        if long is None:
            return
        entry = self._topics[long.topic]
        for _ in range(min(count, len(long.unconsumed))):
            piece = long.unconsumed.popleft()
            reader.bytes -= piece.cost
            self._release(long.topic, entry, piece.cost)
        if long.complete and not long.waiting and not long.unconsumed:
            self._forget_long(long)
            self._context.tell(LongSettled(long.source, long.stream, taken=True))

    # --- readers ------------------------------------------------------------------------------

    def subscribe(
        self,
        request: int,
        topic: str,
        credit: int,
        credit_bytes: int = 1 << 20,
        takes_long: bool = False,
    ) -> bool:
        """Begin to read a topic, answered at once; False when the table of subscriptions is full."""
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX or (
            topic not in self._topics and self._topic_count >= TOPICS_MAX
        ):
            return False
        entry = self._add_reader(request, topic, credit, credit_bytes, takes_long)
        self._context.emit(Reply(request))
        self._hand_out(topic, entry)
        # With a reader the topic may hold more than without.
        self._release(topic, entry, 0)
        return True

    def open_inbox(self, request: int, credit_bytes: int) -> bool:
        """Begin to take answers, answered at once; False when the table of subscriptions is full."""
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            return False
        inbox = self.inboxes.open(request)
        self._add_reader(request, topic_of(inbox.number), INBOX_CREDIT, credit_bytes, True)
        self._context.emit(Reply(request, {"inbox": inbox.number}))
        return True

    def settled(self, request: int, count: int, questions: Collection[int]) -> None:
        """A program has taken so many answers, and these of its questions have their outcome."""
        self.inboxes.settle(request, questions)
        if count:
            self.consumed(request, count)

    def _add_reader(
        self, request: int, topic: str, credit: int, credit_bytes: int, takes_long: bool
    ) -> _Topic:
        entry = self._topics.setdefault(topic, _Topic())
        subscription = _Subscription(
            request,
            topic,
            credit,
            min(credit_bytes, CREDIT_BYTES_MAX),
            takes_long,
        )
        self._subscriptions[request] = subscription
        entry.readers.append(subscription)
        return entry

    def consumed(self, request: int, count: int, long: int = 0) -> None:
        """A reader has taken `count` more messages, or pieces of a long one: more may follow."""
        reader = self._subscriptions.get(request)
        if reader is None:
            return
        entry = self._topics[reader.topic]
        if long:
            self._consumed_pieces(reader, long, count)
        else:
            self._consume(reader, entry, count)
        for bound in list(reader.longs.values()):
            self._hand_out_pieces(bound)
        self._hand_out(reader.topic, entry)

    def _consume(self, reader: _Subscription, entry: _Topic, count: int) -> None:
        while count > 0 and reader.unconsumed:
            segment = reader.unconsumed[0]
            done = min(count, segment.count - segment.consumed)
            segment.consumed += done
            reader.count -= done
            count -= done
            if segment.consumed == segment.count:
                reader.unconsumed.popleft()
                reader.bytes -= segment.cost
                self._release(reader.topic, entry, segment.cost)

    def unsubscribe(self, request: int) -> None:
        """End a subscription; what it did not consume waits again, in front."""
        reader = self._subscriptions.pop(request, None)
        if reader is None:
            return
        entry = self._topics[reader.topic]
        entry.readers.remove(reader)
        self.questions.end(request)
        for long in list(reader.longs.values()):
            self._forget_long(long)
            self._context.tell(LongSettled(long.source, long.stream, taken=False))
        if self.inboxes.of(reader.topic) is not None:
            self._close_inbox(reader, entry)
            return
        while reader.unconsumed:
            segment = reader.unconsumed.pop()
            before = segment.cost
            if segment.inbox:
                # Its asker is told that the answer is lost; nobody else is to begin with it.
                self._release(reader.topic, entry, before)
                continue
            self._drop_consumed(segment)
            segment.redelivered = True
            self._release(reader.topic, entry, before - segment.cost)
            entry.waiting.appendleft(segment)
            self._count_in(entry, segment)
        entry.touched_ns = self._context.now_ns
        if not self._has_able_reader(reader.topic):
            self._drop_questions(reader.topic, entry)
        self._hand_out(reader.topic, entry)
        if entry.waiting and not entry.readers:
            self._plan_expiry(reader.topic, entry)

    def _close_inbox(self, reader: _Subscription, entry: _Topic) -> None:
        """The program that asked is gone: what has come for it goes too."""
        for segment in (*reader.unconsumed, *entry.waiting):
            self._release(reader.topic, entry, segment.cost)
        del self._topics[reader.topic]
        self.inboxes.close(reader.request)

    def _drop_questions(self, topic: str, entry: _Topic) -> None:
        """Nobody who could answer is left: those that wait are told so."""
        questions = [segment for segment in entry.waiting if segment.inbox]
        entry.waiting = deque(segment for segment in entry.waiting if not segment.inbox)
        for segment in questions:
            self._count_out(entry, segment)
            self._release(topic, entry, segment.cost)
            self.questions.lost(segment.asker, segment.numbers, handed=False)

    @staticmethod
    def _drop_consumed(segment: Taken) -> None:
        if segment.consumed:
            try:
                segment.body = segment.body[end_of(segment.body, segment.consumed) :]
            except ValueError:
                # Its program wrote another number of messages than it said: it stays whole.
                segment.consumed = 0
                return
            segment.count -= segment.consumed
            segment.consumed = 0

    # --- counting -----------------------------------------------------------------------------

    def being_read(self) -> int:
        """How many messages readers have to consume yet, in their hands or before them."""
        handed_out = sum(
            reader.count + len(reader.longs) for reader in self._subscriptions.values()
        )
        return handed_out + sum(e.waiting_count for e in self._topics.values() if e.readers)

    @property
    def unconsumed(self) -> int:
        """How many messages this node answers for."""
        handed_out = sum(reader.count for reader in self._subscriptions.values())
        return handed_out + self.waiting()

    def left_over(self) -> dict[str, int]:
        """The same by topics; a long message that is being read counts as one."""
        found = {name: entry.waiting_count for name, entry in self._topics.items()}
        for reader in self._subscriptions.values():
            count = reader.count + len(reader.longs)
            found[reader.topic] = found.get(reader.topic, 0) + count
        return {name: count for name, count in found.items() if count}

    def waiting(self) -> int:
        """How many messages wait for a reader, in all topics."""
        return sum(entry.waiting_count for entry in self._topics.values())

    # --- handing out --------------------------------------------------------------------------

    def _hand_out(self, topic: str, entry: _Topic, left: int = HAND_OUT_MAX) -> None:
        """Hand out what waits and readers may have: so much of it now, the rest as work."""
        idle, goes_on = 0, left > 1
        while entry.waiting and idle < len(entry.readers):
            reader = entry.readers[0]
            entry.readers.rotate(-1)
            segment = self._fitting(topic, entry, reader)
            if segment is None:
                idle += 1
                continue
            idle = 0
            if not left:
                entry.waiting.appendleft(segment)
                self._count_in(entry, segment)
                if goes_on:
                    self._work.begin(f"hand out {topic}", lambda: self._hand_outs(topic))
                return
            left -= 1
            reader.count += segment.count
            reader.bytes += segment.cost
            reader.unconsumed.append(segment)
            if segment.inbox:
                self.questions.handed(reader.request, segment.asker, segment.numbers)
            self._context.emit(
                Deliver(
                    reader.request,
                    segment.source,
                    segment.incarnation,
                    topic,
                    segment.count,
                    segment.body,
                    segment.redelivered,
                    inbox=segment.inbox,
                    question=segment.question,
                )
            )
        if not entry.waiting and not entry.readers:
            self._topics.pop(topic, None)

    def _hand_outs(self, topic: str) -> Iterator[None]:
        """The rest of what readers may have, in turns."""
        while (entry := self._topics.get(topic)) is not None and entry.waiting:
            before = len(entry.waiting)
            self._hand_out(topic, entry, 1)
            if len(entry.waiting) == before:
                return
            yield

    def _fitting(self, topic: str, entry: _Topic, reader: _Subscription) -> Taken | None:
        """Take the next segment out of the queue, or of it what fits; None where nothing does."""
        segment = entry.waiting[0]
        free, free_bytes = reader.credit - reader.count, reader.credit_bytes - reader.bytes
        if free <= 0 or (segment.inbox and not reader.takes_long):
            return None
        if segment.count <= free and (segment.cost <= free_bytes or reader.is_idle):
            if segment.cost <= reader.credit_bytes or segment.count == 1:
                return self._pop(entry)
        elif segment.count <= reader.credit and segment.cost <= reader.credit_bytes:
            # It fits whole once more is consumed.
            return None
        try:
            return self._cut(topic, entry, segment, free, free_bytes, reader)
        except ValueError:
            # Its program wrote another number of messages than it said.
            return self._pop(entry)

    def _pop(self, entry: _Topic) -> Taken:
        segment = entry.waiting.popleft()
        self._count_out(entry, segment)
        return segment

    def _cut(
        self,
        topic: str,
        entry: _Topic,
        segment: Taken,
        free: int,
        free_bytes: int,
        reader: _Subscription,
    ) -> Taken | None:
        count = count_within(segment.body, free_bytes - OVERHEAD_BYTES, min(free, segment.count))
        if count == 0:
            if not reader.is_idle:
                return None
            count = 1
        if count >= segment.count:
            return self._pop(entry)
        end = end_of(segment.body, count)
        self._count_out(entry, segment)
        head = Taken(
            segment.source,
            segment.incarnation,
            segment.stream,
            count,
            segment.body[:end],
            redelivered=segment.redelivered,
            inbox=segment.inbox,
            question=segment.question,
        )
        segment.body = segment.body[end:]
        segment.count -= count
        if segment.inbox:
            segment.question += count
        self._count_in(entry, segment)
        # Two segments cost one overhead more.
        entry.held_bytes += OVERHEAD_BYTES
        self._held_bytes += OVERHEAD_BYTES
        self.inboxes.hold(topic, OVERHEAD_BYTES)
        return head

    # --- expiry -------------------------------------------------------------------------------

    def _plan_expiry(self, topic: str, entry: _Topic) -> None:
        key = (EXPIRY_TIMER, 0, 0)
        if key not in self._context.timers:
            self._context.timers.set(key, entry.touched_ns + EXPIRY_NS)

    def on_expiry_timer(self, key: TimerKey) -> None:
        """Forget topics that nobody has read, or written to, for long."""
        now_ns, next_ns = self._context.now_ns, None
        for name, entry in list(self._topics.items()):
            if entry.readers:
                continue
            at_ns = entry.touched_ns + EXPIRY_NS
            if at_ns > now_ns:
                next_ns = at_ns if next_ns is None else min(at_ns, next_ns)
                continue
            self.dropped += entry.waiting_count
            detail = (
                f"{entry.waiting_count} messages of the topic {name!r} that nobody came to read"
            )
            self._context.observe("expired", detail=detail)
            self._held_bytes -= entry.held_bytes
            del self._topics[name]
            if entry.starved:
                self._context.tell(RoomFreed(name))
        if next_ns is not None:
            self._context.timers.set(key, next_ns)
