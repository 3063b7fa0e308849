"""What a cluster cannot suffer is refused before anything is harmed."""

from __future__ import annotations

import signal

import pytest

from bmgd.chaos.faults import NAME_OF, Evict, Restart
from bmgd.chaos.plan import Condition, Course, Plan
from bmgd.chaos.random_plan import random_plan
from bmgd.errors import PlanError
from bmgd.trials.feasible import START_S, check_feasible, possible_kinds, possible_random_plan
from bmgd.types import NodeId

MILD = ("mend", "continue", "restart")


class Paper:
    """A cluster on paper; to be harmed is more than it can bear."""

    def __init__(self, size: int, proxy_path: str | None = None, place: str | None = "x:1") -> None:
        self._size = size
        self.can_grow = True
        self.proxy_path = proxy_path
        self._place = place

    @property
    def size(self) -> int:
        return self._size

    async def grow(self, count: int) -> None:
        raise AssertionError

    def restart_command(self, node: int) -> str:
        raise AssertionError

    def last_words(self, node: int) -> str:
        raise AssertionError

    def control(self, node: int) -> str:
        raise AssertionError

    def refresh(self) -> None:
        raise AssertionError

    def is_running(self, node: int) -> bool:
        raise AssertionError

    def has_ended(self, node: int) -> bool:
        raise AssertionError

    def is_stopped(self, node: int) -> bool:
        raise AssertionError

    def send(self, node: int, number: signal.Signals) -> None:
        raise AssertionError

    async def restart(self, node: int) -> None:
        raise AssertionError

    def place(self, node: int) -> str | None:
        assert node < self._size
        return self._place


def plan(step: str, nodes: int = 4) -> Plan:
    """A plan of one step, after a kill of node 3."""
    kill = '{"at": 0, "fault": "kill", "nodes": [3]}'
    return Plan.parse(
        f'{{"version": 1, "nodes": {nodes}, "seconds": 9, "steps": [{kill}, {step}]}}'
    )


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ('{"at": 1, "fault": "cut", "links": [[0, 1]]}', "--fault-proxy"),
        ('{"at": 1, "fault": "partition", "groups": [[0], [1, 2]]}', "--fault-proxy"),
        ('{"at": 1, "fault": "slow", "nodes": [0], "delay_ms": 5}', "--fault-proxy"),
        ('{"at": 1, "fault": "half-open", "links": [[0, 1]]}', "--fault-proxy"),
        ('{"at": 1, "fault": "reset"}', "--fault-proxy"),
        ('{"at": 1, "fault": "join", "through": 0}', "launcher"),
        ('{"at": 1, "fault": "clock", "nodes": [0], "step_ms": 5}', "clock"),
        ('{"at": 1, "fault": "restart", "nodes": [3], "clock": -60}', "clock"),
    ],
)
def test_feasible_refuses_with_the_step(step: str, why: str) -> None:
    with pytest.raises(PlanError, match=why) as caught:
        check_feasible(plan(step), Paper(4))
    assert caught.value.step == 2


def test_feasible_refuses_a_plan_for_another_size() -> None:
    with pytest.raises(PlanError, match="for 5 nodes, the cluster has 4"):
        check_feasible(plan('{"at": 1, "fault": "mend"}', nodes=5), Paper(4))


def test_feasible_refuses_a_takeover_where_nobody_else_can_listen() -> None:
    takeover = plan('{"at": 1, "fault": "takeover", "nodes": [3]}')
    check_feasible(takeover, Paper(4))
    with pytest.raises(PlanError, match="no other process"):
        check_feasible(takeover, Paper(4, place=None))


def test_feasible_takes_faults_of_nodes_that_are_still_to_join() -> None:
    steps = ['{"at": 1, "fault": "join"}', '{"at": 2, "fault": "kill", "nodes": [4]}']
    steps.append('{"at": 3, "fault": "takeover", "nodes": [4]}')
    check_feasible(plan(", ".join(steps)), Paper(4))


def test_feasible_takes_faults_of_links_with_a_proxy() -> None:
    check_feasible(plan('{"at": 1, "fault": "cut", "links": [[0, 1]]}'), Paper(4, "/proxy"))


@pytest.mark.parametrize("proxy_path", [None, "/proxy"])
@pytest.mark.parametrize("seed", range(40))
def test_feasible_random_plans_can_be_suffered(seed: int, proxy_path: str | None) -> None:
    cluster = Paper(9, proxy_path)
    made = possible_random_plan(cluster, seed, 30.0)
    check_feasible(made, cluster)
    made.check()
    assert {NAME_OF[type(step.fault)] for step in made.steps} <= {*possible_kinds(cluster), "cut"}
    assert all(not step.fault.clock_s for step in made.steps if isinstance(step.fault, Restart))


def test_feasible_random_plans_refuse_kinds_that_cannot_be() -> None:
    with pytest.raises(PlanError, match="cut"):
        possible_random_plan(Paper(9), 1, 30.0, ("kill", "cut"))


def test_feasible_does_not_draw_takeovers_where_nobody_else_can_listen() -> None:
    composed = Paper(9, place=None)
    assert "takeover" not in possible_kinds(composed)
    for seed in range(40):
        check_feasible(possible_random_plan(composed, seed, 30.0), composed)


@pytest.mark.parametrize("seconds", [0.5, 10.0, 30.0])
def test_feasible_draws_weak_plans_again(seconds: float) -> None:
    composed = Paper(8, place=None)
    composed.can_grow = False
    kinds = possible_kinds(composed)
    without_harm = 0
    for seed in range(60):
        first = random_plan(seed, 8, seconds, kinds, START_S)
        without_harm += all(NAME_OF[type(step.fault)] in MILD for step in first.steps)
        made = possible_random_plan(composed, seed, seconds)
        assert made == possible_random_plan(composed, seed, seconds)
        assert any(NAME_OF[type(step.fault)] not in MILD for step in made.steps)
    assert without_harm


def test_feasible_random_plans_evict_a_node_once_in_a_life() -> None:
    idle = 0
    for seed in range(60):
        first = random_plan(seed, 8, 30.0, possible_kinds(Paper(8)), START_S)
        idle += evicted_again(first)
        assert not evicted_again(possible_random_plan(Paper(8), seed, 30.0))
    assert idle


def evicted_again(plan: Plan) -> int:
    """How many evictions are of nodes that were evicted and have not run again since."""
    course, gone, idle = Course(plan.nodes), set[NodeId](), 0
    for step in plan.steps:
        if isinstance(step.fault, Evict):
            for node in gone.intersection(step.fault.nodes):
                idle += course.condition(node) is not Condition.RUNNING
            gone.update(step.fault.nodes)
        course.follow(step.fault)
    return idle


def test_feasible_refuses_kinds_that_harm_nothing() -> None:
    with pytest.raises(PlanError, match="no plan harmed anything"):
        possible_random_plan(Paper(4, "/proxy"), 1, 30.0, ("mend",))
