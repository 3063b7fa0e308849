"""Deadlines of streams out: no answer came, or a segment has no time left.

Theory of operation. One deadline for each stream serves both. Silence sends the lowest segment again,
and holds the rest to be lost: it follows within the halved window. A segment whose time is over was

    never transmitted, or refused each time --> withdrawn
    transmitted                             --> in doubt: its program is told, and it stays underway

When everything underway is in doubt the stream goes on under a new id, which names the one that it
replaces. Only if the destination has answered under the old one: of a chain of ids that it may never
have heard of it would learn the last two alone, and take late segments of the others out of order.
Until then what is in doubt is sent again, and what follows waits, so that it is withdrawn in its time.
"""

from __future__ import annotations

from bmgd.core.context import Context
from bmgd.core.effects import StreamMoved
from bmgd.core.streams.sending import StreamSending
from bmgd.core.streams.stream_out import NEVER_NS, Sending, StreamOut
from bmgd.core.streams.table import StreamTable
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import Topics
from bmgd.errors import DeliveryError, QueueFullError, UnreachableError


class StreamExpiry:
    """Reacts when something takes too long."""

    def __init__(
        self, context: Context, topics: Topics, table: StreamTable, sending: StreamSending
    ) -> None:
        self._context = context
        self._topics = topics
        self._table = table
        self._sending = sending

    def on_timer(self, key: TimerKey) -> None:
        """Something took too long: an answer, or the time that a segment has."""
        stream = self._table.streams[key[1]]
        now_ns = self._context.now_ns
        if stream.earliest_ns <= now_ns:
            self.expire(stream, "")
        if self._table.streams.get(stream.key) is stream and stream.resend_ns <= now_ns:
            self._on_silence(stream)
        self._table.set_timer(stream)

    def _on_silence(self, stream: StreamOut) -> None:
        context = self._context
        stream.resend_ns = NEVER_NS
        if stream.destination == context.id or not stream.underway:
            stream.blocked = False
            self._sending.pump(stream, 1)
            return
        if stream.blocked:
            stream.blocked = False
        else:
            context.counts.add("stream_silences")
            stream.narrow()
            stream.lose_all()
        stream.backoff += 1
        lowest = stream.lowest()
        if lowest is not None and self._sending.transmit(stream, lowest):
            stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())

    def expire(self, stream: StreamOut, why: str) -> None:
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
        everything = bool(stream.underway) and all(s.doubted for s in stream.underway.values())
        goes_on_anew = everything and self._may_go_on_anew(stream)
        if goes_on_anew:
            self._sending.done(stream, sum(s.put_cost for s in stream.underway.values()))
            self._sending.give_id_up(stream)
        if withdrawn or doubted or goes_on_anew:
            self._sending.told(stream)
        waiting = (*stream.queue, *stream.underway.values())
        stream.earliest_ns = min(
            (s.deadline_ns for s in waiting if not s.doubted), default=NEVER_NS
        )
        self._sending.pump(stream, 1)
        self._sending.finish_if_idle(stream)

    def _may_go_on_anew(self, stream: StreamOut) -> bool:
        """Whether the destination knows the present id, or nothing follows under another."""
        ends = stream.closing or stream.abandoned
        is_last = ends and all(sending.is_mark for sending in stream.queue)
        return stream.answered or is_last or stream.destination == self._context.id

    def _take_expired(self, stream: StreamOut) -> list[Sending]:
        """Take what is over out of the queue; of a long message all that is left."""
        now_ns = self._context.now_ns
        kept: list[Sending] = []
        expired: list[Sending] = []
        # A long message goes on only as a whole: if a piece underway is over, so are those that wait.
        goes = any(s.size and s.deadline_ns <= now_ns for s in pieces_underway(stream))
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
                self._sending.add_mark(stream, closes=False)
            return []
        expired.sort(key=lambda sending: sending.number)
        stream.queue.clear()
        stream.queue.extend(kept)
        self._sending.done(stream, sum(s.put_cost for s in expired))
        if expired[0].size and not expired[0].first:
            # Its beginning is underway: what follows tells the destination that no end comes.
            mark = Sending(expired[0].number, 0, b"", 0, False, False, NEVER_NS)
            stream.queue.appendleft(mark)
        return expired

    def _take_back(self, stream: StreamOut) -> None:
        """What is underway was not taken: it waits again, for a new id."""
        back = list(stream.underway.values())
        self._sending.give_id_up(stream)
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
            detail = "its queue for that topic is full, or those of all topics are"
        elif why:
            detail = why
        else:
            detail = (
                "no confirmation before the deadline" if doubted else "no way was found in time"
            )
        kind: type[DeliveryError] = QueueFullError if was_full else UnreachableError
        for sending in withdrawn:
            if sending.answers and stream.answers is not None:
                # Whoever owes them may answer again.
                self._topics.questions.take_back(*stream.answers, sending.answers)
        for sending in (*withdrawn, *doubted):
            if sending.request:
                error = kind(stream.destination, detail, sent=sending in doubted)
                self._sending.reply(stream, sending, error)
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


def pieces_underway(stream: StreamOut) -> list[Sending]:
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
