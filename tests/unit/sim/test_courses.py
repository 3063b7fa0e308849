"""Courses of a cluster that a plan by chance seldom takes: it grows, is halved, evicts who is away."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bmgd.chaos.faults import Evict, Join, Kill, Partition, Restart
from bmgd.chaos.history import BecameReady, Exited, Noted
from bmgd.chaos.plan import Plan, Workload
from bmgd.sim.checkers import inspect
from bmgd.sim.courses import THINNED_MIN, evicted, growing, halved, strangers, thinned, upgraded
from bmgd.sim.simulation import Simulation

QUIET = Workload(messages_per_second=0.0)


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("seed", range(20))
def test_growing_cluster_has_a_plan_that_can_be_carried_out(nodes: int, seed: int) -> None:
    plan = growing(Random(seed), Plan(nodes, 2.0), {"ask_ms": 800})
    plan.check()
    assert any(isinstance(step.fault, Join) for step in plan.steps)
    assert plan.seconds > plan.steps[-1].at_s


def test_joiners_on_two_sides_are_given_one_id_and_one_of_them_takes_another() -> None:
    plans = (growing(Random(seed), Plan(4, 2.0, workload=QUIET), {}) for seed in range(20))
    parted = next(plan for plan in plans if isinstance(plan.steps[0].fault, Partition))
    report = Simulation(parted, [inspect], traces=False).run()
    assert not report.violations
    displaced = [fact for fact in report.history.of(Noted) if fact.event == "displaced"]
    assert len(displaced) == 1


@pytest.mark.parametrize("nodes", [1, 2, 9])
@pytest.mark.parametrize("seed", range(5))
def test_founders_are_started_again_as_newer_ones(nodes: int, seed: int) -> None:
    plan = upgraded(Random(seed), Plan(nodes, 2.0))
    plan.check()
    assert any(isinstance(step.fault, Restart) for step in plan.steps)
    assert plan.seconds > plan.steps[-1].at_s


@pytest.mark.parametrize("nodes", [2, 6])
def test_halves_are_equal(nodes: int) -> None:
    plan = halved(Random(1), Plan(nodes, 2.0), {})
    plan.check()
    parted = plan.steps[0].fault
    assert isinstance(parted, Partition)
    assert [len(group) for group in parted.groups] == [nodes // 2] * 2


def test_odd_number_of_nodes_has_no_halves() -> None:
    plan = replace(Plan(5, 2.0), seed=7)
    assert halved(Random(1), plan, {}) == plan


@pytest.mark.parametrize("seed", range(12))
def test_evicted_node_that_was_away_comes_back_to_be_refused(seed: int) -> None:
    plan = evicted(Random(seed), Plan(5, 2.0, workload=QUIET), {})
    plan.check()
    report = Simulation(plan, [inspect], traces=False).run()
    assert not report.violations
    (evict,) = [step.fault for step in plan.steps if isinstance(step.fault, Evict)]
    assert [fact.node for fact in report.history.of(Exited)] == list(evict.nodes)


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_founders_that_were_apart_are_ready_alone_and_then_one_cluster(
    seed: int, nodes: int
) -> None:
    plan = strangers(Random(seed), Plan(nodes, 2.0, workload=QUIET), 1_000)
    plan = replace(plan, settings={"start_ms": 1_000})
    plan.check()
    (apart, _) = plan.steps
    assert isinstance(apart.fault, Partition)
    assert len(apart.fault.groups) > 1
    report = Simulation(plan, [inspect], traces=False).run()
    assert not report.violations
    mend_ns = plan.steps[1].at_s * 1e9
    assert any(fact.at_ns < mend_ns for fact in report.history.of(BecameReady))


@pytest.mark.parametrize("nodes", [THINNED_MIN, 12, 33])
@pytest.mark.parametrize("seed", range(10))
def test_thinned_cluster_has_a_plan_that_can_be_carried_out(nodes: int, seed: int) -> None:
    plan = thinned(Random(seed), Plan(nodes, 2.0))
    plan.check()
    killed = plan.steps[0].fault
    assert isinstance(killed, Kill)
    assert 2 < len(killed.nodes) < nodes - 2
    assert plan.seconds > plan.steps[-1].at_s


def test_thinned_cluster_keeps_its_dead_and_comes_to_rest() -> None:
    plan = thinned(Random(1), Plan(12, 2.0, settings={"healing": "after:100"}, workload=QUIET))
    report = Simulation(plan, [inspect], traces=False).run()
    assert not report.violations
    assert "healed" not in {fact.event for fact in report.history.of(Noted)}
