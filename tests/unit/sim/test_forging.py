"""Lies about members: a cluster answers them, and what they cause is excused, and nothing else."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.chaos.checkers import why_declared_dead
from bmgd.chaos.history import Began, DeclaredDead, Fact, History, LieTold
from bmgd.chaos.truth import Truth
from bmgd.core.commands import BroadcastTo
from bmgd.core.effects import Observed
from bmgd.sim import Network
from bmgd.sim.checkers import watch
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.forging import Forger
from bmgd.sim.inside import sent_to
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.ask_messages import Answer
from bmgd.wire.stream_messages import Segment
from tests.unit.core.clusters import S, settle


@pytest.mark.parametrize("seed", range(4))
def test_cluster_answers_lies_about_its_members(seed: int) -> None:
    network, told = Network(6, seed), list[Fact]()
    scene = watch(network)
    settle(network)
    lives = {number: host.node.incarnation for number, host in network.hosts.items()}
    forger = Forger(network, Random(seed), 3, told.append)
    network.timeline.plan(network.now_ns, forger.start, 1)
    network.run(20)
    scene.at_rest()
    assert scene.violations == []
    assert sum(isinstance(fact, LieTold) for fact in told) == 3
    lied_about = {fact.node for fact in told if isinstance(fact, LieTold)}
    others = set(lives) - lied_about
    assert all(network.hosts[i].node.incarnation == lives[i] for i in others)
    # Of whom it is said that it has left, and whose id is claimed again and again, ends.
    assert {i for i, host in network.hosts.items() if not host.alive} <= lied_about


def test_segment_of_a_life_that_nobody_told_of_is_taken_by_nobody() -> None:
    network, told = Network(5), set[type]()
    scene = watch(network)
    settle(network)
    forger, random = Forger(network, Random(1), 0, lambda _: None), Random(1)
    for _ in range(20):
        host, about = random.sample(list(network.hosts.values()), 2)
        message = forger._named_life(host, about)
        told.add(type(message))
        links = [end.link for end in host.ends.values() if end.up]
        network.let_come(host, LinkId(links[0]), message)
    network.run(20)
    scene.at_rest()
    assert told == {Answer, Segment}
    assert all(not Inside(host.node).streams_in() for host in network.hosts.values())
    assert scene.violations == []


def test_who_acknowledges_more_than_was_sent_is_waited_for_next_time() -> None:
    network = Network(4)
    scene = watch(network)
    settle(network)
    forger = Forger(network, Random(1), 0, lambda _: None)
    for number in (0, 1):
        network.issue(2, BroadcastTo("news", b"%d" % number, True, 10 * S))
        network.run(1)
        life = network.hosts[NodeId(1)].node.incarnation
        assert sent_to(network.hosts[NodeId(2)].node, NodeId(1), life) == number + 1
        for _ in range(10):
            forger._exaggerate()
    network.run(20)
    scene.at_rest()
    assert scene.violations == []
    source = network.hosts[NodeId(2)].node.parts.to_many.source
    assert [peer.watermark for peer in source.peers.by_id.values()] == [2, 2, 2]


def test_claim_of_an_id_is_looked_into_by_who_leads_it() -> None:
    events = set()
    for seed in range(10):
        network = Network(3, seed)
        Forger(network, Random(seed), 4, lambda _: None).start(2 * S)
        network.run(4)
        observed = [o for host in network.hosts.values() for _, o in host.observed]
        events |= {o.event for o in observed if isinstance(o, Observed)}
    assert {"claimed", "contested", "new life", "refuted"} <= events


@pytest.mark.parametrize(("lied_ns", "is_excused"), [(4 * S, True), (None, False)])
def test_death_of_who_was_said_to_be_elsewhere_is_excused(
    lied_ns: int | None, is_excused: bool
) -> None:
    life, about = Incarnation(1 << 32), NodeId(3)
    verdict = DeclaredDead(5 * S, NodeId(0), about, life, "wrong id")
    facts: list[Fact] = [Began(0, about, life)]
    if lied_ns is not None:
        facts.append(LieTold(lied_ns, about, NodeId(0)))
    truth = Truth.of(History([*facts, verdict]))
    assert bool(why_declared_dead(truth, verdict)) == is_excused
