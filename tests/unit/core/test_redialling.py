"""The dead are dialled for ever, by a few, so that parted sides meet and nobody stays alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from bmgd.core.effects import Dial, Effect, Send
from bmgd.core.events import DeadlineReached, DialFailed, Event, LinkUp, Received
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.topology import BinomialGraph
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.bounds import RECORDS_PER_NOTICE_MAX
from bmgd.wire.link_messages import Heartbeat, Notice, RecordPage
from tests.unit.core.clusters import S, settle

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)


def count_dials(network: Network) -> Counter[tuple[int, int]]:
    """From now on, count the dials by (who, whom)."""
    dials: Counter[tuple[int, int]] = Counter()

    def counting(me: int, step: Callable[[int, Event], list[Effect]]) -> None:
        def counted(now_ns: int, event: Event) -> list[Effect]:
            effects = step(now_ns, event)
            dials.update((me, e.peer) for e in effects if isinstance(e, Dial))
            return effects

        network.hosts[NodeId(me)].node.step = counted  # type: ignore[method-assign]

    for me, host in network.hosts.items():
        counting(me, host.node.step)
    return dials


def part(network: Network, side: Iterable[int]) -> None:
    """Cut all links between some hosts and the others."""
    inside = set(side)
    for a in inside:
        for b in set(network.hosts) - inside:
            network.cut(a, b)


@pytest.mark.parametrize("size", [16, 40])
def test_dead_node_is_dialled_for_ever_by_a_few(size: int) -> None:
    network = Network(size)
    settle(network)
    network.kill(7)
    settle(network, [7])
    network.run(5)
    dials = count_dials(network)
    network.run(100)
    assert {whom for _, whom in dials} == {7}
    # 25 pauses of 4 s: six neighbors and one stranger in each, give or take chance.
    assert 0.4 * 7 * 25 < dials.total() < 1.5 * 7 * 25
    assert max(dials.values()) <= 25 * 4 / 3 + 1


def test_half_of_the_nodes_dead_costs_each_other_one_dial_in_a_pause() -> None:
    network = Network(64)
    settle(network)
    victims = Random(1).sample(range(64), 32)
    for victim in victims:
        network.kill(victim)
    settle(network, victims)
    network.run(2)
    dials = count_dials(network)
    network.run(100)
    by_node: Counter[int] = Counter()
    for (who, _), count in dials.items():
        by_node[who] += count
    assert max(by_node.values()) <= 25 * 4 / 3 + 1
    assert {whom for _, whom in dials} == set(victims)


def dials_of_one(
    size: int,
    me: int,
    dead: list[int],
    seconds: int,
    *,
    left: Iterable[int] = (),
    retired: Iterable[tuple[int, int]] = (),
) -> Counter[int]:
    """How often one node of a large cluster, linked to one living peer, dials each of the dead.

    Args:
        left, retired: joiners' ids, that have left, or runs of them that are retired as well.
    """
    settings = Settings(NodeId(me), size, PEERS, PEERS.address_of(NodeId(me)))
    node = Node(settings, LIFE, Random(3), 0)
    node.step(0, DeadlineReached())
    peer = NodeId(next(p for p in BinomialGraph(size).neighbors(me) if p not in dead))
    address = PEERS.address_of(peer)
    node.step(1, LinkUp(LinkId(1), peer, LIFE, address, UNKNOWN_INCARNATION, 1))
    for at in range(0, len(dead), RECORDS_PER_NOTICE_MAX):
        rows = [
            (NodeId(i), Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(i))))
            for i in dead[at : at + RECORDS_PER_NOTICE_MAX]
        ]
        node.step(1, Received(LinkId(1), Notice(tuple(rows))))
    for i in left:
        record = Record(LIFE, 0, Status.LEFT, "left:1")
        node.step(1, Received(LinkId(1), Notice(((NodeId(i), record),))))
    runs = tuple((NodeId(first), NodeId(last)) for first, last in retired)
    node.step(1, Received(LinkId(1), RecordPage((), runs, None)))
    gone, dials, now_ns = set(dead), Counter[int](), 1
    while now_ns < seconds * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Heartbeat):
                echo = replace(effect.message, echo=effect.message.sequence, answer=False)
                node.step(now_ns, Received(LinkId(1), echo))
            if isinstance(effect, Dial) and effect.peer in gone:
                dials[effect.peer] += 1
                node.step(now_ns, DialFailed(effect.peer, Evidence.REFUSED))
    return dials


def test_rate_of_dials_is_bounded_at_4096_with_half_of_them_dead() -> None:
    dead = sorted(Random(5).sample(range(1, 4096), 2048))
    assert 10 < dials_of_one(4096, 0, dead, 100).total() <= 34


def test_node_far_from_the_only_dead_one_of_4096_hardly_dials_it() -> None:
    assert dials_of_one(4096, 0, [1500], 1000).total() <= 3


@pytest.mark.parametrize("last", [199, 2_000, 200_000])
def test_redialling_goes_on_though_many_ids_are_retired(last: int) -> None:
    """Ids that nobody has count neither as living nor as would-be neighbors."""
    expected = dials_of_one(20, 0, [3, 5, 8, 12], 400)
    assert dials_of_one(20, 0, [3, 5, 8, 12], 400, retired=[(20, last)]) == expected
    assert expected.total() > 60


def test_redialling_is_not_hidden_by_those_that_have_left() -> None:
    expected = dials_of_one(20, 0, [3, 5, 8, 12], 400).total()
    dials = dials_of_one(20, 0, [3, 5, 8, 12], 400, left=range(20, 500)).total()
    assert 0.5 * expected < dials < expected


def test_would_be_neighbors_are_those_of_the_graph_over_all_that_have_not_left() -> None:
    settings = Settings(NodeId(2), 4, PEERS, PEERS.address_of(NodeId(2)))
    rows = tuple(
        (NodeId(i), Record(LIFE, 0, status, "joiner:1"))
        for i, status in [(6, Status.DEAD), (9, Status.LEFT), (30, Status.ALIVE)]
    )
    retired = ((NodeId(4), NodeId(5)), (NodeId(10), NodeId(29)))
    node = Node(settings, LIFE, Random(3), 0, rows, retired)
    near = node.parts.redialling._would_be_neighbors([NodeId(9)])
    graph = [0, 1, 2, 3, 6, 30]
    assert near == {graph[place] for place in BinomialGraph(6).neighbors(2)}


def test_search_for_a_first_link_dials_no_retired_id() -> None:
    settings = Settings(NodeId(0), 4, PEERS, PEERS.address_of(NodeId(0)))
    rows = ((NodeId(5000), Record(LIFE, 0, Status.EXCLUDED, "joiner:1")),)
    node = Node(settings, LIFE, Random(3), 0, rows, ((NodeId(4), NodeId(4999)),))
    dialled, now_ns = set(), 0
    while now_ns < 10 * S:
        now_ns = max(now_ns, node.deadline_ns or 0)
        for effect in node.step(now_ns, DeadlineReached()):
            if isinstance(effect, Dial):
                dialled.add(int(effect.peer))
                node.step(now_ns, DialFailed(effect.peer, Evidence.NO_ANSWER))
    assert dialled == {1, 2, 3, 5000}


@pytest.mark.parametrize("size", [2, 3, 4, 5, 9])
def test_node_cut_off_from_all_meets_the_others_again_in_time(size: int) -> None:
    for alone in (0, size - 1):
        network = Network(size, alone)
        settle(network)
        part(network, [alone])
        network.run(20)
        everybody_else = [i for i in range(size) if i != alone]
        assert network.status(alone)["dead"] == everybody_else
        network.mend()
        assert settle(network) < 10


@pytest.mark.parametrize("seed", range(4))
def test_node_whose_would_be_neighbors_all_died_while_it_was_cut_off_is_found(seed: int) -> None:
    network = Network(16, seed)
    settle(network)
    part(network, [10])
    network.run(10)
    victims = list(BinomialGraph(16).neighbors(10))
    for victim in victims:
        network.kill(victim)
    network.run(10)
    network.mend()
    assert settle(network, victims, limit_s=60) < 30


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("size", [3, 6, 16, 40])
def test_parts_of_a_cluster_are_one_again_in_time(parts: int, size: int) -> None:
    network = Network(size)
    settle(network)
    for remainder in range(1, parts):
        part(network, range(remainder, size, parts))
    network.run(15)
    network.mend()
    assert settle(network) < 10
