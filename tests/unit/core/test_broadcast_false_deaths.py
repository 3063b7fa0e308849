"""Reliable broadcasts that are sent in the step in which somebody is held dead by mistake."""

from __future__ import annotations

from bmgd.core.commands import BroadcastTo, Register, Subscribe, Unregister
from bmgd.core.events import Received
from bmgd.sim import Network
from bmgd.types import NodeId, Status
from bmgd.wire.features import SPOKEN, Feature
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import S, reply_to, settle

SIZE, SOURCE, VICTIM, STOPPED = 8, 2, 5, 4


def tell_dead(network: Network, *victims: int) -> None:
    """One notice tells the source that these are dead; those that live refute it."""
    host = network.hosts[NodeId(SOURCE)]
    membership = host.node.parts.context.membership
    told = []
    for victim in map(NodeId, victims):
        record = membership.get(victim)
        assert record is not None
        told.append((victim, record._replace(status=Status.DEAD)))
    link = next(iter(host.node.parts.links.table))
    network._step(host, Received(link, Notice(tuple(told))))


def assert_all_confirm(network: Network, missing: set[int]) -> None:
    """A broadcast reaches everybody but these, and nothing stays unstable."""
    reply = reply_to(network, SOURCE, BroadcastTo("news", b"after", True, 5 * S))
    assert reply.error is None
    assert set(reply.result["confirmed"]) == set(range(SIZE)) - missing
    network.run(5)
    window = network.hosts[NodeId(SOURCE)].node.parts.to_many.source.window
    assert window.stable == window.next - 1


def test_program_news_that_a_false_death_releases_holds_nothing_up() -> None:
    network = Network(SIZE)
    settle(network)
    program = network.issue(SOURCE, Register("a"))
    network.run(1)
    network.kill(VICTIM)
    network.run(3)
    network.boot(VICTIM, counter=2, features=SPOKEN & ~Feature.PROGRAMS)
    network.run(5)
    network.issue_as(network.hosts[NodeId(SOURCE)], program, Unregister(0))
    network.run(1)
    tell_dead(network, VICTIM)
    network.run(1)
    assert_all_confirm(network, set())


def test_broadcasts_that_one_of_two_deaths_lets_go_hold_nothing_up_when_the_other_is_false() -> (
    None
):
    network = Network(SIZE)
    settle(network)
    network.issue(VICTIM, Subscribe("news", 64))
    network.run(1)
    reply_to(network, SOURCE, BroadcastTo("news", b"first", True, 5 * S))
    network.stop(STOPPED)
    for _ in range(90):
        network.issue(SOURCE, BroadcastTo("t", bytes(60_000), True, 30 * S))
    network.run(0.5)
    tell_dead(network, STOPPED, VICTIM)
    network.run(3)
    assert_all_confirm(network, {STOPPED})
