"""`bmgd chaos`: what is left of a trial whose history cannot be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bmgd.chaos.history import History, LinkedExactly
from bmgd.chaos.plan import Plan
from bmgd.cli import chaos, main
from bmgd.trials import runner
from bmgd.trials.runner import Outcome
from bmgd.types import NodeId

PLAN = '{"version": 1, "nodes": 2, "seconds": 0}'


@pytest.mark.parametrize("facts", [1, 10_000], ids=["at its end", "on the way"])
def test_chaos_judges_also_where_the_history_cannot_be_written(
    facts: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    async def run_trial(cluster: object, plan: Plan, *_: Any, **__: Any) -> Outcome:
        history = History()
        for at_ns in range(facts):
            history.add(LinkedExactly(at_ns, NodeId(0)))
        return Outcome(plan, history, 0.5, [])

    monkeypatch.setattr(chaos, "_cluster", lambda args: None)
    monkeypatch.setattr(runner, "run_trial", run_trial)
    monkeypatch.setattr("bmgd.trials.priority.hurry", lambda: None)
    (tmp_path / "plan").write_text(PLAN)
    words = ["chaos", "--plan", str(tmp_path / "plan"), "--history", "/dev/full", "--json"]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == "pass"
    assert printed.err == "bmgd chaos: --history /dev/full: No space left on device\n"


@pytest.mark.parametrize("seed", ["-1", "9223372036854775808", "1.5", "x"])
def test_chaos_takes_no_seed_that_no_plan_has(
    seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["chaos", "--random", "--for", "1", f"--seed={seed}"])
    assert caught.value.code == 2
    assert "seed" in capsys.readouterr().err
