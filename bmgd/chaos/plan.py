"""Fault plans: what is done to a cluster, and when. The format is docs/fault-plans.md.

A plan is checked as a whole before anything is harmed: every value by itself (`faults.py`), and every
step against those before it, by following which nodes run, are stopped, or have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from bmgd.chaos.faults import (
    NODES_MAX,
    Clock,
    Continue,
    Crash,
    Cut,
    Evict,
    Fault,
    HalfOpen,
    Hog,
    Join,
    Kill,
    Leave,
    Mend,
    Partition,
    Reset,
    Restart,
    Slow,
    Stop,
    Takeover,
    integer,
    number,
    read_fault,
    write_fault,
)
from bmgd.errors import PlanError
from bmgd.types import NodeId

FORMAT_VERSION = 1
SECONDS_MAX = 1e7
STEPS_MAX = 100_000

LONG_BYTES_MAX = 1 << 24
"""Of the messages of a workload; nodes take longer ones."""
WEIGHT_MAX = 1_000_000

KINDS: Final = ("send", "stream", "request", "multicast", "broadcast", "long")
"""What programs can do with messages: one, many in order, a question, one to some, one to all, one of
several pieces."""

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Workload:
    """The messages that programs send meanwhile, from random nodes to random others.

    Args:
        messages_per_second: of the whole cluster, on average; one to many counts once for each of them.
        payload_bytes: of each message, at least 8 (its number).
        timeout_s: the deadline of each.
        payload_bytes_max: at most so many bytes on real processes, small sizes as often as large ones;
            0 for `payload_bytes` always. Kinds but ``long`` stay at 65,536 bytes and less.
        kinds: how often each of `KINDS` is chosen on real processes, by weight.
    """

    messages_per_second: float = 20.0
    payload_bytes: int = 64
    timeout_s: float = 10.0
    payload_bytes_max: int = 0
    kinds: Mapping[str, int] = field(default_factory=lambda: {"send": 1})


@dataclass(frozen=True, slots=True)
class Step:
    """One fault and its moment, in seconds since the plan began."""

    at_s: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done to a cluster.

    Args:
        nodes: the founders; ids from this on are joiners, in the order in which they come.
        seconds: how long faults go on; then all is mended and continued, and it must come to rest.
        steps: sorted by their moments.
        settings: changes to the daemons' configuration, by its key.
        simulated: options of the simulator (docs/simulator.md); a real cluster has none.
        seed: for what is left to chance.
        comment: for people: what the plan is for, or what it found.
    """

    nodes: int
    seconds: float
    steps: tuple[Step, ...] = ()
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    workload: Workload = Workload()
    simulated: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0
    comment: str = ""

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read a plan's JSON text and check it as a whole.

        Raises:
            PlanError: it cannot be carried out; the text says which step and why.
        """
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise PlanError("not a JSON object")
        unknown = sorted(row.keys() - _KEYS)
        if unknown:
            raise PlanError(f"a plan has no key {unknown[0]!r}")
        if row.get("version") != FORMAT_VERSION:
            raise PlanError(f"not version {FORMAT_VERSION}: {row.get('version')!r}")
        plan = cls(
            nodes=integer(1, NODES_MAX)(row.get("nodes")),
            seconds=number(0, SECONDS_MAX)(row.get("seconds")),
            steps=tuple(_read_steps(row.get("steps", []))),
            settings=_scalars(row.get("settings", {}), "settings"),
            workload=read_workload(row.get("workload", {})),
            simulated=_scalars(row.get("simulated", {}), "simulated"),
            seed=integer(0, 2**63 - 1)(row.get("seed", 0)),
            comment=_text(row.get("comment", "")),
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Follow the steps in thought.

        Raises:
            PlanError: a step cannot be carried out after those before it.
        """
        course = Course(self.nodes)
        before_s = 0.0
        for index, step in enumerate(self.steps, 1):
            if not before_s <= step.at_s <= self.seconds:
                raise PlanError(f"at {step.at_s:g}: not in {before_s:g}..{self.seconds:g}", index)
            before_s = step.at_s
            try:
                course.follow(step.fault)
            except PlanError as error:
                raise PlanError(str(error), index) from None

    def to_json(self) -> str:
        """The plan as JSON text, one step a line; `parse` reads it back."""
        head: dict[str, object] = {"version": FORMAT_VERSION}
        if self.comment:
            head["comment"] = self.comment
        if self.seed:
            head["seed"] = self.seed
        head |= {"nodes": self.nodes, "seconds": self.seconds}
        if self.settings:
            head["settings"] = dict(self.settings)
        if self.workload != Workload():
            head["workload"] = {
                name: getattr(self.workload, attribute)
                for name, (attribute, _) in _WORKLOAD_KEYS.items()
            }
        if self.simulated:
            head["simulated"] = dict(self.simulated)
        lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
        rows = [json.dumps({"at": s.at_s, **write_fault(s.fault)}) for s in self.steps]
        steps = ",\n    ".join(rows)
        lines.append(f'  "steps": [\n    {steps}\n  ]' if rows else '  "steps": []')
        return "{\n" + "\n".join(lines) + "\n}\n"


_KEYS: Final = frozenset(
    {
        "version",
        "comment",
        "seed",
        "nodes",
        "seconds",
        "settings",
        "workload",
        "simulated",
        "steps",
    }
)


def _kinds(value: object) -> Mapping[str, int]:
    """Read the weights of kinds.

    Raises:
        PlanError: not weights, or all of them 0.
    """
    if not isinstance(value, dict):
        raise PlanError("not a JSON object")
    unknown = sorted(value.keys() - set(KINDS))
    if unknown:
        raise PlanError(f"no kind {unknown[0]!r}; there are: {', '.join(KINDS)}")
    weights = {kind: integer(0, WEIGHT_MAX)(weight) for kind, weight in value.items()}
    if not any(weights.values()):
        raise PlanError("every weight is 0")
    return weights


_WORKLOAD_KEYS: Final[dict[str, tuple[str, Callable[[object], Any]]]] = {
    "messages_per_second": ("messages_per_second", number(0, 1e6)),
    "payload_bytes": ("payload_bytes", integer(8, 65_536)),
    "payload_bytes_max": ("payload_bytes_max", integer(0, LONG_BYTES_MAX)),
    "timeout": ("timeout_s", number(0.001, 3600)),
    "kinds": ("kinds", _kinds),
}


def _read_steps(value: object) -> Iterable[Step]:
    if type(value) is not list or len(value) > STEPS_MAX:
        raise PlanError(f"steps: not a list of at most {STEPS_MAX}")
    for index, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise PlanError("not a JSON object", index)
        try:
            at_s = number(0, SECONDS_MAX)(row.get("at"))
            yield Step(at_s, read_fault({key: row[key] for key in row if key != "at"}))
        except PlanError as error:
            raise PlanError(str(error), index) from None


def read_workload(value: object) -> Workload:
    """Read a workload as plans have it.

    Raises:
        PlanError: which key, and why.
    """
    if not isinstance(value, dict):
        raise PlanError("workload: not a JSON object")
    unknown = sorted(value.keys() - _WORKLOAD_KEYS.keys())
    if unknown:
        raise PlanError(f"workload has no key {unknown[0]!r}")
    values: dict[str, Any] = {}
    for name, (attribute, read) in _WORKLOAD_KEYS.items():
        if name in value:
            try:
                values[attribute] = read(value[name])
            except PlanError as error:
                raise PlanError(f"workload, {name}: {error}") from None
    return Workload(**values)


def _scalars(value: object, name: str) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise PlanError(f"{name}: not a JSON object")
    for key, scalar in value.items():
        if type(scalar) not in (str, int, float, bool):
            raise PlanError(f"{name}, {key}: not a text, number or boolean")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise PlanError("comment: not a text")
    return value


# --- the course of a plan -------------------------------------------------------------------------


class Condition(Enum):
    """What a node does, as far as a plan decides it."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"


class Course:
    """Which nodes run, followed step by step.

    A node can end by itself (it was evicted, or its crash comes late), so that whoever carries a plan
    out meets nodes in another condition than here; what a fault then asks in vain is left out.

    Args:
        nodes: the founders, all running.
    """

    def __init__(self, nodes: int) -> None:
        self._count = nodes
        self._others: dict[NodeId, Condition] = {}

    @property
    def count(self) -> int:
        """Founders and joiners until now."""
        return self._count

    def condition(self, node: NodeId) -> Condition:
        """What a node does."""
        return self._others.get(node, Condition.RUNNING)

    def nodes_that(self, *conditions: Condition) -> list[NodeId]:
        """All nodes in one of these conditions, sorted."""
        if Condition.RUNNING not in conditions:
            return sorted(n for n, condition in self._others.items() if condition in conditions)
        return [
            node for node in map(NodeId, range(self._count)) if self.condition(node) in conditions
        ]

    def follow(self, fault: Fault) -> None:
        """Take one step.

        Raises:
            PlanError: it cannot be carried out.
        """
        match fault:
            case Kill(nodes) | Crash(nodes):
                self._move(nodes, Condition.ENDED, Condition.RUNNING, Condition.STOPPED)
            case Restart(nodes):
                self._move(nodes, Condition.RUNNING, Condition.ENDED)
            case Stop(nodes):
                self._move(nodes, Condition.STOPPED, Condition.RUNNING)
            case Continue(nodes):
                self._move(nodes, Condition.RUNNING, Condition.STOPPED)
            case Leave(nodes):
                self._move(nodes, Condition.ENDED, Condition.RUNNING)
            case Join(count, through):
                self._need(() if through is None else (through,), Condition.RUNNING)
                if not self._runs_any():
                    raise PlanError("nobody runs whom a joiner could contact")
                self._count += count
            case Evict(nodes, by):
                self._need((by,), Condition.RUNNING)
                if by in nodes:
                    raise PlanError(f"node {by} cannot evict itself")
                self._need(nodes)
                for node in nodes:
                    if self.condition(node) is Condition.RUNNING:
                        self._others[node] = Condition.ENDED
            case Takeover(nodes):
                self._need(nodes, Condition.ENDED)
            case Clock(nodes):
                self._need(nodes)
            case Cut(links) | HalfOpen(links):
                self._need_ends(links)
            case Mend(links) | Reset(links):
                self._need_ends(links or ())
            case Slow(links, nodes):
                self._need_ends(links)
                self._need(nodes)
            case Partition(groups):
                self._need([node for group in groups for node in group])
            case Hog():
                pass

    def _runs_any(self) -> bool:
        return sum(1 for c in self._others.values() if c is not Condition.RUNNING) < self._count

    def _move(self, nodes: Iterable[NodeId], to: Condition, *of: Condition) -> None:
        nodes = tuple(nodes)
        self._need(nodes, *of)
        for node in nodes:
            self._others[node] = to

    def _need_ends(self, links: Iterable[tuple[NodeId, NodeId]]) -> None:
        self._need([node for pair in links for node in pair])

    def _need(self, nodes: Iterable[NodeId], *conditions: Condition) -> None:
        for node in nodes:
            if not 0 <= node < self._count:
                raise PlanError(f"there is no node {node} among {self._count}")
            condition = self.condition(node)
            if conditions and condition not in conditions:
                wanted = " or ".join(c.value for c in conditions)
                raise PlanError(f"node {node} is {condition.value}, not {wanted}")
