"""What a program's requests tell their daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeGuard

import pytest

from bmgd.client.connection import Connection
from bmgd.client.inbox import SETTLED_MAX
from bmgd.client.questions import Questions
from bmgd.client.requesting import Asking
from bmgd.errors import (
    FailedAnswerError,
    LeavingError,
    NoDaemonError,
    RequestError,
    UnreachableError,
)
from bmgd.wire import control
from bmgd.wire.answers import ANSWER, FAILED, answer_head
from bmgd.wire.batch import pack_messages, unpack_messages

DEADLINE_S = 10.0


class Wire:
    """A connection whose frames come here, and whose daemon is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection = Connection()
        self.frames: list[control.Frame] = []
        self._written = asyncio.Event()
        monkeypatch.setattr(self.connection, "write", self._write)

    def _write(self, frame: control.Frame) -> None:
        self.frames.append(frame)
        self._written.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what was written fulfils a condition."""
        while not condition():
            self._written.clear()
            await self._written.wait()

    async def answer(self, verb: str, value: object) -> None:
        """Wait until something is asked, and answer it."""

        def asked() -> list[control.Request]:
            requests = [frame for frame in self.frames if isinstance(frame, control.Request)]
            return [request for request in requests if request.verb == verb]

        await self.until(lambda: bool(asked()))
        self.connection._on_frame(control.Result(asked()[0].sequence, value))

    async def open_stream(self, credit: int = 1 << 20) -> None:
        """Wait until an inbox and then a stream are asked for, and open them."""
        await self.answer("inbox", {"inbox": 1})
        await self.answer("questions", {"credit": credit, "first": 1})

    def put(self) -> int:
        """How many questions were put."""
        return sum(f.count for f in self.frames if isinstance(f, control.PutSegment))

    def settled(self) -> list[control.Settled]:
        """What was told to be done."""
        return [frame for frame in self.frames if isinstance(frame, control.Settled)]


async def answered(wire: Wire, asking: Asking, count: int) -> None:
    """Ask so many questions, and answer each in a turn of the loop of its own."""
    asked = [
        asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1000))
        for _ in range(count)
    ]
    await wire.answer("inbox", {"inbox": 1})
    await wire.answer("questions", {"credit": 1 << 20, "first": 1})
    await wire.until(lambda: wire.put() == count)
    for number in range(1, count + 1):
        body = pack_messages([answer_head(ANSWER, number) + b"a"])
        asking.inbox.on_item({"source": 1, "count": 1, "body": body})
        await asked[number - 1]


@pytest.mark.parametrize("question_bytes", [1, 100_000])
async def test_question_that_was_put_when_the_daemon_goes_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, question_bytes: int
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        question = bytes(question_bytes)
        asked = asyncio.create_task(asking.request(1, question, "t", DEADLINE_S, "normal", 1000))
        await wire.open_stream()
        await wire.until(lambda: any(isinstance(f, control.PutSegment) for f in wire.frames))
        wire.connection.connection_lost(None)
        with pytest.raises(NoDaemonError) as told:
            await asked
    assert told.value.sent


async def test_questions_that_are_done_one_by_one_are_settled_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmgd.client.inbox.SETTLED_S", DEADLINE_S)
    wire = Wire(monkeypatch)
    async with asyncio.timeout(DEADLINE_S):
        await answered(wire, Asking(wire.connection), SETTLED_MAX + 4)
        await wire.until(lambda: bool(wire.settled()))
    assert [(told.count, len(told.questions)) for told in wire.settled()] == [(SETTLED_MAX,) * 2]


async def test_a_question_that_is_done_is_settled_in_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    async with asyncio.timeout(DEADLINE_S):
        await answered(wire, Asking(wire.connection), 1)
        await wire.until(lambda: bool(wire.settled()))
    assert [(told.count, told.questions) for told in wire.settled()] == [(1, [1])]


async def test_question_whose_answer_is_too_long_may_have_been_worked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        asked = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 2))
        await wire.open_stream()
        await wire.until(lambda: wire.put() == 1)
        body = pack_messages([answer_head(ANSWER, 1) + b"too long"])
        asking.inbox.on_item({"source": 1, "count": 1, "body": body})
        with pytest.raises(RequestError, match="of max_answer") as error:
            await asked
    assert error.value.sent


async def test_question_that_a_leaving_node_has_taken_is_still_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reader finishes it; only what it refuses fails, as not sent."""
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)

    def ask() -> asyncio.Task[bytes]:
        return asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1000))

    async with asyncio.timeout(DEADLINE_S):
        taken = ask()
        await wire.open_stream()
        await wire.until(lambda: wire.put() == 1)
        stream = taken_stream(asking)
        stream.on_item({"next": 2, "credit": 1 << 20})
        refused = ask()
        await wire.until(lambda: wire.put() == 2)
        stream.on_end(LeavingError(1, "it is leaving"), {"next": 2, "unsent": 2})
        with pytest.raises(LeavingError) as error:
            await refused
        assert not error.value.sent
        assert not taken.done()
        body = pack_messages([answer_head(ANSWER, 1) + b"a"])
        asking.inbox.on_item({"source": 1, "count": 1, "body": body})
        assert await taken == b"a"


def taken_stream(asking: Asking) -> Questions:
    """The only stream of questions."""
    (stream,) = asking._streams
    return stream


async def test_questions_asked_while_the_inbox_opens_are_put_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)

    async def ask_when_open() -> bytes:
        """In the first turn of the loop in which the inbox is open."""
        inbox = asking.inbox
        while inbox._opening is None or not inbox._opening.done():  # noqa: ASYNC110 (each turn is looked at)
            await asyncio.sleep(0)
        return await asking.request(1, b"last", "t", DEADLINE_S, "normal", 1000)

    async with asyncio.timeout(DEADLINE_S):
        asked = [
            asyncio.create_task(asking.request(1, payload, "t", DEADLINE_S, "normal", 1000))
            for payload in (b"1", b"2")
        ]
        asked.append(asyncio.create_task(ask_when_open()))
        await wire.open_stream()
        await wire.until(lambda: wire.put() == len(asked))
    segments = [frame for frame in wire.frames if isinstance(frame, control.PutSegment)]
    bodies = [m for each in segments for m in unpack_messages(each.body, each.count)]
    assert bodies == [b"1", b"2", b"last"]
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_long_question_that_is_withdrawn_fails_with_the_reason_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    question = asking.request(1, bytes(100_000), "t", DEADLINE_S, "normal", 1000)
    async with asyncio.timeout(DEADLINE_S / 2):
        asked = asyncio.create_task(question)
        await wire.open_stream()
        put = [control.FIRST_PIECE, control.LAST_PIECE]
        await wire.until(lambda: [f.flags for f in wire.frames if is_put(f)] == put)
        why = {"error": "LeavingError", "detail": "it is leaving"}
        lost = {"next": 3, "credit": 1 << 20, "withdrawn": [1], "doubted": [], **why}
        wire.connection._on_frame(control.Item(2, lost))
        with pytest.raises(LeavingError) as caught:
            await asked
    assert not caught.value.sent


def is_put(frame: control.Frame) -> TypeGuard[control.PutSegment]:
    return isinstance(frame, control.PutSegment)


async def test_questions_of_a_former_inbox_are_not_settled_at_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmgd.client.inbox.SETTLED_S", DEADLINE_S)
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        asked = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1000))
        await wire.open_stream()
        await wire.until(lambda: wire.put() == 1)
        asking.inbox.on_end(NoDaemonError("the daemon is gone"), {})
        again = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1000))
        with pytest.raises(NoDaemonError):
            await asked
        verbs = [frame.verb for frame in wire.frames if isinstance(frame, control.Request)]
        assert verbs == ["inbox", "questions", "inbox"]
        asking.inbox._report()
        assert wire.settled() == []
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_request_that_ended_before_its_inbox_was_open_leaves_no_error_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    with pytest.raises(UnreachableError):
        await asking.request(1, b"x", "rpc", 0.01, "normal", 1000)
    opening: Any = asking.inbox._opening
    wire.connection.close()
    await asyncio.sleep(0)
    assert opening.done()
    # Else it is told of as an error that nobody noticed, when it goes.
    assert not opening._log_traceback


@pytest.mark.parametrize("ends", [False, True])
async def test_answer_to_a_long_question_may_come_before_its_last_piece_is_put(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        question = asking.request(1, bytes(300_000), "t", DEADLINE_S, "normal", 1000)
        asked = asyncio.create_task(question)
        await wire.open_stream(credit=100_000)
        await wire.until(lambda: any(map(is_put, wire.frames)))
        body = pack_messages([answer_head(ANSWER, 1) + b"early"])
        asking.inbox.on_item({"source": 1, "count": 1, "body": body})
        if ends:
            # Its reader leaves the rest unread.
            end = control.End(2, "ReaderLostError", "it went away", {"destination": 1})
            wire.connection._on_frame(end)
        assert await asked == b"early"
    assert sum(map(is_put, wire.frames)) < 5


async def test_rest_of_a_long_answer_is_not_kept_for_a_question_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        asked = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1 << 20))
        await wire.open_stream()
        await wire.until(lambda: wire.put() == 1)
        piece = {"long": 4, "source": 1, "size": 300_000, "last": False}
        asking.inbox.on_item({**piece, "body": answer_head(ANSWER, 1) + bytes(1000)})
        asked.cancel()
        await asyncio.wait((asked,))
        for _ in range(3):
            asking.inbox.on_item({**piece, "body": bytes(1000)})
        assert [answer.pieces for answer in asking.inbox._longs.values()] == [[]]


@pytest.mark.parametrize("max_answer", [1 << 20, 1000])
async def test_long_refusal_is_no_answer(monkeypatch: pytest.MonkeyPatch, max_answer: int) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        asked = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", max_answer))
        await wire.open_stream()
        await wire.until(lambda: wire.put() == 1)
        whole = answer_head(FAILED, 1) + b"cannot " * 10_000
        piece = {"long": 4, "source": 1, "size": len(whole)}
        for at in range(0, len(whole), 65_536):
            body = whole[at : at + 65_536]
            last = at + len(body) == len(whole)
            asking.inbox.on_item({**piece, "body": body, "last": last})
        with pytest.raises(FailedAnswerError, match=r"node 1: cannot cannot") as failed:
            await asked
    assert len(str(failed.value)) < 10_000


async def test_question_that_was_never_put_is_not_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        asked = asyncio.create_task(asking.request(1, b"q", "t", DEADLINE_S, "normal", 1000))
        await wire.until(lambda: bool(wire.frames))
        wire.connection.connection_lost(None)
        with pytest.raises(NoDaemonError) as told:
            await asked
    assert not told.value.sent


async def test_inbox_that_is_refused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire(monkeypatch)
    asking = Asking(wire.connection)
    async with asyncio.timeout(DEADLINE_S):
        request = asyncio.ensure_future(asking.request(1, b"q", "t", DEADLINE_S, "normal", 9))
        await wire.until(lambda: bool(wire.frames))
        opening = wire.frames[0]
        assert isinstance(opening, control.Request)
        wire.connection._on_frame(control.Failure(opening.sequence, "RequestError", "too many", {}))
        with pytest.raises(RequestError, match="too many"):
            await request
    assert not wire.connection._streams
