"""Streams that cannot send: what is taken back of them is told, and none spends ids while it waits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bmgd.core.commands import (
    CloseStream,
    OpenStream,
    PutSegment,
    SendTo,
    Subscribe,
    Withdraw,
)
from bmgd.core.effects import Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import Backlog, Event, Received
from bmgd.core.streams import outbound
from bmgd.core.streams import table as stream_table
from bmgd.core.streams.sending import ABANDONED_NS
from bmgd.sim import Network
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.sim.wires import ends_between
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.routes import Route
from bmgd.wire.segments import COST_MAX, packed
from bmgd.wire.stream_messages import SegmentAck
from tests.unit.core.clusters import S, settle
from tests.unit.segments import payloads_of

PIECE = bytes(65_536)


class Opened(Watcher):
    """How requests are answered."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.replies += [effect for effect in effects if isinstance(effect, Reply)]


class Moves(Watcher):
    """What programs are told of their streams."""

    def __init__(self) -> None:
        self.moved: list[StreamMoved] = []
        self.ends: list[StreamEnded] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self.moved += [effect for effect in effects if isinstance(effect, StreamMoved)]
        self.ends += [effect for effect in effects if isinstance(effect, StreamEnded)]


def test_long_message_that_is_taken_back_before_anything_was_sent_is_told() -> None:
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    network.issue(1, Subscribe("t", 100, takes_long=True))
    stream = network.issue(0, OpenStream(NodeId(1), "t", 3))
    (end,) = ends_between(source, NodeId(1))
    network._step(source, Backlog(end.link, 300 * 1024))
    for number in range(4):
        put = PutSegment(0, PIECE, size=1 << 20, first=number == 0)
        network.issue_as(source, stream, put)
    moves = Moves()
    network.watchers.append(moves)
    network.issue_as(source, stream, Withdraw(0))
    assert [moved.next for moved in moves.moved] == [5]


def test_message_that_is_withdrawn_behind_one_that_was_given_up_is_not_sent() -> None:
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    moves = Moves()
    network.watchers.append(moves)
    network.issue(1, Subscribe("t", 100, takes_long=True))
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    network.stop(1)
    # The first segment is underway until it is answered.
    network.issue_as(source, stream, PutSegment(0, PIECE, size=1 << 20, first=True))
    network.issue_as(source, stream, Withdraw(0))
    network.issue_as(source, stream, PutSegment(1, packed(b"withdrawn")))
    network.issue_as(source, stream, Withdraw(2))
    network.issue_as(source, stream, PutSegment(1, packed(b"taken")))
    assert [moved.withdrawn for moved in moves.moved if moved.withdrawn] == [(2,)]
    network.resume(1)
    network.run(0.5)
    there = network.hosts[NodeId(1)].delivered
    assert [payload for deliver in there for payload in payloads_of(deliver)] == [b"taken"]
    assert [bool(deliver.aborted) for deliver in there] == [False, True, False]


def test_stream_that_is_held_within_a_long_message_keeps_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_table, "SPAN", 8)
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    moves = Moves()
    network.watchers.append(moves)
    network.issue(1, Subscribe("t", 100, takes_long=True))
    stream = network.issue(0, OpenStream(NodeId(1), "t", 3))
    network.issue_as(source, stream, PutSegment(0, PIECE, size=2 * len(PIECE), first=True))
    network.run(0.1)
    (end,) = ends_between(source, NodeId(1))
    network._step(source, Backlog(end.link, 300 * 1024))
    network.issue_as(source, stream, PutSegment(0, PIECE, size=2 * len(PIECE), last=True))
    others = [network.issue(0, OpenStream(NodeId(1), "u")) for _ in range(8)]
    for other in others:
        network.issue_as(source, other, PutSegment(1, packed(b"x")))
        network.run(0.1)
    waiting = source.node.parts.outbound.table.peers[NodeId(1)].waiting
    assert [each.owner for each in waiting.values()] == others[6:]
    network._step(source, Backlog(end.link, 0))
    network.run(0.1)
    pieces = [deliver.last for deliver in network.hosts[NodeId(1)].delivered]
    assert pieces == [False, True]
    assert moves.ends == []


def test_stream_that_goes_on_under_a_new_id_tells_its_program_what_it_may_put() -> None:
    """What is in doubt counts as over from then on, though nothing is told of it once more."""
    network = Network(2)
    settle(network)
    source, peer = network.hosts[NodeId(0)], network.hosts[NodeId(1)]
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    network.issue_as(source, stream, PutSegment(1, packed(b"first")))
    network.run(0.1)
    network.stop(1)
    network.issue_as(source, stream, PutSegment(1, packed(b"confirmed"), timeout_ns=S // 5))
    network.issue_as(source, stream, PutSegment(1, packed(b"doubted"), timeout_ns=S // 10))
    network.run(0.15)
    out = source.node.parts.outbound.table.owned[stream]
    (end,) = ends_between(source, NodeId(1))
    life, here = peer.node.incarnation, source.node.parts.context.own_tag
    route = Route(NodeId(0), NodeId(1), life, here, sequence=out.id << 32 | 3)
    ack = SegmentAck(route, incarnation_tag(life), 1 << 20, full=False)
    network._step(source, Received(end.link, ack))
    assert [sending.doubted for sending in out.underway.values()] == [True]
    moves = Moves()
    network.watchers.append(moves)
    network.run(0.1)
    assert not out.underway
    assert out.done_cost == out.put_cost
    assert [moved.credit - out.done_cost >= COST_MAX for moved in moves.moved] == [True]


def test_stream_without_a_way_keeps_its_id_however_long_the_clock_runs() -> None:
    network = Network(3, seed=5, start=False, conditions=Conditions(skewed=True))
    host = network.boot(0)
    network.run(0.2)
    network.issue(0, SendTo(NodeId(1), "t", b"x", 3600 * S))
    network.run(10)
    assert host.node.parts.outbound.table.peers[NodeId(1)].next_id == 2


def test_stream_whose_program_goes_away_after_it_has_closed_it_is_not_kept_for_ever() -> None:
    network = Network(2, configured={"queue_messages": 1})
    settle(network)
    source = network.hosts[NodeId(0)]
    stream = network.issue(0, OpenStream(NodeId(1), "t"))
    for _ in range(3):
        network.issue_as(source, stream, PutSegment(1, packed(b"x")))
        network.run(0.1)
    network.issue_as(source, stream, CloseStream())
    network.run(2 * ABANDONED_NS / S)
    table = source.node.parts.outbound.table
    assert len(table.owned) == 1
    network.issue_as(source, stream, CloseStream(abandon=True))
    assert not table.owned
    network.run(2 * ABANDONED_NS / S)
    assert not table.streams


def test_stream_that_waits_for_a_way_goes_on_also_when_others_have_used_up_the_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_table, "SPAN", 4)
    network = Network(3, start=False)
    source = network.boot(0)
    network.run(0.2)
    for _ in range(8):
        stream = network.issue(0, OpenStream(NodeId(1), "t"))
        network.issue_as(source, stream, PutSegment(1, packed(b"x")))
    network.boot(1)
    network.run(8)
    assert network.hosts[NodeId(1)].node.parts.topics.table.waiting() == 8


def test_stream_that_is_closed_waits_for_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_table, "SPAN", 4)
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    network.stop(1)
    streams = [network.issue(0, OpenStream(NodeId(1), "t")) for _ in range(5)]
    for stream in streams:
        network.issue_as(source, stream, PutSegment(1, packed(b"x")))
    peer = source.node.parts.outbound.table.peers[NodeId(1)]
    assert len(peer.waiting) == 2
    for command in (Withdraw(1), CloseStream()):
        network.issue_as(source, streams[-1], command)
    assert len(peer.waiting) == 1


def test_segment_of_a_closed_stream_can_be_withdrawn_and_no_other_is_meant() -> None:
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    moves = Moves()
    network.watchers.append(moves)
    network.issue(1, Subscribe("t", 100))
    network.issue(1, Subscribe("u", 100))
    network.stop(1)
    closed, other = (network.issue(0, OpenStream(NodeId(1), topic)) for topic in ("t", "u"))
    for request in (closed, other):
        network.issue_as(source, request, PutSegment(1, packed(b"x")))
    for command in (CloseStream(), Withdraw(1)):
        network.issue_as(source, closed, command)
    doubted = [(moved.request, moved.doubted) for moved in moves.moved if moved.doubted]
    assert doubted == [(closed, (1,))]
    network.resume(1)
    network.run(0.5)
    assert [end.request for end in moves.ends] == [closed]
    network.issue_as(source, closed, Withdraw(1))
    assert [moved.doubted for moved in moves.moved if moved.request == other] == [()]


def test_streams_that_their_programs_abandoned_count_until_what_was_put_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each holds a segment: who opens, puts and abandons again and again fills no memory."""
    monkeypatch.setattr(outbound, "STREAMS_MAX", 3)
    network = Network(2)
    settle(network)
    source = network.hosts[NodeId(0)]
    (end,) = ends_between(source, NodeId(1))
    network._step(source, Backlog(end.link, 300 * 1024))

    def open_error() -> str | None:
        watcher = Opened()
        network.watchers.append(watcher)
        opened.append(network.issue(0, OpenStream(NodeId(1), "t", 3)))
        network.watchers.remove(watcher)
        (reply,) = watcher.replies
        return None if reply.error is None else str(reply.error)

    opened: list[int] = []
    for _ in range(3):
        assert open_error() is None
        network.issue_as(source, opened[-1], PutSegment(1, packed(b"x")))
        network.issue_as(source, opened[-1], CloseStream(abandon=True))
    table = source.node.parts.outbound.table
    assert (len(table.owned), len(table.abandoned)) == (0, 3)
    assert open_error() == "more than 3 streams of all programs at a time"
    network.run(ABANDONED_NS / S + 5)
    assert not table.abandoned
    assert open_error() is None


@pytest.mark.parametrize(
    "pieces",
    [
        [(10, b"0123456789a", True)],
        [(10, b"0123456789", False)],
        [(10, b"012", True)],
        [(10, b"01234", False), (11, b"56789a", True)],
        [(10, b"01234", False), (10, b"56", True)],
        [(10, b"01234", False), (10, b"56789a", True)],
    ],
    ids=["too long", "no last", "too short", "another size", "short in all", "long in all"],
)
def test_stream_ends_with_pieces_that_are_not_as_long_as_their_message(
    pieces: list[tuple[int, bytes, bool]],
) -> None:
    network = Network(2)
    settle(network)
    network.issue(1, Subscribe("t", 100, takes_long=True))
    source, stream = network.hosts[NodeId(0)], network.issue(0, OpenStream(NodeId(1), "t", 2))
    moves = Moves()
    network.watchers.append(moves)
    for at, (size, body, is_last) in enumerate(pieces):
        put = PutSegment(0, body, size=size, first=at == 0, last=is_last)
        network.issue_as(source, stream, put)
    (end,) = moves.ends
    assert str(end.error) == "pieces that are not as long as their message"
