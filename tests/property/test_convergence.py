"""Whatever happens to a cluster in virtual time, it comes to rest when the faults stop.

Each seed makes a cluster, a number of faults at random moments (deaths, restarts, stops, cuts), then
lets all faults end; the connected must agree, hold exactly the killed dead, have exactly the healed
graph's links, and deliver. Seeds that once failed for a reason are named in `FORMER_FAILURES`.
"""

from __future__ import annotations

from random import Random

import pytest

from bmgd.sim import Network
from bmgd.types import NodeId
from tests.unit.core.clusters import observed, send, settle

SEEDS = range(120)
FORMER_FAILURES = (560, 627, 687, 836, 937, 1867, 2413)
SIZES = (2, 3, 4, 5, 7, 8, 9, 12, 16, 20, 33)
PAUSES_S = (0, 0.0001, 0.0005, 0.001, 0.01, 0.3, 1, 2, 3, 5)


class _Faults:
    """A cluster, and what was done to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.size = self.random.choice(SIZES)
        self.network = Network(self.size, seed)
        self.dead: set[int] = set()
        self.stopped: set[int] = set()
        self.counters = dict.fromkeys(range(self.size), 1)

    def strike(self) -> None:
        """One fault, or the end of one."""
        kinds = (self._kill, self._kill, self._restart, self._stop, self._resume, self._cut)
        self.random.choice((*kinds, self.network.mend))()
        self.network.run(self.random.choice(PAUSES_S))

    def _kill(self) -> None:
        alive = sorted(set(range(self.size)) - self.dead)
        if len(alive) > 1:
            victim = self.random.choice(alive)
            self.network.kill(victim)
            self.dead.add(victim)
            self.stopped.discard(victim)

    def _restart(self) -> None:
        if self.dead:
            victim = self.random.choice(sorted(self.dead))
            self.counters[victim] += self.random.choice((0, 1))
            self.network.boot(victim, self.counters[victim])
            self.dead.discard(victim)

    def _stop(self) -> None:
        victim = self.random.choice(sorted(set(range(self.size)) - self.dead))
        self.network.stop(victim)
        self.stopped.add(victim)

    def _resume(self) -> None:
        if self.stopped:
            victim = self.random.choice(sorted(self.stopped))
            self.network.resume(victim)
            self.stopped.discard(victim)

    def _cut(self) -> None:
        a, b = self.random.sample(range(self.size), 2)
        self.network.cut(a, b, one_way=self.random.random() < 0.5)

    def end(self) -> None:
        """No fault any more, but for the dead."""
        self.network.mend()
        for victim in sorted(self.stopped):
            self.network.resume(victim)


@pytest.mark.parametrize("seed", [*SEEDS, *FORMER_FAILURES])
def test_cluster_comes_to_rest_when_faults_stop(seed: int) -> None:
    faults = _Faults(seed)
    faults.network.run(faults.random.choice((0, 0.01, 0.5, 3)))
    for _ in range(faults.random.randrange(1, 12)):
        faults.strike()
    faults.end()
    settle(faults.network, faults.dead, limit_s=120)
    alive = sorted(set(range(faults.size)) - faults.dead)
    for _ in range(4):
        source, destination = faults.random.choice(alive), faults.random.choice(alive)
        assert send(faults.network, source, destination).error is None


@pytest.mark.parametrize("seed", range(40))
def test_deaths_and_restarts_alone_accuse_no_living_life(seed: int) -> None:
    faults = _Faults(seed)
    settle(faults.network)
    lives: dict[int, set[int]] = {i: set() for i in range(faults.size)}
    for _ in range(8):
        for node_id in range(faults.size):
            if node_id not in faults.dead:
                lives[node_id].add(faults.network.status(node_id)["incarnation"])
        faults.random.choice((faults._kill, faults._restart))()
        faults.network.run(faults.random.choice(PAUSES_S))
    settle(faults.network, faults.dead, limit_s=60)
    for node_id in range(faults.size):
        if node_id in faults.dead:
            continue
        own = faults.network.status(node_id)["incarnation"]
        for other in faults.network.hosts:
            verdicts = observed(faults.network, other, "verdict")
            assert not [o for o in verdicts if o.peer == node_id and o.incarnation == own]


def test_same_seed_gives_the_same_run() -> None:
    def history(seed: int) -> list[object]:
        faults = _Faults(seed)
        for _ in range(10):
            faults.strike()
        hosts = faults.network.hosts
        return [hosts[NodeId(i)].observed for i in range(faults.size)]

    assert history(11) == history(11)
    assert history(11) != history(12)
