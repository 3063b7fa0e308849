"""Making a failing scenario small: fewer steps, fewer nodes, less traffic, and it still fails.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over
the steps of the plan: halves are left out, then quarters, and so on down to single ones. Then nodes
that no step names are left out from above, steps lose nodes and links, the messages go, and options
return to their defaults. A candidate counts only if the same checker finds something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from bmgd.chaos.faults import Fault, Partition
from bmgd.chaos.plan import Plan, Step
from bmgd.errors import PlanError

Fails = Callable[[Plan], bool]


class Shrinker:
    """Shrinks one plan.

    Args:
        fails: whether a plan still fails in the same way.
        runs_max: after so many runs the best until then is the result.
        seconds_max: after so much time, too.

    Attributes:
        runs: how many candidates were tried.
    """

    def __init__(self, fails: Fails, runs_max: int = 400, seconds_max: float = 600.0) -> None:
        self.runs = 0
        self._fails = fails
        self._runs_max = runs_max
        self._until_s = time.monotonic() + seconds_max

    def shrink(self, plan: Plan) -> Plan:
        """The smallest plan found that still fails; the plan itself at worst."""
        best = plan
        while not self._is_over():
            before = best
            for shorten in (
                self._fewer_steps,
                self._smaller_steps,
                self._fewer_nodes,
                self._less_traffic,
                self._plainer,
                self._sooner,
            ):
                best = shorten(best)
            if best == before:
                break
        return best

    def _is_over(self) -> bool:
        return self.runs >= self._runs_max or time.monotonic() >= self._until_s

    def _try(self, candidate: Plan) -> bool:
        """Whether a candidate can be carried out and fails."""
        if self._is_over():
            return False
        self.runs += 1
        try:
            candidate.check()
            return self._fails(candidate)
        except PlanError:
            return False

    def _first(self, best: Plan, candidates: Iterator[Plan]) -> Plan:
        """Take each candidate that fails, one after the other."""
        for candidate in candidates:
            if candidate != best and self._try(candidate):
                return candidate
        return best

    # --- ways to be smaller -------------------------------------------------------------------

    def _fewer_steps(self, plan: Plan) -> Plan:
        steps, parts = list(plan.steps), 2
        while steps and not self._is_over():
            size = max(1, len(steps) // parts)
            at, shorter = 0, False
            while at < len(steps):
                rest = steps[:at] + steps[at + size :]
                if self._try(replace(plan, steps=tuple(rest))):
                    steps, shorter = rest, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            parts = max(2, parts if shorter else parts * 2)
            if size == 1 and shorter:
                parts = len(steps) or 1
        return replace(plan, steps=tuple(steps))

    def _smaller_steps(self, plan: Plan) -> Plan:
        for index in range(len(plan.steps)):
            shorter = True
            while shorter and not self._is_over():
                smaller = (
                    replace(plan, steps=_with(plan.steps, index, fault))
                    for fault in _parts_of(plan.steps[index].fault)
                )
                found = self._first(plan, smaller)
                shorter, plan = found != plan, found
        return plan

    def _fewer_nodes(self, plan: Plan) -> Plan:
        used = max(_named(plan.steps), default=0) + 1
        sizes = sorted({used, (used + plan.nodes) // 2, plan.nodes - 1})
        return self._first(
            plan, (replace(plan, nodes=size) for size in sizes if 1 <= size < plan.nodes)
        )

    def _less_traffic(self, plan: Plan) -> Plan:
        load = plan.workload
        lighter = (
            replace(load, messages_per_second=0.0),
            replace(load, messages_per_second=load.messages_per_second / 4),
            replace(load, payload_bytes=8),
        )
        return self._first(plan, (replace(plan, workload=one) for one in lighter))

    def _plainer(self, plan: Plan) -> Plan:
        for name in ("settings", "simulated"):
            for key in dict(getattr(plan, name)):
                options = dict(getattr(plan, name))
                del options[key]
                candidate = replace(plan, **{name: options})  # type: ignore[arg-type]
                if self._try(candidate):
                    plan = candidate
        return plan

    def _sooner(self, plan: Plan) -> Plan:
        last_s = max((step.at_s for step in plan.steps), default=0.0)
        return self._first(plan, iter((replace(plan, seconds=last_s),)))


def _with(steps: Sequence[Step], index: int, fault: Fault) -> tuple[Step, ...]:
    return (*steps[:index], Step(steps[index].at_s, fault), *steps[index + 1 :])


def _parts_of(fault: Fault) -> Iterator[Fault]:
    """The same fault with fewer nodes, links or groups' members."""
    if isinstance(fault, Partition):
        yield from _parts_of_partition(fault)
    for f in fields(fault):
        value: Any = getattr(fault, f.name)
        if f.name in ("nodes", "links") and value and len(value) > 1:
            half = len(value) // 2
            yield replace(fault, **{f.name: value[:half]})
            yield replace(fault, **{f.name: value[half:]})
            for at in range(len(value)):
                yield replace(fault, **{f.name: value[:at] + value[at + 1 :]})


def _parts_of_partition(fault: Partition) -> Iterator[Fault]:
    """With fewer groups, two at least, or with fewer members, one of each group at least."""
    groups = fault.groups
    for at in range(len(groups) if len(groups) > 2 else 0):
        yield replace(fault, groups=groups[:at] + groups[at + 1 :])
    for at, group in enumerate(groups):
        half = len(group) // 2
        fewer = [group[:half], group[half:]] if half > 1 else []
        fewer += [group[:i] + group[i + 1 :] for i in range(len(group)) if len(group) > 1]
        for rest in fewer:
            yield replace(fault, groups=(*groups[:at], rest, *groups[at + 1 :]))


def _named(steps: Sequence[Step]) -> Iterator[int]:
    """Every id that a step names."""
    for step in steps:
        for f in fields(step.fault):
            value: Any = getattr(step.fault, f.name)
            if f.name == "nodes":
                yield from value
            elif f.name in ("links", "groups"):
                yield from (node for group in value or () for node in group)
            elif f.name in ("by", "through") and value is not None:
                yield value
