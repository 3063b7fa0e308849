"""Own streams of the bulk class wait while their link has much to write; nothing else does."""

from __future__ import annotations

from bmgd.core.commands import CloseStream, OpenStream, PutSegment
from bmgd.core.events import Backlog, LinkDown
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.types import Evidence, LinkId, NodeId
from bmgd.wire.segments import packed
from tests.unit.core.clusters import settle

HIGH, LOW = 256 * 1024 + 1, 64 * 1024


def opened(network: Network, priority: int, to: int = 1) -> int:
    request = network.issue(0, OpenStream(NodeId(to), "t", priority))
    assert network.hosts[NodeId(0)].replies[request].error is None
    return request


def put(network: Network, request: int, size: int = 1) -> None:
    segment = PutSegment(1, packed(b"x" * size))
    network.issue_as(network.hosts[NodeId(0)], request, segment)


def link_to(host: Host, peer: int) -> LinkId:
    link = host.node.parts.links.to(NodeId(peer))
    assert link is not None
    return link.id


def transmitted(host: Host, request: int) -> bool:
    stream = host.node.parts.outbound.table.owned[request]
    return not stream.queue


def test_bulk_waits_for_its_link_and_goes_on_when_it_has_written() -> None:
    network = Network(4)
    settle(network)
    host = network.hosts[NodeId(0)]
    bulk, normal, elsewhere = opened(network, 3), opened(network, 2), opened(network, 3, to=2)
    link = link_to(host, 1)
    network._step(host, Backlog(link, HIGH))
    for request in (bulk, normal, elsewhere):
        put(network, request)
    network.run(0.1)
    assert not transmitted(host, bulk)
    assert transmitted(host, normal)
    assert transmitted(host, elsewhere)
    network._step(host, Backlog(link, LOW))
    network.run(0.1)
    assert transmitted(host, bulk)


def test_held_bulk_sends_an_eighth_of_what_this_node_sends_over_its_link() -> None:
    network = Network(4)
    settle(network)
    host = network.hosts[NodeId(0)]
    bulk, normal = opened(network, 3), opened(network, 2)
    bytes_each = 4000
    for request in (bulk, normal):
        put(network, request, bytes_each)
    network.run(0.1)
    network._step(host, Backlog(link_to(host, 1), HIGH))
    for _ in range(3):
        put(network, bulk, bytes_each)
    for sent in range(30):
        waiting = len(host.node.parts.outbound.table.owned[bulk].queue)
        assert waiting == 3 - min(3, sent // 7)
        put(network, normal, bytes_each)
        network.run(0.1)
    assert transmitted(host, bulk)


def test_held_bulk_that_was_withdrawn_is_in_nobodys_way() -> None:
    network = Network(4)
    settle(network)
    host = network.hosts[NodeId(0)]
    gone, bulk, normal = opened(network, 3), opened(network, 3), opened(network, 2)
    network._step(host, Backlog(link_to(host, 1), HIGH))
    put(network, gone)
    put(network, bulk)
    network.issue_as(host, gone, CloseStream(abandon=True))
    for _ in range(30):
        put(network, normal)
        network.run(0.1)
    assert transmitted(host, bulk)


def test_bulk_does_not_wait_for_a_link_that_is_gone() -> None:
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(0)]
    bulk = opened(network, 3, to=4)
    network._step(host, Backlog(link_to(host, 4), HIGH))
    put(network, bulk)
    assert not transmitted(host, bulk)
    network.cut(0, 4)
    network.run(20)
    assert transmitted(host, bulk)
    sending = host.node.parts.outbound.sending
    assert all(sending._forwarding.has_link(link) for link in sending.held.links)


def test_bulk_that_searches_its_way_waits_for_the_link_by_which_the_search_begins() -> None:
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(0)]
    network.cut(0, 1)
    network.run(20)
    assert host.node.parts.forwarding.way_to(NodeId(1)) is None
    links = list(host.node.parts.links.table)
    bulk, normal = opened(network, 3), opened(network, 2)
    for link in links:
        network._step(host, Backlog(link, HIGH))
    put(network, bulk)
    put(network, normal)
    network.run(0.1)
    assert transmitted(host, normal)
    assert not transmitted(host, bulk)
    for link in links:
        network._step(host, Backlog(link, LOW))
    network.run(0.1)
    assert transmitted(host, bulk)


def test_bulk_goes_on_when_what_was_sent_in_the_same_step_has_published_the_ways() -> None:
    network = Network(16)
    settle(network)
    host = network.hosts[NodeId(0)]
    bulk, link = opened(network, 3, to=4), link_to(host, 4)
    network._step(host, Backlog(link, HIGH))
    put(network, bulk)
    assert not transmitted(host, bulk)
    before = host.node.parts.forwarding.snapshot.generation
    # The link went over its bound: who is asked about node 4, and is no neighbor, gets that by a new way.
    network._step(host, LinkDown(link, Evidence.TIMED_OUT))
    assert host.node.parts.forwarding.snapshot.generation == before + 1
    network.run(0.001)
    is_linked_again = host.node.parts.links.to(NodeId(4)) is not None
    assert (is_linked_again, transmitted(host, bulk)) == (False, True)
