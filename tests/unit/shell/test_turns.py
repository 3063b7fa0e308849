"""Programs that ask for much at once leave the loop time for links: each turn of it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bmgd.core.commands import Command
from bmgd.shell import turns as turns_module
from bmgd.shell.turns import TURN_NS, Turns
from bmgd.wire.control import Request, Result
from tests.unit.fake_core import FakeCore, fake_daemon
from tests.unit.shell.test_control_server import Program, program

REQUEST_NS = 1_000_000
PROGRAMS, REQUESTS = 3, 100


class Clock:
    """Stands still but for what is asked of it."""

    def __init__(self) -> None:
        self.now_ns = 1

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns_module, "time", clock)
    return clock


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    async with fake_daemon(tmp_path / "d.sock") as core:
        yield core


class Work:
    """So many pieces, each of which takes time."""

    def __init__(self, name: str, pieces: int, turns: Turns, clock: Clock, done: list[str]) -> None:
        self._name, self._pieces = name, pieces
        self._turns, self._clock, self._done = turns, clock, done

    def serve(self) -> None:
        while self._pieces:
            if self._turns.is_over():
                self._turns.wait(self)
                return
            self._pieces -= 1
            self._clock.now_ns += REQUEST_NS
            self._done.append(self._name)


async def test_turns_end_and_those_that_wait_are_served_in_their_order(clock: Clock) -> None:
    turns, done = Turns(), list[str]()
    for name in "ab":
        Work(name, 15, turns, clock, done).serve()
    assert "".join(done) == "a" * 10
    await asyncio.sleep(0)
    assert "".join(done) == "a" * 15 + "b" * 5
    await asyncio.sleep(0)
    assert "".join(done) == "a" * 15 + "b" * 15


async def test_programs_with_many_requests_leave_the_loop_its_turns(
    core: FakeCore, clock: Clock
) -> None:
    in_turn, most = 0, 0
    issue = core.issue

    def slowly(request: int, command: Command) -> None:
        nonlocal in_turn, most
        clock.now_ns += REQUEST_NS
        in_turn += 1
        most = max(most, in_turn)
        issue(request, command)

    async def look() -> None:
        nonlocal in_turn
        while True:
            in_turn = 0
            await asyncio.sleep(0)

    core.server._calls._issue = slowly
    looking = asyncio.create_task(look())
    async with AsyncExitStack() as stack:
        programs = [await stack.enter_async_context(program(core)) for _ in range(PROGRAMS)]
        for each in programs:
            each.say(*(Request(n, "status") for n in range(1, REQUESTS + 1)))
        answers = await asyncio.gather(*map(answers_of, programs))
    looking.cancel()
    assert answers == [list(range(1, REQUESTS + 1))] * PROGRAMS
    assert most <= TURN_NS // REQUEST_NS + 1


async def answers_of(each: Program) -> list[int]:
    return [f.sequence for _ in range(REQUESTS) if isinstance(f := await each.hear(), Result)]
