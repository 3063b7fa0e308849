"""Copies at best effort that come a second time: a program is given each message once."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.broadcast import broadcasting
from bmgd.core.commands import BroadcastTo, MulticastTo, Subscribe
from bmgd.sim import Network
from bmgd.sim.checkers import Scene, watch
from bmgd.sim.second_copies import SecondCopies
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

SIZE = 9
SOURCE = NodeId(0)
ALL = (1 << SIZE) - 1


def _send(percent: int) -> tuple[Network, Scene]:
    """Broadcasts and multicasts in turn: a copy may come after that of a later message."""
    network = Network(SIZE)
    scene = watch(network)
    settle(network)
    for number in range(SIZE):
        network.issue(number, Subscribe("t", 64))
    copies = SecondCopies(network, Random(1), percent)
    network.watchers.append(copies)
    copies.start(network.now_ns + 2 * S)
    for number in range(20):
        body = b"%d" % number
        network.issue(SOURCE, BroadcastTo("t", body, False, S))
        network.issue(SOURCE, MulticastTo(ALL & ~(1 << number % SIZE), "t", body, False, S))
        network.run(0.05)
    network.run(2)
    return network, scene


def _repeated(network: Network) -> int:
    hosts = network.hosts.values()
    return sum(host.node.parts.to_many.broadcasting.tally.repeated for host in hosts)


@pytest.mark.parametrize("percent", [0, 100])
def test_second_copies_come_and_are_taken_by_nobody(percent: int) -> None:
    network, scene = _send(percent)
    assert scene.violations == []
    assert bool(_repeated(network)) == bool(percent)
    taken = [len(host.announced) for host in network.hosts.values()]
    assert taken == [20] * SIZE


def test_second_copy_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasting._Seen, "is_new", lambda self, count: True)
    _, scene = _send(100)
    assert scene.violations != []
