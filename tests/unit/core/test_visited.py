"""The ids that a search has been to, as a bitmap and as runs."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core.commands import SendTo
from bmgd.core.effects import Send
from bmgd.core.events import CommandIssued, DeadlineReached, LinkUp
from bmgd.core.forwarding.visited import (
    BITMAP_SPACE_MAX,
    is_visited,
    nothing_visited,
    visited_bytes,
    with_visited,
)
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.bounds import SEARCH_BYTES_MAX
from bmgd.wire.codec import decode, encode
from bmgd.wire.messages import RoutedMessage

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)


@pytest.mark.parametrize("id_space", [1, 300, BITMAP_SPACE_MAX, BITMAP_SPACE_MAX + 1, 10**6])
def test_visited_ids_are_those_that_were_entered(id_space: int) -> None:
    random = Random(id_space)
    visited, ids = nothing_visited(id_space), set[int]()
    for _ in range(100):
        number = random.randrange(id_space)
        visited = with_visited(visited, NodeId(number))
        ids.add(number)
    assert all(is_visited(visited, NodeId(number)) for number in ids)
    others = [random.randrange(id_space + 9) for _ in range(300)]
    assert all(is_visited(visited, NodeId(n)) == (n in ids) for n in others)
    assert visited_bytes(visited) <= SEARCH_BYTES_MAX


def test_bitmap_becomes_runs_for_an_id_that_it_cannot_have() -> None:
    visited = with_visited(with_visited(nothing_visited(100), NodeId(7)), NodeId(10**6))
    assert visited == ((7, 7), (10**6, 10**6))


def test_longer_bitmap_of_another_daemon_is_kept() -> None:
    bitmap = bytes(9999) + b"\x01"
    assert with_visited(bitmap, NodeId(79_993)) == bytes(9999) + b"\x03"
    assert with_visited(bitmap, NodeId(80_000)) == ((79_992, 79_992), (80_000, 80_000))


@pytest.mark.parametrize("id_space", [BITMAP_SPACE_MAX, BITMAP_SPACE_MAX + 1, 131_072, 10**6])
def test_thousand_nodes_of_a_search_have_room(id_space: int) -> None:
    visited = nothing_visited(id_space)
    for number in range(0, 2000, 2):
        visited = with_visited(visited, NodeId(number))
    assert visited_bytes(visited) + 4 * 1000 <= SEARCH_BYTES_MAX


@pytest.mark.parametrize("retired", [70_000, 130_000, 131_040, 131_058, 131_060, 10**6])
def test_message_is_searched_for_after_many_joins(retired: int) -> None:
    """No shortest way is up, and a bitmap over all ids that ever were would not fit with a stack."""
    node = Node(Settings(NodeId(0), 4, PEERS, "host0:1"), LIFE, Random(0), 0)
    membership = node.parts.context.membership
    membership.retire_run(NodeId(4), NodeId(retired))
    for number in range(retired + 1, retired + 13):
        membership.join(NodeId(number), Record(LIFE, 0, Status.ALIVE, f"new{number}:1"))
    node.step(0, DeadlineReached())
    node.step(1, LinkUp(LinkId(1), NodeId(3), LIFE, "host3:1", UNKNOWN_INCARNATION, 1))
    searches = []
    for request, number in enumerate(range(retired + 1, retired + 13), 1):
        command = SendTo(NodeId(number), "t", b"x", 10**10)
        for effect in node.step(2, CommandIssued(request, command)):
            if isinstance(effect, Send) and isinstance(effect.message, RoutedMessage):
                assert decode(encode(effect.message)[4:]) == effect.message
                searches.append(effect.message.route.search)
    found = [search for search in searches if search is not None]
    assert found
    assert all(search.visited == ((0, 0),) and search.stack == (0,) for search in found)


def test_bitmap_is_begun_where_there_is_one_for_all_ids() -> None:
    assert nothing_visited(BITMAP_SPACE_MAX) == bytes(BITMAP_SPACE_MAX // 8)
    assert nothing_visited(BITMAP_SPACE_MAX + 1) == ()
