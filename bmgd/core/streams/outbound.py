"""Streams out of this node: from a program to one topic at one life of another node, once, in order.

Theory of operation. Here is what programs ask. `streams/stream_out.py` has the state of one stream,
`streams/table.py` all of them and their ids, `streams/sending.py` sends, `streams/expiry.py` has the
deadlines, `streams/answers.py` what comes back. A segment ends in exactly one of these:

    queue --the window, credit and an id allow--> underway --acknowledged--> confirmed
      |--its time is over--> withdrawn                |--its time is over--> in doubt, and stays underway
      |                                               |--refused each time (FULL), and over--> withdrawn
      +--death, new life, reset--> not sent           +--death, new life, reset--> sent, not confirmed
"""

from __future__ import annotations

from bmgd.core.commands import CloseStream, OpenStream, PutSegment, SendTo, Withdraw
from bmgd.core.context import Context
from bmgd.core.effects import Reply, StreamMoved
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.show import gone_text
from bmgd.core.streams.answers import StreamAnswers
from bmgd.core.streams.expiry import StreamExpiry
from bmgd.core.streams.sending import ABANDONED_NS, StreamSending
from bmgd.core.streams.stream_out import NEVER_NS, Sending, StreamOut
from bmgd.core.streams.table import StreamTable
from bmgd.core.topics.inboxes import QUESTIONS_MAX
from bmgd.core.topics.topics import Topics
from bmgd.core.work import Work
from bmgd.errors import (
    BmgdError,
    DeadError,
    LeavingError,
    NewLifeError,
    NoQuorumError,
    RequestError,
)
from bmgd.types import NodeId, NodeState
from bmgd.wire.bounds import (
    LONG_BYTES_MAX,
    MESSAGES_PER_SEGMENT_MAX,
    PAYLOAD_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from bmgd.wire.features import Feature
from bmgd.wire.segments import packed

STREAMS_MAX = 1024
"""Streams of all programs, with those that these abandoned while something of them is not confirmed;
each may put one segment whatever the others do."""
SHARED_MAX = 1024
"""Streams that messages sent singly share, beyond those of programs."""
SENT_MAX = 8192
"""Messages sent singly that are not answered; of a multicast each destination counts."""

TOO_OLD = "a member of an older release cannot pass on requests"
OWN_LEAVING = "this daemon is leaving, and takes no new messages"


class Outbound:
    """What programs send to one topic at one node.

    Attributes:
        table, sending, expiry, answers: the parts, see above.
    """

    def __init__(
        self, context: Context, forwarding: Forwarding, topics: Topics, work: Work
    ) -> None:
        self._context = context
        self._topics = topics
        self.table = StreamTable(context, forwarding)
        self.sending = StreamSending(context, forwarding, topics, work, self.table)
        self.expiry = StreamExpiry(context, topics, self.table, self.sending)
        self.answers = StreamAnswers(context, forwarding, work, self.table, self.sending)

    @property
    def underway(self) -> int:
        """How many segments wait for their confirmation."""
        return sum(len(s.underway) + len(s.queue) for s in self.table.streams.values())

    @property
    def unfinished(self) -> bool:
        """Whether a program has put the beginning of a long message, and not yet its end."""
        return any(s.unfinished for s in self.table.owned.values())

    @property
    def has_unconfirmed(self) -> bool:
        """Whether anything but the marks that end streams waits for its confirmation."""
        return any(
            not sending.is_mark
            for stream in self.table.streams.values()
            for sending in (*stream.queue, *stream.underway.values())
        )

    def left_over(self) -> dict[tuple[NodeId, str], int]:
        """Messages that are not confirmed, by destination and topic; a long one counts as one."""
        found: dict[tuple[NodeId, str], int] = {}
        for stream in self.table.streams.values():
            count = int(stream.unfinished)
            for sending in (*stream.queue, *stream.underway.values()):
                count += int(sending.last) if sending.size else sending.count
            if count:
                key = stream.destination, stream.topic
                found[key] = found.get(key, 0) + count
        return found

    def open(self, request: int, command: OpenStream) -> None:
        """Open a stream; `Reply` with its first credit follows, or an error."""
        stream = self.open_stream(request, command.destination, command.topic, command.priority)
        if stream is not None:
            stream.best_effort = command.best_effort
            self._context.emit(Reply(request, {"credit": stream.granted}))

    def open_stream(
        self,
        request: int,
        destination: NodeId,
        topic: str,
        priority: int,
        error: BmgdError | None = None,
        *,
        leaves: bool = False,
    ) -> StreamOut | None:
        """A program's stream, which has its first credit; None where `Reply` tells of an error.

        Args:
            error: why it cannot be, unless something else is in the way before.
            leaves: whether it is opened while this node leaves, too.
        """
        refusal = self.refusal(destination, topic)
        if leaves and isinstance(refusal, LeavingError):
            refusal = None
        error = refusal or error
        if error is None and len(self.table.owned) + len(self.table.abandoned) >= STREAMS_MAX:
            error = RequestError(f"more than {STREAMS_MAX} streams of all programs at a time")
        if error is not None:
            self._context.emit(Reply(request, error=error))
            return None
        stream = self.table.new_stream(request, destination, topic, priority, False)
        self.table.owned[request] = stream
        self.table.grant(stream)
        return stream

    def refusal(self, destination: NodeId, topic: str) -> BmgdError | None:
        """Why nothing can be sent to a topic of a node now; None where it can."""
        membership = self._context.membership
        if not 0 < len(topic.encode()) <= TOPIC_BYTES_MAX:
            return RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes")
        if self._context.state is NodeState.LEAVING:
            return LeavingError(destination, OWN_LEAVING)
        if self._context.stands_aside:
            return NoQuorumError(destination, "this node is in a minority, and stands aside")
        if membership.status_of(destination) is None:
            return RequestError(f"no node has the id {destination}")
        if destination != self._context.id and membership.is_gone(destination):
            return DeadError(destination, gone_text(membership, destination))
        return None

    def put(self, request: int, command: PutSegment) -> None:
        """Take a segment of a program's stream; nothing happens when the stream has ended."""
        stream = self.table.owned.get(request)
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
            self.sending.end(stream, RequestError(wrong))
            return
        if sending.size:
            stream.on_piece_put(sending)
        refusal = self.refusal(stream.destination, stream.topic)
        if isinstance(refusal, LeavingError):
            if stream.answers is None and (sending.first or not sending.size):
                # Its program has numbered the questions in it.
                stream.asked += max(1, sending.count)
                self._turn_down(stream, sending, refusal)
                return
            # The rest of a long message that was begun before, or what this node owes.
            refusal = None
        if refusal is None and not self._is_for_this_life(stream):
            detail = "it began a new life, and the stream was for the former one"
            refusal = NewLifeError(stream.destination, detail)
        if refusal is not None:
            self.sending.end(stream, refusal)
            return
        why = self._take_in(stream, sending, command.answers)
        if why is not None:
            self._turn_down(stream, sending, why)
            return
        stream.next_number += 1
        if not stream.cutting or sending.first or not sending.size:
            stream.unfinished = bool(sending.size) and not sending.last
        self.add(stream, sending)

    def _take_in(
        self, stream: StreamOut, sending: Sending, answers: tuple[int, ...]
    ) -> RequestError | None:
        """Number the questions of a segment, or see that its answers are owed; why it is not taken."""
        if stream.inbox:
            if sending.size and not sending.first:
                sending.question = stream.first_question + stream.asked - 1
                return None
            sending.question = stream.first_question + stream.asked
            stream.asked += max(1, sending.count)
            if not self._context.compatibility.common & Feature.REQUESTS:
                return RequestError(TOO_OLD)
            numbers = range(sending.question, stream.first_question + stream.asked)
            if not self._topics.inboxes.reserve(stream.inbox, numbers):
                return RequestError(f"more than {QUESTIONS_MAX} questions of all programs underway")
        elif stream.answers is not None and (sending.first or not sending.size):
            sending.answers = self._topics.questions.answered(*stream.answers, answers)
            if not sending.answers:
                return RequestError("an answer to a question that is not known any more")
        return None

    def _turn_down(
        self, stream: StreamOut, sending: Sending, why: LeavingError | RequestError
    ) -> None:
        """This segment is not taken, and what was put before it goes on."""
        stream.next_number += 1
        stream.put_cost += sending.cost
        self.sending.done(stream, sending.cost)
        stream.cutting = bool(sending.size) and not sending.last
        self.table.grant(stream)
        self._context.emit(
            StreamMoved(
                stream.owner,
                stream.next_done,
                stream.granted,
                (sending.number,),
                (),
                type(why).__name__,
                why.detail if isinstance(why, LeavingError) else str(why),
            )
        )

    def _is_for_this_life(self, stream: StreamOut) -> bool:
        """Whether a stream leads to the life that is known; one that nothing was put into now does."""
        known = self.table.known_tag(stream.destination)
        if stream.answers is not None:
            return known in (0, stream.tag)
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
        if sending.size and not stream.fits(sending):
            return "pieces that are not as long as their message"
        if stream.put_cost + sending.cost > stream.granted and not stream.is_idle:
            return "more was put than the stream's credit allows"
        return ""

    def add(self, stream: StreamOut, sending: Sending) -> None:
        """Let a segment wait for its turn in a stream, or send it at once."""
        if stream.cutting and sending.size and not sending.first:
            # Of a long message that was withdrawn.
            stream.put_cost += sending.cost
            self.sending.done(stream, sending.cost)
            self.sending.told(stream)
            return
        stream.cutting = False
        self._queue(stream, sending)
        self.sending.pump(stream)

    def _queue(self, stream: StreamOut, sending: Sending) -> None:
        sending.tag = self.table.known_tag(stream.destination)
        stream.put_cost += sending.cost
        stream.queue.append(sending)
        stream.earliest_ns = min(stream.earliest_ns, sending.deadline_ns)

    def send(self, request: int, command: SendTo) -> None:
        """Take a message from a program; one `Reply` follows, at the latest at the deadline."""
        context = self._context
        error = self.refusal(command.destination, command.topic)
        if len(command.payload) > PAYLOAD_BYTES_MAX:
            error = RequestError(f"a payload holds at most {PAYLOAD_BYTES_MAX} bytes")
        error = error or self.room_for(1)
        taken = None
        if error is None:
            body = packed(command.payload)
            taken = self.take(request, command.destination, command.topic, body, command.timeout_ns)
        if taken is None:
            error = error or RequestError("messages to too many topics are underway")
            context.emit(Reply(request, error=error))
            return
        self.sending.pump(taken[0])

    def room_for(self, count: int) -> BmgdError | None:
        """Why no more messages can be sent singly; None where so many can."""
        if self.table.sent_count + count > SENT_MAX:
            return RequestError("too many messages underway")
        return None

    def take(
        self, request: int, destination: NodeId, topic: str, body: bytes, timeout_ns: int
    ) -> tuple[StreamOut, Sending] | None:
        """Put a message into the stream that those sent singly share; `pump` sends it.

        Args:
            body: one message, as in a segment.

        Returns:
            None where too many such streams are busy.
        """
        stream = self._shared_stream(destination, topic)
        if stream is None:
            return None
        deadline_ns = self._context.now_ns + timeout_ns
        sending = Sending(stream.next_number, 1, body, 0, False, False, deadline_ns, request)
        stream.next_number += 1
        self.table.sent_count += 1
        self._queue(stream, sending)
        return stream, sending

    def _shared_stream(self, destination: NodeId, topic: str) -> StreamOut | None:
        stream = self.table.shared.pop((destination, topic), None)
        if stream is None:
            if len(self.table.shared) >= SHARED_MAX:
                idle = next((k for k, s in self.table.shared.items() if s.is_idle), None)
                if idle is None:
                    return None
                self.sending.remove(self.table.shared[idle])
            stream = self.table.new_stream(0, destination, topic, 2, False)
        elif not self._is_for_this_life(stream):
            if stream.is_idle:
                # Its window was what the way to the former life carried.
                self.sending.remove(stream)
            else:
                # What is underway to the former life fails when that is certain; the rest goes on.
                stream.closing = True
            stream = self.table.new_stream(0, destination, topic, 2, False)
        # The one used last is at the end.
        self.table.shared[destination, topic] = stream
        return stream

    def withdraw(self, request: int, command: Withdraw) -> None:
        """The program does not want to wait for a segment any more."""
        stream = self.table.owned.get(request)
        if stream is None:
            return
        if not command.number:
            if stream.unfinished:
                self._cut_long(stream)
            return
        for sending in (*stream.queue, *stream.underway.values()):
            if sending.number == command.number and not (sending.is_mark or sending.doubted):
                sending.deadline_ns = self._context.now_ns
                self.expiry.expire(stream, "withdrawn")
                return

    def close(self, request: int, command: CloseStream) -> None:
        """No further segment comes; `StreamEnded` follows when what was put is confirmed."""
        stream = self.table.owned.get(request)
        if stream is None:
            return
        if stream.unfinished:
            self._cut_long(stream)
        stream.closing = True
        if command.abandon and self.table.owned.pop(request, None) is stream:
            stream.abandoned = True
            self.table.abandoned[stream.key] = stream
            stream.owner = 0
            self._limit(stream)
        self.sending.finish_if_idle(stream)

    def _limit(self, stream: StreamOut) -> None:
        """Nobody waits for a stream any more: what it has yet to send has a bound."""
        until_ns = self._context.now_ns + ABANDONED_NS
        for sending in (*stream.queue, *stream.underway.values()):
            sending.deadline_ns = min(sending.deadline_ns, until_ns)
        stream.earliest_ns = min(stream.earliest_ns, until_ns)
        self.table.set_timer(stream)

    def _cut_long(self, stream: StreamOut) -> None:
        """Send nothing more of the long message put last; its reader is told by what follows."""
        stream.unfinished, stream.cutting = False, True
        while stream.queue and stream.queue[-1].size:
            sending = stream.queue.pop()
            self.sending.done(stream, sending.cost)
            if sending.first:
                if stream.answers is not None:
                    # Nothing of the answer was sent: whoever owes it may answer again.
                    self._topics.questions.take_back(*stream.answers, sending.answers)
                self.sending.told(stream)
                return
        self.sending.add_mark(stream, closes=False)
