"""Processes that stand still until they are just as late as makes a difference."""

from __future__ import annotations

from bmgd.chaos.history import Resumed, Stopped
from bmgd.chaos.plan import Plan, Workload
from bmgd.sim.checkers import inspect
from bmgd.sim.simulation import Simulation

QUIET = Workload(messages_per_second=0.0)


def test_processes_stand_still_and_go_on_and_nothing_is_violated() -> None:
    plan = Plan(5, 3.0, workload=QUIET, simulated={"lags": 6}, seed=3)
    report = Simulation(plan, [inspect], traces=False).run()
    assert not report.violations
    stopped = list(report.history.of(Stopped))
    assert len(stopped) >= 6
    assert len(stopped) == len(list(report.history.of(Resumed)))
