"""Broadcasts in pieces, in virtual time: in order, at the pace of readers, to no older release."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from bmgd.core.broadcast.announcements import BEHIND_BYTES, CREDIT_BYTES
from bmgd.core.broadcast.window import PIECES_WINDOW_BYTES
from bmgd.core.commands import BroadcastTo, ConsumedAnnouncements, Subscribe
from bmgd.core.effects import Announce, TellMissed
from bmgd.errors import RequestError
from bmgd.sim import Network
from bmgd.types import Incarnation, NodeId
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.broadcast_messages import BroadcastPiece, Piece
from bmgd.wire.features import SPOKEN
from bmgd.wire.link_messages import MemberFeatures
from tests.unit.core.clusters import S, reply_to, settle

TOPIC = "news"
NUMBER = 77


def read(network: Network) -> Network:
    """One reader at each node of a cluster at rest."""
    settle(network)
    for number in network.hosts:
        network.issue(number, Subscribe(TOPIC, 64))
    return network


def piece(at: int, size: int, payload: bytes) -> BroadcastTo:
    return BroadcastTo(TOPIC, payload, True, 60 * S, Piece(NUMBER, at, size))


def pieces(size: int) -> list[BroadcastTo]:
    starts = range(0, size, PAYLOAD_BYTES_MAX)
    return [piece(at, size, bytes(min(PAYLOAD_BYTES_MAX, size - at))) for at in starts]


def announced(network: Network, number: int) -> list[Announce]:
    items = network.hosts[NodeId(number)].announced
    return [item for item in items if isinstance(item, Announce)]


def test_pieces_reach_every_reader_in_order_and_say_where_they_belong() -> None:
    network = read(Network(8))
    reply = None
    for at in range(3):
        reply = reply_to(network, 2, piece(2 * at, 6, b"%d!" % at))
    assert reply is not None
    assert reply.result == {"confirmed": list(range(8)), "failed": []}
    for number in range(8):
        got = [(item.piece, item.payload, item.sequence) for item in announced(network, number)]
        assert got == [(Piece(NUMBER, 2 * at, 6), b"%d!" % at, at + 1) for at in range(3)]


def send_to_slow_reader(network: Network, at: int, among: list[BroadcastTo]) -> None:
    """Node 0 sends 20 MiB; a reader at a node takes a piece each 20 ms, and must lack none.

    Pieces go 14 at a time, and broadcasts of `among` between them.
    """
    settle(network)
    reader = network.issue(at, Subscribe(TOPIC, 64))
    source, host = network.hosts[NodeId(0)], network.hosts[NodeId(at)]
    commands, others = deque(pieces(20 << 20)), deque(among)
    announcements, underway = host.node.parts.to_many.announcements, list[int]()
    total, taken = len(commands), 0
    for _ in range(2 * total):
        underway = [request for request in underway if request not in source.replies]
        while commands and len(underway) < 14:
            underway.append(network.issue(0, commands.popleft()))
        if others:
            network.issue(0, others.popleft())
        network.run(0.02)
        if taken < len(announced(network, at)):
            taken += 1
            network.issue_as(host, reader, ConsumedAnnouncements(1))
            # And what a reminder acknowledges each second, whoever is behind.
            most = CREDIT_BYTES + BEHIND_BYTES + 2 * PIECES_WINDOW_BYTES
            assert announcements.held_bytes <= most
    assert taken == total
    assert announcements.dropped == 0


@pytest.mark.parametrize(("size", "at"), [(3, 2), (3, 0), (1, 0)])
def test_source_of_pieces_goes_at_the_pace_of_a_reader_that_takes_some(size: int, at: int) -> None:
    send_to_slow_reader(Network(size), at, [])


@pytest.mark.parametrize("kind", ["short", "long"])
def test_readers_of_pieces_are_waited_for_whatever_else_the_source_sends(kind: str) -> None:
    among = [
        replace(command, topic="unread", payload=b"x", piece=None)
        if kind == "short"
        else replace(command, topic="unread", piece=Piece(NUMBER + 1, 64 * at, 64 << 20))
        for at, command in enumerate(pieces(20 << 20))
    ]
    send_to_slow_reader(Network(3), 2, among)


def test_reader_beside_the_source_holds_pieces_up_for_a_second_at_most() -> None:
    network = read(Network(1))
    commands = pieces(4 << 20)
    for command in commands:
        network.issue(0, command)
    network.run(0.5)
    assert network.status(0)["to_many"]["reliable"]["sent"] < len(commands)
    network.run(1)
    assert network.status(0)["to_many"]["reliable"]["stable"] == len(commands)


def test_reader_beside_the_source_that_takes_crumbs_is_passed_by_in_time() -> None:
    """It takes something each half second, and never enough for another piece."""
    network = Network(1)
    settle(network)
    reader = network.issue(0, Subscribe(TOPIC, 64))
    for _ in range(900):
        network.issue(0, BroadcastTo(TOPIC, b"x", True, 10 * S))
    commands = pieces(2 << 20)
    for command in commands:
        network.issue(0, command)
    for _ in range(40):
        network.run(0.5)
        network.issue_as(network.hosts[NodeId(0)], reader, ConsumedAnnouncements(1))
    shown = network.status(0)["to_many"]["reliable"]
    assert shown["waiting"] == 0


def test_reader_that_takes_nothing_holds_pieces_up_for_a_second_at_most() -> None:
    network = read(Network(4))
    size = 4 << 20
    commands = pieces(size)
    for command in commands:
        network.issue(0, command)
    network.run(0.5)
    # Nobody consumes: readers have their credit, and their queues fill.
    assert network.status(0)["to_many"]["reliable"]["stable"] < len(commands)
    network.run(5)
    shown = network.status(0)["to_many"]["reliable"]
    assert shown["stable"] == len(commands)


def test_pieces_are_refused_while_a_member_knows_none() -> None:
    network = Network(8, start=False)
    for number in range(8):
        network.boot(number, features=0 if number == 5 else SPOKEN)
    read(network)
    reply = reply_to(network, 0, piece(0, 6, b"x"))
    assert isinstance(reply.error, RequestError)
    assert "[5]" in str(reply.error)


def test_pieces_underway_are_missed_when_an_older_member_becomes_known() -> None:
    network = read(Network(4))
    compatibility = network.hosts[NodeId(0)].node.parts.context.compatibility
    network.cut(0, 2)
    first = network.issue(0, piece(0, 6, b"one"))
    network.run(0.05)
    life = network.hosts[NodeId(3)].node.incarnation
    compatibility.learn(MemberFeatures(NodeId(3), Incarnation(life), 0))
    second = network.issue(0, piece(3, 6, b"two"))
    third = network.issue(0, BroadcastTo(TOPIC, b"after", True, 10 * S))
    network.run(8)
    replies = network.hosts[NodeId(0)].replies
    assert isinstance(replies[second].error, RequestError)
    report = replies[first].result
    assert 2 not in report["confirmed"]
    assert 2 in {failure["id"] for failure in report["failed"]}
    assert replies[third].error is None
    shown = network.status(0)["to_many"]["reliable"]
    assert (shown["sent"], shown["stable"]) == (2, 2)


def test_pieces_do_not_go_over_a_link_to_an_older_release() -> None:
    network = read(Network(4))
    host = network.hosts[NodeId(0)]
    link = host.node.parts.links.to(NodeId(1))
    assert link is not None
    link.features = 0
    network.issue(0, piece(0, 6, b"one"))
    network.run(0.05)
    received = network.hosts[NodeId(1)].node.counts.received[BroadcastPiece]
    assert received == 0
    assert network.hosts[NodeId(2)].node.counts.received[BroadcastPiece] == 1


def test_founder_of_an_older_release_is_told_of_pieces_whose_source_died_before_it_knew_of_it() -> (
    None
):
    """Neighbors have them, and may send it none."""
    network = Network(4, start=False)
    for number in range(4):
        network.boot(number, features=0 if number == 3 else SPOKEN)
    for number in range(4):
        network.issue(number, Subscribe(TOPIC, 64))
        if number != 3:
            network.cut(3, number)
    network.run(0.1)
    network.issue(0, piece(0, 6, b"one"))
    network.issue(0, piece(3, 6, b"two"))
    network.run(0.1)
    network.kill(0)
    network.mend()
    network.run(45)
    network.issue(1, BroadcastTo(TOPIC, b"after", True, 10 * S))
    network.run(1)
    assert [item.payload for item in announced(network, 1)] == [b"one", b"two", b"after"]
    assert [item.payload for item in announced(network, 3)] == [b"after"]
    missed = [item for item in network.hosts[NodeId(3)].announced if isinstance(item, TellMissed)]
    assert [(item.source, item.first, item.last) for item in missed] == [(0, 1, 2)]
