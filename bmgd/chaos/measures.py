"""How long it took: detection and healing times, read from a history.

A *detection* is complete once every node that ran undisturbed meanwhile believes it; its time is that of
the last one. Faults that come while another is still being found out measure the two together, so
each detection also says whether it was *calm*: no other fault began from shortly before it until its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bmgd.chaos.checkers import delivered_again, why_declared_dead
from bmgd.chaos.faults import Partition, read_fault
from bmgd.chaos.history import (
    Acknowledged,
    Began,
    Believed,
    DeclaredDead,
    Delivered,
    Died,
    EvictAsked,
    Failed,
    History,
    LeaveAsked,
    LinkedExactly,
    Resumed,
    Sent,
    Stopped,
)
from bmgd.chaos.truth import FOREVER_NS, Truth
from bmgd.types import NodeId, Status

FOUND_NS: Final = 12_000_000_000
"""A fault that is not found by all within this is not measured, but counted as not found."""

BEFORE_NS: Final = 4_000_000_000
"""For so long before a calm fault no other one began."""


@dataclass(frozen=True, slots=True)
class Detection:
    """One node that ceased to answer, and when all others knew.

    Args:
        kind: "kill", "stop", "leave" or "cut off".
        node: which.
        at_ns: when it ceased.
        took_ns: until the last observer believed it; None when one never did.
        calm: see the module.
        hogged: whether processor time was taken away meanwhile.
    """

    kind: str
    node: NodeId
    at_ns: int
    took_ns: int | None
    calm: bool
    hogged: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """Times in milliseconds: how many, their median, 99th percentile and greatest."""

    count: int
    median: float
    p99: float
    max: float

    @classmethod
    def of(cls, times_ns: Iterable[int]) -> Summary:
        """Summarise; of nothing all is 0. Percentiles are by nearest rank."""
        times = sorted(time / 1e6 for time in times_ns)
        if not times:
            return cls(0, 0.0, 0.0, 0.0)

        def rank(share: float) -> float:
            return round(times[max(0, -int(-share * len(times) // 1) - 1)], 1)

        return cls(len(times), rank(0.5), rank(0.99), round(times[-1], 1))


HEALED: Final = frozenset(
    {"kill", "crash", "leave", "stop", "continue", "restart", "join", "evict", "mend"}
)
"""Faults after which everybody may have other links: a mend, where it ends a partition."""

_KINDS: Final[dict[type[Any], str]] = {Died: "kill", Stopped: "stop", LeaveAsked: "leave"}


def _gone(kind: str) -> tuple[Status, ...]:
    return (Status.LEFT,) if kind == "leave" else (Status.DEAD, Status.EXCLUDED, Status.LEFT)


class Measures:
    """The times and counts of one history."""

    def __init__(self, history: History, truth: Truth) -> None:
        self._history = history
        self._truth = truth
        self._beliefs: dict[NodeId, list[Believed]] = defaultdict(list)
        for fact in history.of(Believed):
            self._beliefs[fact.about].append(fact)
        self._step_times = [at_ns for at_ns, row in truth.steps if row.get("fault") != "hog"]

    # --- detection ----------------------------------------------------------------------------

    def detections(self) -> list[Detection]:
        """Every node that was killed, stopped or cut off alone, or that left."""
        found = []
        for fact in self._history.of(*_KINDS):
            kind = _KINDS[type(fact)]
            found.append(self._detection(kind, fact.node, fact.at_ns, self._observers(fact.node)))
        for at_ns, row in self._truth.steps:
            if row.get("fault") == "partition":
                found += self._cut_off(at_ns, row)
        return [detection for detection in found if detection is not None]

    def _cut_off(self, at_ns: int, row: dict[str, Any]) -> list[Detection | None]:
        fault = read_fault({key: value for key, value in row.items() if key != "at"})
        assert isinstance(fault, Partition)
        # One that is itself cut off from everybody hears of nobody's death.
        others = {node for group in fault.groups if len(group) > 1 for node in group}
        return [
            self._detection("cut off", group[0], at_ns, others)
            for group in fault.groups
            if len(group) == 1 and others
        ]

    def _observers(self, node: NodeId) -> set[NodeId]:
        return set(self._truth.nodes) - {node}

    def _detection(
        self, kind: str, node: NodeId, at_ns: int, observers: set[NodeId]
    ) -> Detection | None:
        """None when the node was back, or everybody else was disturbed, before all could know, or when
        it was held gone already.
        """
        first: dict[NodeId, int] = {}
        before: dict[NodeId, Status] = {}
        for fact in self._beliefs[node]:
            if fact.at_ns < at_ns:
                before[fact.node] = fact.status
            if at_ns <= fact.at_ns <= at_ns + FOUND_NS and fact.status in _gone(kind):
                first.setdefault(fact.node, fact.at_ns)
        truth, latest_ns = self._truth, at_ns + FOUND_NS
        until_ns = min(self._back_ns(node, at_ns), truth.ends_ns)
        # Whoever was itself disturbed before it knew is no observer.
        steady = [
            observer
            for observer in observers
            if truth.runs_through(observer, at_ns, first.get(observer, min(until_ns, latest_ns)))
        ]
        if any(before.get(observer) in _gone(kind) for observer in steady):
            # It was stopped or cut off before, and held gone for that.
            return None
        is_known = all(observer in first for observer in steady)
        took_ns = (
            max(first[observer] for observer in steady) - at_ns if is_known and steady else None
        )
        end_ns = latest_ns if took_ns is None else at_ns + took_ns
        is_parted = kind != "cut off" and bool(truth.impaired_within(at_ns, end_ns))
        if not steady or (took_ns is None and (until_ns < latest_ns or is_parted)):
            return None
        calm = self._is_calm(at_ns, end_ns) and not is_parted
        return Detection(kind, node, at_ns, took_ns, calm, truth.hogged_within(at_ns, end_ns))

    def _back_ns(self, node: NodeId, at_ns: int) -> int:
        """When the node is back: it began a life, went on, or was mended."""
        begun = [life.span.from_ns for life in self._truth.lives[node] if life.span.from_ns > at_ns]
        resumed = [span.to_ns for span in self._truth.stops[node] if span.from_ns <= at_ns]
        mended = [
            step_ns
            for step_ns, row in self._truth.steps
            if step_ns > at_ns and row.get("fault") == "mend"
        ]
        later = [back_ns for back_ns in (*begun, *resumed, *mended) if back_ns > at_ns]
        return min([*later, FOREVER_NS])

    def _is_calm(self, at_ns: int, end_ns: int) -> bool:
        # The step itself was begun a moment before the fact.
        own_ns = max((t for t in self._step_times if t <= at_ns), default=at_ns)
        return not any(t != own_ns and own_ns - BEFORE_NS <= t <= end_ns for t in self._step_times)

    # --- healing ------------------------------------------------------------------------------

    def healings(self) -> dict[str, list[int]]:
        """Nanoseconds from each calm fault that changes the graph to the last link exact, by kind.

        A fault counts once every node that runs in the end, those that began meanwhile among them, has
        said that its links are exact, before the next fault.
        """
        exact = [(fact.at_ns, fact.node) for fact in self._history.of(LinkedExactly)]
        found: dict[str, list[int]] = defaultdict(list)
        steps = self._truth.steps
        for place, (at_ns, row) in enumerate(steps):
            kind = str(row.get("fault"))
            if kind not in HEALED:
                continue
            next_ns = steps[place + 1][0] if place + 1 < len(steps) else self._truth.ends_ns
            last: dict[NodeId, int] = {n: t for t, n in exact if at_ns <= t < next_ns}
            ran = {node for node in self._truth.nodes if self._ran(node, at_ns, next_ns - 1)}
            before_ns = steps[place - 1][0] if place else at_ns - BEFORE_NS
            if ran and ran <= last.keys() and at_ns - before_ns >= BEFORE_NS:
                found[kind].append(max(last[node] for node in ran) - at_ns)
        return found

    def _ran(self, node: NodeId, from_ns: int, to_ns: int) -> bool:
        """Whether a node ran undisturbed to the end of a span, from its beginning or its own."""
        life = self._truth.life_at(node, to_ns)
        if life is None:
            return False
        return self._truth.runs_through(node, max(from_ns, life.span.from_ns), to_ns)

    # --- counts -------------------------------------------------------------------------------

    def deliveries(self) -> dict[str, Any]:
        """How many messages were sent, what became of them, and how many came twice.

        ``sent`` is the sum of ``acknowledged``, all of ``failed``, and ``sender_ended``: the sender's
        daemon ended before it told an outcome. ``kinds`` has the number of each kind, and a message to
        many counts once for each of them.
        """
        failed = Counter(fact.error for fact in self._history.of(Failed))
        came = {fact.payload_id for fact in self._history.of(Delivered)}
        sent = {fact.payload_id: fact.kind for fact in self._history.of(Sent)}
        acknowledged = [fact.payload_id for fact in self._history.of(Acknowledged)]
        told = {*acknowledged, *(fact.payload_id for fact in self._history.of(Failed))}
        return {
            "sent": len(sent),
            "kinds": dict(sorted(Counter(sent.values()).items())),
            "acknowledged": len(acknowledged),
            "failed": dict(sorted(failed.items())),
            "sender_ended": len(sent.keys() - told),
            "delivered": len(came),
            "duplicates": sum(1 for _ in delivered_again(self._history)),
        }

    def verdicts(self) -> dict[str, int]:
        """How many verdicts there were, by why they were right or excused; "" is a false death."""
        return dict(
            Counter(why_declared_dead(self._truth, fact) for fact in self._history.of(DeclaredDead))
        )

    def faults(self) -> dict[str, int]:
        """How many faults were carried out, by kind; one for each node, link or process concerned."""
        counts: Counter[str] = Counter()
        for _, row in self._truth.steps:
            kind = str(row["fault"])
            many = row.get("nodes") or row.get("links") or ()
            counts[kind] += len(many) or int(row.get("count", 1))
        # What was done to processes counts as it was done: a step may have come too late.
        for kind in ("kill", "crash", "stop", "continue", "leave", "restart", "evict"):
            del counts[kind]
        counts.update(_KINDS[type(fact)] for fact in self._history.of(*_KINDS))
        counts["continue"] = sum(1 for _ in self._history.of(Resumed))
        counts["evict"] = sum(1 for _ in self._history.of(EvictAsked))
        begun = Counter(fact.node for fact in self._history.of(Began))
        counts["restart"] = sum(count - 1 for count in begun.values())
        return {kind: count for kind, count in sorted(counts.items()) if count}


def by_kind(detections: Iterable[Detection]) -> Mapping[str, list[Detection]]:
    """Detections by kind, sorted by name."""
    found: dict[str, list[Detection]] = defaultdict(list)
    for detection in sorted(detections, key=lambda d: d.kind):
        found[detection.kind].append(detection)
    return found
