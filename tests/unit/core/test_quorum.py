"""The majority goes on, the minority stands aside, and comes back by itself."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import Evict, SendTo
from bmgd.core.events import DeadlineReached, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.errors import NoQuorumError
from bmgd.peers import PeerList
from bmgd.policy import HealingPolicy
from bmgd.sim import Network
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import S, observed, reply_to, send, settle, survivors


def parted(size: int, one: list[int]) -> Network:
    """A settled cluster whose nodes in `one` were cut off from the others for six seconds."""
    network = Network(size, quorum=True)
    settle(network)
    for a in one:
        for b in range(size):
            if b not in one:
                network.cut(a, b)
    network.run(6)
    return network


def holders(network: Network) -> list[int]:
    """The nodes that hold the quorum, by their own count."""
    return [i for i in survivors(network) if network.status(i)["quorum"]["holds"]]


@pytest.mark.parametrize(
    ("size", "one", "holding"),
    [
        (5, [0, 1], [2, 3, 4]),
        (5, [0, 1, 2], [0, 1, 2]),
        (8, [4, 5, 6, 7], [0, 1, 2, 3]),
        (8, [0, 5, 6, 7], [0, 5, 6, 7]),
        (2, [1], [0]),
        (3, [2], [0, 1]),
        (1, [], [0]),
        (16, [0, 1, 2, 3, 4], list(range(5, 16))),
    ],
)
def test_larger_side_goes_on_and_ties_go_to_the_lowest(
    size: int, one: list[int], holding: list[int]
) -> None:
    network = parted(size, one)
    assert holders(network) == holding
    for node_id in range(size):
        stands_aside = node_id not in holding
        assert bool(observed(network, node_id, "quorum lost")) == stands_aside
    network.mend()
    settle(network)
    assert holders(network) == list(range(size))
    for node_id in range(size):
        regained = observed(network, node_id, "quorum regained")
        assert bool(regained) == (node_id not in holding)


def test_three_sides_without_a_majority_all_stand_aside() -> None:
    network = Network(9, quorum=True)
    settle(network)
    for a in range(9):
        for b in range(a):
            if a // 3 != b // 3:
                network.cut(a, b)
    network.run(6)
    assert holders(network) == []
    network.mend()
    settle(network)
    assert holders(network) == list(range(9))


def test_minority_refuses_sends_and_says_so() -> None:
    network = parted(5, [0, 1])
    reply = reply_to(network, 0, SendTo(NodeId(1), "t", b"x", 10 * S))
    assert isinstance(reply.error, NoQuorumError)
    assert network.status(0)["quorum"] == {
        "policy": "majority",
        "holds": False,
        "living": 2,
        "of": 5,
    }
    assert send(network, 2, 3).error is None
    network.mend()
    settle(network)
    assert send(network, 0, 1).error is None


def test_records_of_one_message_that_end_in_a_minority_never_give_the_quorum_back() -> None:
    """The first one does, the next takes it: a node that stood aside would go on for `ask_ms`."""
    network = parted(5, [0, 4])
    host = network.hosts[NodeId(0)]
    membership = host.node.parts.context.membership
    records = membership.exceptions()
    before = records[NodeId(1)]
    refuted = before._replace(version=before.version + 1, status=Status.ALIVE)
    life = network.hosts[NodeId(4)].node.incarnation
    dead = Record(life, 9, Status.DEAD, host.address)
    notice = Notice(((NodeId(1), refuted), (NodeId(4), dead)))
    link = host.node.parts.links.to(NodeId(4))
    assert link is not None
    network._step(host, Received(link.id, notice))
    assert network.status(0)["quorum"] == {
        "policy": "majority",
        "holds": False,
        "living": 2,
        "of": 5,
    }
    assert observed(network, 0, "quorum regained") == []


def test_minority_excludes_nobody() -> None:
    """What its nodes wrote before they could know it is as always; from then on the layout stays."""
    network = parted(9, [0, 1, 2])
    network.kill(2)
    network.kill(3)
    network.run(5)
    minority = network.hosts[NodeId(0)].node.parts.context.membership
    majority = network.hosts[NodeId(4)].node.parts.context.membership
    assert minority.status_of(NodeId(2)) is Status.DEAD
    assert majority.status_of(NodeId(3)) is Status.EXCLUDED
    network.mend()
    settle(network, [2, 3])
    assert minority.status_of(NodeId(2)) is Status.EXCLUDED


def test_the_dead_count_until_they_are_evicted() -> None:
    network = Network(6, quorum=True)
    settle(network)
    for victim in (5, 4, 3):
        network.kill(victim)
        settle(network, range(victim, 6))
    assert holders(network) == [0, 1, 2]
    network.kill(2)
    network.run(5)
    assert holders(network) == []
    outcome = reply_to(network, 0, Evict(NodeId(5), S)).result
    assert outcome["was"] in ("dead", "excluded")
    reply_to(network, 0, Evict(NodeId(4), S))
    network.run(1)
    assert network.status(0)["quorum"] == {
        "policy": "majority",
        "holds": True,
        "living": 2,
        "of": 4,
    }
    assert holders(network) == [0, 1]
    assert send(network, 0, 1).error is None


def test_quorum_that_comes_back_heals_what_waited() -> None:
    network = parted(5, [0, 1])
    network.kill(1)
    network.run(4)
    network.mend()
    settle(network, [1])
    membership = network.hosts[NodeId(0)].node.parts.context.membership
    assert membership.status_of(NodeId(1)) is Status.EXCLUDED


def test_minority_gives_out_no_ids_and_the_majority_does() -> None:
    network = parted(8, [0, 1, 2])
    for place in (100, 101):
        for other in range(8):
            if (other < 3) != (place == 100):
                network.cut(place, other)
    aside = network.join(1, place=100)
    joined = network.join(5, place=101)
    network.run(2)
    assert (aside.id < 0, joined.id) == (True, 8)
    network.mend()
    network.run(10)
    assert aside.id == 9
    assert network.status(100)["quorum"]["of"] == 10


def test_without_the_policy_both_sides_go_on() -> None:
    network = Network(5)
    settle(network)
    for a in (0, 1):
        for b in (2, 3, 4):
            network.cut(a, b)
    network.run(6)
    assert holders(network) == list(range(5))
    assert send(network, 0, 1).error is None
    assert network.status(0)["quorum"]["policy"] == "off"


def test_a_joiner_counts_as_its_contact_does() -> None:
    network = Network(6, quorum=True)
    settle(network)
    network.kill(5)
    settle(network, [5])
    joiner = network.join(2)
    network.run(2)
    assert joiner.id == 6
    shown = {tuple(network.status(i)["quorum"].values()) for i in survivors(network)}
    assert shown == {("majority", True, 6, 7)}


def test_a_joiner_that_begins_in_a_minority_excludes_nobody() -> None:
    """The majority was lost between its id and its pages: no record changes afterwards."""
    peers, life = PeerList(template="sim{id}:7400"), Incarnation(1 << 32)
    settings = Settings(NodeId(5), 5, peers, "new:1", quorum=True, takes_new_id=True)
    dead = [(NodeId(i), Record(life, 0, Status.DEAD, f"sim{i}:7400")) for i in range(1, 5)]
    rows = (*dead, (NodeId(5), Record(life, 0, Status.ALIVE, "new:1")))
    node = Node(settings, life, Random(0), 0, rows)
    for now_ns in range(0, settings.ask_ns + S // 10, S // 100):
        node.step(now_ns, DeadlineReached())
    assert node.parts.context.stands_aside
    assert node.parts.context.membership.dead == [1, 2, 3, 4]


def test_tie_goes_to_the_lowest_where_the_dead_stay_in_the_graph_too() -> None:
    network = Network(4, quorum=True, healing=HealingPolicy.parse("off"))
    settle(network)
    for a in (0, 1):
        for b in (2, 3):
            network.cut(a, b)
    network.run(6)
    assert network.hosts[NodeId(2)].node.parts.context.membership.dead == [0, 1]
    assert holders(network) == [0, 1]
