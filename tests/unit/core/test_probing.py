"""Probes: what comes back, and what is too long to come back."""

from __future__ import annotations

import pytest

from bmgd.core.commands import Leave, ProbeTo
from bmgd.core.effects import Send
from bmgd.core.events import Received
from bmgd.errors import DeadError
from bmgd.sim import Network
from bmgd.sim.conditions import Conditions
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.ask_messages import Probe, ProbeReply
from bmgd.wire.bounds import ROUTE_IDS_MAX
from bmgd.wire.codec import decode, encode
from bmgd.wire.routes import Route
from tests.unit.core.clusters import reply_to, send, settle


@pytest.mark.parametrize("passed", [0, ROUTE_IDS_MAX - 1, ROUTE_IDS_MAX])
def test_a_recorded_way_is_answered_as_long_as_the_answer_is_a_message(passed: int) -> None:
    network = Network(4)
    settle(network)
    route = Route(NodeId(0), NodeId(3), Incarnation(1), hop_budget=9, record=True)
    probe = Probe(route, tuple(NodeId(i) for i in range(passed)))
    node = network.hosts[NodeId(0)].node
    effects = node.step(network.now_ns, Received(LinkId(10**6), probe))
    replies = [e.message for e in effects if isinstance(e, Send)]
    assert all(decode(encode(reply)[4:]) == reply for reply in replies)
    ways = [reply.passed for reply in replies if isinstance(reply, ProbeReply)]
    assert ways == ([(*probe.passed, NodeId(0))] if passed < ROUTE_IDS_MAX else [])


def test_probe_is_measured_from_the_sending_that_is_answered() -> None:
    network = Network(2, conditions=Conditions(delay_min_us=155_000, delay_max_us=155_000))
    settle(network)
    request = network.issue(0, ProbeTo(NodeId(1), False, 5_000_000_000))
    network.run(2)
    assert network.hosts[NodeId(0)].replies[request].result["rtt_ns"] >= 309_000_000


def test_ping_and_send_say_the_same_of_a_node_that_is_gone() -> None:
    network = Network(8)
    settle(network)
    network.kill(3)
    network.run(3.0)
    reply_to(network, 5, Leave())
    network.run(3.0)
    for gone, text in ((3, "it is dead"), (5, "it has left")):
        pinged = reply_to(network, 0, ProbeTo(NodeId(gone), record=False, timeout_ns=10**9))
        sent = send(network, 0, gone)
        for reply in (pinged, sent):
            assert isinstance(reply.error, DeadError)
            assert reply.error.detail == text
