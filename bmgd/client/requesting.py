"""Requests of one program: questions to other nodes, and the answers that come to its inbox.

Theory of operation. All questions to one topic of one node share a stream, as single messages do; each
has a number, which its answer names. The answers of all come to one inbox. What is known of a question:

    waiting here --in a segment--> put --answer, or why there is none--> its outcome
       |                            |--the stream ends (a death, a new life)--> failed
       +--timeout, cancelled        +--timeout, cancelled--> given up: a late answer is dropped
          --> not sent

With its outcome a question gives back the room that the daemon keeps for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from bmgd.client.arguments import Payload, Priority, check_timeout, checked_payload, checked_topic
from bmgd.client.backlog import Pending, with_sent
from bmgd.client.connection import ANSWER_S, Connection
from bmgd.client.kept_streams import KeptStreams
from bmgd.client.outgoing import Outgoing
from bmgd.client.underway import Segment
from bmgd.client.writing import outcome_of
from bmgd.errors import (
    BmgdError,
    DeliveryError,
    FailedAnswerError,
    NoDaemonError,
    NoReaderError,
    ProtocolError,
    ReaderLostError,
    RequestError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.wire import control
from bmgd.wire.answers import (
    ANSWER,
    ANSWER_HEAD_BYTES,
    FAILED,
    NO_READER,
    READER_LOST,
    read_head,
)
from bmgd.wire.batch import unpack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

UNDERWAY_MAX: Final = 1024
"""Questions of one connection without an outcome; one more waits."""
CREDIT_BYTES: Final = 2**20
"""How many bytes of answers may wait in this program before it takes them."""
MAX_ANSWER: Final = 64 * 2**20

SETTLED_MAX: Final = 16
SETTLED_BYTES: Final = 65_536
SETTLED_S: Final = 0.005
"""The daemon hears of questions that are done when there are so many, so many bytes of answers were
taken, or after so many seconds: a frame for each would cost it a step."""


_OVERDUE: Final = "no answer before the deadline"


class Asked(Pending):
    """A question; `confirmed` is done with its answer.

    Attributes:
        number: names it to the daemons; 0 until it is put.
        stream: that it is put into.
        max_answer: a longer answer is not taken, in bytes.
    """

    __slots__ = ("max_answer", "number", "stream")

    confirmed: asyncio.Future[Any]

    def __init__(self, payload: bytes, deadline: float, stream: Questions, max_answer: int) -> None:
        super().__init__(payload, deadline, asyncio.get_running_loop().create_future())
        self.number = 0
        self.stream = stream
        self.max_answer = max_answer

    def fail(self, error: BmgdError) -> None:
        """It gets no answer."""
        if not self.confirmed.done():
            self.confirmed.set_exception(error)


class Questions(Outgoing):
    """A stream of questions to one topic of one node.

    Args:
        asking: whose questions they are.
        inbox: where the answers come.
    """

    def __init__(
        self,
        asking: Asking,
        connection: Connection,
        destination: int,
        topic: str,
        priority: Priority,
        inbox: int,
    ) -> None:
        params = {
            "destination": destination,
            "topic": topic,
            "priority": priority,
            "inbox": inbox,
        }
        self._asking = asking
        self._next = 0
        self._asked: dict[int, Asked] = {}
        super().__init__(
            connection, destination, topic, priority, "reliable", ("questions", params)
        )

    @property
    def is_unused(self) -> bool:
        """Whether nothing of it waits, is underway or lacks its outcome."""
        return self.is_idle and not self._asked

    def _begin(self, value: Mapping[str, Any]) -> None:
        self._next = int(value["first"])

    def _put(
        self,
        body: bytes,
        count: int,
        waited: list[Pending],
        timeout: float,
        size: int = 0,
        flags: int = 0,
        more: bytes | memoryview = b"",
    ) -> int:
        number = super()._put(body, count, waited, timeout, size, flags, more)
        for message in waited:
            if isinstance(message, Asked):
                self.number(message)
        return number

    def number(self, question: Asked) -> None:
        """The next question is put: the daemon counts it too."""
        question.number = self._next
        self._next += 1
        self._asked[question.number] = question
        self._asking.asked[question.number] = question

    def forget(self, question: Asked) -> None:
        """It has its outcome."""
        self._asked.pop(question.number, None)

    def _settle(self, segment: Segment, error: BmgdError | None) -> None:
        if error is not None:
            super()._settle(segment, error)
            if not segment.count:
                # A piece of a long question, which has the stream to itself.
                for question in list(self._asked.values()):
                    question.fail(error)
            return
        # Taken by the other daemon: the answer is what is waited for.
        for message in segment.waited:
            if message.given_up and isinstance(message, Asked):
                message.fail(UnreachableError(self.destination, _OVERDUE, sent=True))

    def _fail(self, error: BmgdError | None, unsent: int) -> None:
        super()._fail(error, unsent)
        over = error or RequestError("the stream is closed")
        for question in list(self._asked.values()):
            # Those that the other daemon has taken; the others have failed just now.
            question.fail(with_sent(over, sent=not isinstance(over, NoReaderError)))


class Asking:
    """All questions of one connection, and their inbox."""

    def __init__(self, connection: Connection) -> None:
        self.asked: dict[int, Asked] = {}
        """Questions without an outcome, by number."""
        self._connection = connection
        self._streams: KeptStreams[Questions] = KeptStreams()
        self._room = asyncio.Semaphore(UNDERWAY_MAX)
        self._opening: asyncio.Future[Any] | None = None
        self._open_inbox = 0
        """The number of the inbox; 0 while there is none."""
        self._entering = 0
        """How many wait for it."""
        self._turn = asyncio.Lock()
        """Whose question is next: who asks while the inbox opens is not overtaken when it is open."""
        self._sequence = 0
        self._longs: dict[int, _LongAnswer] = {}
        self._taken = self._taken_bytes = 0
        self._settled: list[int] = []
        self._scheduled = False
        self._report_later: asyncio.TimerHandle | None = None

    # --- asking -------------------------------------------------------------------------------

    async def request(
        self,
        destination: int,
        payload: Payload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        max_answer: int,
    ) -> bytes:
        """See `bmgd.Daemon.request`."""
        question_bytes = checked_payload(payload)
        checked_topic(topic)
        check_timeout(timeout)
        if self._connection.lost is not None:
            timeout = await self._connection.until_sendable(destination, timeout)
        until = asyncio.get_running_loop().time() + timeout
        await self._enter(destination, until)
        try:
            inbox = await self._inbox_until(destination, until)
            if len(question_bytes) > PAYLOAD_BYTES_MAX:
                stream = self._new_stream(destination, topic, priority, inbox)
                question = Asked(question_bytes, until, stream, max_answer)
                return await self._ask_long(question)
            stream = self._stream(destination, topic, priority, inbox)
            question = Asked(question_bytes, until, stream, max_answer)
            stream.add(question_bytes, question)
            return await self._outcome(question)
        finally:
            self._room.release()

    async def _enter(self, destination: int, until: float) -> None:
        """Take one of the places of questions underway."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._room.acquire()
        except TimeoutError:
            detail = f"{UNDERWAY_MAX} other requests are underway"
            raise UnreachableError(destination, detail, sent=False) from None

    async def _inbox_until(self, destination: int, until: float) -> int:
        if self._open_inbox and not self._entering:
            return self._open_inbox
        self._entering += 1
        try:
            async with asyncio.timeout_at(until), self._turn:
                return self._open_inbox or await self._lasting_inbox(destination, until)
        except TimeoutError:
            detail = "its daemon has not answered before the deadline"
            raise UnreachableError(destination, detail, sent=False) from None
        finally:
            self._entering -= 1

    async def _lasting_inbox(self, destination: int, until: float) -> int:
        """The inbox; that of the next daemon, where this one goes away and another may come."""
        while True:
            try:
                return await self._inbox()
            except NoDaemonError:
                if not self._connection.lasts:
                    raise
                left = max(until - asyncio.get_running_loop().time(), 0.001)
                await self._connection.until_sendable(destination, left)

    def _new_stream(
        self, destination: int, topic: str, priority: Priority, inbox: int
    ) -> Questions:
        return Questions(self, self._connection, destination, topic, priority, inbox)

    def _stream(self, destination: int, topic: str, priority: Priority, inbox: int) -> Questions:
        return self._streams.get(
            (destination, topic, priority),
            lambda: self._new_stream(destination, topic, priority, inbox),
        )

    async def _outcome(self, question: Asked) -> bytes:
        try:
            answer: bytes = await outcome_of(question.stream, question, _OVERDUE)
        finally:
            self._done(question)
        return answer

    async def _ask_long(self, question: Asked) -> bytes:
        stream = question.stream
        try:
            async with asyncio.timeout_at(question.deadline):
                await stream.until_open()
                stream.number(question)
                loop = asyncio.get_running_loop()
                await stream.put_long(question.payload, question.deadline - loop.time())
                answer: bytes = await asyncio.shield(question.confirmed)
        except TimeoutError:
            raise UnreachableError(stream.destination, _OVERDUE, sent=True) from None
        finally:
            self._done(question)
            stream.abandon()
        return answer

    def _done(self, question: Asked) -> None:
        """A question has its outcome: what was kept for its answer is given back."""
        question.stream.forget(question)
        if not question.confirmed.done():
            question.confirmed.cancel()
        elif not question.confirmed.cancelled():
            question.confirmed.exception()
        self._give_back(question)

    def _give_back(self, question: Asked) -> None:
        """The room of its answer is not needed any more."""
        if self.asked.pop(question.number, None) is not None:
            self._settled.append(question.number)
            self._schedule()

    # --- the inbox ----------------------------------------------------------------------------

    async def _inbox(self) -> int:
        """The number of the inbox; it is opened for the first question.

        Raises:
            SilentDaemonError: the daemon does not answer.
        """
        if self._opening is None:
            params = {"credit_bytes": CREDIT_BYTES}
            self._sequence, self._opening = self._connection.open("inbox", params, self)
        opening = self._opening
        try:
            async with asyncio.timeout(ANSWER_S):
                value = await asyncio.shield(opening)
        except TimeoutError:
            raise SilentDaemonError(f"no answer to 'inbox' for {ANSWER_S:g} s") from None
        inbox = int(value["inbox"])
        if self._opening is opening:
            self._open_inbox = inbox
        return inbox

    def on_item(self, value: Any) -> None:
        """Some answers, or a piece of a long one."""
        match value:
            case {"long": int(long)}:
                self._on_piece(long, value)
            case {"source": int(source), "count": int(count), "body": bytes(body)}:
                self._taken += count
                self._taken_bytes += len(body)
                for message in unpack_messages(body, count):
                    self._on_message(source, message)
                self._schedule()
            case _:
                raise ProtocolError("not an answer")

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        """The inbox is gone: nothing is answered any more."""
        self._opening, self._open_inbox = None, 0
        self._taken = self._taken_bytes = 0
        self._settled = []
        self._longs.clear()
        for question in list(self.asked.values()):
            if self._connection.lasts:
                detail = "its daemon went away before the answer"
                error = UnreachableError(question.stream.destination, detail, sent=True)
            question.fail(error or RequestError("the inbox is closed"))
        # The next inbox hears nothing of them: their numbers may be those of other questions there.
        self.asked.clear()

    def _question(self, source: int, number: int) -> Asked | None:
        question = self.asked.get(number)
        if question is None or question.stream.destination != source:
            return None
        return question if not question.confirmed.done() else None

    def _on_message(self, source: int, message: bytes) -> None:
        kind, number = read_head(message)
        question = self._question(source, number)
        if question is None:
            # Its outcome is known: it was given up, or failed.
            return
        payload = message[ANSWER_HEAD_BYTES:]
        if kind != ANSWER:
            question.fail(_error(kind, question.stream, payload))
        elif len(payload) > question.max_answer:
            question.fail(_too_long(len(payload)))
        else:
            question.confirmed.set_result(payload)
        self._give_back(question)

    def _on_piece(self, long: int, piece: Mapping[str, Any]) -> None:
        answer = self._longs.get(long)
        if piece.get("aborted"):
            self._longs.pop(long, None)
            if answer is not None and answer.question is not None:
                error = ReaderLostError(piece["source"], str(piece["aborted"]), sent=True)
                answer.question.fail(error)
            return
        if answer is None:
            _, number = read_head(piece["body"])
            question = self._question(piece["source"], number)
            size = piece["size"] - ANSWER_HEAD_BYTES
            if question is not None and size > question.max_answer:
                question.fail(_too_long(size))
                question = None
            answer = self._longs[long] = _LongAnswer(question)
        if answer.question is not None:
            answer.pieces.append(piece["body"])
        if piece["last"]:
            del self._longs[long]
            if answer.question is not None and not answer.question.confirmed.done():
                answer.question.confirmed.set_result(b"".join(answer.pieces)[ANSWER_HEAD_BYTES:])
        self._connection.write(control.ConsumedPieces(self._sequence, 1, long))

    def _schedule(self) -> None:
        """Let the daemon hear of it in a moment; at once where much of its room is taken."""
        if self._scheduled:
            return
        loop = asyncio.get_running_loop()
        if len(self._settled) >= SETTLED_MAX or self._taken_bytes >= SETTLED_BYTES:
            self._scheduled = True
            loop.call_soon(self._report)
        elif self._report_later is None:
            self._report_later = loop.call_later(SETTLED_S, self._report)

    def _report(self) -> None:
        """Tell the daemon what was taken, and which questions are done: for many at once."""
        self._scheduled = False
        if self._report_later is not None:
            self._report_later.cancel()
            self._report_later = None
        taken, settled = self._taken, self._settled
        self._taken = self._taken_bytes = 0
        self._settled = []
        if self._opening is not None and (taken or settled):
            self._connection.write(control.Settled(self._sequence, taken, settled))


class _LongAnswer:
    """A long answer as it comes; of no question, it is only taken."""

    __slots__ = ("pieces", "question")

    def __init__(self, question: Asked | None) -> None:
        self.question = question
        self.pieces: list[bytes] = []


def _too_long(size: int) -> RequestError:
    return RequestError(f"the answer has {size} bytes, more than max_answer")


def _error(kind: int, stream: Questions, text: bytes) -> DeliveryError:
    destination = stream.destination
    match kind:
        case kind if kind == NO_READER:
            detail = f"nobody reads {stream.topic!r} there who could answer"
            return NoReaderError(destination, detail, sent=False)
        case kind if kind == READER_LOST:
            detail = "the program that was asked went away without an answer"
            return ReaderLostError(destination, detail, sent=True)
        case kind if kind == FAILED:
            return FailedAnswerError(destination, text.decode(errors="replace"), sent=True)
    return UnreachableError(destination, "an answer of an unknown kind", sent=True)
