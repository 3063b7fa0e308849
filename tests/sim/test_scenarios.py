"""Scenarios that once failed, each with a comment that says what it found, and they pass now."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmgd.chaos.plan import Plan
from bmgd.sim.checkers import inspect
from bmgd.sim.simulation import Simulation

SCENARIOS = sorted(Path(__file__).parent.joinpath("scenarios").glob("*.json"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_that_once_failed_passes(path: Path) -> None:
    plan = Plan.parse(path.read_text(encoding="utf-8"))
    assert len(plan.comment) > 20, "a scenario says what it found"
    outcome = Simulation(plan, [inspect]).run()
    assert outcome.passed, "\n".join(map(str, outcome.violations))


def test_scenarios_are_there() -> None:
    assert SCENARIOS
