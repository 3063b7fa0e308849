r"""What was taken for this node's programs: a queue per topic, bounded in bytes, read by subscriptions.

Theory of operation. A *segment* is the unit: some whole messages of one stream, or a piece of a long
message. Each segment goes to one reader of its topic, to those with credit, in turn; without a
reader it waits, and expires with its topic. It leaves this node's hands when the reader says that it
has consumed the messages in it; what a reader that goes away has not consumed goes back to the front
of the queue, marked as redelivered.

    offer --> queue (`topic_table.py`: what is held, and room) --> reader (`handing_out.py`) --> consumed
          \-> pieces of long messages (`long_messages.py`), which never wait in a queue

Questions go to readers that take long messages too, and never wait for one: without such a reader, or
when it ends, their asker is told (`questions.py`). Answers come to an inbox (`inboxes.py`), which is a
topic that ends with its one reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.timers import TimerKey
from bmgd.core.topics.handing_out import HandingOut
from bmgd.core.topics.inboxes import Inboxes, is_inbox, topic_of
from bmgd.core.topics.long_messages import LongMessages
from bmgd.core.topics.questions import Questions
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topic_table import (
    READ_TOPICS_MAX,
    SUBSCRIPTIONS_MAX,
    Subscription,
    TopicQueue,
    TopicTable,
)
from bmgd.core.work import Work
from bmgd.types import Incarnation, NodeId
from bmgd.wire.segments import end_of, packed

INBOX_CREDIT = 1 << 20
"""Answers that can be on their way to a program, as far as their bytes allow."""
EXPIRY_NS = 600_000_000_000
"""A topic without a reader, and without anything new, is forgotten after so long."""
EXPIRY_TIMER = "expiry"


class Topics:
    """The queues of one node, and who reads them."""

    def __init__(self, context: Context, work: Work) -> None:
        self._context = context
        self.questions = Questions(context)
        self.table = TopicTable(context)
        self.longs = LongMessages(context, self.table, self.questions)
        self._handing_out = HandingOut(context, self.table, self.questions, work)
        self.dropped = 0
        """Messages of best effort that had no room, and of topics that expired."""

    @property
    def inboxes(self) -> Inboxes:
        """Where answers come to."""
        return self.table.inboxes

    def inherit(self, former: Topics) -> None:
        """Take over the queues and readers of the node that this process was before."""
        former.longs.abort_all("this node is given a new id")
        self.table.inherit(former.table)
        self.longs.inherit(former.longs)
        self._context.effects += former._context.effects
        former._context.effects = []
        for name, entry in self.table.topics.items():
            entry.starved = False
            entry.touched_ns = self._context.now_ns
            self._plan_expiry(name, entry)
        for name, entry in list(self.table.topics.items()):
            # The former node was on its way with that, and pieces that are aborted gave credit back.
            self._handing_out.hand_out(name, entry)

    # --- taking -------------------------------------------------------------------------------

    def has_reader(self, topic: str) -> bool:
        """Whether a program reads this topic now."""
        entry = self.table.topics.get(topic)
        return entry is not None and bool(entry.readers)

    def offer(self, topic: str, segment: Taken) -> Offer:
        """Answer for a segment from now on, if there is room.

        A piece that does not follow the one before it in its stream must not be offered.
        """
        if is_inbox(topic) and self.table.inboxes.of(topic) is None:
            return Offer.NO_READER
        if segment.size:
            return self.longs.offer(topic, segment)
        if segment.inbox and not self.table.has_able_reader(topic):
            # Taken, and answered by that: what else its stream asks has an outcome of its own.
            self.questions.lost(segment.asker, segment.numbers, handed=False)
            return Offer.TAKEN
        if not self.table.may_take(topic, segment):
            self.table.starve(topic)
            return Offer.FULL
        entry = self.table.topics.get(topic)
        if entry is None:
            entry = self.table.topics[topic] = TopicQueue()
        entry.waiting.append(segment)
        self.table.count_in(entry, segment)
        self.table.hold(topic, entry, segment)
        if not entry.readers and (EXPIRY_TIMER, 0, 0) not in self._context.timers:
            self._plan_expiry(topic, entry)
        self._handing_out.hand_out(topic, entry)
        return Offer.TAKEN

    def take(self, topic: str, source: NodeId, incarnation: Incarnation, payload: bytes) -> bool:
        """Answer for one message that belongs to no stream, if there is room."""
        segment = Taken(source, incarnation, 0, 1, packed(payload))
        return self.offer(topic, segment) is Offer.TAKEN

    def room(self, topic: str) -> int:
        """How many bytes of cost this topic may take now."""
        return self.table.room(topic)

    def abort(self, source: NodeId, stream: int, why: str) -> None:
        """No further piece of the long message of this stream comes; its reader is told."""
        reader = self.longs.abort(source, stream, why)
        if reader is not None:
            self._fill(reader)

    def ask_for_room(self, topic: str) -> None:
        """Let `RoomFreed` tell when this topic's readers have consumed something, or one came."""
        self.table.starve(topic)

    # --- readers ------------------------------------------------------------------------------

    def subscribe(
        self,
        request: int,
        topic: str,
        credit: int,
        credit_bytes: int = 1 << 20,
        takes_long: bool = False,
    ) -> bool:
        """Begin to read a topic, answered at once; False when the table of either is full."""
        if len(self.table.subscriptions) >= SUBSCRIPTIONS_MAX or (
            topic not in self.table.topics and self.table.topic_count >= READ_TOPICS_MAX
        ):
            return False
        entry = self.table.add_reader(request, topic, credit, credit_bytes, takes_long)
        self._context.emit(Reply(request))
        self._handing_out.hand_out(topic, entry)
        # With a reader the topic may hold more than without.
        self.table.release(topic, entry, 0)
        return True

    def open_inbox(self, request: int, credit_bytes: int) -> bool:
        """Begin to take answers, answered at once; False when the table of subscriptions is full."""
        if len(self.table.subscriptions) >= SUBSCRIPTIONS_MAX:
            return False
        inbox = self.table.inboxes.open(request)
        self.table.add_reader(request, topic_of(inbox.number), INBOX_CREDIT, credit_bytes, True)
        self._context.emit(Reply(request, {"inbox": inbox.number}))
        return True

    def settled(self, request: int, count: int, questions: Collection[int]) -> None:
        """A program has taken so many answers, and these of its questions have their outcome."""
        self.table.inboxes.settle(request, questions)
        if count:
            self.consumed(request, count)

    def consumed(self, request: int, count: int, long: int = 0) -> None:
        """A reader has taken `count` more messages, or pieces of a long one: more may follow."""
        reader = self.table.subscriptions.get(request)
        if reader is None:
            return
        entry = self.table.topics[reader.topic]
        if long:
            self.longs.consumed(reader, long, count)
        else:
            self._consume(reader, entry, count)
        self._fill(reader)

    def _fill(self, reader: Subscription) -> None:
        """A reader has credit again: what waits for that goes to it.

        Long messages come last: they have a piece there at any time, and would take the room of each
        that is consumed, so that segments as large as their pieces waited for their end.
        """
        self._handing_out.hand_out(reader.topic, self.table.topics[reader.topic])
        for bound in list(reader.longs.values()):
            self.longs.hand_out(bound)

    def _consume(self, reader: Subscription, entry: TopicQueue, count: int) -> None:
        while count > 0 and reader.unconsumed:
            segment = reader.unconsumed[0]
            done = min(count, segment.count - segment.consumed)
            segment.consumed += done
            reader.count -= done
            count -= done
            if segment.consumed == segment.count:
                reader.unconsumed.popleft()
                reader.bytes -= segment.cost
                self.table.release(reader.topic, entry, segment.cost)

    def unsubscribe(self, request: int) -> None:
        """End a subscription; what it did not consume waits again, in front."""
        reader = self.table.subscriptions.pop(request, None)
        if reader is None:
            return
        entry = self.table.topics[reader.topic]
        entry.readers.remove(reader)
        self.questions.end(request)
        self.longs.reader_gone(reader)
        if self.table.inboxes.of(reader.topic) is not None:
            self._close_inbox(reader, entry)
            return
        while reader.unconsumed:
            segment = reader.unconsumed.pop()
            before = segment.cost
            if segment.inbox:
                # Its asker is told that the answer is lost; nobody else is to begin with it.
                self.table.release(reader.topic, entry, before)
                continue
            self._drop_consumed(segment)
            segment.redelivered = True
            self.table.release(reader.topic, entry, before - segment.cost)
            entry.waiting.appendleft(segment)
            self.table.count_in(entry, segment)
        entry.touched_ns = self._context.now_ns
        if not self.table.has_able_reader(reader.topic):
            self._drop_questions(reader.topic, entry)
        self._handing_out.hand_out(reader.topic, entry)
        if entry.waiting and not entry.readers:
            self._plan_expiry(reader.topic, entry)

    def _close_inbox(self, reader: Subscription, entry: TopicQueue) -> None:
        """The program that asked is gone: what has come for it goes too."""
        for segment in (*reader.unconsumed, *entry.waiting):
            self.table.release(reader.topic, entry, segment.cost)
        del self.table.topics[reader.topic]
        self.table.inboxes.close(reader.request)

    def _drop_questions(self, topic: str, entry: TopicQueue) -> None:
        """Nobody who could answer is left: those that wait are told so."""
        questions = [segment for segment in entry.waiting if segment.inbox]
        entry.waiting = deque(segment for segment in entry.waiting if not segment.inbox)
        for segment in questions:
            self.table.count_out(entry, segment)
            self.table.release(topic, entry, segment.cost)
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

    # --- expiry -------------------------------------------------------------------------------

    def _plan_expiry(self, topic: str, entry: TopicQueue) -> None:
        key = (EXPIRY_TIMER, 0, 0)
        if key not in self._context.timers:
            self._context.timers.set(key, entry.touched_ns + EXPIRY_NS)

    def on_expiry_timer(self, key: TimerKey) -> None:
        """Forget topics that nobody has read, or written to, for long."""
        now_ns, next_ns = self._context.now_ns, None
        for name, entry in list(self.table.topics.items()):
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
            self.table.drop(name, entry)
        if next_ns is not None:
            self._context.timers.set(key, next_ns)
