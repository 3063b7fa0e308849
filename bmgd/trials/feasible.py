"""Which faults a real cluster can suffer, and random plans of those alone.

A plan is looked at as a whole before anything is harmed: what a cluster cannot do is refused with
the number of the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bmgd.chaos.faults import (
    NAME_OF,
    Clock,
    Crash,
    Cut,
    Fault,
    HalfOpen,
    Join,
    Kill,
    Partition,
    Reset,
    Restart,
    Slow,
    Takeover,
)
from bmgd.chaos.plan import Plan, Step
from bmgd.chaos.random_plan import random_plan
from bmgd.errors import PlanError
from bmgd.trials.cluster import TrialCluster

ALWAYS: Final = (
    *("kill", "restart", "stop", "continue", "leave", "evict", "join", "hog", "takeover"),
)
PROXIED: Final = ("cut", "partition", "mend", "slow", "half-open", "reset", "swizzle")
"""Faults of links: these need a launch with --fault-proxy."""

START_S: Final = 0.25
"""What a daemon's start takes of a processor: random plans leave so much time for each."""

_OF_LINKS = (Cut, Partition, Slow, HalfOpen, Reset)


def possible_kinds(cluster: TrialCluster) -> tuple[str, ...]:
    """The kinds of faults, as `random_plan` names them, that this cluster can suffer."""
    kinds = ALWAYS if cluster.proxy_path is None else (*ALWAYS, *PROXIED)
    return tuple(kind for kind in kinds if kind != "join" or cluster.can_grow)


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
    """A random plan that this cluster can suffer.

    Args:
        seed: the same one gives the same plan for the same cluster.
        seconds: how long faults go on.
        kinds: see `random_plan`; None for all that this cluster can suffer.

    Raises:
        PlanError: a kind that it cannot suffer.
    """
    possible = possible_kinds(cluster)
    impossible = sorted(set(kinds or ()) - set(possible))
    if impossible:
        raise PlanError(
            f"this cluster cannot suffer {impossible[0]!r}: {', '.join(possible)} it can"
        )
    chosen = possible if kinds is None else kinds
    plan = random_plan(seed, cluster.size, seconds, chosen, START_S)
    steps = tuple(Step(step.at_s, _as_real(step.fault)) for step in plan.steps)
    return replace(plan, steps=steps)


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
