"""Deaths: proof, suspicion, the notice, and the healed graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.policy import HealingPolicy
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId
from bmgd.wire.link_messages import Unwanted
from tests.unit.core.clusters import observed, send, settle, trace


@pytest.mark.parametrize("size", [2, 3, 7, 8, 9, 12, 16, 33, 64])
def test_killed_node_is_known_dead_within_milliseconds(size: int) -> None:
    network = Network(size)
    settle(network)
    victim = size // 2
    network.kill(victim)
    alive = [i for i in range(size) if i != victim]
    told_s = network.run_until(lambda: all(network.status(i)["dead"] == [victim] for i in alive))
    assert told_s < 0.002
    assert settle(network, [victim]) < 0.1


@pytest.mark.parametrize("pair", list(combinations(range(9), 2)))
def test_two_simultaneous_deaths_are_healed(pair: tuple[int, int]) -> None:
    network = Network(9)
    settle(network)
    for victim in pair:
        network.kill(victim)
    assert settle(network, pair) < 1


@pytest.mark.parametrize("seed", range(12))
def test_half_of_the_nodes_may_die_at_once(seed: int) -> None:
    random = Random(seed)
    size = random.choice([8, 16, 20, 33])
    network = Network(size, seed)
    settle(network)
    victims = random.sample(range(size), size // 2)
    for victim in victims:
        network.kill(victim)
    assert settle(network, victims) < 2


@pytest.mark.parametrize("size", [8, 12, 16, 33])
def test_whole_neighborhood_but_one_may_die(size: int) -> None:
    network = Network(size)
    settle(network)
    victims = list(BinomialGraph(size).neighbors(3))[1:]
    for victim in victims:
        network.kill(victim)
    settle(network, victims)
    alive = [i for i in range(size) if i not in victims]
    for destination in alive:
        assert send(network, 3, destination).error is None


@pytest.mark.parametrize("squatter", ["silent", "cluster"])
def test_death_is_found_although_another_process_took_the_port_at_once(squatter: str) -> None:
    network = Network(16)
    settle(network)
    network.kill(5)
    network.hosts[NodeId(5)].squatter = squatter
    alive = [i for i in range(16) if i != 5]
    told_s = network.run_until(lambda: all(network.status(i)["dead"] == [5] for i in alive), 10)
    assert told_s < 2.5
    settle(network, [5])


def test_stopped_node_is_declared_dead_in_time_and_comes_back_with_a_higher_version() -> None:
    network = Network(16)
    settle(network)
    network.run(3.3)
    network.stop(5)
    alive = [i for i in range(16) if i != 5]
    told_s = network.run_until(lambda: all(network.status(i)["dead"] == [5] for i in alive), 10)
    assert told_s < 2.5
    network.run(5)
    before = network.status(0)["digest"]
    network.resume(5)
    settle(network)
    status = network.status(5)
    assert status["version"] == 1
    assert network.status(0)["digest"] != before
    assert not [o for i in range(16) for o in observed(network, i, "verdict") if o.peer != 5]


def test_short_stop_is_not_a_death() -> None:
    network = Network(16)
    settle(network)
    network.stop(5)
    network.run(1.2)
    network.resume(5)
    network.run(10)
    settle(network)
    assert network.status(5)["version"] == 0
    assert not [o for i in range(16) for o in observed(network, i, "verdict")]


def test_stopped_majority_accuses_nobody_when_it_goes_on() -> None:
    network = Network(9)
    settle(network)
    for node_id in range(8):
        network.stop(node_id)
    network.run(1.0)
    for node_id in range(8):
        network.resume(node_id)
    network.run(8)
    settle(network)
    assert not [o for i in range(8) for o in observed(network, i, "verdict")]


def test_cut_between_two_of_three_kills_nobody() -> None:
    network = Network(3)
    settle(network)
    network.cut(0, 1)
    network.run(30)
    assert all(network.status(i)["dead"] == [] for i in range(3))
    assert [o for o in observed(network, 0, "vetoed") if o.peer == 1]
    assert send(network, 0, 1).error is None
    network.mend()
    settle(network)


def test_one_way_cut_is_silence_on_both_sides() -> None:
    network = Network(3)
    settle(network)
    network.cut(0, 1, one_way=True)
    network.run(10)
    assert [o for o in observed(network, 1, "suspected") if o.peer == 0]
    assert all(network.status(i)["dead"] == [] for i in range(3))
    network.mend()
    settle(network)


def test_node_cut_off_from_all_is_dead_to_them_and_joins_again() -> None:
    network = Network(8)
    settle(network)
    for other in range(8):
        if other != 2:
            network.cut(2, other)
    network.run(6)
    assert all(network.status(i)["dead"] == [2] for i in range(8) if i != 2)
    network.mend()
    settle(network)


def test_healthy_halves_meet_without_losing_a_link_of_their_own() -> None:
    network = Network(16)
    settle(network)
    for a in range(8):
        for b in range(8, 16):
            network.cut(a, b)
    network.run(20)
    assert all(network.status(i)["dead"] == list(range(8, 16)) for i in range(8))
    inside = {i: {row["id"] for row in network.status(i)["links"]} for i in range(16)}
    network.mend()
    lost: list[tuple[int, int]] = []
    for host in network.hosts.values():
        host.observed.clear()
    settle(network, limit_s=120)
    for node_id in range(16):
        lost += [
            (node_id, o.peer)
            for o in observed(network, node_id, "link down")
            if o.peer in inside[node_id] and o.detail != "goodbye"
        ]
    assert lost == []


def test_healing_off_keeps_the_graph_and_finds_ways_around() -> None:
    network = Network(16, healing=HealingPolicy.parse("off"))
    settle(network)
    victims = list(BinomialGraph(16).neighbors(0))[:-1]
    for victim in victims:
        network.kill(victim)
    alive = [i for i in range(16) if i not in victims]
    network.run_until(lambda: all(network.status(i)["dead"] == victims for i in alive), 30)
    assert network.status(0)["neighbors"] == list(BinomialGraph(16).neighbors(0))
    detours = 0
    for source in alive:
        for destination in alive:
            path = trace(network, source, destination)
            assert not set(path) & set(victims)
            detours += len(path) - 1 > BinomialGraph(16).hops(source, destination)
    assert detours > 0


def test_verdict_names_the_life_that_died() -> None:
    network = Network(8)
    settle(network)
    incarnation = network.status(3)["incarnation"]
    network.kill(3)
    settle(network, [3])
    record = network.hosts[NodeId(0)].records[-1]
    assert record.id == 3
    assert record.record.incarnation == incarnation


class _Offers(Watcher):
    """Counts offers to close a link that are made while a wanted one is still on its way."""

    def __init__(self) -> None:
        self.early = self.all = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        node = host.node
        linked = node.parts.links.by_peer
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Unwanted):
                membership = node.parts.context.membership
                wanted = [p for p in node.parts.dialling.wanted if not membership.is_gone(p)]
                self.all += 1
                self.early += not set(wanted) <= set(linked)


@pytest.mark.parametrize("size", [9, 16, 33])
def test_no_link_is_offered_to_be_closed_before_those_that_replace_it_are_up(size: int) -> None:
    """Founders that this node has never met are not "expected, never linked": they are on their way."""
    network = Network(size)
    settle(network)
    offers = _Offers()
    network.watchers.append(offers)
    network.kill(3)
    settle(network, [3])
    assert offers.all
    assert offers.early == 0
