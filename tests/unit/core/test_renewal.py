"""Links are made anew when keys change: one by one, new before old, and nobody is without one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from bmgd.core.effects import Dial, Effect
from bmgd.core.events import DeadlineReached, Event, Greeted, KeysChanged, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import S, linked, send, settle

OLD, BOTH, NEW = ("old",), ("new", "old"), ("new",)


class Unbroken(Watcher):
    """Sees every step, and whoever lost its last link to a peer in one."""

    def __init__(self) -> None:
        self.began = False
        self.peers: dict[NodeId, set[NodeId]] = {}
        self.gaps: list[str] = []
        self.dials: list[tuple[NodeId, NodeId]] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        before, now = self.peers.get(host.id, set()), set(host.node.parts.links.by_peer)
        self.peers[host.id] = now
        if self.began:
            self.gaps += [
                f"{host.id} has no link to {peer}: {event}" for peer in sorted(before - now)
            ]
            self.dials += [(host.id, e.peer) for e in effects if isinstance(e, Dial)]


def cluster(size: int, seed: int = 1) -> tuple[Network, Unbroken]:
    watcher = Unbroken()
    conditions = Conditions(delay_min_us=50, delay_max_us=20_000)
    network = Network(size, seed=seed, conditions=conditions)
    network.watchers.append(watcher)
    for host in network.hosts.values():
        host.keys = OLD
    settle(network)
    watcher.began = True
    return network, watcher


def keys_of(network: Network) -> set[str]:
    return {link["key"] for i in network.hosts for link in network.status(i)["links"]}


def rekey_all(network: Network, keys: tuple[str, ...], order: Sequence[int]) -> None:
    for number in order:
        network.rekey(number, keys)
        network.run(0.3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [2, 5, 16])
def test_renewal_rotates_keys_through_a_cluster_without_a_gap(size: int, seed: int) -> None:
    network, watcher = cluster(size, seed)
    assert keys_of(network) == {"old"}
    order = list(range(size)) if seed % 2 else list(reversed(range(size)))
    rekey_all(network, BOTH, order)
    network.run(3)
    assert keys_of(network) == {"new"}
    dialled = len(watcher.dials)
    rekey_all(network, NEW, order[::-1])
    settle(network)
    assert keys_of(network) == {"new"}
    assert len(watcher.dials) == dialled, "a link under the first key was renewed"
    assert watcher.gaps == []


@pytest.mark.parametrize("seed", range(6))
def test_renewal_of_all_at_once_leaves_no_gap(seed: int) -> None:
    network, watcher = cluster(16, seed)
    for number in network.hosts:
        network.rekey(number, BOTH)
    network.run(3)
    settle(network)
    assert keys_of(network) == {"new"}
    assert watcher.gaps == []


def test_renewal_is_one_at_a_time_in_the_order_of_ids() -> None:
    network, watcher = cluster(16)
    network.rekey(9, NEW + OLD)
    network.run(2)
    peers = linked(network, 9)
    assert watcher.dials == [(9, peer) for peer in peers]
    assert keys_of(network) == {"old"}, "the others do not have the new one"


def test_renewal_that_is_refused_keeps_the_link_and_is_tried_again() -> None:
    network, watcher = cluster(5)
    network.rekey(2, NEW)
    network.run(10)
    assert watcher.gaps == []
    assert linked(network, 2) == [0, 1, 3, 4]
    host = network.hosts[NodeId(2)]
    assert {o.detail for _, o in host.observed if o.event == "not renewed"} == {"wrong secret"}
    assert 5 < len([d for d in watcher.dials if d[0] == 2]) < 30
    assert send(network, 2, 4).error is None
    rekey_all(network, BOTH, [0, 1, 3, 4])
    network.run(10)
    assert keys_of(network) == {"new"}
    assert watcher.gaps == []


def test_renewal_of_a_link_to_a_stopped_node_holds_up_no_other() -> None:
    network, _ = cluster(16)
    network.stop(1)
    for number in network.hosts:
        if number != 1:
            network.rekey(number, BOTH)
    network.run(1.2)
    network.resume(1)
    network.rekey(1, BOTH)
    network.run(10)
    settle(network)
    assert keys_of(network) == {"new"}


def test_renewal_loses_no_message() -> None:
    network, watcher = cluster(8)
    began_ns = network.now_ns
    for number in network.hosts:
        network.rekey(number, BOTH)
        for other in network.hosts:
            assert send(network, number, other).error is None
    network.run(3)
    assert network.now_ns - began_ns < 60 * S
    assert keys_of(network) == {"new"}
    assert watcher.gaps == []


# --- one node ---------------------------------------------------------------------------------------

PEERS = PeerList(template="host{id}:1")
SIZE = 5


def life(counter: int) -> Incarnation:
    return Incarnation(counter << 32 | 5)


def node_with(keys: tuple[str, ...]) -> Node:
    """Node 0, which has no link."""
    settings = Settings(NodeId(0), SIZE, PEERS, PEERS.address_of(NodeId(0)))
    node = Node(settings, life(1), Random(3), 0)
    node.step(0, DeadlineReached())
    node.step(1, KeysChanged(keys))
    return node


def greeted(link: int, peer: int, key: str, counter: int = 1) -> Greeted:
    address = PEERS.address_of(NodeId(peer))
    return Greeted(LinkId(link), NodeId(peer), life(counter), address, UNKNOWN_INCARNATION, 1, key)


def link_up(link: int, dial: Dial, key: str) -> LinkUp:
    known = UNKNOWN_INCARNATION
    number, renews = dial.dial_number, dial.renews
    return LinkUp(LinkId(link), dial.peer, life(1), dial.address, known, number, key, renews)


def dials_of(node: Node, now_ns: int, event: Event) -> list[Dial]:
    return [effect for effect in node.step(now_ns, event) if isinstance(effect, Dial)]


def test_renewal_goes_on_after_a_dial_that_a_former_life_answered() -> None:
    node = node_with(OLD)
    for peer in range(1, SIZE):
        node.step(2, greeted(peer, peer, "old"))
    (dial,) = dials_of(node, 3, KeysChanged(BOTH))
    assert (dial.peer, dial.renews) == (1, True)
    news = Notice(((NodeId(1), Record(life(2), 0, Status.ALIVE, PEERS.address_of(NodeId(1)))),))
    node.step(4, Received(LinkId(2), news))
    node.step(5, link_up(10, dial, "new"))
    assert [each.peer for each in dials_of(node, 6, greeted(11, 1, "new", 2))] == []
    now_ns, dials = 7, list[Dial]()
    while not dials and now_ns < 3 * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        dials += [each for each in dials_of(node, now_ns, DeadlineReached()) if each.renews]
    assert [each.peer for each in dials] == [2]


def test_renewal_of_a_link_whose_dial_was_underway_when_keys_changed() -> None:
    node = node_with(OLD)
    now_ns, dials = 1, list[Dial]()
    while not dials:
        now_ns = max(now_ns, node.deadline_ns or 0)
        dials = dials_of(node, now_ns, DeadlineReached())
    assert dials_of(node, now_ns, KeysChanged(BOTH)) == []
    (again,) = dials_of(node, now_ns, link_up(1, dials[0], "old"))
    assert (again.peer, again.renews) == (dials[0].peer, True)
    # The other end does not have the first one yet: it will renew the link when it has.
    assert dials_of(node, now_ns, link_up(2, again, "old")) == []


@pytest.mark.parametrize("later_ns", [0, S, 10 * S])
def test_renewal_of_a_link_whose_hello_came_when_keys_changed(later_ns: int) -> None:
    node = node_with(OLD)
    node.step(2, KeysChanged(BOTH))
    dials = dials_of(node, 2 + later_ns, greeted(1, 4, "old"))
    assert [each.peer for each in dials if each.renews] == ([4] if later_ns <= S else [])
