"""Suspicion between two nodes: what an observer says of another's suspect, and what ends one's own."""

from __future__ import annotations

from bmgd.core.effects import Effect, Observed, Send
from bmgd.core.events import DeadlineReached, Greeted, Received
from bmgd.core.node import Node
from bmgd.sim import Network
from bmgd.types import UNKNOWN_INCARNATION, LinkId, NodeId
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.link_messages import Heartbeat
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, settle


def answers(effects: list[Effect]) -> list[bool]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [message.alive for message in messages if isinstance(message, Answer)]


def settled_four() -> tuple[Network, Node]:
    """Eight nodes at rest for a while, and the core of node 4, which is linked to 5 and 6."""
    network = Network(8)
    settle(network)
    network.run(4)
    return network, network.hosts[NodeId(4)].node


def test_observer_that_hears_a_second_link_vetoes_though_the_first_is_silent() -> None:
    network, node = settled_four()
    silent = node.parts.links.by_peer[NodeId(5)][0]
    silent.heard_ns -= S
    life = silent.incarnation
    second = Greeted(LinkId(10**6), NodeId(5), life, "sim5:7400", UNKNOWN_INCARNATION, 99)
    node.step(network.now_ns, second)
    ask = Ask(Route(NodeId(4), NodeId(6), network.status(6)["incarnation"]), NodeId(5), life)
    link = node.parts.links.by_peer[NodeId(6)][0]
    assert answers(node.step(network.now_ns, Received(link.id, ask))) == [True]


def test_heartbeat_that_brings_the_missing_echo_ends_the_suspicion_at_once() -> None:
    network, node = settled_four()
    link = node.parts.links.by_peer[NodeId(5)][0]
    link.unechoed.appendleft((link.sequence, network.now_ns - 3 * S))
    node.parts.detector.suspect(NodeId(5), "silence")
    heard = Heartbeat(link.echo + 1, link.sequence, node.parts.context.membership.digest)
    node.step(network.now_ns, Received(link.id, heard))
    assert NodeId(5) not in node.parts.detector._suspicions
    effects = node.step(network.now_ns + 390_000_000, DeadlineReached())
    effects += node.step(network.now_ns + 410_000_000, DeadlineReached())
    assert "verdict" not in [e.event for e in effects if isinstance(e, Observed)]
