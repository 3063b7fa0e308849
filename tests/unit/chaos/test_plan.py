"""Fault plans: what can be read, what is refused and with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bmgd.chaos.faults import KINDS, Continue, Cut, Kill, Restart, Slow
from bmgd.chaos.plan import Condition, Course, Plan, Step, Workload
from bmgd.errors import BmgdError, PlanError
from bmgd.types import NodeId

EVERY_FAULT: list[dict[str, Any]] = [
    {"at": 0, "fault": "cut", "links": [[1, 2]], "one_way": True},
    {"at": 0.5, "fault": "partition", "groups": [[0, 1, 2], [3, 4]], "one_way": True},
    {"at": 1, "fault": "slow", "links": [[1, 2]], "delay_ms": 200, "bytes_per_second": 10000},
    {"at": 1, "fault": "slow", "nodes": [4], "delay_ms": 20},
    {"at": 1, "fault": "half-open", "links": [[1, 2]]},
    {"at": 1, "fault": "reset", "links": [[1, 2]]},
    {"at": 1, "fault": "reset"},
    {"at": 2, "fault": "mend", "links": [[1, 2]]},
    {"at": 2, "fault": "mend"},
    {"at": 2, "fault": "hog", "count": 2, "seconds": 5},
    {"at": 2, "fault": "stop", "nodes": [5]},
    {"at": 3, "fault": "continue", "nodes": [5]},
    {"at": 3, "fault": "kill", "nodes": [3, 6]},
    {"at": 3, "fault": "takeover", "nodes": [6], "answers": True},
    {"at": 4, "fault": "restart", "nodes": [3], "clock": -3600, "state": "lost"},
    {"at": 4, "fault": "clock", "nodes": [3], "step_ms": -5000},
    {"at": 4, "fault": "leave", "nodes": [7]},
    {"at": 4, "fault": "join", "count": 2, "through": 4},
    {"at": 4, "fault": "join"},
    {"at": 5, "fault": "evict", "nodes": [9], "by": 1},
    {"at": 5, "fault": "crash", "nodes": [8], "after_effects": 17},
]


def plan_text(*steps: dict[str, Any], **changes: Any) -> str:
    return json.dumps({"version": 1, "nodes": 8, "seconds": 30.0, "steps": steps} | changes)


def test_plan_example_has_every_fault() -> None:
    assert {step["fault"] for step in EVERY_FAULT} == set(KINDS)


def test_plan_with_every_fault_is_read_and_written_without_loss() -> None:
    text = plan_text(
        *EVERY_FAULT,
        comment="all",
        seed=7,
        settings={"healing": "off"},
        simulated={"delay_max_us": 10},
        workload={"messages_per_second": 5, "timeout": 2},
    )
    plan = Plan.parse(text)
    assert len(plan.steps) == len(EVERY_FAULT)
    assert plan.workload == Workload(5, 64, 2)
    assert Plan.parse(plan.to_json()) == plan
    assert json.loads(plan.to_json())["steps"] == [s | {"at": float(s["at"])} for s in EVERY_FAULT]


def test_plan_values_reach_their_faults() -> None:
    plan = Plan.parse(plan_text(EVERY_FAULT[0], EVERY_FAULT[12], EVERY_FAULT[14]))
    assert plan.steps == (
        Step(0, Cut(((NodeId(1), NodeId(2)),), one_way=True)),
        Step(3, Kill((NodeId(3), NodeId(6)))),
        Step(4, Restart((NodeId(3),), clock_s=-3600, keeps_state=False)),
    )


def test_plan_without_steps_is_a_plan() -> None:
    plan = Plan.parse('{"version": 1, "nodes": 2, "seconds": 0}')
    assert plan == Plan(2, 0)
    assert Plan.parse(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"nodes": 2, "seconds": 1}', "not version 1"),
        (plan_text(version=2), "not version 1"),
        (plan_text(nodes=0), "not an integer"),
        (plan_text(nodes=True), "not an integer"),
        (plan_text(seconds=-1), "not a number"),
        (plan_text(seconds="1"), "not a number"),
        (plan_text(colour="red"), "no key 'colour'"),
        (plan_text(settings={"a": [1]}), "settings, a"),
        (plan_text(simulated=3), "simulated"),
        (plan_text(workload={"bytes": 3}), "no key 'bytes'"),
        (plan_text(workload={"payload_bytes": 3}), "workload, payload_bytes: not an integer"),
        (plan_text(steps={}), "not a list"),
        (plan_text(comment=1), "comment"),
    ],
)
def test_plan_that_is_malformed_as_a_whole_is_refused(text: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        Plan.parse(text)
    assert caught.value.step is None


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"at": 1, "fault": "explode"}, "no such fault: 'explode'"),
        ({"at": 1}, "no such fault: None"),
        ({"fault": "mend"}, "not a number"),
        ({"at": 31, "fault": "mend"}, "at 31: not in"),
        ({"at": 1, "fault": "kill"}, "kill needs the key 'nodes'"),
        ({"at": 1, "fault": "kill", "nodes": []}, "not a list with something in it"),
        ({"at": 1, "fault": "kill", "nodes": [1, 1]}, "twice"),
        ({"at": 1, "fault": "kill", "nodes": [8]}, "no node 8 among 8"),
        ({"at": 1, "fault": "kill", "nodes": [-1]}, "not an integer"),
        ({"at": 1, "fault": "kill", "nodes": [1], "hard": True}, "no key 'hard'"),
        ({"at": 1, "fault": "restart", "nodes": [1]}, "node 1 is running, not ended"),
        ({"at": 1, "fault": "continue", "nodes": [1]}, "node 1 is running, not stopped"),
        ({"at": 1, "fault": "takeover", "nodes": [1]}, "node 1 is running, not ended"),
        ({"at": 1, "fault": "evict", "nodes": [1], "by": 1}, "cannot evict itself"),
        ({"at": 1, "fault": "join", "through": 9}, "no node 9"),
        ({"at": 1, "fault": "cut", "links": [[1, 2, 3]]}, "not a pair"),
        ({"at": 1, "fault": "cut", "links": [[1, 1]]}, "twice"),
        ({"at": 1, "fault": "cut", "links": [[1, 2]], "one_way": 1}, "not true or false"),
        ({"at": 1, "fault": "partition", "groups": [[0, 1]]}, "two or more groups"),
        ({"at": 1, "fault": "partition", "groups": [[0, 1], [1, 2]]}, "two or more groups"),
        ({"at": 1, "fault": "slow", "delay_ms": 1}, "either links or nodes"),
        ({"at": 1, "fault": "slow", "nodes": [1], "links": [[1, 2]]}, "either links or nodes"),
        ({"at": 1, "fault": "restart", "nodes": [1], "state": "torn"}, "neither kept nor lost"),
    ],
)
def test_plan_with_a_wrong_step_is_refused_with_its_number(
    step: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        Plan.parse(plan_text({"at": 0, "fault": "mend"}, step))
    assert caught.value.step == 2
    assert str(caught.value).startswith("step 2: ")
    assert isinstance(caught.value, BmgdError)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"at": 2, "fault": "mend"}, {"at": 1, "fault": "mend"}], "at 1: not in 2..30"),
        ([{"at": 1, "fault": "kill", "nodes": [1]}] * 2, "node 1 is ended"),
        (
            [{"at": 1, "fault": "kill", "nodes": [1]}, {"at": 1, "fault": "stop", "nodes": [1]}],
            "node 1 is ended, not running",
        ),
        (
            [{"at": 1, "fault": "kill", "nodes": list(range(8))}, {"at": 1, "fault": "join"}],
            "nobody runs",
        ),
    ],
)
def test_plan_steps_are_held_against_those_before(steps: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        Plan.parse(plan_text(*steps))
    assert caught.value.step == 2


def test_plan_joiners_can_be_named_once_they_came() -> None:
    kill = {"at": 2, "fault": "kill", "nodes": [9]}
    assert Plan.parse(plan_text({"at": 1, "fault": "join", "count": 2}, kill)).steps
    with pytest.raises(PlanError, match="no node 9 among 9"):
        Plan.parse(plan_text({"at": 1, "fault": "join"}, kill))


def test_plan_evicted_node_that_is_stopped_goes_on_before_it_ends() -> None:
    steps = (
        {"at": 1, "fault": "stop", "nodes": [2]},
        {"at": 1, "fault": "evict", "nodes": [2, 3], "by": 0},
        {"at": 2, "fault": "continue", "nodes": [2]},
        {"at": 2, "fault": "restart", "nodes": [3]},
    )
    assert Plan.parse(plan_text(*steps)).steps


def test_course_knows_who_runs() -> None:
    course = Course(4)
    for step in Plan.parse(plan_text(*EVERY_FAULT[:1], nodes=4)).steps:
        course.follow(step.fault)
    course.follow(Kill((NodeId(1),)))
    assert course.nodes_that(Condition.RUNNING) == [0, 2, 3]
    assert course.nodes_that(Condition.ENDED) == [1]
    with pytest.raises(PlanError):
        course.follow(Continue((NodeId(0),)))


def test_plan_default_values_are_not_written() -> None:
    plan = Plan(2, 1, (Step(0, Slow(nodes=(NodeId(1),), delay_ms=1)),))
    assert json.loads(plan.to_json())["steps"] == [
        {"at": 0, "fault": "slow", "nodes": [1], "delay_ms": 1}
    ]
