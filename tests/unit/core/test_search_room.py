"""A search begins and goes on only where its state has room in the frame beside the message."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Received
from bmgd.core.forwarding.search_room import REST_BYTES, has_room_for_search
from bmgd.frameheader import FRAME_BYTES_MAX, LENGTH_BYTES
from bmgd.routing.branches import Branch
from bmgd.sim import Network
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.bounds import (
    BRANCH_BYTES_MAX,
    BRANCH_FRAME_BYTES,
    PAYLOAD_BYTES_MAX,
    SEARCH_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skip,
    Stable,
)
from bmgd.wire.codec import encode
from bmgd.wire.id_sets import id_set_bytes
from bmgd.wire.messages import RoutedMessage
from bmgd.wire.routes import Route, Search
from tests.unit.core.clusters import settle

HIGHEST = 2**64 - 1
LAST_ID = NodeId(2**31 - 1)
ROUTE = Route(NodeId(3), NodeId(5), Incarnation(7), search=Search(b"", ()))
TOPIC = "t" * TOPIC_BYTES_MAX
EXCEPTIONS = Random(2).getrandbits(8 * 1090)
SKIPS = (Skip(LAST_ID, HIGHEST, HIGHEST, True),) * 16
PAYLOAD = bytes(PAYLOAD_BYTES_MAX)


def scattered(size_bytes: int) -> Branch:
    """A branch whose cover has about so many bytes, in any form."""
    return Branch(LAST_ID, Random(1).getrandbits(8 * size_bytes))


def messages(branches: tuple[Branch, ...]) -> list[RoutedMessage]:
    """Every kind with branches, as long as it can be beside them."""
    reliable = (ROUTE, TOPIC, PAYLOAD, 1, branches, 2**17, EXCEPTIONS, SKIPS, HIGHEST)
    return [
        Broadcast(ROUTE, TOPIC, PAYLOAD, 1, branches),
        Multicast(ROUTE, TOPIC, PAYLOAD, branches),
        ReliableBroadcast(*reliable),
        BroadcastPiece(*reliable, Piece(HIGHEST, 2**40, 2**40)),
        Stable(ROUTE, 1, branches, HIGHEST),
    ]


def searching(message: RoutedMessage, size_bytes: int) -> RoutedMessage:
    search = Search(bytes(size_bytes - 40), (LAST_ID,) * 10, 255)
    return replace(message, route=replace(message.route, search=search))


def body_bytes(message: RoutedMessage) -> int:
    return len(encode(message)) - LENGTH_BYTES


def network() -> tuple[Network, LinkId, NodeId]:
    """A cluster of 16, a link of node 0, and an id to which it has none."""
    found = Network(16)
    settle(found)
    links = found.hosts[NodeId(0)].node.parts.links
    far = next(NodeId(i) for i in range(1, 16) if NodeId(i) not in links.by_peer)
    return found, next(iter(links.by_peer.values()))[0].id, far


def broadcast(found: Network, link: LinkId, far: NodeId, *cover_bytes: int) -> list[Effect]:
    """What node 0 does with a broadcast to a far node whose hop budget is used up."""
    node = found.hosts[NodeId(0)].node
    peer = node.parts.links.table[link]
    route = Route(far, peer.peer, peer.incarnation, sequence=7)
    message = Broadcast(route, "t", PAYLOAD, 0, tuple(scattered(size) for size in cover_bytes))
    assert body_bytes(message) <= FRAME_BYTES_MAX
    return node.step(found.now_ns, Received(link, message))


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("cover_bytes", [0, 1000, 8000, 15_000, BRANCH_BYTES_MAX - 60])
def test_search_with_room_fits_into_a_frame(at: int, cover_bytes: int) -> None:
    message = messages((scattered(cover_bytes),))[at]
    for size in (40, 400, 1300, 8300, SEARCH_BYTES_MAX):
        if has_room_for_search(message, size):
            assert body_bytes(searching(message, size)) <= FRAME_BYTES_MAX


@pytest.mark.parametrize("at", range(5))
def test_longest_payload_and_longest_search_have_room_beside_a_short_cover(at: int) -> None:
    message = messages((Branch(LAST_ID, 1 << 100_000),))[at]
    assert has_room_for_search(message, SEARCH_BYTES_MAX - 14)


def test_relayed_broadcast_that_a_search_makes_too_long_is_not_sent() -> None:
    found, link, far = network()
    effects = broadcast(found, link, far, BRANCH_BYTES_MAX - 70, 1972)
    assert not [e for e in effects if isinstance(e, Send) and isinstance(e.message, Broadcast)]


def test_relayed_broadcast_with_room_for_its_search_goes_on() -> None:
    found, link, far = network()
    effects = broadcast(found, link, far, 8000)
    (sent,) = [
        e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Broadcast)
    ]
    assert sent.route.search is not None
    assert body_bytes(sent) <= FRAME_BYTES_MAX


@pytest.mark.parametrize("is_over", [False, True])
def test_search_has_exactly_the_room_that_is_left(is_over: bool) -> None:
    branches = (scattered(1),)
    left = FRAME_BYTES_MAX - REST_BYTES - id_set_bytes(branches[0].cover) - BRANCH_FRAME_BYTES
    for message in (Broadcast(ROUTE, TOPIC, b"", 0, branches), Stable(ROUTE, 0, branches, 1)):
        assert has_room_for_search(message, left + is_over) != is_over
    longer = Broadcast(ROUTE, TOPIC, b"longer", 0, branches)
    assert has_room_for_search(longer, left - 6 + is_over) != is_over
