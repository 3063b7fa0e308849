"""Which links carry heartbeats, what they cost, and what they still find in large clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from bmgd.core.effects import Close, Effect, Send
from bmgd.core.events import DeadlineReached, Event, LinkUp, Received
from bmgd.core.membership.membership import Membership
from bmgd.core.neighbors.watched_links import WATCH_ALL_MAX, watched_peers, watched_powers, watchers
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.sim import Network
from bmgd.topology import BinomialGraph
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Heartbeat, Notice, Ping
from tests.unit.core.clusters import S, observed, settle

PEERS = PeerList(template="host{id}:1")
LARGE = 150
"""Above the size to which every link is watched."""

BEATS_PER_SECOND_MAX = 2 * 13 + 4
"""13 links to watch, or 12 and one tried in turn and one answered, twice a second."""


def count_heartbeats(network: Network) -> tuple[Counter[int], Counter[int]]:
    """Count from now on the heartbeats that each node sends, and their bytes."""
    beats: Counter[int] = Counter()
    sizes: Counter[int] = Counter()

    def counting(node_id: int, step: Callable[[int, Event], list[Effect]]) -> None:
        def counted(now_ns: int, event: Event) -> list[Effect]:
            effects = step(now_ns, event)
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.message, Heartbeat):
                    beats[node_id] += 1
                    sizes[node_id] += len(encode(effect.message))
            return effects

        network.hosts[NodeId(node_id)].node.step = counted  # type: ignore[method-assign]

    for node_id, host in network.hosts.items():
        counting(node_id, host.node.step)
    return beats, sizes


@pytest.mark.parametrize("size", [129, 130, 160, 192, 255, 256, 257, 1000, 1024, 4096, 100_000])
def test_watched_links_are_few_of_the_graphs_and_agreed_by_both_ends(size: int) -> None:
    membership, graph = Membership(size, PEERS), BinomialGraph(size)
    for number in {0, 1, size // 3, size // 2, size - 1}:
        watched = watched_peers(membership, NodeId(number))
        assert watched is not None
        assert watched <= set(graph.neighbors(number))
        assert 8 <= len(watched) <= 12
        for peer in sorted(watched):
            assert NodeId(number) in (watched_peers(membership, NodeId(peer)) or ())


@pytest.mark.parametrize("size", range(2, 5000, 97))
def test_watched_links_alone_connect_the_graph(size: int) -> None:
    powers = watched_powers(size)
    assert powers[0] == 1
    assert set(powers) <= set(BinomialGraph(size).jumps)


def test_every_link_is_watched_in_a_small_cluster() -> None:
    assert watched_peers(Membership(WATCH_ALL_MAX, PEERS), NodeId(3)) is None


def test_links_of_a_node_whose_watchers_died_unhealed_are_all_watched() -> None:
    membership = Membership(LARGE, PEERS)
    before = watched_peers(membership, NodeId(40))
    assert before is not None
    dead = sorted(watchers(membership, NodeId(40)))[2:]
    for number in dead:
        record = Record(Incarnation(1 << 32), 0, Status.DEAD, PEERS.address_of(number))
        assert membership.join(number, record)
    assert membership.dead == dead
    assert watched_peers(membership, NodeId(40)) is None
    unwatched = set(BinomialGraph(LARGE).neighbors(40)) - before
    for peer in unwatched - set(dead):
        watched = watched_peers(membership, NodeId(peer))
        assert watched is None or 40 in watched


@pytest.mark.parametrize("size", [16, 128, LARGE, pytest.param(256, marks=pytest.mark.long)])
def test_heartbeats_per_second_of_a_node_at_rest_are_bounded(size: int) -> None:
    network = Network(size)
    settle(network)
    network.run(1)
    beats, sizes = count_heartbeats(network)
    seconds = 12
    network.run(seconds)
    assert set(beats) == set(range(size))
    assert max(beats.values()) <= BEATS_PER_SECOND_MAX * seconds
    assert max(sizes.values()) <= 64 * BEATS_PER_SECOND_MAX * seconds
    assert not [o for i in range(size) for o in observed(network, i, "suspected")]


def test_stopped_node_of_a_large_cluster_is_found_in_time() -> None:
    network = Network(LARGE)
    settle(network)
    network.run(5.2)
    network.stop(77)
    alive = [i for i in range(LARGE) if i != 77]

    def is_known(node_id: int) -> bool:
        records = network.hosts[NodeId(node_id)].records
        return any(r.id == 77 and r.record.status >= Status.DEAD for r in records)

    told_s = network.run_until(lambda: all(map(is_known, alive)), 10)
    assert told_s < 2.5
    network.resume(77)
    settle(network)


def _unwatched_pair(size: int, node_id: int) -> int:
    watched = watched_peers(Membership(size, PEERS), NodeId(node_id))
    assert watched is not None
    return max(set(BinomialGraph(size).neighbors(node_id)) - watched)


def test_link_that_only_looks_open_is_found_though_it_is_not_watched() -> None:
    network = Network(LARGE)
    settle(network)
    network.run(10)
    other = _unwatched_pair(LARGE, 20)
    network.cut(20, other)
    network.run(8)
    broken = [o for i in (20, other) for o in observed(network, i, "vetoed")]
    assert {o.peer for o in broken} <= {20, other}
    assert broken
    network.mend()
    settle(network)
    assert not [o for i in range(LARGE) for o in observed(network, i, "verdict")]


def test_hearsay_does_not_close_a_link_for_being_unwatched() -> None:
    me = NodeId(LARGE - 1)
    settings = Settings(me, LARGE, PEERS, PEERS.address_of(me))
    node = Node(settings, Incarnation(1 << 32), Random(0), 0)
    node.step(0, DeadlineReached())
    watched = watchers(Membership(LARGE, PEERS), me)
    unwatched = sorted({NodeId(p) for p in BinomialGraph(LARGE).neighbors(me)} - watched)
    for peer in unwatched:
        up = LinkUp(
            LinkId(peer), peer, Incarnation(1 << 32), PEERS.address_of(peer), Incarnation(0), 1
        )
        node.step(1, up)
    heard_ns = dict.fromkeys(unwatched, 1)
    now_ns = 1
    while now_ns - min(heard_ns.values()) <= settings.timeout_ns or now_ns < 5 * S:
        now_ns = node.deadline_ns or 0
        for effect in node.step(now_ns, DeadlineReached()):
            if isinstance(effect, Send) and isinstance(effect.message, Heartbeat):
                peer, sequence = NodeId(effect.link), effect.message.sequence
                node.step(now_ns, Received(effect.link, Heartbeat(sequence, sequence, 0)))
                heard_ns[peer] = now_ns
    quiet = min(unwatched, key=lambda peer: heard_ns[peer])
    record = Record(Incarnation(1 << 32), 0, Status.EXCLUDED, PEERS.address_of(quiet))
    effects = node.step(now_ns, Received(LinkId(9999), Notice(((quiet, record),))))
    sent = [e.message for e in effects if isinstance(e, Send) and e.link == LinkId(quiet)]
    assert Notice(((quiet, record),)) in sent
    assert any(isinstance(message, Ping) for message in sent)
    assert not [e for e in effects if isinstance(e, Close)]
    told_ns, effects = now_ns, []
    while now_ns <= told_ns + settings.timeout_ns:
        now_ns = node.deadline_ns or 0
        effects = node.step(now_ns, DeadlineReached())
        if any(isinstance(e, Close) for e in effects):
            break
    assert [e.link for e in effects if isinstance(e, Close)] == [LinkId(quiet)]
    assert now_ns == told_ns + settings.timeout_ns


@pytest.mark.long
def test_large_cluster_parted_in_two_is_one_again_after_the_cut() -> None:
    network = Network(LARGE)
    settle(network)
    for a in range(LARGE // 2):
        for b in range(LARGE // 2, LARGE):
            network.cut(a, b)
    network.run(12)
    network.mend()
    assert settle(network, limit_s=60) < 30
