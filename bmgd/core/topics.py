"""What was taken for this node's programs: a bounded queue per topic, read by subscriptions.

Each message goes to one reader of its topic: to those with credit, in turn; without a reader it waits.
A message leaves this node's hands when the reader says that it consumed it; what a reader that goes
away has not consumed goes back to the front of the queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bmgd.core.context import Context
from bmgd.core.effects import Deliver, Reply
from bmgd.types import NodeId

TOPICS_MAX = 1024
QUEUE_BYTES_MAX = 16 * 1024 * 1024
HELD_BYTES_MAX = 64 * 1024 * 1024
"""Of all topics together, until consumed."""
SUBSCRIPTIONS_MAX = 1024
CREDIT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that this node answers for until a program has consumed it."""

    source: NodeId
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class _Topic:
    waiting: deque[Taken] = field(default_factory=deque)
    waiting_bytes: int = 0
    readers: deque[_Subscription] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Subscription:
    request: int
    topic: str
    credit: int
    unconsumed: deque[Taken] = field(default_factory=deque)


class Topics:
    """The queues of one node, and who reads them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topics: dict[str, _Topic] = {}
        self._subscriptions: dict[int, _Subscription] = {}
        self._held_bytes = 0

    def inherit(self, former: Topics) -> None:
        """Take over the queues and readers of the node that this process was before."""
        self._topics, self._subscriptions = former._topics, former._subscriptions
        self._held_bytes = former._held_bytes

    def take(self, topic: str, message: Taken) -> bool:
        """Answer for a message from now on; False when its queue, or a bound of all, is full."""
        if self._held_bytes + len(message.payload) > HELD_BYTES_MAX:
            return False
        entry = self._topics.get(topic)
        if entry is None:
            if len(self._topics) >= TOPICS_MAX:
                return False
            entry = self._topics[topic] = _Topic()
        full = len(entry.waiting) >= self._context.settings.queue_messages
        if full or entry.waiting_bytes + len(message.payload) > QUEUE_BYTES_MAX:
            return False
        entry.waiting.append(message)
        entry.waiting_bytes += len(message.payload)
        self._held_bytes += len(message.payload)
        self._hand_out(topic, entry)
        return True

    def subscribe(self, request: int, topic: str, credit: int) -> bool:
        """Begin to read a topic, answered at once; False when the table of subscriptions is full."""
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX or (
            topic not in self._topics and len(self._topics) >= TOPICS_MAX
        ):
            return False
        entry = self._topics.setdefault(topic, _Topic())
        subscription = _Subscription(request, topic, min(credit, CREDIT_MAX))
        self._subscriptions[request] = subscription
        entry.readers.append(subscription)
        self._context.emit(Reply(request))
        self._hand_out(topic, entry)
        return True

    def consumed(self, request: int, count: int) -> None:
        """A reader has taken `count` more messages: as many more may follow."""
        subscription = self._subscriptions.get(request)
        if subscription is None:
            return
        for _ in range(min(count, len(subscription.unconsumed))):
            self._held_bytes -= len(subscription.unconsumed.popleft().payload)
            subscription.credit += 1
        self._hand_out(subscription.topic, self._topics[subscription.topic])

    def unsubscribe(self, request: int) -> None:
        """End a subscription; what it did not consume waits again, in front."""
        subscription = self._subscriptions.pop(request, None)
        if subscription is None:
            return
        entry = self._topics[subscription.topic]
        entry.readers.remove(subscription)
        entry.waiting.extendleft(reversed(subscription.unconsumed))
        entry.waiting_bytes += sum(len(message.payload) for message in subscription.unconsumed)
        self._hand_out(subscription.topic, entry)

    def being_read(self) -> int:
        """How many messages readers have to consume yet, in their hands or before them."""
        handed_out = sum(len(reader.unconsumed) for reader in self._subscriptions.values())
        return handed_out + sum(len(e.waiting) for e in self._topics.values() if e.readers)

    @property
    def unconsumed(self) -> int:
        """How many messages this node answers for."""
        handed_out = sum(len(reader.unconsumed) for reader in self._subscriptions.values())
        return handed_out + self.waiting()

    def waiting(self) -> int:
        """How many messages wait for a reader, in all topics."""
        return sum(len(entry.waiting) for entry in self._topics.values())

    def _hand_out(self, topic: str, entry: _Topic) -> None:
        idle = 0
        while entry.waiting and idle < len(entry.readers):
            reader = entry.readers[0]
            entry.readers.rotate(-1)
            if reader.credit == 0:
                idle += 1
                continue
            idle = 0
            message = entry.waiting.popleft()
            entry.waiting_bytes -= len(message.payload)
            reader.credit -= 1
            reader.unconsumed.append(message)
            self._context.emit(Deliver(reader.request, message.source, topic, message.payload))
        if not entry.waiting and not entry.readers:
            self._topics.pop(topic, None)
