"""Secrets that change while a simulated cluster runs."""

from __future__ import annotations

from random import Random

from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.rekeying import Rekeying
from tests.unit.core.clusters import S


def keys_of(network: Network) -> set[tuple[str, ...]]:
    return {host.keys for host in network.hosts.values()}


def test_hosts_have_a_secret_in_common_at_all_times_and_the_newest_at_last() -> None:
    network = Network(6, start=False)
    scene = watch(network)
    rekeying = Rekeying(network, Random(1), 2)
    for number in range(6):
        network.boot(number)
    rekeying.start(8 * S)
    seen = set()
    while network.now_ns < 10 * S:
        network.run(0.05)
        of_each = keys_of(network)
        seen |= of_each
        assert all(set(one) & set(other) for one in of_each for other in of_each)
    assert keys_of(network) == {("secret 2",)}
    assert ("secret 1", "secret 0") in seen
    made_under = {
        link.key for host in network.hosts.values() for link in host.node.parts.links.table.values()
    }
    assert made_under == {"secret 2"}
    assert [str(violation) for violation in scene.violations] == []


def test_hosts_have_no_secret_where_it_never_changes() -> None:
    network = Network(3, start=False)
    Rekeying(network, Random(1), 0).start(8 * S)
    for number in range(3):
        network.boot(number)
    network.run(9)
    assert keys_of(network) == {()}
