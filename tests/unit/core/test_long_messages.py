"""Long messages over links: what their reader hears when their source does not finish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bmgd.core.commands import OpenStream, PutSegment, Subscribe, Withdraw
from bmgd.core.effects import Effect, StreamEnded, StreamMoved
from bmgd.core.events import Event, Received
from bmgd.errors import UnreachableError
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.bounds import SEGMENT_BYTES_MAX
from bmgd.wire.routes import Route
from bmgd.wire.segments import OVERHEAD_BYTES
from bmgd.wire.stream_messages import SegmentFlag
from tests.unit.core.clusters import settle
from tests.unit.segments import segment


class _Ends(Watcher):
    def __init__(self, seen: list[StreamEnded]) -> None:
        self._seen = seen

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        self._seen += [effect for effect in effects if isinstance(effect, StreamEnded)]


class _Moves(Watcher):
    """How far a program may put, as it was told last."""

    def __init__(self, credit: int) -> None:
        self.credit = credit

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StreamMoved):
                self.credit = effect.credit


def begun(network: Network, source: int) -> int:
    """A long message from a node to node 1 begins; returns the request of its stream."""
    stream = network.issue(source, OpenStream(NodeId(1), "t"))
    host = network.hosts[NodeId(source)]
    network.issue_as(host, stream, PutSegment(0, b"first", 15, first=True))
    network.run(0.2)
    return stream


def test_long_message_whose_source_dies_is_aborted_when_that_is_known() -> None:
    network = Network(5)
    settle(network)
    network.issue(1, Subscribe("t", 10, 1 << 20, takes_long=True))
    begun(network, 4)
    there = network.hosts[NodeId(1)]
    assert [(deliver.body, deliver.aborted) for deliver in there.delivered] == [(b"first", "")]
    network.kill(4)
    network.run(1)
    assert [deliver.aborted for deliver in there.delivered] == ["", "its source died"]
    assert not there.node.parts.topics.longs.by_stream


def test_long_message_of_a_source_that_was_held_dead_fails_at_its_source() -> None:
    network = Network(5)
    settle(network)
    network.issue(1, Subscribe("t", 10, 1 << 20, takes_long=True))
    stream = begun(network, 4)
    host, there = network.hosts[NodeId(4)], network.hosts[NodeId(1)]
    network.stop(4)
    network.run(5)
    assert [deliver.aborted for deliver in there.delivered] == ["", "its source died"]
    network.resume(4)
    network.run(5)
    ended: list[StreamEnded] = []
    network.watchers.append(_Ends(ended))
    network.issue_as(host, stream, PutSegment(0, b" rest more", 15, last=True))
    network.run(2)
    assert len(there.delivered) == 2
    assert [(end.request, type(end.error)) for end in ended] == [(stream, UnreachableError)]


def test_long_message_that_begins_when_its_source_is_held_dead_is_not_waited_for() -> None:
    network = Network(5)
    settle(network)
    network.issue(1, Subscribe("t", 10, 1 << 20, takes_long=True))
    there = network.hosts[NodeId(1)]
    network.kill(4)
    settle(network, [4])
    (link,) = (link.id for link in there.node.parts.links.by_peer[NodeId(0)])
    dead = network.hosts[NodeId(4)].node.incarnation
    tag = incarnation_tag(there.node.incarnation)
    late = segment(Route(NodeId(1), NodeId(4), dead, tag, 1 << 32 | 1, 9), flags=SegmentFlag.FIRST)
    network._step(there, Received(link, replace(late, body=b"first", size=15)))
    assert not there.delivered
    assert not there.node.parts.topics.longs.by_stream


def test_long_message_that_is_withdrawn_takes_no_credit_for_its_mark() -> None:
    # Seed 67 of the hours, shortened: the mark cost 256 bytes, of which the program did not know.
    network = Network(2)
    settle(network)
    stream = network.issue(0, OpenStream(NodeId(1), "t", 2))
    source = network.hosts[NodeId(0)]
    moves, ended = _Moves(int(source.replies[stream].result["credit"])), list[StreamEnded]()
    network.watchers += [moves, _Ends(ended)]
    put = 0
    for first in (True, False):
        # The first piece is underway, the second waits for what the destination grants.
        network.issue_as(source, stream, PutSegment(0, bytes(9_000), 100_000, first=first))
        put += 9_000 + OVERHEAD_BYTES
    network.issue_as(source, stream, Withdraw(2))
    (out,) = source.node.parts.outbound.table.streams.values()
    assert [sending.is_mark for sending in out.queue] == [True]
    while put < moves.credit:
        left = moves.credit - put
        cost = left if left <= SEGMENT_BYTES_MAX else min(SEGMENT_BYTES_MAX, left // 2)
        network.issue_as(source, stream, PutSegment(1, bytes(cost - OVERHEAD_BYTES), 0))
        put += cost
    assert put == moves.credit
    assert not out.is_idle
    assert ended == []
