"""What confirms a message, and what only seems to."""

from __future__ import annotations

from bmgd.core.commands import ProbeTo, SendTo
from bmgd.core.events import Received
from bmgd.sim import Network
from bmgd.sim.wires import ends_between
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.messages import Ack, ProbeReply, Route
from tests.unit.core.clusters import S, settle

FORMER = Incarnation(7)


def restarted() -> Network:
    """Three nodes; 0 is linked to both others."""
    network = Network(3)
    settle(network)
    return network


def answered(network: Network, request: int, message: Ack | ProbeReply) -> bool:
    """Whether what comes from node 1 answers a request of node 0."""
    host = network.hosts[NodeId(0)]
    (end,) = ends_between(host, NodeId(1))
    network._step(host, Received(end.link, message))
    return request in host.replies


def route(network: Network, tag: int) -> Route:
    one = network.hosts[NodeId(1)].node.incarnation
    return Route(NodeId(0), NodeId(1), one, tag, sequence=1)


def test_acknowledgement_for_a_former_life_confirms_nothing_of_this_one() -> None:
    network = restarted()
    network.cut(0, 1)
    request = network.issue(0, SendTo(NodeId(1), "t", b"x", 1 * S))
    own = incarnation_tag(network.hosts[NodeId(0)].node.incarnation)
    its = incarnation_tag(network.hosts[NodeId(1)].node.incarnation)
    former = incarnation_tag(FORMER)
    assert not answered(network, request, Ack(route(network, former), 0, its))
    assert answered(network, request, Ack(route(network, own), 0, its))


def test_reply_to_a_former_lifes_probe_is_none_to_this_ones() -> None:
    network = restarted()
    network.cut(0, 1)
    request = network.issue(0, ProbeTo(NodeId(1), record=False, timeout_ns=1 * S))
    own = incarnation_tag(network.hosts[NodeId(0)].node.incarnation)
    former = incarnation_tag(FORMER)
    assert not answered(network, request, ProbeReply(route(network, former), ()))
    assert answered(network, request, ProbeReply(route(network, own), ()))
