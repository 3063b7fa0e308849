"""`bmgd sim` as users and scripts meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bmgd.chaos.plan import Plan
from bmgd.cli import main
from bmgd.core.neighbors.detector import Detector


def test_sim_prints_a_verdict_and_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "2", "--nodes", "4", "--time", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    expected = {
        "verdict",
        "violations",
        "digest",
        "virtual_s",
        "real_s",
        "events",
        "messages_per_node",
        "bytes_per_node",
        "seed",
        "nodes",
        "options",
    }
    assert expected <= row.keys()
    assert (row["verdict"], row["seed"], row["nodes"]) == ("pass", 2, 4)
    assert main(["sim", "--seed", "2", "--nodes", "4", "--time", "2"]) == 0
    assert row["digest"] in capsys.readouterr().out


def test_sim_failure_prints_a_small_plan_that_fails_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(Detector, "declare_dead", lambda *args: None)
    file = tmp_path / "plan.json"
    steps = [
        {"at": 0.5, "fault": "reset"},
        {"at": 1.0, "fault": "kill", "nodes": [1]},
        {"at": 1.5, "fault": "stop", "nodes": [2]},
    ]
    file.write_text(json.dumps({"version": 1, "nodes": 4, "seconds": 2, "steps": steps}))
    assert main(["sim", "--faults", str(file), "--json"]) == 1
    row = json.loads(capsys.readouterr().out)
    checker = row["violations"][0]["checker"]
    assert [step["fault"] for step in row["plan"]["steps"]] == ["kill"]
    file.write_text(json.dumps(row["plan"]))
    assert main(["sim", "--faults", str(file), "--no-shrink"]) == 1
    out = capsys.readouterr().out
    assert f"VIOLATION {checker} at" in out
    assert Plan.parse(out[out.index("{\n") :]) == Plan.parse(file.read_text())


@pytest.mark.parametrize(
    "words",
    [
        ["--faults", "/nowhere"],
        ["--nodes", "2..3"],
        ["--campaign", "1..2"],
        ["--campaign", "1..2", "--out", "x", "--seed", "1"],
        ["--campaign", "1..2", "--out", "/nowhere/out"],
        ["--campaign", "1..2", "--out", "x", "--history", "x"],
        ["--campaign", "1..2", "--out", "x", "--jobs", "0"],
        ["--campaign", "1..2", "--out", "x", "--jobs", "257"],
        ["--history", "/nowhere/history"],
        ["--out", "x"],
        ["--hours", "1"],
        ["--jobs", "1"],
    ],
)
def test_sim_that_cannot_be_run_is_a_usage_error(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sim", *words]) == 2
    assert capsys.readouterr().err.startswith("bmgd sim: ")
    assert not list(tmp_path.iterdir())


def test_sim_shows_its_verdict_also_where_the_history_cannot_be_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--nodes", "3", "--time", "1", "--json", "--history", "/dev/full"]
    assert main(["sim", *words]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == "pass"
    assert printed.err == "bmgd sim: --history /dev/full: No space left on device\n"


@pytest.mark.parametrize("words", [["--campaign", "2..1"], ["--seed", "-1"], ["--time", "0"]])
def test_sim_flags_are_checked(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sim", *words])
    assert caught.value.code == 2


def test_sim_campaign_sums_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out.jsonl")
    words = ["--campaign", "1..2", "--out", out, "--nodes", "2..3", "--time", "1", "--jobs", "1"]
    assert main(["sim", *words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["seeds"], summary["failed"]) == (2, 0)
    assert main(["sim", *words]) == 0
    assert "2 seeds" in capsys.readouterr().out
