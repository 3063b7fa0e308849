"""The plan of each round of each campaign: a function of the round's number."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bmgd.chaos.faults import (
    Continue,
    Fault,
    Hog,
    Join,
    Kill,
    Leave,
    Mend,
    Partition,
    Restart,
    Stop,
)
from bmgd.chaos.plan import Plan, Step, Workload
from bmgd.types import NodeId

CALM_S = 5.0
"""Between two faults that are measured one by one."""

SILENCES = 12
SILENT_AT_ONCE = 3
RANDOM_ROUND_S = 60.0
SOAK_ROUND_S = 120.0
PARTED_S = 6.0
PROXY = ("--fault-proxy",)
MESSAGES_FAULTS = "kill,restart,stop,continue,cut,mend,leave,join"
MIXED = {
    "payload_bytes": 16,
    "payload_bytes_max": 500_000,
    "kinds": {"send": 30, "stream": 1, "request": 20, "multicast": 3, "broadcast": 2, "long": 1},
}
"""The workload of `messages`. A stream has 128: at N = 16 about half of all messages are of streams, an
eighth each are single ones, of multicasts and of broadcasts."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round does.

    Args:
        seconds: how long.
        flags: how its cluster is launched.
        plan: what is done; None for a random plan of the seed.
        words: further arguments of `bmgd chaos`, for a random plan.
    """

    seconds: float
    flags: tuple[str, ...] = ()
    plan: Plan | None = None
    seed: int = 0
    words: tuple[str, ...] = ()


def _steps(*faults: tuple[float, Fault]) -> tuple[Step, ...]:
    return tuple(Step(at_s, fault) for at_s, fault in faults)


def random_round(options: argparse.Namespace, number: int) -> Round:
    """Whatever a launched cluster can suffer."""
    return Round(RANDOM_ROUND_S, PROXY, seed=options.seed + number)


def messages_round(options: argparse.Namespace, number: int) -> Round:
    """All kinds and sizes of messages while nodes end, stop, are cut off, leave and join."""
    workload = {**MIXED, "messages_per_second": options.rate}
    words = ("--kinds", MESSAGES_FAULTS, "--workload", json.dumps(workload))
    return Round(RANDOM_ROUND_S / 2, PROXY, seed=options.seed + number, words=words)


def detect_round(options: argparse.Namespace, number: int) -> Round:
    """One node at a time is stopped, cut off, killed; each time all is well again before the next."""
    random = Random(f"detect {options.seed + number}")
    everyone = [NodeId(node) for node in range(options.size)]
    faults: list[tuple[float, Fault]] = []
    if options.hogs:
        faults.append((0.0, Hog(options.hogs, 6 * 2 * CALM_S)))
    now_s = CALM_S
    for kind in ("stop", "cut off", "kill", "stop", "cut off", "kill"):
        node = random.choice(everyone)
        others = tuple(other for other in everyone if other != node)
        harm: dict[str, tuple[Fault, Fault]] = {
            "stop": (Stop((node,)), Continue((node,))),
            "cut off": (Partition(((node,), others)), Mend()),
            "kill": (Kill((node,)), Restart((node,))),
        }
        faults += [(now_s, harm[kind][0]), (now_s + CALM_S, harm[kind][1])]
        now_s += 2 * CALM_S
    return _round(options, number, now_s, faults, PROXY)


def silence_round(options: argparse.Namespace, number: int) -> Round:
    """Three nodes at a time are stopped, or cut off from all others: eighteen of each in two minutes."""
    random = Random(f"silence {options.seed + number}")
    everyone = [NodeId(node) for node in range(options.size)]
    faults: list[tuple[float, Fault]] = []
    if options.hogs:
        faults.append((0.0, Hog(options.hogs, (2 * SILENCES + 1) * CALM_S)))
    for count in range(SILENCES):
        silent = tuple(sorted(random.sample(everyone, SILENT_AT_ONCE)))
        others = tuple(other for other in everyone if other not in silent)
        begins: Fault = Stop(silent) if count % 2 else Partition((*((n,) for n in silent), others))
        ends: Fault = Continue(silent) if count % 2 else Mend()
        now_s = (2 * count + 1) * CALM_S
        faults += [(now_s, begins), (now_s + CALM_S, ends)]
    return _round(options, number, (2 * SILENCES + 1) * CALM_S, faults, PROXY)


def partition_round(options: argparse.Namespace, number: int) -> Round:
    """Two halves by chance, for longer than they need to declare each other dead."""
    nodes = [NodeId(node) for node in range(options.size)]
    Random(f"partition {options.seed + number}").shuffle(nodes)
    halves = (tuple(sorted(nodes[::2])), tuple(sorted(nodes[1::2])))
    faults: list[tuple[float, Fault]] = [(1.0, Partition(halves)), (1.0 + PARTED_S, Mend())]
    return _round(options, number, 1.0 + PARTED_S + 15.0, faults, PROXY)


def half_round(options: argparse.Namespace, number: int) -> Round:
    """Half of all nodes are killed at once; all come back at once."""
    victims = _some(options, number, options.size // 2)
    faults: list[tuple[float, Fault]] = [(5.0, Kill(victims)), (20.0, Restart(victims))]
    return _round(options, number, 35.0, faults)


def soak_round(options: argparse.Namespace, number: int) -> Round:
    """No node is harmed."""
    faults: list[tuple[float, Fault]] = []
    if options.hogs:
        faults.append((0.0, Hog(options.hogs, SOAK_ROUND_S)))
    return _round(options, number, SOAK_ROUND_S, faults)


def whole_round(options: argparse.Namespace, number: int) -> Round:
    """Ten nodes are lost at once, and when that is healed ten leave."""
    lost = _some(options, number, 10)
    leaving = tuple(NodeId(n) for n in range(options.size) if n not in lost)[:10]
    faults: list[tuple[float, Fault]] = [(5.0, Kill(lost)), (20.0, Leave(leaving))]
    return _round(options, number, 35.0, faults)


def grow_round(options: argparse.Namespace, number: int) -> Round:
    """Many join at once."""
    return _round(options, number, 20.0, [(5.0, Join(options.joiners))])


def _some(options: argparse.Namespace, number: int, count: int) -> tuple[NodeId, ...]:
    random = Random(f"{options.campaign} {options.seed + number}")
    return tuple(sorted(map(NodeId, random.sample(range(options.size), count))))


def _round(
    options: argparse.Namespace,
    number: int,
    seconds: float,
    faults: list[tuple[float, Fault]],
    flags: tuple[str, ...] = (),
) -> Round:
    seed = options.seed + number
    plan = Plan(options.size, seconds, _steps(*faults), workload=Workload(), seed=seed)
    plan.check()
    return Round(seconds, flags, plan, seed)


PLANS: dict[str, Callable[[argparse.Namespace, int], Round]] = {
    "random": random_round,
    "messages": messages_round,
    "detect": detect_round,
    "silence": silence_round,
    "partition": partition_round,
    "half": half_round,
    "soak": soak_round,
    "whole": whole_round,
    "grow": grow_round,
}
"""Every campaign by name."""
