"""What waits goes to readers: in turns, as their credit allows, a bounded number in one step.

A segment is cut only for a reader whose whole credit is smaller. Questions go to readers that take long
messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from bmgd.core.context import Context
from bmgd.core.effects import Deliver
from bmgd.core.topics.questions import Questions
from bmgd.core.topics.taken import Taken
from bmgd.core.topics.topic_table import Subscription, TopicQueue, TopicTable
from bmgd.core.work import Work
from bmgd.wire.segments import OVERHEAD_BYTES, count_within, end_of

HAND_OUT_MAX = 128
"""Segments that one event hands out; the rest follows."""


class HandingOut:
    """Gives readers what waits for them."""

    def __init__(
        self, context: Context, table: TopicTable, questions: Questions, work: Work
    ) -> None:
        self._context = context
        self._table = table
        self._questions = questions
        self._work = work

    def hand_out(self, topic: str, entry: TopicQueue) -> None:
        """Hand out what waits and readers may have: so much of it now, the rest as work."""
        if self._hand_some(topic, entry, HAND_OUT_MAX):
            self._work.begin(f"hand out {topic}", lambda: self._hand_outs(topic))

    def _hand_some(self, topic: str, entry: TopicQueue, left: int) -> bool:
        """Hand out so much; whether there is more that readers may have."""
        idle = 0
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
                self._table.count_in(entry, segment)
                # It is still this reader's turn.
                entry.readers.rotate(1)
                return True
            left -= 1
            reader.count += segment.count
            reader.bytes += segment.cost
            reader.unconsumed.append(segment)
            if segment.inbox:
                self._questions.handed(reader.request, segment.asker, segment.numbers)
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
            self._table.topics.pop(topic, None)
        return False

    def _hand_outs(self, topic: str) -> Iterator[None]:
        """The rest of what readers may have, in turns."""
        while (entry := self._table.topics.get(topic)) is not None:
            if not self._hand_some(topic, entry, 1):
                return
            yield

    def _fitting(self, topic: str, entry: TopicQueue, reader: Subscription) -> Taken | None:
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

    def _pop(self, entry: TopicQueue) -> Taken:
        segment = entry.waiting.popleft()
        self._table.count_out(entry, segment)
        return segment

    def _cut(
        self,
        topic: str,
        entry: TopicQueue,
        segment: Taken,
        free: int,
        free_bytes: int,
        reader: Subscription,
    ) -> Taken | None:
        count = count_within(segment.body, free_bytes - OVERHEAD_BYTES, min(free, segment.count))
        if count == 0:
            if not reader.is_idle:
                return None
            count = 1
        if count >= segment.count:
            return self._pop(entry)
        end = end_of(segment.body, count)
        self._table.count_out(entry, segment)
        head = Taken(
            segment.source,
            segment.incarnation,
            segment.stream,
            count,
            segment.body[:end],
            redelivered=segment.redelivered,
            inbox=segment.inbox,
            question=segment.question,
            line=segment.line,
        )
        segment.body = segment.body[end:]
        segment.count -= count
        if segment.inbox:
            segment.question += count
        self._table.count_in(entry, segment)
        # Two segments cost one overhead more.
        entry.held_bytes += OVERHEAD_BYTES
        self._table.held_bytes += OVERHEAD_BYTES
        self._table.inboxes.hold(topic, OVERHEAD_BYTES)
        return head
