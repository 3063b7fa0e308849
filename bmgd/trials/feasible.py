"""Which faults a real cluster can suffer, and random plans of those alone.

A plan is looked at as a whole before anything is harmed: what a cluster cannot do is refused with
the number of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bmgd.chaos.faults import (
    NAME_OF,
    Clock,
    Continue,
    Crash,
    Cut,
    Evict,
    Fault,
    HalfOpen,
    Join,
    Kill,
    Mend,
    Partition,
    Reset,
    Restart,
    Slow,
    Takeover,
)
from bmgd.chaos.plan import Condition, Course, Plan, Step
from bmgd.chaos.random_plan import random_plan
from bmgd.errors import PlanError
from bmgd.trials.cluster import TrialCluster
from bmgd.types import NodeId

ALWAYS: Final = (
    *("kill", "restart", "stop", "continue", "leave", "evict", "join", "hog", "takeover"),
)
PROXIED: Final = ("cut", "partition", "mend", "slow", "half-open", "reset", "swizzle")
"""Faults of links: these need a launch with --fault-proxy."""

START_S: Final = 0.25
"""What a daemon's start takes of a processor: random plans leave so much time for each."""

DRAWS: Final = 100
"""A seed whose plans are weak is drawn from so often."""

_OF_LINKS = (Cut, Partition, Slow, HalfOpen, Reset)
_MILD = (Mend, Continue, Restart)


def possible_kinds(cluster: TrialCluster) -> tuple[str, ...]:
    """The kinds of faults, as `random_plan` names them, that this cluster can suffer."""
    kinds = ALWAYS if cluster.proxy_path is None else (*ALWAYS, *PROXIED)
    impossible = set() if cluster.can_grow else {"join"}
    if any(cluster.place(node) is None for node in range(cluster.size)):
        impossible.add("takeover")
    return tuple(kind for kind in kinds if kind not in impossible)


def check_feasible(plan: Plan, cluster: TrialCluster) -> None:
    """Refuse a plan that this cluster cannot suffer as it stands.

    Raises:
        PlanError: which step, and why.
    """
    if plan.nodes != cluster.size:
        raise PlanError(f"the plan is for {plan.nodes} nodes, the cluster has {cluster.size}")
    for number, step in enumerate(plan.steps, 1):
        why = _why_not(step.fault, cluster)
        if why:
            raise PlanError(f"{NAME_OF[type(step.fault)]}: {why}", number)


def _why_not(fault: Fault, cluster: TrialCluster) -> str:
    match fault:
        case _ if isinstance(fault, _OF_LINKS) and cluster.proxy_path is None:
            return "links can be harmed where the cluster was launched with --fault-proxy"
        case Join() if not cluster.can_grow:
            return "this cluster cannot grow"
        case Join(_, through) if through is not None:
            return "whom a joiner asks is the launcher's choice"
        case Clock():
            return "the clock of a real machine is not stepped"
        case Restart(_, clock_s) if clock_s:
            return "the clock of a real machine is not stepped"
        case Takeover(nodes) if any(
            cluster.place(node) is None for node in nodes if node < cluster.size
        ):
            return "no other process can listen in its place"
    return ""


def possible_random_plan(
    cluster: TrialCluster, seed: int, seconds: float, kinds: tuple[str, ...] | None = None
) -> Plan:
    """A random plan that this cluster can suffer, and that harms it.

    A plan is weak when it harms nothing, or has no step at all; then the seed is drawn from again.

    Args:
        seed: the same one gives the same plan for the same cluster.
        seconds: how long faults go on.
        kinds: see `random_plan`; None for all that this cluster can suffer.

    Raises:
        PlanError: a kind that it cannot suffer; or kinds and a time in which nothing is harmed.
    """
    possible = possible_kinds(cluster)
    impossible = sorted(set(kinds or ()) - set(possible))
    if impossible:
        raise PlanError(
            f"this cluster cannot suffer {impossible[0]!r}; it can suffer: {', '.join(possible)}"
        )
    chosen = possible if kinds is None else kinds
    for draw in range(DRAWS):
        plan = random_plan(seed, cluster.size, seconds, chosen, START_S, draw)
        steps = tuple(
            Step(step.at_s, _as_real(step.fault)) for step in _without_idle_evictions(plan)
        )
        if any(not isinstance(step.fault, _MILD) for step in steps):
            return replace(plan, steps=steps)
    raise PlanError(
        f"in {DRAWS} draws no plan harmed anything: choose a longer time, or other kinds"
        f" than {', '.join(chosen)}"
    )


def _without_idle_evictions(plan: Plan) -> Iterator[Step]:
    """Leave out evictions of nodes that were evicted and have not run again since."""
    course = Course(plan.nodes)
    evicted: set[NodeId] = set()
    for step in plan.steps:
        if isinstance(step.fault, Evict):
            idle = {node for node in evicted if course.condition(node) is not Condition.RUNNING}
            nodes = tuple(node for node in step.fault.nodes if node not in idle)
            evicted.update(nodes)
            if nodes:
                yield Step(step.at_s, Evict(nodes, step.fault.by))
        else:
            yield step
        course.follow(step.fault)


def _as_real(fault: Fault) -> Fault:
    match fault:
        case Crash(nodes):
            return Kill(nodes)
        case Restart():
            return replace(fault, clock_s=0.0)
        case Join():
            return replace(fault, through=None)
        case _:
            return fault
