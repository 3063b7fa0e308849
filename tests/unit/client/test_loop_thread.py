"""A thread with a loop: how contexts that it holds are entered and left, and how it ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress

import pytest

from bmgd.client.loop_thread import LoopThread
from bmgd.client.thread_calls import Call
from bmgd.errors import NoDaemonError, RequestError

DEADLINE_S = 10.0


class Held(AbstractAsyncContextManager[str]):
    """Notes how it is left, and takes some turns of the loop for it."""

    def __init__(self, name: str, log: list[tuple[str, object]]) -> None:
        self._name = name
        self._log = log

    async def __aenter__(self) -> str:
        return self._name

    async def __aexit__(self, kind: object, error: BaseException | None, at: object) -> None:
        await asyncio.sleep(0)
        exit_code = error.code if isinstance(error, SystemExit) else None
        self._log.append((self._name, exit_code or kind))


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    if made.is_alive:
        made.close()


def test_a_program_that_exits_in_its_blocks_leaves_them_in_order_and_ends_with_its_code(
    loop: LoopThread,
) -> None:
    left: list[tuple[str, object]] = []
    with (
        pytest.raises(SystemExit) as ended,
        loop.hold(Held("connection", left)),
        loop.hold(Held("registration", left)),
    ):
        sys.exit(3)
    assert ended.value.code == 3
    assert left == [("registration", 3), ("connection", 3)]
    assert loop.call(asyncio.sleep(0, "goes on")) == "goes on"


def test_a_program_that_is_interrupted_in_a_block_leaves_it(loop: LoopThread) -> None:
    left: list[tuple[str, object]] = []
    with pytest.raises(KeyboardInterrupt), loop.hold(Held("a", left)):
        raise KeyboardInterrupt
    assert left == [("a", KeyboardInterrupt)]
    loop.close()


def test_call_that_is_interrupted_before_it_has_begun_does_not_run(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, ran = loop._start, []

    async def work() -> None:
        ran.append(True)

    def start_and_interrupt(call: Call[None]) -> None:
        start(call)
        raise KeyboardInterrupt

    held = threading.Event()
    loop._loop.call_soon_threadsafe(held.wait, DEADLINE_S)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_start", start_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            loop.call(work())
    held.set()
    loop.call(asyncio.sleep(0))
    loop.call(asyncio.sleep(0))
    assert not ran


def test_a_call_that_is_under_way_when_the_loop_ends_fails(loop: LoopThread) -> None:
    begun = loop.begin(asyncio.Event().wait())
    loop.close()
    with pytest.raises(NoDaemonError, match="closed"):
        begun.result(DEADLINE_S)
    with pytest.raises(NoDaemonError, match="closed"):
        loop.call(asyncio.sleep(0))


def test_a_block_that_is_left_after_the_loop_ended_fails(loop: LoopThread) -> None:
    left: list[tuple[str, object]] = []
    with pytest.raises(NoDaemonError, match="closed"), loop.hold(Held("a", left)):
        loop.close()
    assert left == [("a", asyncio.CancelledError)]


def called(loop: LoopThread) -> str:
    """Call, and wait for what comes of it."""
    return loop.call(asyncio.sleep(0, "done"))


def begun(loop: LoopThread) -> str:
    """Begin something, and wait for the future."""
    return loop.begin(asyncio.sleep(0, "done")).result()


@pytest.mark.parametrize("wait", [called, begun])
def test_calls_of_a_signals_handler_do_not_wait_for_what_they_interrupt(
    loop: LoopThread, wait: Callable[[LoopThread], str]
) -> None:
    # A condition was held by the thread that waited, and the loop waited for it.
    handled: list[str] = []

    def handle(*_: object) -> None:
        handled.append(called(loop))

    former = signal.signal(signal.SIGALRM, handle)
    try:
        for number in range(3000):
            # One signal for each wait, in whatever moment of it: handlers do not interrupt each other.
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 300))
            assert wait(loop) == "done"
            while len(handled) <= number:
                called(loop)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert handled == ["done"] * 3000


def test_future_that_is_cancelled_cancels_what_was_begun(loop: LoopThread) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    soon = loop.begin(wait())
    called(loop)
    assert soon.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        soon.result()
    called(loop)
    assert ended == ["cancelled"]


def test_future_is_waited_for_within_a_time(loop: LoopThread) -> None:
    soon = loop.begin(asyncio.Event().wait())
    with pytest.raises(TimeoutError):
        soon.result(0.01)
    with pytest.raises(TimeoutError):
        soon.exception(-1)
    soon.cancel()


def test_block_that_the_collector_leaves_in_a_loops_thread_is_not_waited_for(
    loop: LoopThread,
) -> None:
    left: list[tuple[str, object]] = []
    other = LoopThread()
    block, elsewhere = loop.hold(Held("a", left)), other.hold(Held("b", left))
    for each in (block, elsewhere):
        each.__enter__()

    async def leave(held: AbstractContextManager[str]) -> None:
        held.__exit__(None, None, None)

    # In its own loop's thread, and in another's.
    for each in (block, elsewhere):
        loop.call(leave(each))
    until_s = time.monotonic() + DEADLINE_S
    while len(left) < 2 and time.monotonic() < until_s:
        loop.call(asyncio.sleep(0))
        other.call(asyncio.sleep(0))
    other.close()
    assert sorted(left) == [("a", None), ("b", None)]


def test_call_in_the_loops_own_thread_is_refused(loop: LoopThread) -> None:
    async def call() -> None:
        loop.call(asyncio.sleep(0))

    with pytest.raises(RequestError, match="wait for itself"):
        loop.call(call())
    assert loop.call(asyncio.sleep(0, "goes on")) == "goes on"


def test_forked_process_is_refused_and_leaves_the_connection_alone(loop: LoopThread) -> None:
    left: list[tuple[str, object]] = []
    with loop.hold(Held("a", left)) as held:
        pid = os.fork()
        if pid == 0:
            refused = 0
            try:
                for act in (loop.call, loop.begin):
                    try:
                        act(asyncio.sleep(0))
                    except NoDaemonError:
                        refused += 1
                with suppress(NoDaemonError):
                    loop.hold(Held("child", left)).__enter__()
                    refused = 0
                loop.close()
            finally:
                os._exit(refused)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 2
        assert held == "a"
        assert loop.call(asyncio.sleep(0, "goes on")) == "goes on"
    assert left == [("a", None)]


def test_block_of_a_forked_process_is_waited_for_whatever_number_its_thread_has(
    loop: LoopThread,
) -> None:
    # The child's first thread gets the stack, and so the number, that the loop's had in the parent.
    reading, writing = os.pipe()

    def use() -> None:
        said = str(LoopThread().may_be_waited_for())
        try:
            loop.call(asyncio.sleep(0))
        except NoDaemonError as error:
            said += f" {error}"
        os.write(writing, said.encode())
        os._exit(0)

    child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE_S))
        user = threading.Thread(target=use)
        user.start()
        user.join()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    assert said == "True this connection belongs to the process that this one was forked from"


def test_call_in_a_forked_process_is_refused_although_another_thread_called_just_then(
    loop: LoopThread,
) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with loop._lock:
            held.set()
            over.wait(DEADLINE_S)

    caller = threading.Thread(target=hold)
    caller.start()
    held.wait(DEADLINE_S)
    child = os.fork()
    if child == 0:
        signal.alarm(int(DEADLINE_S))
        code = 1
        try:
            loop.call(asyncio.sleep(0))
        except NoDaemonError:
            code = 0
        os._exit(code)
    over.set()
    caller.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_call_that_comes_while_the_connection_is_left_is_refused() -> None:
    raised: list[type[Exception]] = []

    def program() -> None:
        loop = LoopThread()
        waiting, started = asyncio.Event(), threading.Event()

        async def begin_late() -> None:
            started.set()
            try:
                await waiting.wait()
            finally:
                # All tasks are ended now: what came from another thread would be begun, and left.
                try:
                    loop.begin(waiting.wait())
                except NoDaemonError as error:
                    raised.append(type(error))

        begun = loop.begin(begin_late())
        assert started.wait(DEADLINE_S)
        loop.close()
        assert isinstance(begun.exception(), NoDaemonError)

    await asyncio.to_thread(program)
    assert raised == [NoDaemonError]


def test_loop_thread_without_a_descriptor_is_an_error_and_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lack() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", lack)
    with pytest.raises(NoDaemonError, match="Too many open files"):
        LoopThread()


async def test_loop_thread_that_cannot_be_started_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[asyncio.AbstractEventLoop] = []
    make = asyncio.new_event_loop

    def note() -> asyncio.AbstractEventLoop:
        made.append(make())
        return made[-1]

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "new_event_loop", note)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads = threading.enumerate()
    # A program may call it while a loop of its own runs in this thread.
    with pytest.raises(NoDaemonError, match="no thread can be started: can't start new thread"):
        LoopThread()
    assert [loop.is_closed() for loop in made] == [True]
    # Some that others began may have ended meanwhile.
    assert set(threading.enumerate()) <= set(threads)


def test_future_that_is_cancelled_before_it_begins_is_done_for_who_waits_for_several(
    loop: LoopThread,
) -> None:
    outcomes: list[asyncio.Future[None]] = []
    held, went_on = threading.Event(), threading.Event()

    async def begin() -> asyncio.Future[None]:
        outcomes.append(asyncio.get_running_loop().create_future())
        asyncio.get_running_loop().call_soon(hold)
        return outcomes[0]

    def hold() -> None:
        held.set()
        went_on.wait(DEADLINE_S)

    soon = loop.begin_soon(begin())
    assert held.wait(DEADLINE_S)
    assert soon.cancel()
    went_on.set()
    done, waiting = concurrent.futures.wait([soon], DEADLINE_S)
    assert (done, waiting) == ({soon}, set())
    called(loop)
    assert outcomes[0].cancelled()
