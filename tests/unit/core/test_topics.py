"""What a program that subscribes gets, and in which order."""

from __future__ import annotations

from bmgd.core.commands import SendTo, Subscribe, Unsubscribe
from bmgd.core.effects import Deliver, Effect, Reply
from bmgd.core.events import CommandIssued
from bmgd.sim.network import Network
from bmgd.types import NodeId

SUBSCRIPTION = 1_000


def _alone_with(messages: int) -> Network:
    network = Network(1)
    network.run(1)
    for number in range(messages):
        network.issue(0, SendTo(NodeId(0), "jobs", b"%d" % number, 10**9))
    return network


def _ask(network: Network, request: int, command: Subscribe | Unsubscribe) -> list[Effect]:
    node = network.hosts[NodeId(0)].node
    return node.step(network.now_ns, CommandIssued(request, command))


def test_topics_answer_a_subscription_before_its_messages() -> None:
    effects = _ask(_alone_with(2), SUBSCRIPTION, Subscribe("jobs", 8))
    assert effects == [
        Reply(SUBSCRIPTION),
        Deliver(SUBSCRIPTION, NodeId(0), "jobs", b"0"),
        Deliver(SUBSCRIPTION, NodeId(0), "jobs", b"1"),
    ]


def test_topics_give_what_a_reader_has_not_consumed_to_the_next() -> None:
    network = _alone_with(3)
    _ask(network, SUBSCRIPTION, Subscribe("jobs", 2))
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    effects = _ask(network, SUBSCRIPTION + 1, Subscribe("jobs", 8))
    assert [e.payload for e in effects if isinstance(e, Deliver)] == [b"0", b"1", b"2"]


def test_topics_forget_one_that_nobody_reads_and_that_holds_nothing() -> None:
    network = _alone_with(0)
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]
    assert _ask(network, SUBSCRIPTION, Unsubscribe()) == []
    assert _ask(network, SUBSCRIPTION, Subscribe("jobs", 8)) == [Reply(SUBSCRIPTION)]
