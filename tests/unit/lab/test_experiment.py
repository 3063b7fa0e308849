"""What a run gives to an experiment, and what is asked of rows."""

from __future__ import annotations

import pytest

from bmgd.errors import InvariantError
from bmgd.lab.experiment import Run
from bmgd.lab.outcome import judge
from tests.unit.lab.sample import sample


def test_run_computes_a_slow_part_once() -> None:
    calls: list[int] = []
    kept: dict[str, object] = {}
    run = Run(True, keep=kept.__setitem__)

    def compute() -> list[int]:
        calls.append(1)
        return [1, 2]

    assert run.resumed("part", compute) == run.resumed("part", compute) == [1, 2]
    assert len(calls) == 1
    assert kept == {"part": [1, 2]}


def test_run_takes_what_an_interrupted_run_kept() -> None:
    run = Run(True, kept={"part": 5}, keep=lambda key, result: pytest.fail(f"{key} kept twice"))
    assert run.resumed("part", lambda: 6) == 5


def test_run_refuses_a_result_that_json_would_change() -> None:
    with pytest.raises(InvariantError, match="part"):
        Run(True).resumed("part", lambda: (1, 2))


def test_run_reports_progress_in_percent() -> None:
    told: list[str] = []
    Run(True, tell=told.append).progress(1, 4, "N = 9")
    assert told == [" 25 %  N = 9"]


def test_experiment_refuses_a_row_of_another_width() -> None:
    with pytest.raises(InvariantError, match="3 values for 4 columns"):
        sample().named([(1, 2, 3)])


def test_experiment_describes_itself_as_json_can_hold_it() -> None:
    described = sample().describe()
    assert described["name"] == "sample"
    assert described["columns"][1] == {
        "name": "square",
        "unit": "things",
        "text": "the root times itself",
    }
    assert described["checks"] == ["squares are at least 1", "eight rows"]


def test_judge_tells_what_holds_fails_and_was_not_tried() -> None:
    rows = [(2, 4, None, "even")]
    assert judge(sample(), rows, quick=True) == ("holds", "not checked")
    assert judge(sample(least=5), rows, quick=False) == ("fails", "fails")
