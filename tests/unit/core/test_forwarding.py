"""Next hops of this node's own messages: which links count, and what a search without success does."""

from __future__ import annotations

from dataclasses import replace

from bmgd.core.commands import SendTo
from bmgd.core.effects import Close, Effect, Send
from bmgd.core.events import CommandIssued, DeadlineReached, Received
from bmgd.core.node import Node
from bmgd.core.streams.answers import REROUTE_NS
from bmgd.sim import Network
from bmgd.types import LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import ProgramAsk
from bmgd.wire.features import Feature
from bmgd.wire.link_messages import Notice
from bmgd.wire.routes import Route, Search
from bmgd.wire.stream_messages import Segment, Unreachable
from tests.unit.core.clusters import S, settle
from tests.unit.segments import segment

FAR = NodeId(3)
"""Not a neighbor of node 0 among 8."""


def node_with_message_underway() -> tuple[Network, Node, Send]:
    """Node 0 of 8, and the transmission of its message to node 3."""
    network = Network(8)
    settle(network)
    network.run(4)
    node = network.hosts[NodeId(0)].node
    command = SendTo(FAR, "t", b"x", 10 * S)
    effects = node.step(network.now_ns, CommandIssued(10**6, command))
    return network, node, next(e for e in effects if isinstance(e, Send))


def sent(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def test_own_search_without_success_is_tried_again_and_tells_nobody() -> None:
    network, node, first = node_with_message_underway()
    assert isinstance(first.message, Segment)
    route: Route = first.message.route
    everywhere = Search(b"\xff", ())
    back = replace(
        first.message,
        route=Route(FAR, NodeId(0), route.source_incarnation, 0, route.sequence, search=everywhere),
    )
    effects = node.step(network.now_ns, Received(first.link, back))
    assert not [m for m in sent(effects) if isinstance(m, Unreachable)]
    effects = node.step(network.now_ns + S // 50, DeadlineReached())
    assert [m.route.sequence for m in sent(effects) if isinstance(m, Segment)] == [route.sequence]


def test_search_that_a_link_gave_back_goes_on_as_if_it_had_never_left() -> None:
    network, node, first = node_with_message_underway()
    life = network.status(5)["incarnation"]

    def sent_on(search: Search) -> Search | None:
        asked = segment(Route(FAR, NodeId(5), life, 0, 1, search=search), b"x")
        (passed,) = [
            effect
            for effect in node.step(network.now_ns, Received(first.link, asked))
            if isinstance(effect, Send) and isinstance(effect.message, Segment)
        ]
        assert isinstance(passed.message, Segment)
        return passed.message.route.search

    once = sent_on(Search(b"\x20", (NodeId(5),)))
    assert once is not None
    assert once.stack == (5, 0)
    assert sent_on(once) == once


def test_search_of_another_without_success_is_reported_to_its_source() -> None:
    network, node, first = node_with_message_underway()
    life = network.status(5)["incarnation"]
    lost = segment(Route(FAR, NodeId(5), life, 0, 1, search=Search(b"\xff", ())), b"x")
    effects = node.step(network.now_ns, Received(first.link, lost))
    targets = [m.target for m in sent(effects) if isinstance(m, Unreachable)]
    assert targets == [FAR]


def test_link_that_closed_in_this_step_carries_nothing_more() -> None:
    network, node, first = node_with_message_underway()
    hop = next(
        peer for peer, links in node.parts.links.by_peer.items() if links[0].id == first.link
    )
    link = node.parts.links.by_peer[hop][0]
    link.heard_ns -= 2 * S
    record = Record(link.incarnation, 0, Status.EXCLUDED, f"sim{hop}:7400")
    notice = Notice(((hop, record),))
    effects = node.step(network.now_ns, Received(LinkId(10**6), notice))
    while node.deadline_ns is not None and node.deadline_ns <= network.now_ns + REROUTE_NS:
        effects += node.step(max(network.now_ns, node.deadline_ns), DeadlineReached())
    closed = effects.index(Close(link.id, "declared excluded"))
    after = [e for e in effects[closed + 1 :] if isinstance(e, Send)]
    assert link.id not in {e.link for e in after}
    assert [e for e in after if isinstance(e.message, Segment)]


def test_search_goes_on_to_nobody_who_does_not_know_the_kind_of_message() -> None:
    network = Network(9)
    settle(network)
    node = network.hosts[NodeId(0)].node
    life = network.status(5)["incarnation"]
    route = Route(FAR, NodeId(5), life, 0, 1, search=Search(b"\x20", ()))
    asked = ProgramAsk(route, 0)
    came = next(iter(node.parts.links.by_peer.values()))[0]

    def went_to() -> list[NodeId]:
        effects = node.step(network.now_ns, Received(came.id, asked))
        links = [
            e.link for e in effects if isinstance(e, Send) and isinstance(e.message, ProgramAsk)
        ]
        return [node.parts.links.table[link].peer for link in links]

    tried = went_to()
    assert len(tried) == 1
    for links in list(node.parts.links.by_peer.values()):
        links[0].features &= ~Feature.PROGRAMS
        following = went_to()
        assert links[0].peer not in following
    assert following == []
    assert node.counts.plain["withheld_messages"] == 0


def test_last_hop_is_not_taken_to_who_does_not_know_the_kind_of_message() -> None:
    network = Network(9)
    settle(network)
    node = network.hosts[NodeId(0)].node
    life = network.status(5)["incarnation"]
    peer, links = next(iter(node.parts.links.by_peer.items()))
    links[0].features &= ~Feature.PROGRAMS
    for search in (None, Search(b"\x20", ())):
        asked = ProgramAsk(Route(peer, NodeId(5), life, 0, 1, search=search), 0)
        effects = node.step(network.now_ns, Received(links[0].id, asked))
        assert not [m for m in sent(effects) if isinstance(m, ProgramAsk)]
    assert node.counts.plain["withheld_messages"] == 2
