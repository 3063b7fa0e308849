"""Which topics there are, who reads them, and how much is held for each: the tables that all parts share.

Theory of operation. Every byte that is held is counted for its topic, for all topics together, and for
its inbox, if it is an answer. `hold` and `release` keep the three equal.

Room. A topic holds at most half of what is free of `HELD_BYTES_MAX`; one with a reader that holds
nothing always takes one segment more. What an empty topic without a reader takes is bounded by
`queue_messages` too: nobody is there whose pace could be kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bmgd.core.context import Context, RoomFreed
from bmgd.core.topics.inboxes import Inboxes
from bmgd.core.topics.questions import Asker
from bmgd.core.topics.taken import Taken
from bmgd.types import NodeId
from bmgd.wire.segments import COST_MAX

TOPICS_MAX = 1024
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""Of a topic without a reader."""
HELD_BYTES_MAX = 64 * 1024 * 1024
"""Of all topics together, until consumed."""
SUBSCRIPTIONS_MAX = 1024
READ_TOPICS_MAX = TOPICS_MAX + SUBSCRIPTIONS_MAX
"""Of all topics; nobody sends to a topic without a reader above `TOPICS_MAX`, and readers are let in."""
CREDIT_BYTES_MAX = HELD_BYTES_MAX


@dataclass(slots=True, eq=False)
class LongMessage:
    """A long message on its way to its reader.

    Args:
        number: names it to the reader.
        waiting, unconsumed: pieces that the reader has no credit for yet, and those in its hands.
        complete: its last piece has come.
    """

    number: int
    topic: str
    source: NodeId
    stream: int
    reader: Subscription
    asker: Asker | None = None
    question: int = 0
    waiting: deque[Taken] = field(default_factory=deque)
    unconsumed: deque[Taken] = field(default_factory=deque)
    complete: bool = False


@dataclass(slots=True, eq=False)
class TopicQueue:
    """What waits for the readers of a topic, and who they are.

    Args:
        waiting: segments, in order; waiting_count, waiting_bytes: their messages, and cost.
        waiting_of: how many of them each stream has, by `Taken.line_key`.
        held_bytes: the cost of all that is held for the topic, until consumed.
        touched_ns: when something came last, or a reader went.
        starved: a segment was refused for want of room.
        readers: the next one to be given something first.
    """

    waiting: deque[Taken] = field(default_factory=deque)
    waiting_count: int = 0
    waiting_bytes: int = 0
    waiting_of: dict[tuple[NodeId, int], int] = field(default_factory=dict)
    held_bytes: int = 0
    touched_ns: int = 0
    starved: bool = False
    readers: deque[Subscription] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Subscription:
    """One reader of a topic, and what is in its hands.

    Args:
        request: of the program.
        credit, credit_bytes: what it may have in its hands.
        takes_long: whether it takes long messages, and questions.
        unconsumed: segments in its hands; count, bytes: their messages, and cost with pieces.
        longs: long messages that are bound to it, by their numbers.
    """

    request: int
    topic: str
    credit: int
    credit_bytes: int
    takes_long: bool
    unconsumed: deque[Taken] = field(default_factory=deque)
    count: int = 0
    bytes: int = 0
    longs: dict[int, LongMessage] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether it has consumed everything."""
        return not self.bytes


class TopicTable:
    """The topics of one node, its subscriptions, and what is held.

    Attributes:
        topics: by name. subscriptions: by request.
        inboxes: the topics of answers.
        held_bytes: of all topics.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.topics: dict[str, TopicQueue] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.inboxes = Inboxes()
        self.held_bytes = 0

    def inherit(self, former: TopicTable) -> None:
        """Take over the queues and readers of the node that this process was before."""
        self.topics, self.subscriptions = former.topics, former.subscriptions
        self.inboxes = former.inboxes
        self.held_bytes = former.held_bytes

    # --- readers ------------------------------------------------------------------------------

    def has_able_reader(self, topic: str) -> bool:
        """Whether somebody reads a topic who can answer questions."""
        entry = self.topics.get(topic)
        return entry is not None and any(reader.takes_long for reader in entry.readers)

    def add_reader(
        self, request: int, topic: str, credit: int, credit_bytes: int, takes_long: bool
    ) -> TopicQueue:
        """Enter a reader of a topic, which there is from now on."""
        entry = self.topics.setdefault(topic, TopicQueue())
        subscription = Subscription(
            request,
            topic,
            credit,
            min(credit_bytes, CREDIT_BYTES_MAX),
            takes_long,
        )
        self.subscriptions[request] = subscription
        entry.readers.append(subscription)
        return entry

    # --- room ---------------------------------------------------------------------------------

    def room(self, topic: str) -> int:
        """How many bytes of cost this topic may take now."""
        entry = self.topics.get(topic)
        free = HELD_BYTES_MAX - self.held_bytes + self.inboxes.covered_bytes
        if entry is None:
            return free // 3 if self.topic_count < TOPICS_MAX else 0
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
    def topic_count(self) -> int:
        """How many topics there are; inboxes do not count."""
        return len(self.topics) - len(self.inboxes)

    def has_reader(self, topic: str) -> bool:
        """Whether a program reads this topic now."""
        entry = self.topics.get(topic)
        return entry is not None and bool(entry.readers)

    def may_take(self, topic: str, segment: Taken) -> bool:
        """Whether there is room for a segment of whole messages."""
        if self.room(topic) < segment.cost:
            return False
        entry = self.topics.get(topic)
        if entry is None or entry.readers or not entry.waiting:
            return True
        return entry.waiting_count + segment.count <= self._context.settings.queue_messages

    def starve(self, topic: str) -> None:
        """Let `RoomFreed` tell when this topic's readers have consumed something, or one came."""
        entry = self.topics.get(topic)
        if entry is not None:
            entry.starved = True

    def hold(self, topic: str, entry: TopicQueue, segment: Taken) -> None:
        """A segment is held from now on."""
        entry.held_bytes += segment.cost
        entry.touched_ns = self._context.now_ns
        self.held_bytes += segment.cost
        self.inboxes.hold(topic, segment.cost)

    def release(self, topic: str, entry: TopicQueue, cost: int) -> None:
        """So many bytes are held no more; who waits for room is told."""
        entry.held_bytes -= cost
        self.held_bytes -= cost
        self.inboxes.hold(topic, -cost)
        if entry.starved:
            entry.starved = False
            self._context.tell(RoomFreed(topic))

    @staticmethod
    def count_in(entry: TopicQueue, segment: Taken) -> None:
        """A segment waits in its queue."""
        entry.waiting_count += segment.count - segment.consumed
        entry.waiting_bytes += segment.cost
        key = segment.line_key
        entry.waiting_of[key] = entry.waiting_of.get(key, 0) + 1

    @staticmethod
    def count_out(entry: TopicQueue, segment: Taken) -> None:
        """A segment waits in its queue no more."""
        entry.waiting_count -= segment.count - segment.consumed
        entry.waiting_bytes -= segment.cost
        key = segment.line_key
        left = entry.waiting_of[key] - 1
        if left:
            entry.waiting_of[key] = left
        else:
            del entry.waiting_of[key]

    def drop(self, topic: str, entry: TopicQueue) -> None:
        """A topic without readers ends, with all that waits in it."""
        self.held_bytes -= entry.held_bytes
        del self.topics[topic]
        if entry.starved:
            self._context.tell(RoomFreed(topic))

    # --- counting -----------------------------------------------------------------------------

    def being_read(self) -> int:
        """How many messages readers have to consume yet, in their hands or before them."""
        handed_out = sum(reader.count + len(reader.longs) for reader in self.subscriptions.values())
        return handed_out + sum(e.waiting_count for e in self.topics.values() if e.readers)

    @property
    def unconsumed(self) -> int:
        """How many messages this node answers for."""
        handed_out = sum(reader.count for reader in self.subscriptions.values())
        return handed_out + self.waiting()

    def left_over(self) -> dict[str, int]:
        """The same by topics; a long message that is being read counts as one."""
        found = {name: entry.waiting_count for name, entry in self.topics.items()}
        for reader in self.subscriptions.values():
            count = reader.count + len(reader.longs)
            found[reader.topic] = found.get(reader.topic, 0) + count
        return {name: count for name, count in found.items() if count}

    def waiting(self) -> int:
        """How many messages wait for a reader, in all topics."""
        return sum(entry.waiting_count for entry in self.topics.values())
