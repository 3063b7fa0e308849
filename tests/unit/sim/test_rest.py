"""When broadcasts keep a cluster from rest: who is waited for, and who cannot be."""

from __future__ import annotations

from bmgd.core.commands import BroadcastTo, TraceFrom
from bmgd.policy import HealingPolicy
from bmgd.sim import Network
from bmgd.sim.inside import membership_of, unsettled_broadcast
from bmgd.sim.rest import comes_to_quiet, is_whole, meets_by_lot, unrest, unsettled
from bmgd.types import NodeId
from tests.unit.core.clusters import S, settle

NOT_STABLE = "its own broadcasts are not stable, or not told to be"


def test_broadcast_keeps_a_connected_cluster_from_rest_until_it_is_stable() -> None:
    network = Network(5, 0)
    settle(network)
    network.issue(0, BroadcastTo("news", b"x", True, S))
    assert unsettled(network) == f"node 0: {NOT_STABLE}"
    network.run(2)
    assert unsettled(network) == ""


def test_source_waits_without_end_only_for_whom_nothing_connects() -> None:
    network = Network(5, 0)
    settle(network)
    network.issue(0, BroadcastTo("news", b"x", True, S))
    node = network.hosts[NodeId(0)].node
    assert unsettled_broadcast(node, {NodeId(0)}) == ""
    assert unsettled_broadcast(node, {NodeId(0), NodeId(3)}) == NOT_STABLE
    network.run(2)
    # Who has all of it is waited for no more, connected or not.
    assert unsettled_broadcast(node, {NodeId(0)}) == ""


def test_source_that_waits_for_a_node_that_died_unseen_never_comes_to_quiet() -> None:
    network = Network(12, 0, healing=HealingPolicy.parse("off"))
    settle(network)
    source, unseen = network.hosts[NodeId(3)].node, NodeId(0)
    for node_id in (*membership_of(source).neighbors(unseen), unseen):
        network.kill(node_id)
    network.run(10)
    assert not membership_of(source).is_gone(unseen)
    assert is_whole(network)
    assert unrest(network) == ""
    assert comes_to_quiet(network)
    network.issue(3, BroadcastTo("news", b"x", True, S))
    network.run(10)
    assert unsettled(network) == ""
    assert not comes_to_quiet(network)


def test_node_without_a_link_meets_by_lot_whom_it_holds_for_gone() -> None:
    network = Network(2, 0)
    settle(network)
    assert not meets_by_lot(network)
    network.cut(0, 1)
    network.run(20)
    assert membership_of(network.hosts[NodeId(0)].node).is_gone(NodeId(1))
    assert meets_by_lot(network)
    network.kill(1)
    assert not meets_by_lot(network)


def test_copies_are_kept_only_while_the_source_waits_for_somebody() -> None:
    network = Network(3, 0)
    settle(network)
    network.issue(0, BroadcastTo("news", b"x", True, S))
    node = network.hosts[NodeId(1)].node
    lives = node.parts.to_many.retention.lives
    for _ in range(1000):
        if any(heard.copies for heard in lives.values()):
            break
        network.run(0.001)
    assert unsettled_broadcast(node, {NodeId(0), NodeId(1), NodeId(2)})
    assert unsettled_broadcast(node, {NodeId(0), NodeId(1)}) == ""
    # From a source that is not connected nothing can come.
    assert unsettled_broadcast(node, {NodeId(1), NodeId(2)}) == ""


def test_former_broadcasts_that_a_neighbor_is_still_to_hear_of_keep_a_cluster_from_rest() -> None:
    """There may be too many to tell of at once."""
    network = Network(4)
    settle(network)
    life = network.hosts[NodeId(3)].node.incarnation
    network.issue(3, BroadcastTo("news", b"x", True, 10 * S))
    network.run(1)
    network.kill(3)
    network.run(5)
    assert unsettled(network) == ""
    parts = network.hosts[NodeId(0)].node.parts
    heard = parts.to_many.retention.lives[NodeId(3), life]
    (peer, *_) = parts.links.by_peer
    parts.to_many.orphans._askers[peer] = parts.context.now_ns + 30 * S
    assert "3's former broadcasts" in unsettled(network)
    heard.said[peer] = heard.reach
    assert unsettled(network) == ""


def test_way_that_another_node_measures_keeps_a_cluster_from_rest() -> None:
    network = Network(5, 0)
    settle(network)
    network.stop(3)
    network.issue(0, TraceFrom(NodeId(3), NodeId(4), S))
    assert unsettled(network) == "node 0: others measure ways for it"
    network.resume(3)
    network.run(1)
    assert unsettled(network) == ""


def test_link_under_an_old_secret_keeps_a_cluster_from_rest() -> None:
    network = Network(5, 0, start=False)
    network.keys = ("old",)
    for number in range(5):
        network.boot(number)
    settle(network)
    network.hosts[NodeId(0)].keys = ("new", "old")
    assert unrest(network) == ""
    # As if their cores had not been told.
    for host in network.hosts.values():
        host.keys = ("new", "old")
    assert unrest(network) == "the link of nodes 0 and 1 is made under old"
    for number in network.hosts:
        network.rekey(number, ("new", "old"))
    network.run(3)
    assert unrest(network) == ""
