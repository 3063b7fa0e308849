"""Whole clusters in virtual time over the engine in C, its links fed: the same to the last byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from bmgd.chaos.history import History
from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.sim import Network
from bmgd.sim.linkmodel import WatchedEngine
from bmgd.sim.options import random_scenario
from bmgd.sim.simulation import Inspector, Outcome, Simulation
from tests.unit.linklayer.engines import ENGINES

SEEDS = (36, *(pytest.param(seed, marks=pytest.mark.long) for seed in (6, 18, 25)))
"""Scenarios with small pipes, partial writes and steps that take time; the engine in C has the bounds
of a daemon."""
SECONDS = 3.0


class _Links(Inspector):
    """Gives every host an engine, and has what its links break."""

    def __init__(self, network: Network, make: Callable[[], LinkEngine]) -> None:
        super().__init__()
        self.broken: list[str] = []
        network.wires.make_layer = lambda host: WatchedEngine(
            make(), lambda name, text: self.broken.append(f"{name}: {text}")
        )


def _run(seed: int, make: Callable[[], LinkEngine]) -> tuple[Outcome, list[str]]:
    plan = random_scenario(seed, Random(f"size {seed}").randint(3, 12), SECONDS)
    plan = replace(plan, simulated={**plan.simulated, "bulk_bytes_max": 0, "narrow_percent": 0})
    made: list[_Links] = []

    def inspect(network: Network, _: History) -> Inspector:
        made.append(_Links(network, make))
        return made[0]

    return Simulation(plan, [inspect]).run(), made[0].broken


@pytest.mark.skipif("c" not in ENGINES, reason="the engine in C was not built")
@pytest.mark.parametrize("seed", SEEDS)
def test_engine_in_c_carries_a_cluster_as_the_layer_does(seed: int) -> None:
    plain, broken = _run(seed, LinkLayer)
    assert plain.passed
    assert broken == []
    in_c, broken = _run(seed, ENGINES["c"])
    assert broken == []
    assert in_c.digest == plain.digest
    assert in_c.bytes_sent == plain.bytes_sent > 0
