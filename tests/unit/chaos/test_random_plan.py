"""Random plans: they can be carried out, a seed decides them, and together they have every fault."""

from __future__ import annotations

import pytest

from bmgd.chaos.faults import KINDS, NAME_OF, Join, Restart
from bmgd.chaos.plan import Plan
from bmgd.chaos.random_plan import WRITERS, random_plan
from bmgd.errors import PlanError


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 33])
def test_random_plan_can_be_carried_out_and_written(nodes: int) -> None:
    for seed in range(60):
        plan = random_plan(seed, nodes, 20.0)
        assert Plan.parse(plan.to_json()) == plan


def test_random_plan_is_decided_by_its_seed() -> None:
    assert random_plan(5, 16, 30.0) == random_plan(5, 16, 30.0)
    assert random_plan(5, 16, 30.0).steps != random_plan(6, 16, 30.0).steps


def test_random_plans_have_every_fault_but_each_only_some() -> None:
    seen = [
        {NAME_OF[type(step.fault)] for step in random_plan(seed, 16, 30.0).steps}
        for seed in range(100)
    ]
    assert set().union(*seen) == set(KINDS)
    assert all(len(kinds) < len(KINDS) for kinds in seen)


def test_random_plan_has_only_the_kinds_asked_for() -> None:
    for seed in range(50):
        plan = random_plan(seed, 16, 30.0, kinds={"kill", "restart", "swizzle"})
        names = {NAME_OF[type(step.fault)] for step in plan.steps}
        assert names <= {"kill", "restart", "cut", "mend"}
    assert random_plan(1, 16, 30.0, kinds=()).steps == ()


def test_random_plan_swizzles_links_in_another_order() -> None:
    plan = random_plan(3, 16, 600.0, kinds={"swizzle"})
    cuts = [s.fault.links for s in plan.steps if NAME_OF[type(s.fault)] == "cut"]  # type: ignore[union-attr]
    mends = [s.fault.links for s in plan.steps if NAME_OF[type(s.fault)] == "mend"]  # type: ignore[union-attr]
    assert set(cuts) == set(mends)
    assert cuts != mends


def test_random_plan_of_an_unknown_kind_is_refused() -> None:
    assert "swizzle" in WRITERS
    with pytest.raises(PlanError, match="no such fault: 'explode'"):
        random_plan(1, 4, 1.0, kinds={"explode"})


def test_random_plan_leaves_time_for_every_start() -> None:
    for seed in range(30):
        plan = random_plan(seed, 16, 60.0, {"kill", "restart", "join"}, start_s=0.5)
        free_s = 0.0
        for step in plan.steps:
            assert step.at_s >= min(free_s, plan.seconds) - 1e-5
            if isinstance(step.fault, Restart | Join):
                count = step.fault.count if isinstance(step.fault, Join) else len(step.fault.nodes)
                free_s = step.at_s + count * 0.5
