"""What a node keeps of others' messages is what it counts, whatever their frames decode to."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from bmgd.core.effects import Send
from bmgd.core.events import Received
from bmgd.core.node import Node
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE
from bmgd.types import LinkId, NodeId
from bmgd.wire.bounds import COVERS_BYTES_MAX
from bmgd.wire.broadcast_messages import Broadcast, ReliableBroadcast, Skip, Stable
from bmgd.wire.codec import decode, encode
from bmgd.wire.routes import Search
from tests.unit.core.test_bounds import node_of, route
from tests.unit.segments import segment

COPIES = 20


def highest() -> int:
    """A set of one id, that is a new integer of 16 KiB: 5 bytes of a frame are decoded to it."""
    return 1 << ID_SET_SPACE - 1


def branches(count: int) -> tuple[Branch, ...]:
    return tuple(Branch(NodeId(2**31 - 1 - number), highest()) for number in range(count))


def covering(sequence: int) -> ReliableBroadcast:
    return ReliableBroadcast(route(1, sequence), "t", b"x", 0, branches(20), 4, 0, (), 0)


def excepting(sequence: int) -> ReliableBroadcast:
    return ReliableBroadcast(route(1, sequence), "t", b"x", 0, (), 4, highest(), (), 0)


def skipping(sequence: int) -> ReliableBroadcast:
    skips = tuple(Skip(NodeId(2**30 + i), 2**40 + i, 2**41 + i, False) for i in range(16))
    return ReliableBroadcast(route(1, sequence), "t", b"x", 0, (), 4, 0, skips, 0)


def held_after(node: Node, make: Callable[[int], ReliableBroadcast]) -> int:
    """Let copies come, beyond a gap; what the process holds for them."""
    tracemalloc.start()
    try:
        for sequence in range(2, 2 + COPIES):
            node.step(sequence, Received(LinkId(1), make(sequence)))
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [covering, excepting, skipping])
def test_copies_of_broadcasts_take_what_is_counted_of_them(
    make: Callable[[int], ReliableBroadcast],
) -> None:
    node = node_of(4)
    # The first of a life makes tables, and is no copy.
    node.step(1, Received(LinkId(1), Stable(route(1), 0, (), 0)))
    held_bytes = held_after(node, make)
    retention = node.parts.to_many.retention
    assert retention.show()["copies"] == COPIES
    assert held_bytes < 4 * retention.copies.held_bytes + 100_000


@pytest.mark.parametrize("make", [covering, excepting, skipping])
def test_stable_copies_give_back_what_was_counted_of_them(
    make: Callable[[int], ReliableBroadcast],
) -> None:
    node = node_of(4)
    held_after(node, make)
    node.step(COPIES + 9, Received(LinkId(1), make(1)))
    node.step(COPIES + 9, Received(LinkId(1), Stable(route(1), 0, (), 1 + COPIES)))
    retention = node.parts.to_many.retention
    assert retention.delivery.taken == 1 + COPIES
    assert (retention.copies.held_bytes, retention.show()["copies"]) == (0, 0)


def test_segments_behind_a_gap_are_kept_without_their_searches() -> None:
    node = node_of(4)
    node.step(2, Received(LinkId(1), segment(route(1), b"x", stream=1)))
    stack = tuple(NodeId(10**9 + number) for number in range(4096))
    for number in range(3, 20):
        searching = replace(route(1), search=Search(b"", stack))
        node.step(number, Received(LinkId(1), segment(searching, b"x", number=number)))
    (source,) = node.parts.inbound._sources.values()
    kept = source.streams[1].kept
    assert len(kept) == 17
    assert all(each.route.search is None for each in kept.values())


def test_branches_go_in_frames_that_a_node_reads() -> None:
    node = node_of(4)
    count = COVERS_BYTES_MAX // (ID_SET_SPACE // 8) + 5
    wide = tuple(Branch(NodeId(1), 1 << ID_SET_SPACE - 1 - number) for number in range(count))
    came = Broadcast(route(2), "t", b"x", 0, wide)
    effects = node.step(2, Received(LinkId(1), came))
    frames = [decode(encode(e.message)[4:]) for e in effects if isinstance(e, Send)]
    sent = [each for frame in frames if isinstance(frame, Broadcast) for each in frame.branches]
    assert len(frames) == 2
    assert sorted(each.cover for each in sent) == sorted(each.cover for each in wide)
