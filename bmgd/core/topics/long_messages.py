"""Long messages: each piece goes to the one reader that the first piece was bound to.

Theory of operation. A long message is never put together here:

    first piece --no reader that takes long ones--> NO_READER
                --a reader--> bound --pieces, as its credit allows--> last piece consumed --> taken
                                    --reader gone--> lost   --source dead, or its stream gone--> aborted

The first piece waits at its source while segments of its stream wait for a reader: what was written
first is given first. A question of many pieces is one, and its asker is told as of a short one
(`questions.py`).
"""

from __future__ import annotations

from bmgd.core.context import Context, LongSettled
from bmgd.core.effects import Deliver
from bmgd.core.topics.questions import Questions
from bmgd.core.topics.taken import Offer, Taken
from bmgd.core.topics.topic_table import LongMessage, Subscription, TopicTable
from bmgd.types import Incarnation, NodeId

LONGS_MAX = 1024
"""Long messages that are being read."""


class LongMessages:
    """The long messages of one node, from the first piece to the last one consumed.

    Attributes:
        by_stream: those underway, by source and stream.
    """

    def __init__(self, context: Context, table: TopicTable, questions: Questions) -> None:
        self._context = context
        self._table = table
        self._questions = questions
        self._count = 0
        self.by_stream: dict[tuple[NodeId, int], LongMessage] = {}

    def inherit(self, former: LongMessages) -> None:
        """Count on; those underway were aborted."""
        self._count = former._count

    def streams_of(self, source: NodeId) -> list[int]:
        """The streams of a source that have one underway. O(`LONGS_MAX`)."""
        return [stream for who, stream in self.by_stream if who == source]

    def abort_all(self, why: str) -> None:
        """No further piece of any comes."""
        for long in list(self.by_stream.values()):
            self._abort(long, why)

    def reader_gone(self, reader: Subscription) -> None:
        """A reader ended: what was on its way to it is lost, and its source told."""
        for long in list(reader.longs.values()):
            self.forget(long)
            self._context.tell(LongSettled(long.source, long.stream, taken=False))

    def offer(self, topic: str, piece: Taken) -> Offer:
        """Answer for a piece from now on, if its message has a reader, and there is room."""
        key = piece.source, piece.stream
        long = self.by_stream.get(key)
        if piece.first:
            if long is not None:
                self._abort(long, "its source began another one")
            if self._must_wait(topic, piece):
                return Offer.FULL
            long = self._bind(topic, piece)
        if long is None:
            return Offer.NO_READER
        entry = self._table.topics[topic]
        if self._table.room(topic) < piece.cost and (long.waiting or long.unconsumed):
            entry.starved = True
            return Offer.FULL
        long.waiting.append(piece)
        long.complete = piece.last
        self._table.hold(topic, entry, piece)
        self.hand_out(long)
        return Offer.AWAITED if piece.last else Offer.TAKEN

    def _must_wait(self, topic: str, piece: Taken) -> bool:
        """Whether what its stream brought before waits for a reader; then `RoomFreed` will tell.

        Questions have no order.
        """
        entry = self._table.topics.get(topic)
        if entry is None or piece.inbox or piece.line_key not in entry.waiting_of:
            return False
        if not self._table.has_able_reader(topic):
            return False
        self._table.starve(topic)
        return True

    def _bind(self, topic: str, piece: Taken) -> LongMessage | None:
        entry = self._table.topics.get(topic)
        able = [r for r in entry.readers if r.takes_long] if entry is not None else []
        if not able or len(self.by_stream) >= LONGS_MAX:
            return None
        reader = min(able, key=lambda r: len(r.longs))
        self._count += 1
        long = LongMessage(self._count, topic, piece.source, piece.stream, reader)
        self.by_stream[piece.source, piece.stream] = long
        reader.longs[long.number] = long
        if piece.inbox:
            long.asker, long.question = piece.asker, piece.question
            self._questions.handed(reader.request, piece.asker, piece.numbers)
        return long

    def hand_out(self, long: LongMessage) -> None:
        """Give its reader the pieces that it has credit for; one it may always have."""
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

    def abort(self, source: NodeId, stream: int, why: str) -> Subscription | None:
        """No further piece of the long message of this stream comes; its reader is told.

        Returns:
            The reader, which has credit for something else now; None where there is no such message.
        """
        long = self.by_stream.get((source, stream))
        if long is None:
            return None
        self._abort(long, why)
        return long.reader

    def _abort(self, long: LongMessage, why: str) -> None:
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
                self._questions.forget(long.reader.request, long.asker, long.question)
        self.forget(long)

    def forget(self, long: LongMessage) -> None:
        """Nothing of it is held any more."""
        del self.by_stream[long.source, long.stream]
        long.reader.longs.pop(long.number, None)
        long.reader.bytes -= sum(piece.cost for piece in long.unconsumed)
        cost = sum(piece.cost for piece in (*long.unconsumed, *long.waiting))
        entry = self._table.topics.get(long.topic)
        if entry is not None:
            self._table.release(long.topic, entry, cost)

    def consumed(self, reader: Subscription, number: int, count: int) -> None:
        """A reader has consumed pieces; with the last one its message is taken."""
        long = reader.longs.get(number)
        if long is None:
            return
        entry = self._table.topics[long.topic]
        for _ in range(min(count, len(long.unconsumed))):
            piece = long.unconsumed.popleft()
            reader.bytes -= piece.cost
            self._table.release(long.topic, entry, piece.cost)
        if long.complete and not long.waiting and not long.unconsumed:
            self.forget(long)
            self._context.tell(LongSettled(long.source, long.stream, taken=True))
