"""What broadcasts bring for this node's programs: to every reader of a topic, in a queue of its own.

A reader that is slow stalls nobody. At most `CREDIT` announcements, of `CREDIT_BYTES` in all, are on
their way to it; `QUEUE_MAX` more wait here. What has no room is dropped, and in its place stands which
counts of the source the reader has missed. Broadcasts at best effort are not counted for readers, they
are only gone. What nobody reads is gone, and what a reader that goes away had not consumed.

What this node itself missed is told to every reader of a topic that carries reliable broadcasts. Which
topics those are shows only as they come: readers of others are told before the first one.

A long broadcast comes in pieces, faster than a program may take them. While a reader that takes some has
more than `BEHIND_BYTES` in its queue, this node's watermark waits (`broadcast/watermarks.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from bmgd.core.context import Context
from bmgd.core.effects import Announce, TellMissed
from bmgd.dataclass import dataclass
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Piece

CREDIT = 64
CREDIT_BYTES = 1 << 20
QUEUE_MAX = 1024
QUEUE_BYTES_MAX = 8 << 20
BEHIND_BYTES = 1 << 20
BEHIND_NS = 1_000_000_000
"""A reader that has not taken anything for so long is not waited for."""
HELD_BYTES_MAX = 64 << 20
"""Of all readers together."""
TOPICS_MAX = 1024
"""Topics known to carry reliable broadcasts."""
GAPS_MAX = 256
"""Source lives of which one reader's queue holds what was missed; of others nothing more is told."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A broadcast that came.

    Args:
        sequence: the source's count of its reliable broadcasts; 0 at best effort.
        piece: which place it has in a longer message, or None.
    """

    source: NodeId
    incarnation: Incarnation
    sequence: int
    topic: str
    payload: bytes = field(repr=False)
    piece: Piece | None = None


@dataclass(slots=True, eq=False)
class _Gap:
    """What a reader missed of a source's life: from one count to another, all topics together."""

    source: NodeId
    incarnation: Incarnation
    first: int
    last: int


@dataclass(slots=True, eq=False)
class _Reader:
    request: int
    topic: str
    queue: deque[Announcement | _Gap] = field(default_factory=deque)
    queue_bytes: int = 0
    gaps: dict[tuple[NodeId, Incarnation], _Gap] = field(default_factory=dict)
    untold: dict[tuple[NodeId, Incarnation], _Gap] = field(default_factory=dict)
    unconsumed: deque[int] = field(default_factory=deque)
    unconsumed_bytes: int = 0
    moved_ns: int = 0

    def has_credit(self) -> bool:
        return len(self.unconsumed) < CREDIT and (
            not self.unconsumed or self.unconsumed_bytes < CREDIT_BYTES
        )


class Announcements:
    """Who reads broadcasts at this node, and what waits for them.

    Attributes:
        dropped: announcements at best effort that a reader had no room for.
        dropped_reliable: reliable ones; it is told in their place that it missed them.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._readers: dict[int, _Reader] = {}
        self._by_topic: dict[str, dict[int, _Reader]] = {}
        self._held_bytes = 0
        self._carrying: dict[str, None] = {}
        self.dropped = 0
        self.dropped_reliable = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all that readers have not consumed."""
        return self._held_bytes

    def inherit(self, former: Announcements) -> None:
        """Take over the readers of the node that this process was before, and what waits for them."""
        self._readers, self._by_topic = former._readers, former._by_topic
        self._held_bytes = former._held_bytes
        self._carrying = former._carrying

    def subscribe(self, request: int, topic: str) -> None:
        """The subscription `request` reads this topic from now on."""
        reader = self._readers[request] = _Reader(request, topic)
        self._by_topic.setdefault(topic, {})[request] = reader

    def unsubscribe(self, request: int) -> None:
        """The reader is gone, and what it did not consume."""
        reader = self._readers.pop(request, None)
        if reader is None:
            return
        self._held_bytes -= reader.queue_bytes + reader.unconsumed_bytes
        of_topic = self._by_topic[reader.topic]
        del of_topic[request]
        if not of_topic:
            del self._by_topic[reader.topic]

    def consumed(self, request: int, count: int) -> None:
        """A reader has taken `count` more announcements, or tellings of what it missed."""
        reader = self._readers.get(request)
        if reader is None:
            return
        for _ in range(min(count, len(reader.unconsumed))):
            size = reader.unconsumed.popleft()
            reader.unconsumed_bytes -= size
            self._held_bytes -= size
        reader.moved_ns = self._context.now_ns
        self._hand_out(reader)

    def is_behind(self, topic: str) -> bool:
        """Whether a reader has much to take, and takes it: a source of pieces does well to wait."""
        now_ns = self._context.now_ns
        return any(
            reader.queue_bytes > BEHIND_BYTES and now_ns - reader.moved_ns < BEHIND_NS
            for reader in self._by_topic.get(topic, {}).values()
        )

    def announce(self, announcement: Announcement) -> int:
        """Let every reader of the topic have it; returns how many there are."""
        readers = self._by_topic.get(announcement.topic, {})
        if announcement.sequence and announcement.topic not in self._carrying:
            self._begin_carrying(announcement.topic)
        size = len(announcement.payload)
        for reader in readers.values():
            is_full = len(reader.queue) >= QUEUE_MAX
            is_full |= bool(reader.queue) and reader.queue_bytes + size > QUEUE_BYTES_MAX
            if is_full or self._held_bytes + size > HELD_BYTES_MAX:
                if announcement.sequence:
                    self.dropped_reliable += 1
                    at = announcement.sequence
                    self._add_gap(reader, announcement.source, announcement.incarnation, at, at)
                else:
                    self.dropped += 1
            else:
                if not reader.queue:
                    reader.moved_ns = self._context.now_ns
                reader.queue.append(announcement)
                reader.queue_bytes += size
                self._held_bytes += size
                # What is missed after it is told after it.
                reader.gaps.pop((announcement.source, announcement.incarnation), None)
            self._hand_out(reader)
        return len(readers)

    def tell_missed(self, source: NodeId, incarnation: Incarnation, first: int, last: int) -> None:
        """This node did not get these: every reader is told."""
        for reader in self._readers.values():
            if reader.topic in self._carrying:
                self._add_gap(reader, source, incarnation, first, last)
                self._hand_out(reader)
            elif (source, incarnation) in reader.untold:
                reader.untold[source, incarnation].last = last
            elif len(reader.untold) < GAPS_MAX:
                reader.untold[source, incarnation] = _Gap(source, incarnation, first, last)

    def _begin_carrying(self, topic: str) -> None:
        if len(self._carrying) >= TOPICS_MAX:
            # Whoever reads a topic that carried none for long is told the next time it does.
            del self._carrying[next(iter(self._carrying))]
        self._carrying[topic] = None
        for reader in self._by_topic.get(topic, {}).values():
            for gap in reader.untold.values():
                self._add_gap(reader, gap.source, gap.incarnation, gap.first, gap.last)
            reader.untold.clear()

    def being_read(self) -> int:
        """How many announcements readers have to consume yet."""
        return sum(len(each.queue) + len(each.unconsumed) for each in self._readers.values())

    def _add_gap(
        self, reader: _Reader, source: NodeId, incarnation: Incarnation, first: int, last: int
    ) -> None:
        gap = reader.gaps.get((source, incarnation))
        if gap is not None:
            gap.last = last
        elif len(reader.gaps) < GAPS_MAX:
            gap = reader.gaps[source, incarnation] = _Gap(source, incarnation, first, last)
            reader.queue.append(gap)

    def _hand_out(self, reader: _Reader) -> None:
        while reader.queue and reader.has_credit():
            item = reader.queue.popleft()
            size = 0
            if isinstance(item, _Gap):
                if reader.gaps.get((item.source, item.incarnation)) is item:
                    del reader.gaps[item.source, item.incarnation]
                self._context.emit(
                    TellMissed(reader.request, item.source, item.incarnation, item.first, item.last)
                )
            else:
                size = len(item.payload)
                self._context.emit(
                    Announce(
                        reader.request,
                        item.source,
                        item.incarnation,
                        item.sequence,
                        item.topic,
                        item.payload,
                        item.piece,
                    )
                )
            reader.queue_bytes -= size
            reader.unconsumed.append(size)
            reader.unconsumed_bytes += size
