"""Where the answers to a program's questions come, and what its daemon is told of them.

The inbox is opened for the first question, and again where the daemon was restarted. A question that has
its outcome gives back the room that the daemon keeps for its answer:

    asked --answer, or why there is none--> its outcome --told with others--> forgotten by the daemon
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from bmgd.client.backlog import with_sent
from bmgd.client.connection import ANSWER_S, Connection
from bmgd.client.questions import Asked, Questions
from bmgd.errors import (
    BmgdError,
    DeliveryError,
    FailedAnswerError,
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

CREDIT_BYTES: Final = 2**20
"""How many bytes of answers may wait in this program before it takes them."""
TEXT_BYTES_MAX: Final = 4096
"""Of why there is no answer."""
SETTLED_MAX: Final = 16
SETTLED_BYTES: Final = 65_536
SETTLED_S: Final = 0.005
"""The daemon hears of questions that are done when there are so many, so many bytes of answers were
taken, or after so many seconds: a frame for each would cost it a step."""


class Inbox:
    """The inbox of one connection.

    Attributes:
        asked: the questions without an outcome, by number.
        number: names it to the daemons; 0 while it is not open.
    """

    def __init__(self, connection: Connection) -> None:
        self.asked: dict[int, Asked] = {}
        self.number = 0
        self._connection = connection
        self._opening: asyncio.Future[Any] | None = None
        self._sequence = 0
        self._longs: dict[int, _LongAnswer] = {}
        self._taken = self._taken_bytes = 0
        self._settled: list[int] = []
        self._scheduled = False
        self._report_later: asyncio.TimerHandle | None = None

    async def opened(self) -> int:
        """The number of the inbox; it is opened for the first question.

        Raises:
            SilentDaemonError: the daemon does not answer.
        """
        if self._opening is None:
            params = {"credit_bytes": CREDIT_BYTES}
            self._sequence, self._opening = self._connection.open("inbox", params, self)
            # Whoever waits may have given up when it fails.
            self._opening.add_done_callback(_look_at)
        opening = self._opening
        try:
            async with asyncio.timeout(ANSWER_S):
                value = await asyncio.shield(opening)
        except TimeoutError:
            raise SilentDaemonError(f"no answer to 'inbox' for {ANSWER_S:g} s") from None
        inbox = int(value["inbox"])
        if self._opening is opening:
            self.number = inbox
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
        self._connection.forget(self._sequence)
        self._opening, self.number = None, 0
        self._taken = self._taken_bytes = 0
        self._settled = []
        self._longs.clear()
        for question in list(self.asked.values()):
            if self._connection.lasts:
                detail = "its daemon went away before the answer"
                error = UnreachableError(question.stream.destination, detail, sent=True)
            # It was put: whether anybody has it is not known.
            over = error or RequestError("the inbox is closed")
            question.fail(with_sent(over, sent=True))
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
        error = _refusal(kind, question, len(payload), payload)
        if error is not None:
            question.fail(error)
        else:
            question.confirmed.set_result(payload)
        self.give_back(question)

    def _on_piece(self, long: int, piece: Mapping[str, Any]) -> None:
        answer = self._longs.get(long)
        if piece.get("aborted"):
            self._longs.pop(long, None)
            if answer is not None and answer.question is not None:
                error = ReaderLostError(piece["source"], str(piece["aborted"]), sent=True)
                answer.question.fail(error)
            return
        if answer is None:
            kind, number = read_head(piece["body"])
            question = self._question(piece["source"], number)
            size = piece["size"] - ANSWER_HEAD_BYTES
            if question is not None:
                refusal = _refusal(kind, question, size, piece["body"][ANSWER_HEAD_BYTES:])
                if refusal is not None:
                    question.fail(refusal)
                    question = None
            answer = self._longs[long] = _LongAnswer(question)
        if answer.question is not None and answer.question.confirmed.done():
            # It was given up, or failed: nobody wants the rest.
            answer.question = None
            answer.pieces.clear()
        if answer.question is not None:
            answer.pieces.append(piece["body"])
        if piece["last"]:
            del self._longs[long]
            if answer.question is not None:
                answer.question.confirmed.set_result(b"".join(answer.pieces)[ANSWER_HEAD_BYTES:])
        self._connection.write(control.ConsumedPieces(self._sequence, 1, long))

    def give_back(self, question: Asked) -> None:
        """The room of its answer is not needed any more."""
        if self.asked.pop(question.number, None) is not None:
            self._settled.append(question.number)
            self._schedule()

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


def _refusal(kind: int, question: Asked, size: int, begin: bytes) -> BmgdError | None:
    """Why what came is no answer that its program wants, by its kind, size and beginning; or None."""
    if kind != ANSWER:
        return _error(kind, question.stream, begin)
    if size <= question.max_answer:
        return None
    text = f"the answer has {size} bytes, more than the {question.max_answer} of max_answer"
    return RequestError(text, sent=True)


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
            detail = text[:TEXT_BYTES_MAX].decode(errors="replace")
            return FailedAnswerError(destination, detail, sent=True)
    return UnreachableError(destination, "an answer of an unknown kind", sent=True)


def _look_at(answer: asyncio.Future[Any]) -> None:
    """Whatever came of it is known: it is no error that nobody noticed."""
    if not answer.cancelled():
        answer.exception()
