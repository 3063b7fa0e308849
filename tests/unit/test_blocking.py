"""The client for programs without asyncio, in a thread beside a fake daemon."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import pytest

from bmgd import blocking
from bmgd.errors import NoDaemonError
from tests.unit.fake_core import FakeCore, fake_daemon

DEADLINE_S = 10.0

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


async def test_call_that_comes_while_the_connection_is_left_is_refused() -> None:
    raised: list[type[Exception]] = []

    def program() -> None:
        loop = blocking._Loop()
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


async def test_block_that_is_interrupted_while_it_is_entered_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Interrupted(concurrent.futures.Future[T]):
        """The first that is made, on which the block waits to be entered, is interrupted."""

        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def result(self, timeout: float | None = None) -> T:
            value = super().result(timeout)
            if self is made[0]:
                raise KeyboardInterrupt
            return value

    def program(daemon: blocking.Daemon, core: FakeCore) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(concurrent.futures, "Future", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                daemon.subscribe("jobs").__enter__()
        # Its topic has no reader any more: another one is let in.
        while core.reader is not None:
            daemon.status()
        readers.append(core.reader)

    readers: list[int | None] = []
    await run_beside(tmp_path, program)
    assert readers == [None]


# --- the loop in its thread -----------------------------------------------------------------------


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
def loop() -> Iterator[blocking._Loop]:
    made = blocking._Loop()
    yield made
    if made._thread.is_alive():
        made.close()


def test_a_program_that_exits_in_its_blocks_leaves_them_in_order_and_ends_with_its_code(
    loop: blocking._Loop,
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


def test_a_program_that_is_interrupted_in_a_block_leaves_it(loop: blocking._Loop) -> None:
    left: list[tuple[str, object]] = []
    with pytest.raises(KeyboardInterrupt), loop.hold(Held("a", left)):
        raise KeyboardInterrupt
    assert left == [("a", KeyboardInterrupt)]
    loop.close()


def test_a_call_that_is_under_way_when_the_loop_ends_fails(loop: blocking._Loop) -> None:
    begun = loop.begin(asyncio.Event().wait())
    loop.close()
    with pytest.raises(NoDaemonError, match="closed"):
        begun.result(DEADLINE_S)
    with pytest.raises(NoDaemonError, match="closed"):
        loop.call(asyncio.sleep(0))


def test_a_block_that_is_left_after_the_loop_ended_fails(loop: blocking._Loop) -> None:
    left: list[tuple[str, object]] = []
    with pytest.raises(NoDaemonError, match="closed"), loop.hold(Held("a", left)):
        loop.close()
    assert left == [("a", asyncio.CancelledError)]
