"""How nodes come together."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.effects import Dial, Effect, Observed
from bmgd.core.events import DeadlineReached, DialFailed
from bmgd.core.show import show_members
from bmgd.sim import Network
from bmgd.topology import BinomialGraph
from bmgd.types import Evidence, NodeId
from bmgd.wire.hello import Refusal
from tests.unit.core.clusters import linked, observed, send, settle, trace


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 33, 64])
def test_founders_link_exactly_as_the_graph_says(size: int) -> None:
    network = Network(size)
    settle(network)
    for node_id in range(size):
        assert linked(network, node_id) == list(BinomialGraph(size).neighbors(node_id))
        dialled = {row["id"]: row["dialled_by"] for row in network.status(node_id)["links"]}
        assert all(dialled[peer] == max(peer, node_id) for peer in dialled)


@pytest.mark.parametrize("seed", range(5))
def test_founders_join_in_any_order(seed: int) -> None:
    network = Network(16, seed, start=False)
    order = list(range(16))
    Random(seed).shuffle(order)
    for node_id in order:
        network.boot(node_id)
        network.run(0.2)
    settle(network)
    assert all(network.status(i)["digest"] == "0" * 32 for i in range(16))


def test_start_up_of_founders_makes_no_record() -> None:
    network = Network(33)
    settle(network)
    assert all(not host.records for host in network.hosts.values())


def test_founder_that_is_missing_holds_its_neighbors_in_joining() -> None:
    network = Network(7, start=False)
    for node_id in range(6):
        network.boot(node_id)
    network.run(5)
    states = [network.status(i)["state"] for i in range(6)]
    assert states == [
        "joining" if 6 in BinomialGraph(7).neighbors(i) else "ready" for i in range(6)
    ]
    network.boot(6)
    settle(network)


def test_founder_that_never_comes_is_given_up_after_the_start_deadline() -> None:
    network = Network(7, start=False)
    for node_id in range(6):
        network.boot(node_id)
    network.run(14)
    assert network.status(0)["dead"] == []
    network.run(10)
    for node_id in range(6):
        assert network.status(node_id)["state"] == "ready"
        assert network.status(node_id)["dead"] == [6]
    network.boot(6)
    settle(network)


@pytest.mark.parametrize("size", [2, 3, 7, 8, 12, 33])
def test_messages_take_paths_of_optimal_length(size: int) -> None:
    network = Network(size)
    settle(network)
    graph = BinomialGraph(size)
    for source in range(size):
        for destination in range(size):
            path = trace(network, source, destination)
            assert path[0] == source
            assert path[-1] == destination
            assert len(path) - 1 == graph.hops(source, destination)


def test_send_is_delivered_once_and_confirmed() -> None:
    network = Network(12)
    settle(network)
    assert send(network, 0, 7, b"one").error is None
    assert send(network, 7, 7, b"self").error is None
    assert network.status(7)["waiting"] == 2
    assert network.status(7)["underway"] == 0


def test_join_ends_without_a_suspicion() -> None:
    network = Network(33)
    network.run(60)
    assert not [o for i in range(33) for o in observed(network, i, "suspected")]


@pytest.mark.parametrize("seed", range(5))
def test_restarted_node_whose_neighbors_are_all_dead_finds_others(seed: int) -> None:
    network = Network(16, seed)
    settle(network)
    dead = sorted((10, *BinomialGraph(16).neighbors(10)))
    for victim in dead:
        network.kill(victim)
    settle(network, dead)
    network.boot(10, counter=2)
    dead.remove(10)
    assert settle(network, dead) < 5


@pytest.mark.parametrize("refusal", [Refusal.WRONG_SIZE, Refusal.WRONG_PEERS, Refusal.WRONG_SECRET])
def test_joining_a_living_peer_that_refuses_is_not_held_dead_for_it(refusal: Refusal) -> None:
    network = Network(4, start=False)
    network.boot(1)
    node = network.hosts[NodeId(1)].node
    now_ns, told = network.now_ns, False
    effects: list[Effect] = []
    for _ in range(400):
        now_ns += 100_000_000
        for effect in node.step(now_ns, DeadlineReached()):
            effects.append(effect)
            if isinstance(effect, Dial):
                evidence = Evidence.REJECTED if effect.peer == 0 else Evidence.NO_ANSWER
                why = refusal if effect.peer == 0 else None
                effects += node.step(now_ns, DialFailed(effect.peer, evidence, why))
                told |= effect.peer == 0
    assert told
    verdicts = {e.peer for e in effects if isinstance(e, Observed) and e.event == "verdict"}
    assert NodeId(0) not in verdicts
    assert verdicts, "whoever never answers is"


def test_joining_members_are_shown_with_the_time_since_when() -> None:
    network = Network(4)
    settle(network)
    network.run(1.0)
    network.kill(3)
    settle(network, dead=[3])
    network.run(2.0)
    rows = {
        row["id"]: row
        for row in show_members(network.hosts[NodeId(0)].node.parts.context)["members"]
    }
    dead_ms, alive_ms = rows[3]["for_ms"], rows[1]["for_ms"]
    assert (rows[3]["status"], rows[1]["status"]) == ("excluded", "alive")
    assert 1000 <= dead_ms < alive_ms
