"""Scenarios that once failed, each with a comment that says what it found, and they pass now."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmgd.chaos.plan import Plan
from bmgd.sim.checkers import inspect
from bmgd.sim.simulation import Simulation

SCENARIOS = sorted(Path(__file__).parent.joinpath("scenarios").glob("*.json"))
LONG = {
    "seed-1478439621-waits-for-the-unseen",
    "seed-2056-taken-by-two-lives",
    "seed-2147-long-overtakes-a-replaced-stream",
    "seed-2199-told-late-by-another-part",
    "seed-2625-numbered-and-settled-in-one-step",
    "seed-2894-meets-by-lot",
    "seed-4729-readers-forgotten-at-a-narrow-bound",
    "seed-5412-second-copy-for-no-life",
    "seed-268-link-opens-in-the-step-of-the-suspicion",
    "seed-700035-taken-and-not-told",
}
"""They take more than ten seconds of CPU each."""
_BY_TIME = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.long] if path.stem in LONG else [])
    for path in SCENARIOS
]


@pytest.mark.parametrize("path", _BY_TIME)
def test_scenario_that_once_failed_passes(path: Path) -> None:
    plan = Plan.parse(path.read_text(encoding="utf-8"))
    assert len(plan.comment) > 20, "a scenario says what it found"
    outcome = Simulation(plan, [inspect]).run()
    assert outcome.passed, "\n".join(map(str, outcome.violations))


def test_scenarios_are_there() -> None:
    assert {path.stem for path in SCENARIOS} > LONG
