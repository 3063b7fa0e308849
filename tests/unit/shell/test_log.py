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
from bmgd.shell.early_log import begin
from bmgd.shell.log import BATCH_MAX, RATE_PER_S, DaemonLog
from bmgd.shell.repeats import CAUSES_MAX
from bmgd.types import Incarnation, NodeId

DEADLINE_S = 30.0
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
        await asyncio.wait_for(written.any.wait(), DEADLINE_S)

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


def test_log_above_its_rate_still_says_what_is_wrong(written: Written, clock: list[float]) -> None:
    said = DaemonLog(3, "info", "text", written)
    for number in range(RATE_PER_S + 7):
        said.line("n", f"record {number}")
    said.end("every neighbor refuses it", logging.ERROR)
    said.close()
    assert any("ERROR every neighbor refuses it" in line for line in written.lines)
    assert written.lines[-1].endswith("(7 lines left out)")


def test_log_counts_a_warning_that_was_left_out_for_its_rate(
    written: Written, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = DaemonLog(3, "info", "text", written)
    for number in range(RATE_PER_S):
        said.line("n", f"record {number}")
    said.warn("n", "one that is not written")
    clock[0] += 1
    said.warn("n", "one that is not written")
    said.close()
    assert sum("one that is not written" in line for line in written.lines) == 1


def test_log_line_in_text_is_one_line_whatever_a_peer_says(written: Written) -> None:
    said = DaemonLog(3, "info", "text", written)
    said.warn("not linked", "node 5 at höst:7400\n2026-01-01T00:00:00Z node 3 ERROR exit\x1b[2J")
    said.close()
    assert len(written.lines) == 1
    assert "at höst:7400\\n2026" in written.lines[0]
    assert "\x1b" not in written.lines[0]


class Gone:
    """A stderr that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_log_without_a_reader_does_not_end_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    said = DaemonLog(3, "info", "text")
    monkeypatch.setattr(sys, "stderr", Gone())
    said.line("n", "to nobody")


def refused(peer: int, why: str = "wrong size") -> Observed:
    return Observed("rejected", NodeId(peer), None, why)


def test_log_writes_one_warning_per_cause(written: Written) -> None:
    said = DaemonLog(3, "info", "text", written)
    for _ in range(50):
        said.observed(refused(1))
        said.warn("refused", f"a hello from 10.0.0.1:{50_000}: wrong size")
    for port in range(50_000, 50_050):
        said.warn("refused", f"a hello from 10.0.0.1:{port}: wrong size")
    said.observed(refused(2))
    said.observed(refused(1, "wrong peers"))
    assert [line.split("WARNING ")[1] for line in written.lines] == [
        "rejected peer 1 (wrong size)",
        "refused a hello from 10.0.0.1:50000: wrong size",
        "rejected peer 2 (wrong size)",
        "rejected peer 1 (wrong peers)",
    ]


def test_log_says_how_many_were_left_out(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("bmgd.shell.repeats.time.monotonic", lambda: now_s[0])
    said = DaemonLog(3, "info", "text", written)
    for _ in range(4):
        said.observed(refused(1))
    now_s[0] += 31
    said.observed(refused(1))
    assert written.lines[-1].endswith("rejected peer 1 (wrong size) (3 more of these since)")


def test_log_remembers_a_bounded_number_of_causes(written: Written, clock: list[float]) -> None:
    said = DaemonLog(3, "info", "text", written)
    for peer in range(CAUSES_MAX + 1):
        clock[0] += 1 / RATE_PER_S
        said.observed(refused(peer))
    assert len(said._repeats) == CAUSES_MAX


def test_log_leaves_information_alone(written: Written) -> None:
    said = DaemonLog(3, "info", "text", written)
    for _ in range(3):
        said.observed(Observed("ready", detail="5 links"))
    assert len(written.lines) == 3


def test_log_ends_with_the_final_error(written: Written) -> None:
    said = DaemonLog(3, "info", "text", written)
    said.end("every neighbor refuses this node", logging.ERROR)
    said.observed(refused(1))
    said.line("flush", "not everything could be written", logging.WARNING)
    assert len(written.lines) == 1


def test_log_goes_on_after_leaving(written: Written) -> None:
    said = DaemonLog(3, "info", "text", written)
    said.end("left the cluster", logging.INFO)
    said.observed(Observed("record", NodeId(3), Incarnation(7), "left"))
    assert len(written.lines) == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_calls_a_joiner_a_joiner(written: Written, form: str) -> None:
    DaemonLog(-1, "info", form, written).observed(Observed("not joined", detail="a:1: refused"))
    [line] = written.lines
    assert "node -1" not in line
    assert "joiner" in line if form == "text" else json.loads(line)["node"] is None


def test_log_is_json_before_the_daemon_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    begin("json")
    logging.getLogger("bmgd").error("cannot listen")
    try:
        raise ValueError("deep down")
    except ValueError:
        logging.getLogger("bmgd").critical("a bug", exc_info=True)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["message"]) == ("error", "cannot listen")
    assert "deep down" in second["exception"]
