"""What a member tells of others' broadcasts and programs, and none sound one would: it costs little."""

from __future__ import annotations

import pytest

from bmgd.core import broadcast_retention
from bmgd.core.broadcast_retention import FORMER_MAX, BroadcastRetention
from bmgd.core.events import DeadlineReached, Received
from bmgd.core.node import Node
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.bounds import WATERMARKS_MAX
from bmgd.wire.link_messages import Held, Notice, Watermarks
from tests.unit.core.test_bounds import LIFE, PEERS, node_of

LINK = LinkId(1)


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
