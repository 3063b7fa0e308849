"""Lines of log: made late, written together, limited, and never lost at an end."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

import pytest

from bmgd.core.effects import Observed
from bmgd.shell import log
from bmgd.shell.log import BATCH_MAX, FLUSH_S, RATE_PER_S, DaemonLog
from bmgd.types import Incarnation, NodeId

VERDICT = Observed("verdict", NodeId(5), Incarnation(0x100000001), "refused")


class Written:
    """What was written, call by call."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.any = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.writes.append(text)
        self.any.set()

    @property
    def lines(self) -> list[str]:
        return "".join(self.writes).splitlines()


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_700_000_000.25]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_log_line_has_time_node_level_and_message(written: Written, clock: list[float]) -> None:
    said = DaemonLog(3, "info", "text", written)
    said.observed(VERDICT)
    said.line("listening", "listening on port 7400")
    assert written.lines == [
        "2023-11-14T22:13:20.250Z node 3 WARNING verdict peer 5 incarnation 0x100000001 (refused)",
        "2023-11-14T22:13:20.250Z node 3 INFO listening on port 7400",
    ]


def test_log_line_in_json_has_the_fields(written: Written, clock: list[float]) -> None:
    said = DaemonLog(3, "info", "json", written)
    said.observed(VERDICT)
    said.line("exit", "left the cluster")
    assert [json.loads(line) for line in written.lines] == [
        {
            "time": 1_700_000_000.25,
            "level": "warning",
            "node": 3,
            "peer": 5,
            "incarnation": 0x100000001,
            "event": "verdict",
            "message": "verdict peer 5 incarnation 0x100000001 (refused)",
        },
        {
            "time": 1_700_000_000.25,
            "level": "info",
            "node": 3,
            "event": "exit",
            "message": "left the cluster",
        },
    ]


def test_log_below_its_level_is_silent(written: Written) -> None:
    said = DaemonLog(3, "warning", "text", written)
    said.line("listening", "no")
    said.record(NodeId(5), Incarnation(1), "dead")
    said.observed(Observed("ready"))
    assert written.writes == []


def test_log_is_written_with_one_call_for_many_lines(written: Written) -> None:
    async def say() -> None:
        said = DaemonLog(3, "info", "text", written)
        for number in range(20):
            said.line("n", str(number))
        assert written.writes == []
        await asyncio.wait_for(written.any.wait(), 50 * FLUSH_S)

    asyncio.run(say())
    assert len(written.writes) == 1
    assert [line.split()[-1] for line in written.lines] == [str(n) for n in range(20)]


def test_log_of_an_error_is_written_at_once(written: Written) -> None:
    async def say() -> None:
        said = DaemonLog(3, "info", "text", written)
        said.line("n", "before")
        said.line("exit", "a bug", logging.ERROR)
        assert len(written.lines) == 2

    asyncio.run(say())


def test_log_that_waits_is_bounded(
    written: Written, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "RATE_PER_S", 10 * BATCH_MAX)

    async def say() -> None:
        said = DaemonLog(3, "info", "text", written)
        for number in range(BATCH_MAX):
            said.line("n", str(number))
        assert len(written.writes) == 1

    asyncio.run(say())


def test_log_at_its_end_loses_nothing(written: Written) -> None:
    async def say() -> None:
        said = DaemonLog(3, "info", "text", written)
        said.line("n", "the last words")
        said.close()

    asyncio.run(say())
    assert "the last words" in written.lines[0]


def test_log_above_its_rate_counts_what_it_leaves_out(written: Written, clock: list[float]) -> None:
    said = DaemonLog(3, "info", "text", written)
    for number in range(RATE_PER_S + 7):
        said.line("n", f"first {number}")
    clock[0] += 1
    said.line("n", "next second")
    assert len(written.lines) == RATE_PER_S + 2
    assert written.lines[-2].endswith("(7 lines left out)")
    assert written.lines[-1].endswith("next second")
    for _ in range(RATE_PER_S + 3):
        said.line("n", "again")
    said.close()
    assert written.lines[-1].endswith("(4 lines left out)")


class Gone:
    """A stderr that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_log_without_a_reader_does_not_end_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    said = DaemonLog(3, "info", "text")
    monkeypatch.setattr(sys, "stderr", Gone())
    said.line("n", "to nobody")
