"""What becomes of answers that are cancelled, or cannot be sent."""

from __future__ import annotations

import asyncio

import pytest

from bmgd.client import replying
from bmgd.client.connection import Connection
from bmgd.client.replying import Asker, Question, Replies
from bmgd.errors import NoDaemonError, RequestError, UnreachableError
from bmgd.wire import control
from bmgd.wire.answers import ANSWER_HEAD_BYTES
from bmgd.wire.batch import unpack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

DEADLINE_S = 10.0
FULL = bytes(PAYLOAD_BYTES_MAX - ANSWER_HEAD_BYTES)


class Daemon(Connection):
    """A connection whose frames stay here; it answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[control.Frame] = []
        self.wrote = asyncio.Event()

    def write(self, frame: control.Frame) -> None:
        self.written.append(frame)
        self.wrote.set()

    def open_streams(self, credit: int = 1 << 20) -> None:
        """Answer the streams that were asked for."""
        for frame in list(self.written):
            if isinstance(frame, control.Request):
                self._on_frame(control.Result(frame.sequence, {"credit": credit}))

    async def confirm_all(self) -> None:
        """Confirm what was put, until nothing more is."""
        confirmed = 0
        await turn()
        while (put := sum(isinstance(f, control.PutSegment) for f in self.written)) > confirmed:
            confirmed = put
            for frame in list(self.written):
                if isinstance(frame, control.Request):
                    value = {"next": confirmed + 1, "credit": 1 << 20}
                    self._on_frame(control.Item(frame.sequence, value))
            await turn()

    def answers(self) -> list[bytes]:
        """What was put, without its heads."""
        put = [frame for frame in self.written if isinstance(frame, control.PutSegment)]
        bodies = [(bytes(frame.body) + bytes(frame.more), frame.count) for frame in put]
        return [m[ANSWER_HEAD_BYTES:] for each in bodies for m in unpack_messages(*each)]


async def turn() -> None:
    """Let what is ready run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def cancelled(answering: asyncio.Task[object]) -> None:
    await turn()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def answered_again(daemon: Daemon, question: Question) -> None:
    """A second answer is sent, as the only one; then nobody waits for it."""
    again = asyncio.ensure_future(question.answer(b"second", DEADLINE_S))
    await turn()
    daemon.open_streams()
    await turn()
    assert daemon.answers() == [b"second"]
    await cancelled(again)


async def test_answer_that_is_cancelled_before_it_is_sent_can_be_given_again() -> None:
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    await cancelled(asyncio.ensure_future(question.answer(b"first", DEADLINE_S)))
    await answered_again(daemon, question)
    # That one was sent.
    with pytest.raises(RequestError, match="answered already"):
        await question.answer(b"third", DEADLINE_S)


async def test_answer_that_the_daemon_has_is_not_taken_back_when_its_reply_is_cancelled() -> None:
    """Nobody would hear that it was, and the asker would wait for it in vain."""
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    answering = asyncio.ensure_future(question.answer(b"first", DEADLINE_S))
    await turn()
    daemon.open_streams()
    await cancelled(answering)
    assert daemon.answers() == [b"first"]
    assert not [frame for frame in daemon.written if isinstance(frame, control.Withdraw)]


async def test_long_answer_that_is_cancelled_before_it_is_sent_can_be_given_again() -> None:
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    await cancelled(asyncio.ensure_future(question.answer(2 * FULL, DEADLINE_S)))
    await answered_again(daemon, question)


async def test_reason_of_a_failure_may_be_no_valid_text() -> None:
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    failing = asyncio.ensure_future(question.fail("no file \udcff", DEADLINE_S))
    await turn()
    daemon.open_streams()
    await turn()
    assert daemon.answers() == [b"no file \\udcff"]
    await cancelled(failing)


async def test_answer_that_is_cancelled_while_it_waits_for_room_can_be_given_again() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    await Question(replies, Asker(3, 1, 1), 6).answer_soon(FULL, DEADLINE_S)
    question = Question(replies, Asker(3, 1, 1), 7)
    await cancelled(asyncio.ensure_future(question.answer_soon(b"first", DEADLINE_S)))
    again = asyncio.ensure_future(question.answer_soon(b"second", DEADLINE_S))
    await turn()
    daemon.open_streams()
    await turn()
    assert daemon.answers() == [FULL, b"second"]
    assert again.done()


async def test_answers_that_wait_for_room_are_sent_before_those_that_come_later() -> None:
    daemon = Daemon()
    replies = Replies(daemon)

    def answer_soon(number: int) -> asyncio.Task[asyncio.Future[None]]:
        question = Question(replies, Asker(3, 1, 1), number)
        return asyncio.ensure_future(question.answer_soon(b"%d" % number, DEADLINE_S))

    await Question(replies, Asker(3, 1, 1), 0).answer_soon(FULL, DEADLINE_S)
    answering = [answer_soon(number) for number in (1, 2, 3)]
    await turn()
    daemon.open_streams()
    # This one runs when there is room, and before those who are told of it.
    answering.append(answer_soon(4))
    await asyncio.wait_for(asyncio.gather(*answering), DEADLINE_S)
    await turn()
    assert daemon.answers() == [FULL, b"1", b"2", b"3", b"4"]


async def test_answer_that_is_given_up_makes_room_for_those_that_wait() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    given_up = await Question(replies, Asker(3, 1, 1), 0).answer_soon(FULL, 0.01)
    waiting = Question(replies, Asker(3, 1, 1), 1).answer_soon(b"next", DEADLINE_S)
    await asyncio.wait_for(waiting, DEADLINE_S / 2)
    with pytest.raises(UnreachableError):
        await given_up


async def test_answer_that_was_withdrawn_can_be_given_again() -> None:
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    soon = await question.answer_soon(b"first", DEADLINE_S)
    daemon.open_streams()
    await turn()
    with pytest.raises(RequestError, match="answered already"):
        await question.answer_soon(b"too early", DEADLINE_S)
    error = {"error": "UnreachableError", "detail": "no way was found"}
    lost = {"next": 2, "credit": 1 << 20, "withdrawn": [1], "doubted": [], **error}
    daemon._on_frame(control.Item(1, lost))
    with pytest.raises(UnreachableError):
        await soon
    await question.answer_soon(b"second", DEADLINE_S)
    await turn()
    assert daemon.answers() == [b"first", b"second"]


async def test_answer_waits_for_room_only_while_its_asker_can_have_it() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    await Question(replies, Asker(3, 1, 1), 6).answer_soon(FULL, DEADLINE_S)
    question = Question(replies, Asker(3, 1, 1), 7)
    waiting = asyncio.ensure_future(question.answer_soon(b"late", DEADLINE_S))
    await turn()
    replies.end()
    with pytest.raises(RequestError, match="its subscription is over"):
        await asyncio.wait_for(waiting, DEADLINE_S / 2)
    assert len([frame for frame in daemon.written if isinstance(frame, control.Request)]) == 1


async def test_answer_that_is_not_put_when_its_subscription_ends_is_not_sent_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replying, "SETTLE_S", 0.01)
    daemon = Daemon()
    replies = Replies(daemon)
    answers = []
    for number, payload in enumerate((FULL, b"waits for credit")):
        question = Question(replies, Asker(3, 1, 1), number)
        answers.append(await question.answer_soon(payload, DEADLINE_S))
        daemon.open_streams(credit=1)
        await turn()
    assert daemon.answers() == [FULL]
    await replies.close()
    assert isinstance(daemon.written[-1], control.Close)
    daemon._on_frame(control.Item(1, {"next": 2, "credit": 1 << 20}))
    await answers[0]
    with pytest.raises(RequestError, match="closed"):
        await answers[1]
    assert isinstance(daemon.written[-1], control.Close)


async def test_answer_whose_subscription_has_ended_has_its_outcome_in_its_time() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    # Long enough for it to be put: what is not put in time needs not be withdrawn.
    soon = await Question(replies, Asker(3, 1, 1), 7).answer_soon(b"late", 0.3)
    daemon.open_streams()
    await turn()
    replies.end()
    assert isinstance(daemon.written[-1], control.Close)
    async with asyncio.timeout(DEADLINE_S):
        while control.Withdraw(1, 1) not in daemon.written:
            daemon.wrote.clear()
            await daemon.wrote.wait()
    error = {"error": "UnreachableError", "detail": "withdrawn"}
    lost = {"next": 2, "credit": 1 << 20, "withdrawn": [1], "doubted": [], **error}
    daemon._on_frame(control.Item(1, lost))
    daemon._on_frame(control.End(1, "", "", {"next": 2, "unsent": 2}))
    with pytest.raises(UnreachableError) as caught:
        await soon
    assert not caught.value.sent


async def test_long_answer_that_is_refused_here_can_be_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    question = Question(replies, Asker(3, 1, 1), 7)

    def refuse(asker: Asker) -> None:
        raise RequestError("too much waits for the daemon")

    with monkeypatch.context() as refusing:
        refusing.setattr(replies, "new_stream", refuse)
        with pytest.raises(RequestError, match="too much"):
            await question.answer(2 * FULL, DEADLINE_S)
    await answered_again(daemon, question)


async def test_answer_whose_future_is_cancelled_can_be_given_again_unless_the_daemon_has_it() -> (
    None
):
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    first = await question.answer_soon(b"first", DEADLINE_S)
    first.cancel()
    await turn()
    second = await question.answer_soon(b"second", DEADLINE_S)
    daemon.open_streams()
    await turn()
    assert daemon.answers() == [b"second"]
    second.cancel()
    await turn()
    assert not [frame for frame in daemon.written if isinstance(frame, control.Withdraw)]
    with pytest.raises(RequestError, match="answered already"):
        await question.answer_soon(b"third", DEADLINE_S)


async def test_answer_that_was_cancelled_in_this_turn_is_not_given_twice() -> None:
    """Its stream has not heard of it, and still puts it where it may be put before."""
    daemon = Daemon()
    question = Question(Replies(daemon), Asker(3, 1, 1), 7)
    first = await question.answer_soon(b"first", DEADLINE_S)
    first.cancel()
    with pytest.raises(RequestError, match="answered already"):
        await question.answer_soon(b"second", DEADLINE_S)
    await turn()
    # Now it has: the first one is not sent.
    await answered_again(daemon, question)


async def test_long_answer_that_is_underway_is_waited_for_when_its_subscription_ends() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    answering = asyncio.ensure_future(
        Question(replies, Asker(3, 1, 1), 7).answer(2 * FULL, DEADLINE_S)
    )
    await turn()
    closing = asyncio.ensure_future(replies.close())
    await turn()
    assert not closing.done()
    daemon.open_streams()
    await daemon.confirm_all()
    await asyncio.wait_for(closing, DEADLINE_S)
    await answering


async def test_answer_after_the_daemon_is_gone_says_so() -> None:
    daemon = Daemon()
    replies = Replies(daemon)
    question = Question(replies, Asker(3, 1, 1), 7)
    daemon._lose(NoDaemonError("the daemon closed the connection"))
    await replies.close()
    with pytest.raises(NoDaemonError, match="closed the connection"):
        await question.answer(b"late", DEADLINE_S)
