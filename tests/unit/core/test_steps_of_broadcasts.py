"""Broadcasts and their copies: single steps, where one answer goes over into another."""

from __future__ import annotations

import pytest

from bmgd.core.broadcast import delivery, watermarks, window
from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.source import LOOK_AGAIN_NS, SEND_TIMER
from bmgd.core.broadcast.window import OVERHEAD_BYTES, OwnBroadcast
from bmgd.core.commands import (
    BroadcastTo,
)
from bmgd.core.effects import Send
from bmgd.core.node import Node
from bmgd.errors import RequestError
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.types import (
    Incarnation,
    NodeId,
    NodeState,
    Record,
    Status,
)
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
)
from bmgd.wire.routes import Route, Search
from tests.unit.core.clusters import S, reply_to
from tests.unit.core.four_nodes import PEER, life_of


@pytest.mark.parametrize(("most", "is_refused"), [(4, False), (3, True)])
def test_reliable_broadcast_reaches_an_id_space_up_to_its_bound(
    network: Network, monkeypatch: pytest.MonkeyPatch, most: int, is_refused: bool
) -> None:
    monkeypatch.setattr(window, "RELIABLE_ID_SPACE_MAX", most)
    reply = reply_to(network, 0, BroadcastTo("t", b"x", True, S))
    assert (reply.error is not None) == is_refused


def test_copy_that_a_search_brought_is_kept_without_the_search(
    network: Network, node: Node
) -> None:
    life = life_of(network, PEER)
    search = Search(b"\1", (PEER,))
    route = Route(NodeId(0), PEER, life, sequence=1, search=search)
    message = ReliableBroadcast(route, "t", b"x", 0, (), 4, 0, (), 0)
    heard = Heard(PEER, life)
    copies = node.parts.to_many.retention.copies
    assert copies.keep(heard, message)
    assert heard.copies[1].route.search is None
    assert heard.key in copies._reserve._since_ns


def test_life_that_is_shared_no_more_forgets_what_neighbors_were_told() -> None:
    heard = Heard(PEER, Incarnation(1))
    heard.told[PEER] = heard.said[PEER] = (1, 2)
    heard.said_ns[PEER] = heard.pulled[PEER] = heard.unanswered[PEER] = 1
    heard.told_stable, heard.told_top, heard.gap_ns = 1, 2, 3
    heard.asked = PEER
    heard.forget_neighbors()
    tables = (heard.told, heard.said, heard.said_ns, heard.pulled, heard.unanswered)
    assert not any(tables)
    assert heard.asked is None
    assert (heard.told_stable, heard.told_top, heard.gap_ns) == (0, 0, 0)


def test_reserve_forgets_who_was_refused_when_all_of_it_is_stable(
    network: Network, node: Node
) -> None:
    reserve, key = node.parts.to_many.retention.copies._reserve, (PEER, life_of(network, PEER))
    reserve.on_refused(key)
    assert key in reserve._refused_ns
    reserve.on_stable(key, has_copies=False)
    assert key not in reserve._refused_ns
    reserve.on_refused(key)
    reserve.on_kept(key)
    assert key not in reserve._refused_ns


def test_programs_of_a_life_that_was_inherited_are_asked_for(network: Network, node: Node) -> None:
    retention, life = node.parts.to_many.retention, life_of(network, PEER)
    retention.lives.pop((PEER, life), None)
    retention._inherited[PEER, life] = 3
    heard = retention.hear(PEER, life)
    assert heard is not None
    assert (heard.watermark, heard.given) == (3, True)
    assert PEER in node.parts.to_many.programs._wanted


def test_broadcast_goes_again_to_single_nodes_only_where_few_lack_it(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = node.parts.to_many.source
    network.stop(1)
    network.issue(0, BroadcastTo("t", b"x", True, 9 * S))
    [sent] = source.window.unstable
    sent.times = 1
    assert source._ways_to(sent, 0b1010) == [Branch(NodeId(1), 0b10), Branch(NodeId(3), 0b1000)]
    monkeypatch.setattr("bmgd.core.broadcast.source.SINGLY_MAX", 1)
    assert source._ways_to(sent, 0b1010) == [Branch(NodeId(0), 0b1010)]


def test_node_that_leaves_takes_no_broadcast_and_passes_it_on(network: Network, node: Node) -> None:
    context, broadcasting = node.parts.context, node.parts.to_many.broadcasting
    context.state = NodeState.LEAVING
    context.effects.clear()
    [link] = node.parts.links.by_peer[NodeId(2)]
    route = Route(NodeId(0), PEER, life_of(network, PEER), sequence=1, hop_budget=9)
    branches = (Branch(NodeId(0), 1), Branch(NodeId(2), 1 << 2))
    broadcasting.on_message(Broadcast(route, "t", b"x", 0, branches))
    assert PEER not in broadcasting._seen
    assert [e.link for e in context.effects if isinstance(e, Send)] == [link.id]


def test_topics_of_pieces_are_noted_up_to_their_bound(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PIECE_TOPICS_MAX", 1)
    life, given = life_of(network, PEER), node.parts.to_many.retention.delivery
    heard = Heard(PEER, life)
    for number, topic in enumerate("tu", 1):
        route = Route(NodeId(0), PEER, life, sequence=number)
        piece = Piece(1, 0, 10)
        given._give(heard, BroadcastPiece(route, topic, b"x", 0, (), 4, 0, (), 0, piece))
    assert list(heard.pieces_of) == ["t"]


def test_neighbor_that_sent_something_may_be_asked_again(network: Network, node: Node) -> None:
    heard = Heard(PEER, life_of(network, PEER))
    heard.asked, heard.asked_at, heard.watermark = NodeId(2), (0, 0), 1
    heard.pulled[NodeId(2)] = 3
    node.parts.to_many.orphans._pull(heard)
    assert heard.pulled == {}


def test_broadcasts_wait_for_room_up_to_their_bound(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = node.parts.to_many.source.window
    own.waiting_bytes = 6
    command = BroadcastTo("t", b"four", True, S)
    monkeypatch.setattr(window, "WAITING_BYTES_MAX", 10)
    assert own.refusal(command) is None
    monkeypatch.setattr(window, "WAITING_BYTES_MAX", 9)
    assert isinstance(own.refusal(command), RequestError)


@pytest.mark.parametrize("known", [(5, 6), (1, 2)])
def test_skips_side_by_side_are_one(node: Node, known: tuple[int, int]) -> None:
    heard, told = Heard(PEER, Incarnation(1)), node.parts.to_many.retention.delivery
    told.add_skip(heard, *known, missed=True)
    told.add_skip(heard, 3, 4, missed=True)
    assert [skip[:2] for skip in heard.skips] == [(min(3, known[0]), max(4, known[1]))]
    told.add_skip(heard, 8, 9, missed=True)
    assert len(heard.skips) == 2


@pytest.mark.parametrize(("sequence", "is_kept"), [(1, True), (2, False)])
def test_next_copy_of_a_life_is_kept_where_the_reserve_admits_it(
    network: Network, node: Node, sequence: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, life = node.parts.to_many.retention.copies, life_of(network, PEER)
    monkeypatch.setattr("bmgd.core.broadcast.copies.HELD_BYTES_MAX", 0)
    monkeypatch.setattr(type(copies._reserve), "admits", lambda self, key, over_bytes: True)
    route = Route(NodeId(0), PEER, life, sequence=sequence)
    message = ReliableBroadcast(route, "t", b"x", 0, (), 4, 0, (), 0)
    assert copies.keep(Heard(PEER, life), message) == is_kept


@pytest.mark.parametrize("status", [Status.DEAD, Status.EXCLUDED])
def test_life_of_a_source_that_may_refute_its_death_makes_no_room(
    network: Network, node: Node, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention, known = node.parts.to_many.retention, node.parts.context.membership
    monkeypatch.setattr("bmgd.core.broadcast.retention.LIVES_MAX", 1)
    life = life_of(network, PEER)
    assert retention.hear(PEER, life) is not None
    assert known.join(PEER, Record(life, 0, status, "sim1:7400"))
    assert retention.hear(NodeId(2), life_of(network, 2)) is None
    assert known.join(PEER, Record(life, 1, Status.ALIVE, "sim1:7400"))
    assert retention.hear(PEER, life) is not None


@pytest.mark.parametrize(("later", "status"), [(0, Status.LEFT), (1, Status.ALIVE)])
def test_life_of_a_source_that_is_over_makes_room_for_another(
    network: Network, node: Node, later: int, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention, known = node.parts.to_many.retention, node.parts.context.membership
    monkeypatch.setattr("bmgd.core.broadcast.retention.LIVES_MAX", 1)
    assert retention.hear(PEER, life_of(network, PEER)) is not None
    for _ in range(2):
        assert retention.hear(NodeId(2), life_of(network, 2)) is None
    retention._full_until_ns = 0
    life = Incarnation(life_of(network, PEER) + later)
    assert known.join(PEER, Record(life, 0, status, "sim1:7400"))
    assert retention.hear(NodeId(2), life_of(network, 2)) is not None
    assert [source for source, _ in retention.lives] == [2]


def test_source_of_pieces_looks_again_while_its_own_readers_are_behind(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, timers = node.parts.to_many.source, node.parts.context.timers
    monkeypatch.setattr(type(source._announcements), "is_behind", lambda self, topic: True)
    waiting = BroadcastTo("t", b"x", True, S, Piece(1, 0, 10))
    source.window.waiting.append(OwnBroadcast(waiting, 7, node.parts.context.now_ns + S))
    assert source._must_wait()
    assert timers.due_ns((SEND_TIMER, 0, 0)) == node.parts.context.now_ns + LOOK_AGAIN_NS


@pytest.mark.parametrize(("size", "is_told"), [(249, False), (250, True)])
def test_broadcasts_are_acknowledged_by_the_quarter_of_a_window(
    network: Network, node: Node, size: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "WINDOW_ALL_BYTES", 1)
    monkeypatch.setattr(watermarks, "WINDOW_MIN_BYTES", 4 * (250 + OVERHEAD_BYTES))
    heard = Heard(PEER, life_of(network, PEER))
    node.parts.to_many.retention.watermarks.acknowledge_soon(heard, size)
    assert (heard.unacknowledged_bytes == 0) == is_told


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("kind", ["broadcast", "multicast", "reliable"])
def test_source_on_the_way_between_two_heads_passes_its_own_message_on(
    node: Node, kind: str, is_own: bool
) -> None:
    context = node.parts.context
    life = Incarnation(context.incarnation - (not is_own))
    route, branches = Route(context.id, context.id, life, 0, 1, 5), (Branch(PEER, 1 << PEER),)
    came: dict[str, Broadcast | Multicast | ReliableBroadcast] = {
        "broadcast": Broadcast(route, "t", b"x", 0, branches),
        "multicast": Multicast(route, "t", b"x", branches),
        "reliable": ReliableBroadcast(route, "t", b"x", 0, branches, 4, 0, (), 0),
    }
    node.parts.to_many.on_message(came[kind])
    sent = [e.message for e in context.effects if isinstance(e, Send)]
    passed = [m for m in sent if isinstance(m, Broadcast | Multicast | ReliableBroadcast)]
    assert [m.branches for m in passed] == ([branches] if is_own else [])
    context.effects.clear()
