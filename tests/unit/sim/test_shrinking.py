"""Shrinking: what is left is small, and still fails."""

from __future__ import annotations

from bmgd.chaos.faults import Kill, Mend, Partition, Stop
from bmgd.chaos.plan import Plan, Step
from bmgd.chaos.random_plan import random_plan
from bmgd.sim.conditions import Conditions
from bmgd.sim.shrinking import Shrinker
from bmgd.types import NodeId


def victims(plan: Plan) -> set[int]:
    return {int(n) for s in plan.steps if isinstance(s.fault, Kill) for n in s.fault.nodes}


def test_shrinker_leaves_the_one_step_that_matters() -> None:
    plan = random_plan(7, 16, 60.0, kinds={"kill", "restart", "stop", "continue", "mend"})
    victim = min(victims(plan))

    def fails(candidate: Plan) -> bool:
        return victim in victims(candidate)

    shrinker = Shrinker(fails)
    small = shrinker.shrink(plan)
    assert len(plan.steps) > 20
    assert [step.fault for step in small.steps] == [Kill((NodeId(victim),))]
    assert small.nodes == victim + 1
    assert small.workload.messages_per_second == 0
    assert small.seconds == small.steps[0].at_s
    assert small.seed == plan.seed
    assert shrinker.runs <= 400


def test_shrinker_keeps_two_steps_that_need_each_other() -> None:
    kinds = {"stop", "continue", "mend", "reset"}

    def fails(candidate: Plan) -> bool:
        faults = [type(step.fault) for step in candidate.steps]
        return Stop in faults and Mend in faults[faults.index(Stop) :]

    plan = next(filter(fails, (random_plan(seed, 8, 60.0, kinds) for seed in range(100))))
    small = Shrinker(fails).shrink(plan)
    assert [type(step.fault) for step in small.steps] == [Stop, Mend]
    small.check()


def test_shrinker_leaves_out_of_a_partition_whom_it_does_not_need() -> None:
    def parts(candidate: Plan) -> bool:
        faults = [step.fault for step in candidate.steps]
        groups = [fault.groups for fault in faults if isinstance(fault, Partition)]
        return any(any(1 in a and 6 in b for a in each for b in each if a != b) for each in groups)

    groups = tuple(tuple(map(NodeId, group)) for group in ((0, 1, 2, 3), (4, 5, 6), (7, 8)))
    small = Shrinker(parts).shrink(Plan(9, 2.0, (Step(1.0, Partition(groups)),)))
    assert [step.fault for step in small.steps] == [Partition(((NodeId(1),), (NodeId(6),)))]
    assert small.nodes == 7
    assert Plan.parse(small.to_json()) == small


def test_shrinker_tries_only_what_can_be_carried_out() -> None:
    plan = random_plan(3, 8, 60.0, kinds={"kill", "restart", "takeover"})
    tried = []

    def fails(candidate: Plan) -> bool:
        candidate.check()
        tried.append(candidate)
        return len(candidate.steps) > 3

    assert len(Shrinker(fails).shrink(plan).steps) == 4
    assert tried


def test_shrinker_stops_at_its_bound() -> None:
    plan = random_plan(3, 8, 60.0)
    shrinker = Shrinker(lambda candidate: False, runs_max=5)
    assert shrinker.shrink(plan) == plan
    assert shrinker.runs == 5


def test_shrinker_passes_over_options_that_cannot_be_together() -> None:
    plan = Plan(2, 1.0, simulated={"delay_min_us": 500, "delay_max_us": 500})

    def fails(candidate: Plan) -> bool:
        Conditions.of(candidate.simulated)
        return True

    assert Shrinker(fails).shrink(plan).simulated in ({}, {"delay_max_us": 500})


def test_shrinker_gives_options_back_their_defaults() -> None:
    plan = Plan(3, 1.0, settings={"healing": "off"}, simulated={"torn": 5, "skewed": True})
    small = Shrinker(lambda candidate: "torn" in candidate.simulated).shrink(plan)
    assert small.settings == {}
    assert small.simulated == {"torn": 5}
