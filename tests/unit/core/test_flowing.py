"""Acknowledgements of a stream that flows: one for several long segments, none that is waited for."""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.core.commands import Consumed, OpenStream, PutSegment, Subscribe
from bmgd.core.effects import Deliver, Effect, Send, StreamMoved
from bmgd.core.events import Event
from bmgd.core.streams.acknowledging import ACK_PAUSE_NS
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import NodeId
from bmgd.wire.segments import OVERHEAD_BYTES, packed
from bmgd.wire.stream_messages import Segment, SegmentAck
from tests.unit.core.clusters import settle

LONG, SHORT = packed(bytes(60_000)), packed(b"x")


class Flow(Watcher):
    """A program at 0 that puts segments as fast as its credit allows, and one at 1 that takes them."""

    def __init__(self, size: int = 2) -> None:
        self.network = Network(size)
        settle(self.network)
        self.source, self.reader = (self.network.hosts[NodeId(n)] for n in (0, 1))
        self.read = self.network.issue(1, Subscribe("t", 1000, 8 << 20, takes_long=True))
        self.stream = self.network.issue(0, OpenStream(NodeId(1), "t", 2))
        result = self.source.replies[self.stream].result
        assert isinstance(result, dict)
        self.credit, self.cost = int(result["credit"]), 0
        self.put = self.taken = self.acks = self.sent = 0
        self.network.watchers.append(self)

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.acks += isinstance(effect.message, SegmentAck)
                self.sent += isinstance(effect.message, Segment)
            elif isinstance(effect, Deliver):
                self.taken += 1
            elif isinstance(effect, StreamMoved):
                self.credit = effect.credit

    def send(self, count: int, body: bytes) -> float:
        """Put so many segments, and take them; how many seconds that took."""
        began_ns, wanted, consumed = self.network.now_ns, self.taken + count, self.taken
        left = count
        while self.taken < wanted:
            # One in a turn: farther apart than acknowledgements are gathered anyway.
            if left and self.cost + len(body) + OVERHEAD_BYTES <= self.credit:
                self.network.issue_as(self.source, self.stream, PutSegment(1, body))
                self.cost += len(body) + OVERHEAD_BYTES
                left -= 1
            self.network.run(0.0006)
            if self.taken > consumed:
                self.network.issue_as(self.reader, self.read, Consumed(self.taken - consumed))
                consumed = self.taken
        return (self.network.now_ns - began_ns) / 1e9

    def is_confirmed(self) -> bool:
        """Whether nothing is underway."""
        return self.source.node.parts.outbound.underway == 0


def test_a_stream_that_flows_is_acknowledged_once_for_several_segments() -> None:
    flow = Flow()
    flow.send(40, LONG)
    flow.acks = 0
    flow.send(400, LONG)
    assert flow.acks <= 400 / 3
    assert flow.sent == 440, "nothing was sent again"


def test_the_last_segments_of_a_flow_are_acknowledged_a_moment_later() -> None:
    flow = Flow()
    flow.send(41, LONG)
    flow.network.run(0.01)
    assert flow.is_confirmed()


def test_lone_segments_are_acknowledged_at_once_behind_a_flow_too() -> None:
    for body in (LONG, SHORT):
        flow = Flow()
        flow.send(100, LONG)
        flow.network.run(0.1)
        for _ in range(5):
            flow.send(1, body)
            flow.network.run(0.002)
            assert flow.is_confirmed()
            flow.network.run(0.1)


def put_until_acknowledged(size: int) -> tuple[Flow, int]:
    """Put pieces of a long message until one is acknowledged; how many bytes that took."""
    flow = Flow()
    flow.send(40, LONG)
    piece, flow.acks, put_bytes = bytes(60_000), 0, 0
    while not flow.acks:
        put = PutSegment(0, piece, size, first=not put_bytes)
        flow.network.issue_as(flow.source, flow.stream, put)
        put_bytes += len(piece)
        flow.network.run(0.0006)
    return flow, put_bytes


def test_the_end_of_a_long_message_is_acknowledged_at_once_behind_a_flow_too() -> None:
    """Its reader has it, and nothing follows until that has consumed it."""
    _, put_bytes = put_until_acknowledged(10**6)
    size = put_bytes + 60_000
    flow, _ = put_until_acknowledged(size)
    flow.acks = 0
    flow.network.issue_as(flow.source, flow.stream, PutSegment(0, bytes(60_000), size, last=True))
    flow.network.run(0.0015)
    assert flow.acks == 1


def test_a_source_with_a_narrow_window_waits_once_for_each_flow() -> None:
    """After losses its window may hold less than what is acknowledged at once."""
    wide, narrow = Flow(), Flow()
    for flow in (wide, narrow):
        flow.send(40, LONG)
    (stream,) = narrow.source.node.parts.outbound.table.streams.values()
    stream.window = stream.threshold = 64 * 1024
    before_s = wide.send(100, LONG)
    assert narrow.send(100, LONG) < before_s + 10 * 0.005 + 100 * 0.001


def test_a_flow_whose_link_ends_goes_on_and_loses_nothing() -> None:
    flow = Flow(size=8)
    flow.send(40, LONG)
    taken = flow.taken
    for _ in range(4):
        flow.network.issue_as(flow.source, flow.stream, PutSegment(1, LONG))
        flow.cost += len(LONG) + OVERHEAD_BYTES
    flow.network.cut(0, 1)
    flow.network.run(20)
    assert flow.taken == taken + 4
    flow.network.issue_as(flow.reader, flow.read, Consumed(4))
    flow.send(100, LONG)
    flow.network.run(0.1)
    assert flow.is_confirmed()


def put_apart(flow: Flow, count: int, pause_s: float) -> int:
    """Put so many short segments, one behind the other; how many acknowledgements were sent for them."""
    flow.acks = 0
    for _ in range(count):
        flow.network.issue_as(flow.source, flow.stream, PutSegment(1, SHORT))
        flow.network.run(pause_s)
    return flow.acks


def test_a_source_that_waits_for_each_acknowledgement_never_waits_for_a_pause() -> None:
    flow = Flow()
    flow.send(1, SHORT)
    longest_ns = 0
    for _ in range(20):
        began_ns = flow.network.now_ns
        flow.network.issue_as(flow.source, flow.stream, PutSegment(1, SHORT))
        while not flow.is_confirmed():
            flow.network.run(0.00001)
        longest_ns = max(longest_ns, flow.network.now_ns - began_ns)
        assert longest_ns < ACK_PAUSE_NS


def test_segments_that_come_close_together_are_acknowledged_by_one() -> None:
    flow = Flow()
    flow.send(1, SHORT)
    flow.network.run(0.01)
    # 50 us apart 10 come within the pause; 200 us apart, right behind those, two or three.
    assert put_apart(flow, 100, 0.00005) <= 100 / 8
    assert put_apart(flow, 100, 0.0002) <= 100 / 2 + 1
    flow.network.run(0.01)
    assert flow.is_confirmed()
    # Such a source might wait for each, for all that is known here.
    assert put_apart(flow, 100, 0.0002) >= 99


def test_a_source_that_waits_again_after_it_did_not_is_gathered_once() -> None:
    flow = Flow()
    put_apart(flow, 20, 0.00005)
    for number in range(5):
        began_ns = flow.network.now_ns
        flow.network.issue_as(flow.source, flow.stream, PutSegment(1, SHORT))
        while not flow.is_confirmed():
            flow.network.run(0.00001)
        assert number < 2 or flow.network.now_ns - began_ns < ACK_PAUSE_NS
