"""Steps that no core makes: detection early or late by what was configured, healing that waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bmgd.core.effects import Observed
from bmgd.policy import HealingPolicy
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Suspected
from bmgd.types import Incarnation, NodeId, Record, Status
from tests.unit.core.clusters import S

if TYPE_CHECKING:
    from tests.unit.sim.test_checkers import Forger

PEER = NodeId(4)


def suspected_early(f: Forger) -> None:
    f.deadline(Observed("suspected", PEER, f.life, "silence"))


def declared_dead_early(f: Forger) -> None:
    f.journal.suspected[PEER] = Suspected(f.life, f.network.now_ns - S // 10, "silence")
    f.deadline(Observed("verdict", PEER, f.life, "silence"))


def _wait_longer(f: Forger) -> None:
    """The cores wait longer than was configured."""
    for host in f.network.hosts.values():
        context = Inside(host.node).context
        context.settings = replace(context.settings, timeout_ns=4 * S)


def stopped_and_not_found(f: Forger) -> None:
    _wait_longer(f)
    f.network.stop(PEER)
    f.scene.disturb(PEER)
    f.network.run(6)


def cut_off_and_not_found(f: Forger) -> None:
    _wait_longer(f)
    f.network.run(3)
    others = [number for number in f.network.hosts if number != PEER]
    f.network.blockade.part([others, [PEER]], one_way=False)
    for number in f.network.hosts:
        f.scene.disturb(number)
    f.network.run(6)


def _lowest_with_dead(f: Forger, policy: str, dead: tuple[int, ...]) -> None:
    lowest = f.network.hosts[NodeId(0)]
    inside = Inside(lowest.node)
    inside.context.settings = replace(inside.context.settings, healing=HealingPolicy.parse(policy))
    for number in dead:
        record = Record(Incarnation(1 << 40), 0, Status.DEAD, f"sim{number}:7400")
        inside.membership.join(NodeId(number), record)
    for _ in range(4):
        f.network.timeline.now_ns += S
        f.step_of(lowest)


def ways_too_long_on_average(f: Forger) -> None:
    _lowest_with_dead(f, "overhead:1%", (3, 5))


def longest_way_too_long(f: Forger) -> None:
    _lowest_with_dead(f, "overhead:0", (1, 2, 4))


FORGERIES_OF_DETECTION: list[tuple[str, Callable[[Forger], None]]] = [
    ("detection-is-in-time", suspected_early),
    ("detection-is-in-time", declared_dead_early),
    ("detection-is-in-time", stopped_and_not_found),
    ("cut-off-is-found", cut_off_and_not_found),
    ("heals-in-time", ways_too_long_on_average),
    ("heals-in-time", longest_way_too_long),
]
