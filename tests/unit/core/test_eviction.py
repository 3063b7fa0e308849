"""Eviction, and what a node does that others hold dead."""

from __future__ import annotations

import pytest

from bmgd.core.commands import Evict, ShowMembers
from bmgd.errors import RequestError
from bmgd.sim import Network
from bmgd.types import NodeId, counter_of
from tests.unit.core.clusters import S, linked, observed, reply_to, settle, survivors


def evict(network: Network, by: int, target: int, timeout_s: float = 5.0) -> dict[str, object]:
    """Evict a node; the outcome that the program is told."""
    reply = reply_to(network, by, Evict(NodeId(target), int(timeout_s * S)))
    assert reply.error is None, reply.error
    outcome: dict[str, object] = reply.result
    return outcome


def assert_left_by_all(network: Network, gone: list[int]) -> None:
    """Every survivor holds exactly these to have left, and links nobody else."""
    for node_id in survivors(network):
        status = network.status(node_id)
        assert status["left"] == gone
        assert status["dead"] == []
        assert linked(network, node_id) == status["neighbors"]


@pytest.mark.parametrize(("by", "target"), [(0, 3), (3, 0), (0, 1), (6, 7), (7, 0), (2, 5)])
def test_evicted_node_ends_and_is_left_at_every_other(by: int, target: int) -> None:
    network = Network(8)
    settle(network)
    assert evict(network, by, target) == {"id": target, "was": "expected", "ended": True}
    exit_of = network.hosts[NodeId(target)].exit
    assert exit_of is not None
    assert (exit_of.code, "evicted" in exit_of.reason) == (1, True)
    network.run(2)
    assert_left_by_all(network, [target])


def test_evicting_a_node_that_was_never_met_binds_the_life_that_it_leads() -> None:
    """In 64 nodes 0 and 21 are no neighbors, and have never exchanged a message."""
    network = Network(64)
    settle(network)
    assert 21 not in linked(network, 0)
    life = network.status(21)["incarnation"]
    assert evict(network, 0, 21)["ended"]
    network.run(2)
    for node_id in survivors(network):
        member = reply_to(network, node_id, ShowMembers()).result["members"][21]
        assert (member["status"], member["incarnation"]) == ("left", life)


def test_evicting_a_dead_node_is_over_at_once() -> None:
    network = Network(8)
    settle(network)
    network.kill(5)
    settle(network, [5])
    assert evict(network, 1, 5) == {"id": 5, "was": "excluded", "ended": True}
    network.run(1)
    assert_left_by_all(network, [5])
    assert evict(network, 2, 5) == {"id": 5, "was": "left", "ended": True}


def test_evicting_a_stopped_node_is_told_and_not_confirmed() -> None:
    network = Network(8)
    settle(network)
    network.stop(5)
    assert evict(network, 1, 5, timeout_s=3) == {"id": 5, "was": "expected", "ended": False}
    for node_id in (0, 1, 2, 3, 4, 6, 7):
        assert network.status(node_id)["left"] == [5]
    network.resume(5)
    network.run(10)
    assert network.hosts[NodeId(5)].exit is not None
    assert_left_by_all(network, [5])


def test_evicting_a_node_beyond_a_cut_holds_when_the_cut_is_mended() -> None:
    network = Network(8)
    settle(network)
    for peer in (0, 1, 2, 3, 4, 6, 7):
        network.cut(5, peer)
    assert evict(network, 4, 5, timeout_s=1)["ended"] is False
    network.mend()
    network.run(20)
    assert network.hosts[NodeId(5)].exit is not None
    assert_left_by_all(network, [5])


def test_evicted_node_that_holds_the_others_dead_ends_when_one_refuses_it() -> None:
    network = Network(2)
    settle(network)
    network.cut(0, 1)
    network.run(3.0)
    assert network.status(1)["dead"] == [0]
    network.issue(0, Evict(NodeId(1), 1 * S))
    network.mend()
    network.run_until(lambda: not network.hosts[NodeId(1)].alive, limit_s=20)
    exited = network.hosts[NodeId(1)].exit
    assert exited is not None
    assert "evicted" in exited.reason


def test_evicted_id_may_come_back_as_a_new_life() -> None:
    network = Network(8)
    settle(network)
    assert evict(network, 0, 5)["ended"]
    network.run(1)
    network.boot(5)
    settle(network)
    assert counter_of(network.status(5)["incarnation"]) == 2


def test_a_later_life_that_answers_is_the_one_evicted() -> None:
    """The target restarts under a new incarnation while the eviction of the former one travels."""
    network = Network(64)
    settle(network)
    request = network.issue(0, Evict(NodeId(21), 20 * S))
    network.kill(21)
    network.boot(21, counter=7)
    replies = network.hosts[NodeId(0)].replies
    network.run_until(lambda: request in replies)
    network.run(5)
    exit_of = network.hosts[NodeId(21)].exit
    assert exit_of is not None
    assert_left_by_all(network, [21])


@pytest.mark.parametrize(
    ("target", "says"), [(8, "no node has the id 8"), (3, "evicted by another")]
)
def test_eviction_of_nobody_and_of_oneself_are_errors(target: int, says: str) -> None:
    network = Network(8)
    settle(network)
    reply = reply_to(network, 3, Evict(NodeId(target), S))
    assert isinstance(reply.error, RequestError)
    assert says in str(reply.error)


def test_second_eviction_underway_of_one_id_is_refused() -> None:
    network = Network(8)
    settle(network)
    network.stop(5)
    network.issue(1, Evict(NodeId(5), 3 * S))
    network.run(0.01)
    assert isinstance(reply_to(network, 1, Evict(NodeId(5), S)).error, RequestError)


def test_declared_dead_node_that_may_not_refute_ends() -> None:
    network = Network(8, refutes=False)
    settle(network)
    network.stop(5)
    network.run(5)
    assert network.status(0)["dead"] == [5]
    network.resume(5)
    network.run(5)
    exit_of = network.hosts[NodeId(5)].exit
    assert exit_of is not None
    assert (exit_of.code, "declared dead" in exit_of.reason) == (1, True)
    settle(network, [5])
    assert not observed(network, 5, "refuted")


def test_restart_of_a_dead_node_that_may_not_refute_is_a_new_life() -> None:
    """A former life that is held dead is no accusation: the new one begins above it."""
    network = Network(8, refutes=False)
    settle(network)
    network.kill(5)
    settle(network, [5])
    network.boot(5)
    settle(network)
    assert network.hosts[NodeId(5)].exit is None


def test_daemon_that_is_started_again_during_its_eviction_is_not_evicted_twice() -> None:
    network = Network(8)
    settle(network)
    network.stop(5)
    request = network.issue(1, Evict(NodeId(5), 10 * S))
    network.run(1)
    network.kill(5)
    network.boot(5)
    replies = network.hosts[NodeId(1)].replies
    network.run_until(lambda: request in replies, limit_s=5)
    assert replies[request].result["ended"] is True
    network.run(10)
    assert network.hosts[NodeId(5)].exit is None
    settle(network)
