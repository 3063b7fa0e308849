"""The client for programs without asyncio, in a thread beside a fake daemon."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from bmgd import blocking
from bmgd.client import loop_thread
from bmgd.client.arguments import Payload
from bmgd.client.loop_thread import LoopThread
from bmgd.client.message import Message
from bmgd.client.thread_calls import Call, Outcome
from bmgd.errors import RequestError, UnreachableError
from tests.processes import started
from tests.unit.fake_core import FakeCore, fake_daemon

DEADLINE_S = 30.0

T = TypeVar("T")


async def run_beside(path: Path, program: Callable[[blocking.Daemon, FakeCore], None]) -> None:
    """Run a program that is connected to a fake daemon."""

    def connected() -> None:
        with blocking.connect(core.address) as daemon:
            program(daemon, core)

    async with fake_daemon(path / "d.sock") as core, asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(connected)


async def test_a_block_inside_an_except_is_left_without_the_error_that_is_handled(
    tmp_path: Path,
) -> None:
    taken: list[bytes] = []

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        try:
            raise ValueError("handled")
        except ValueError:
            with daemon.subscribe("jobs") as messages:
                daemon.send(1, b"x")
                taken.append(b"entered")
                assert messages is not None

    await run_beside(tmp_path, program)
    assert taken == [b"entered"]


async def test_a_block_that_fails_raises_its_own_error(tmp_path: Path) -> None:
    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with daemon.subscribe("jobs"):
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await run_beside(tmp_path, program)


async def test_block_that_is_interrupted_while_it_is_entered_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Interrupted(Outcome[T]):
        """The first that is made, on which the block waits to be entered, is interrupted."""

        def __init__(self, then: Callable[[BaseException | None], None] | None = None) -> None:
            super().__init__(then)
            made.append(self)

        def result(self) -> T:
            value = super().result()
            if self is made[0]:
                raise KeyboardInterrupt
            return value

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(loop_thread, "Outcome", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                daemon.subscribe("jobs").__enter__()
        # Its topic has no reader any more: another one is let in.
        while core.reader is not None:
            daemon.status()
        readers.append(core.reader)

    readers: list[int | None] = []
    await run_beside(tmp_path, program)
    assert readers == [None]


UNFINISHED = """
import sys
from bmgd import blocking

def numbers():
    with blocking.connect(sys.argv[1]) as daemon, daemon.subscribe("jobs"):
        yield 1
        yield 2

generator = numbers()
print(next(generator))
"""


async def test_stream_says_what_is_confirmed_after_its_connection_was_left(tmp_path: Path) -> None:
    def program() -> int:
        with blocking.connect(core.address) as daemon, daemon.stream(1) as stream:
            stream.write(b"x")
        return stream.confirmed

    async with fake_daemon(tmp_path / "d.sock") as core, asyncio.timeout(DEADLINE_S):
        assert await asyncio.to_thread(program) == 1


async def test_a_program_ends_though_it_never_leaves_its_connection(tmp_path: Path) -> None:
    async with fake_daemon(tmp_path / "d.sock") as core:
        command = sys.executable, "-c", UNFINISHED, core.address
        pipe = asyncio.subprocess.PIPE
        async with started(*command, stdout=pipe, stderr=pipe) as program:
            async with asyncio.timeout(DEADLINE_S):
                printed, told = await program.communicate()
    assert (program.returncode, printed, told) == (0, b"1\n", b"")


async def test_what_is_put_back_goes_to_the_next_reader(tmp_path: Path) -> None:
    left: list[list[bytes]] = []

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        core.waiting.extend([b"1", b"2"])
        with daemon.subscribe("jobs") as messages:
            (first,) = messages.take(1)
            messages.put_back()
        left.append([first.payload, *core.waiting])

    await run_beside(tmp_path, program)
    assert left == [[b"1", b"1", b"2"]]


class Asked(Message):
    """A request whose answer is confirmed a turn of the loop after it was sent."""

    async def reply_soon(
        self,
        payload: Payload,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        soon: asyncio.Future[None] = loop.create_future()
        if payload == b"late":
            loop.call_soon(soon.set_exception, UnreachableError(self.source, "late", sent=True))
        else:
            loop.call_soon(soon.set_result, None)
        return soon


@contextmanager
def interrupted(thread: LoopThread) -> Iterator[None]:
    """The calls inside are interrupted when they are done."""
    start = thread._start

    def start_in_vain(call: Call[Any]) -> None:
        start(call)
        result = call.outcome.result

        def interrupt() -> None:
            result()
            raise KeyboardInterrupt

        patched.setattr(call.outcome, "result", interrupt)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thread, "_start", start_in_vain)
        with pytest.raises(KeyboardInterrupt):
            yield


async def test_message_that_is_taken_when_its_reader_is_interrupted_is_returned_next(
    tmp_path: Path,
) -> None:
    taken: list[bytes] = []

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        core.put(*(b"%d" % number for number in range(5)))
        with daemon.subscribe("jobs") as messages:
            with interrupted(daemon._thread):
                messages.get(DEADLINE_S)
            taken.append(messages.get(DEADLINE_S).payload)
            with interrupted(daemon._thread):
                messages.take(2)
            with interrupted(daemon._thread):
                messages.put_back()
            taken.extend(message.payload for message in messages.take(1))
            taken.append(next(messages).payload)
            taken.extend(message.payload for message in messages.take(9))

    await run_beside(tmp_path, program)
    assert taken == [b"%d" % number for number in range(5)]


async def test_call_that_was_interrupted_may_take_its_message_before_the_next_looks(
    tmp_path: Path,
) -> None:
    """The next one has begun by then, and does not wait for another message."""

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with daemon.subscribe("jobs") as messages:
            message = cast(blocking.Message, object())
            for take in (messages._take_one(0.01), messages._take_some(2)):
                messages._handed = [message]
                daemon._thread.call(take)
                assert messages._handed == [message]
            messages._handed = []

    await run_beside(tmp_path, program)


async def test_message_that_no_call_has_returned_goes_to_the_next_reader(tmp_path: Path) -> None:
    again: list[bytes] = []

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        core.put(b"x")
        with daemon.subscribe("jobs") as messages, interrupted(daemon._thread):
            messages.get(DEADLINE_S)
        with daemon.subscribe("jobs") as messages:
            again.append(messages.get(DEADLINE_S).payload)

    await run_beside(tmp_path, program)
    assert again == [b"x"]


@pytest.mark.parametrize("wait_s", [0, -1, float("nan"), float("inf")])
async def test_get_refuses_what_is_no_timeout(tmp_path: Path, wait_s: float) -> None:
    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with (
            daemon.subscribe("jobs") as messages,
            pytest.raises(RequestError, match="timeout"),
        ):
            messages.get(wait_s)

    await run_beside(tmp_path, program)


async def test_answer_sent_soon_is_confirmed_or_fails_later(tmp_path: Path) -> None:
    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with daemon.subscribe("jobs") as messages:
            asked = blocking.Message(daemon._thread, Asked(3, "jobs", b"q", False, 1))
            assert asked.reply_soon(b"a").result(DEADLINE_S) is None
            with pytest.raises(UnreachableError):
                messages.reply_soon(asked, b"late").result(DEADLINE_S)

    await run_beside(tmp_path, program)
