"""What a member tells of others' broadcasts and programs, and none sound one would: it costs little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bmgd.core.broadcast import retention as broadcast_retention
from bmgd.core.broadcast.programs import REGISTERED_MAX
from bmgd.core.broadcast.retention import FORMER_MAX, BroadcastRetention
from bmgd.core.commands import BroadcastTo, ShowStatus, Subscribe
from bmgd.core.effects import Announce, Reply
from bmgd.core.events import CommandIssued, DeadlineReached, Received
from bmgd.core.node import Node
from bmgd.sim import Network
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import ProgramList
from bmgd.wire.bounds import PROGRAMS_BYTES_MAX, WATERMARKS_MAX
from bmgd.wire.broadcast_messages import ReliableBroadcast, Watermark
from bmgd.wire.link_messages import Held, Notice, Watermarks
from bmgd.wire.program_news import Started, pack_news, pack_starts
from tests.unit.core.clusters import S, settle
from tests.unit.core.test_bounds import LIFE, PEERS, node_of, route

LINK = LinkId(1)
HIGHEST = 2**64 - 1


def retention_of(node: Node) -> BroadcastRetention:
    return node.parts.to_many.retention


def test_former_lives_of_a_source_that_a_neighbor_names_are_bounded() -> None:
    node = node_of(64)
    for frame in range(4):
        first = 1 + frame * WATERMARKS_MAX
        lives = range(first, first + WATERMARKS_MAX)
        held = tuple(Held(NodeId(1), Incarnation(life), 0, 0, 0) for life in lives)
        node.step(2 + frame, Received(LINK, Watermarks(held, asks=False)))
    assert len(retention_of(node).by_source[NodeId(1)]) <= FORMER_MAX + 1
    assert retention_of(node).hear(NodeId(1), LIFE) is not None, "the present one is always taken"


def test_life_that_neighbors_compare_makes_no_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast_retention, "LIVES_MAX", 2)
    node = node_of(64)
    for source in (5, 6):
        dead = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(source)))
        node.step(2, Received(LINK, Notice(((NodeId(source), dead),))))
    held = tuple(Held(NodeId(source), LIFE, 1, 0, 1) for source in (5, 6, 7))
    node.step(3, Received(LINK, Watermarks(held, asks=False)))
    assert set(retention_of(node).by_source) == {5, 6}
    while (due_ns := node.deadline_ns) is not None and due_ns < 1_000_000_000:
        node.step(due_ns, DeadlineReached())
    assert set(retention_of(node).by_source) == {5, 6}


def test_stable_count_of_a_living_source_is_asked_for_at_the_source() -> None:
    """A neighbor of node 3 tells that all of node 0 is stable."""
    network = Network(8)
    settle(network)
    host = network.hosts[NodeId(3)]
    link = host.node.parts.links.by_peer[NodeId(2)][0].id
    life = network.hosts[NodeId(0)].node.incarnation
    network.issue(3, Subscribe("news", 64))
    claim = Held(NodeId(0), life, 0, HIGHEST, 0)
    network._step(host, Received(link, Watermarks((claim,), asks=False)))
    request = network.issue(0, BroadcastTo("news", b"x", True, 10 * S))
    network.run(5)
    report = network.hosts[NodeId(0)].replies[request].result
    assert report == {"confirmed": list(range(8)), "failed": []}
    assert [a.payload for a in host.announced if isinstance(a, Announce)] == [b"x"]
    (heard,) = host.node.parts.to_many.retention.by_source[NodeId(0)].values()
    assert (heard.watermark, heard.asking) == (1, False)


def test_watermark_beyond_all_that_was_sent_holds_up_no_other() -> None:
    network = Network(4)
    settle(network)
    source = network.hosts[NodeId(0)].node.parts
    life = network.hosts[NodeId(3)].node.incarnation
    network.stop(3)
    request = network.issue(0, BroadcastTo("news", b"x", True, 10 * S))
    network.run(0.1)
    way = replace(route(3), source_incarnation=life, destination_tag=source.context.own_tag)
    source.to_many.on_message(Watermark(way, HIGHEST, 0, asks=False))
    network.run(0.1)
    assert network.hosts[NodeId(0)].replies[request].result["confirmed"] == [0, 1, 2, 3]
    assert source.to_many.source.peers.by_id[NodeId(3)].watermark == 1


def test_what_is_missed_is_shown_as_a_count_that_fits_into_a_frame() -> None:
    node = node_of(64)
    for source in (5, 6):
        dead = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(source)))
        node.step(2, Received(LINK, Notice(((NodeId(source), dead),))))
    held = tuple(Held(NodeId(source), LIFE, 0, HIGHEST, 0) for source in (5, 6))
    node.step(3, Received(LINK, Watermarks(held, asks=False)))
    (reply,) = (e for e in node.step(4, CommandIssued(9, ShowStatus())) if isinstance(e, Reply))
    assert reply.result["to_many"]["reliable"]["missed"] == HIGHEST


def test_list_of_more_programs_than_a_node_registers_is_dropped() -> None:
    node = node_of(64)
    news = pack_news(Started(9, "x"))
    node.step(2, Received(LINK, ReliableBroadcast(route(1), "", news, 0, (), 64, 0, (), 0)))
    row = node.parts.to_many.programs._rows[NodeId(1)]
    assert row.wanted
    last = 0
    for at in range(10):
        revisions = range(last + 1, last + REGISTERED_MAX)
        body, _ = pack_starts(
            [Started(revision, "p") for revision in revisions], PROGRAMS_BYTES_MAX
        )
        page = ProgramList(route(1), HIGHEST, last, False, body)
        node.step(3 + at, Received(LINK, page))
        assert len(row.page) <= REGISTERED_MAX
        last = revisions[-1]
    assert row.wanted
    assert not row.names


def test_stable_count_that_came_before_the_death_of_its_source_is_believed_after_it() -> None:
    node = node_of(64)
    node.step(2, Received(LINK, Watermarks((Held(NodeId(5), LIFE, 7, 7, 7),), asks=False)))
    (heard,) = retention_of(node).by_source[NodeId(5)].values()
    assert heard.watermark == 0
    dead = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(5)))
    node.step(3, Received(LINK, Notice(((NodeId(5), dead),))))
    assert heard.watermark == 7
