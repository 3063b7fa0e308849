"""A member that floods is slowed and named; the others go on."""

from __future__ import annotations

import pytest

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Received
from bmgd.core.forwarding.flood import BURST, NAMED_NS, RATE_PER_S, SENDERS_MAX
from bmgd.sim import Network
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import Ask, Probe
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import (
    Notice,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Watermarks,
)
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route
from bmgd.wire.stream_messages import Unreachable
from tests.unit.core.clusters import S, observed, send, settle

VICTIM, FLOODER, OTHER = NodeId(0), NodeId(1), NodeId(2)


def link_to(network: Network, peer: NodeId) -> LinkId:
    links = network.hosts[VICTIM].node.parts.links.by_peer[peer]
    return links[0].id


def receive(network: Network, peer: NodeId, message: Message, times: int = 1) -> list[Effect]:
    """Let a message arrive again and again, at one moment; what the core orders is carried out."""
    host, found = network.hosts[VICTIM], []
    for _ in range(times):
        effects = host.node.step(
            host.node.parts.context.now_ns, Received(link_to(network, peer), message)
        )
        for effect in effects:
            network._carry_out(host, effect)
        found += effects
    return found


def pongs(effects: list[Effect]) -> int:
    return sum(isinstance(e, Send) and isinstance(e.message, Pong) for e in effects)


def ask_from(source: int) -> Ask:
    return Ask(Route(VICTIM, NodeId(source), Incarnation(5), 0, 1, 9), NodeId(4), Incarnation(1))


def test_flood_of_pings_is_answered_within_the_rate_and_named() -> None:
    network = Network(5, seed=2)
    settle(network)
    answered = pongs(receive(network, FLOODER, Ping(1), 3 * BURST))
    assert BURST - 100 < answered <= BURST
    (named,) = observed(network, VICTIM, "flooding")
    assert named.peer == FLOODER
    assert f"more than {RATE_PER_S} messages a second" in named.detail
    assert pongs(receive(network, OTHER, Ping(1), 10)) == 10, "another neighbor is slowed for it"
    assert pongs(receive(network, FLOODER, Ping(1), 10)) == 0


def test_flood_that_ends_is_forgotten() -> None:
    network = Network(5, seed=2)
    settle(network)
    receive(network, FLOODER, Ping(1), 2 * BURST)
    network.run(BURST / RATE_PER_S + 1)
    assert pongs(receive(network, FLOODER, Ping(1), 100)) == 100
    settle(network)


def test_flood_is_named_once_in_a_while() -> None:
    network = Network(5, seed=2)
    settle(network)
    for _ in range(3):
        receive(network, FLOODER, Ping(1), 2 * BURST)
        network.run(0.1)
    assert len(observed(network, VICTIM, "flooding")) == 1
    network.run(NAMED_NS / S + 1)
    receive(network, FLOODER, Ping(1), 2 * BURST)
    assert len(observed(network, VICTIM, "flooding")) == 2


COSTLY = [Notice(()), ask_from(FLOODER), PageAsk(NodeId(0), 1), RecordPage((), (), None)]


@pytest.mark.parametrize("message", COSTLY, ids=["notices", "asks", "page asks", "pages"])
def test_flood_of_anything_that_costs_the_core_is_dropped(message: Message) -> None:
    network = Network(5, seed=2)
    settle(network)
    receive(network, FLOODER, message, 2 * BURST)
    assert network.hosts[VICTIM].node.counts.plain["flooded_messages"] > BURST - 100


def test_flood_from_afar_names_its_source_and_spares_the_relay() -> None:
    network = Network(9, seed=2)
    settle(network)
    receive(network, FLOODER, ask_from(6), 2 * BURST)
    (named,) = observed(network, VICTIM, "flooding")
    assert (named.peer, "by way of node 1" in named.detail) == (6, True)
    assert pongs(receive(network, FLOODER, Ping(1), 10)) == 10


def test_flood_of_many_sources_stays_in_its_bound() -> None:
    network = Network(5, seed=2)
    settle(network)
    for source in range(10, 10 + SENDERS_MAX + 500):
        receive(network, FLOODER, ask_from(source))
    assert len(network.hosts[VICTIM].node.parts.flood._empty_ns) <= SENDERS_MAX


def test_flood_does_not_hold_up_messages_of_others() -> None:
    network = Network(5, seed=2)
    settle(network)
    for _ in range(20):
        receive(network, FLOODER, Ping(1), BURST // 4)
        assert send(network, int(OTHER), int(VICTIM)).error is None
        assert send(network, int(VICTIM), int(OTHER)).error is None
    settle(network)


ROUTE = Route(VICTIM, FLOODER, Incarnation(5), 0, 1, 9)


@pytest.mark.parametrize(
    "message",
    [
        # What neighbors compare.
        *(Watermarks((), asks=True), Pull(OTHER, Incarnation(5), 1)),
        # What programs cause: whoever may look can ping as fast as it goes.
        *(Probe(ROUTE, ()), Unreachable(ROUTE, NodeId(4))),
    ],
    ids=["watermarks", "pulls", "probes", "unreachable"],
)
def test_flood_of_other_messages_is_dropped_and_slows_no_ping(message: Message) -> None:
    """The heartbeats of who floods are heard all the same."""
    network = Network(5, seed=2)
    settle(network)
    receive(network, FLOODER, message, 2 * BURST)
    assert network.hosts[VICTIM].node.counts.plain["flooded_messages"] > BURST - 100
    (named,) = observed(network, VICTIM, "flooding")
    assert (named.peer, "by way of" in named.detail) == (FLOODER, False)
    assert pongs(receive(network, FLOODER, Ping(1), 10)) == 10


@pytest.mark.parametrize("at_once", [False, True])
def test_notice_of_a_flooder_counts_as_others_bring_it(at_once: bool) -> None:
    """It was not looked at, so its bytes must not be absorbed as those of a known one."""
    network = Network(8, seed=2)
    settle(network)
    host = network.hosts[VICTIM]
    membership = host.node.parts.context.membership
    record = Record(network.status(5)["incarnation"], 0, Status.EXCLUDED, "sim5:7400")
    frame = encode(Notice(((NodeId(5), record),)))

    def bring(*peers: NodeId) -> Status | None:
        for peer in peers:
            host.layer.feed(link_to(network, peer), frame)
        network._stepping.step_all(host, ())
        return membership.status_of(NodeId(5))

    receive(network, FLOODER, Ping(1), 2 * BURST)
    if not at_once:
        assert bring(FLOODER) is Status.EXPECTED
        assert bring(OTHER) is Status.EXCLUDED
    assert bring(FLOODER, OTHER) is Status.EXCLUDED
