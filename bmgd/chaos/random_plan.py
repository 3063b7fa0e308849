"""Fault plans by chance: a seed decides which faults there are, how many, and how close together.

Not every plan has every fault (swarm testing: Groce et al., "Swarm Testing", ISSTA 2012): one where
everything happens at once never lets a single fault unfold, and faults hide each other. So a seed
first chooses a few kinds and a pace, and only then writes the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Final

from bmgd.chaos.faults import (
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
    Pair,
    Partition,
    Reset,
    Restart,
    Slow,
    Stop,
    Takeover,
)
from bmgd.chaos.plan import Condition, Course, Plan, Step
from bmgd.errors import PlanError
from bmgd.types import NodeId

PACES_S: Final = (0.002, 0.05, 0.3, 1.0, 3.0)
"""Mean pauses between two faults."""
STEPS_MAX = 400
SWIZZLED_MAX = 12
GROWTH: Final = 8
"""So many may join a cluster of any size; at most as many as founded it join a larger one."""
LONG_S: Final = STEPS_MAX * max(PACES_S)
"""What lasts longer has its faults in bursts until its end, and grows to twice its size at most."""
BURST: Final = 20
"""The faults of a burst, about."""


def random_plan(
    seed: int,
    nodes: int,
    seconds: float,
    kinds: Collection[str] | None = None,
    start_s: float = 0.0,
    draw: int = 0,
) -> Plan:
    """A plan by chance.

    Args:
        seed: the same one gives the same plan.
        nodes: the founders, 1 or more.
        seconds: how long faults go on.
        kinds: the faults that may occur, by name, and "swizzle" (cuts one by one, mended in another
            order); None for all that there are.
        start_s: after each process that begins there is a pause of so long, since to begin takes a
            real one much time of a processor.
        draw: which of the seed's plans, 0 for the first.

    Raises:
        PlanError: an unknown kind.
    """
    unknown = sorted(set(kinds or ()) - WRITERS.keys())
    if unknown:
        raise PlanError(f"no such fault: {unknown[0]!r}")
    name = f"plan {seed}" if draw == 0 else f"plan {seed}, draw {draw}"
    author = _Author(Random(name), nodes, seconds, start_s)
    author.write([kind for kind in WRITERS if kinds is None or kind in kinds])
    plan = Plan(nodes, seconds, tuple(sorted(author.steps, key=lambda step: step.at_s)), seed=seed)
    plan.check()
    return plan


class _Author:
    """Writes one plan, step by step, following what the steps do."""

    def __init__(self, random: Random, nodes: int, seconds: float, start_s: float) -> None:
        self.random = random
        self.seconds = seconds
        self.start_s = start_s
        self.course = Course(nodes)
        self.steps: list[Step] = []
        self.now_s = 0.0
        self.ended_max = random.choice((1, 2, max(1, nodes // 4), max(1, nodes - 1)))
        self.together = random.choice((1, 1, 2, max(1, nodes // 3)))
        growth = nodes if seconds > LONG_S else GROWTH
        self.ids_max = nodes + random.choice((1, growth, max(growth, nodes)))

    def write(self, kinds: list[str]) -> None:
        """Choose from the kinds, a pace, and the steps."""
        random = self.random
        if not kinds:
            return
        chosen = [kind for kind in kinds if random.random() < 0.4] or [random.choice(kinds)]
        # What ends or stops nodes alone soon has nobody left: its counterpart belongs to it.
        chosen += [w for kind in chosen for w in _COUNTERPARTS.get(kind, ()) if w in kinds]
        weights = [random.choice((1, 1, 3, 9)) for _ in chosen]
        pace_s = random.choice(PACES_S)
        self.now_s = random.choice((0.0, 0.01, 0.5, 3.0)) * random.random()
        while self.now_s <= self.seconds and len(self.steps) < STEPS_MAX:
            WRITERS[random.choices(chosen, weights)[0]](self)
            if random.random() < 0.7:
                self.now_s += random.expovariate(1 / pace_s)
            if self.seconds > LONG_S and random.random() < 1 / BURST:
                self.now_s += random.expovariate(STEPS_MAX / (BURST * self.seconds))

    def add(self, fault: Fault, after_s: float = 0.0) -> None:
        """Append a step, now or (for faults that depend on no node's condition) later."""
        self.course.follow(fault)
        at_s = min(self.now_s + after_s, self.seconds)
        self.steps.append(Step(round(at_s, 6) if at_s < self.seconds else self.seconds, fault))

    def some(self, *conditions: Condition) -> tuple[NodeId, ...]:
        """One or a few nodes in one of these conditions; () when there are none."""
        there = self.course.nodes_that(*conditions)
        count = min(len(there), self.random.randint(1, self.together))
        return tuple(sorted(self.random.sample(there, count)))

    def mortals(self) -> tuple[NodeId, ...]:
        """Nodes that may end: not so many that too few go on."""
        ended = len(self.course.nodes_that(Condition.ENDED))
        victims = self.some(Condition.RUNNING, Condition.STOPPED)
        running = len(self.course.nodes_that(Condition.RUNNING))
        return victims[: max(0, min(self.ended_max - ended, running - 1))]

    def pairs(self, at_most: int = 3) -> tuple[Pair, ...]:
        """A few different pairs of nodes; () with fewer than two nodes."""
        if self.course.count < 2:
            return ()
        found: dict[Pair, None] = {}
        for _ in range(self.random.randint(1, at_most)):
            a, b = self.random.sample(range(self.course.count), 2)
            found[NodeId(a), NodeId(b)] = None
        return tuple(found)

    # --- one writer per kind ------------------------------------------------------------------

    def kill(self) -> None:
        if victims := self.mortals():
            self.add(Kill(victims))

    def crash(self) -> None:
        if victims := self.mortals():
            self.add(Crash(victims, self.random.choice((0, 1, 2, 5, 20, 100))))

    def restart(self) -> None:
        if nodes := self.some(Condition.ENDED):
            clock_s = self.random.choice((0.0, 0.0, -3600.0))
            self.add(Restart(nodes, clock_s, keeps_state=self.random.random() < 0.5))
            self.now_s += len(nodes) * self.start_s

    def stop(self) -> None:
        nodes = self.some(Condition.RUNNING)
        if nodes and len(self.course.nodes_that(Condition.RUNNING)) > len(nodes):
            self.add(Stop(nodes))

    def go_on(self) -> None:
        if nodes := self.some(Condition.STOPPED):
            self.add(Continue(nodes))

    def leave(self) -> None:
        running = set(self.course.nodes_that(Condition.RUNNING))
        if nodes := tuple(node for node in self.mortals() if node in running):
            self.add(Leave(nodes))

    def join(self) -> None:
        running = self.course.nodes_that(Condition.RUNNING)
        if running and self.course.count < self.ids_max:
            through = self.random.choice((None, self.random.choice(running)))
            count = self.random.choice((1, 1, 2, 5))
            self.add(Join(count, through))
            self.now_s += count * self.start_s

    def evict(self) -> None:
        running = self.course.nodes_that(Condition.RUNNING)
        victims = self.mortals()[:1] or self.some(Condition.ENDED)[:1]
        others = [node for node in running if node not in victims]
        if victims and others:
            self.add(Evict(victims, self.random.choice(others)))

    def cut(self) -> None:
        if pairs := self.pairs():
            self.add(Cut(pairs, one_way=self.random.random() < 0.5))

    def partition(self) -> None:
        nodes = [NodeId(n) for n in range(self.course.count)]
        if len(nodes) < 2:
            return
        self.random.shuffle(nodes)
        if self.random.random() < 0.3:
            nodes = nodes[: self.random.randint(2, len(nodes))]
        parts = min(len(nodes), self.random.choice((2, 2, 2, 3)))
        bounds = sorted(self.random.sample(range(1, len(nodes)), parts - 1))
        ends = zip([0, *bounds], [*bounds, len(nodes)], strict=True)
        groups = tuple(tuple(sorted(nodes[low:high])) for low, high in ends)
        self.add(Partition(groups, one_way=self.random.random() < 0.25))

    def mend(self) -> None:
        pairs = self.pairs()
        self.add(Mend(pairs if pairs and self.random.random() < 0.3 else None))

    def slow(self) -> None:
        delay_ms = self.random.choice((1.0, 20.0, 200.0, 900.0))
        rate = self.random.choice((0, 0, 2_000, 100_000))
        pairs = self.pairs()
        if pairs and self.random.random() < 0.5:
            self.add(Slow(links=pairs, delay_ms=delay_ms, bytes_per_second=rate))
        elif nodes := self.some(Condition.RUNNING):
            self.add(Slow(nodes=nodes, delay_ms=min(delay_ms, 200.0), bytes_per_second=rate))

    def half_open(self) -> None:
        if pairs := self.pairs():
            self.add(HalfOpen(pairs))

    def reset(self) -> None:
        pairs = self.pairs(8)
        self.add(Reset(pairs if pairs and self.random.random() < 0.7 else None))

    def hog(self) -> None:
        self.add(Hog(self.random.randint(1, 2), self.random.choice((0.5, 2.0, 5.0))))

    def takeover(self) -> None:
        if nodes := self.some(Condition.ENDED):
            self.add(Takeover(nodes, answers=self.random.random() < 0.5))

    def clock(self) -> None:
        if nodes := self.some(Condition.RUNNING, Condition.STOPPED):
            self.add(Clock(nodes, self.random.choice((-5000.0, -100.0, 100.0, 5000.0))))

    def swizzle(self) -> None:
        """Cut one node's pairs one by one, and mend them one by one in another order."""
        count = self.course.count
        if count < 2:
            return
        center = self.random.randrange(count)
        others = [n for n in range(count) if n != center]
        others = self.random.sample(others, min(len(others), SWIZZLED_MAX))
        pause_s = self.random.choice((0.01, 0.2, 1.0))
        pairs = [(NodeId(center), NodeId(other)) for other in others]
        for place, pair in enumerate(pairs):
            self.add(Cut((pair,)), place * pause_s)
        self.random.shuffle(pairs)
        for place, pair in enumerate(pairs, len(pairs)):
            self.add(Mend((pair,)), place * pause_s)


WRITERS: Final[dict[str, Callable[[_Author], None]]] = {
    "kill": _Author.kill,
    "restart": _Author.restart,
    "stop": _Author.stop,
    "continue": _Author.go_on,
    "leave": _Author.leave,
    "join": _Author.join,
    "evict": _Author.evict,
    "cut": _Author.cut,
    "partition": _Author.partition,
    "mend": _Author.mend,
    "slow": _Author.slow,
    "half-open": _Author.half_open,
    "reset": _Author.reset,
    "hog": _Author.hog,
    "takeover": _Author.takeover,
    "clock": _Author.clock,
    "crash": _Author.crash,
    "swizzle": _Author.swizzle,
}
"""Every kind that a random plan can have, in a fixed order."""

_COUNTERPARTS: Final = {
    "kill": ("restart",),
    "crash": ("restart",),
    "stop": ("continue",),
    "cut": ("mend",),
    "partition": ("mend",),
    "restart": ("kill",),
    "continue": ("stop",),
    "takeover": ("kill",),
}
