"""A stream into a topic that is full: it goes on when there is room, no copy is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bmgd.core.commands import Consumed, OpenStream, PutSegment, Subscribe
from bmgd.core.effects import Deliver, Effect, StreamMoved
from bmgd.core.events import Event
from bmgd.sim import Network
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import NodeId
from bmgd.wire.messages import RoutedMessage
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Segment
from tests.unit.core.clusters import S, settle
from tests.unit.segments import payloads_of

HELD = 3
"""Messages that a topic holds for a reader that has not come."""


class FullTopic(Watcher):
    """A program at 0 that puts segments of a message each, for a topic of 1 that nobody reads yet."""

    def __init__(self) -> None:
        conditions = Conditions(delay_min_us=5_000, delay_max_us=5_000)
        self.network = Network(2, conditions=conditions, configured={"queue_messages": HELD})
        settle(self.network)
        self.source, self.reader = (self.network.hosts[NodeId(n)] for n in (0, 1))
        self.delivered: list[bytes] = []
        self.moved: list[StreamMoved] = []
        self._consumed = 0
        self.network.watchers.append(self)
        self.stream = self.network.issue(0, OpenStream(NodeId(1), "t", 2))

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self.delivered += payloads_of(effect)
            elif isinstance(effect, StreamMoved):
                self.moved.append(effect)

    def put(self, *names: str, timeout_s: float = 30.0) -> None:
        """Put messages, 1 ms apart."""
        for name in names:
            segment = PutSegment(1, packed(name.encode()), timeout_ns=int(timeout_s * S))
            self.network.issue_as(self.source, self.stream, segment)
            self.network.run(0.001)

    def read(self) -> None:
        """A reader comes."""
        self._subscription = self.network.issue(1, Subscribe("t", 1000))

    def consume(self, seconds: float) -> None:
        """Read on for some time."""
        end_ns = self.network.now_ns + int(seconds * S)
        while self.network.now_ns < end_ns:
            self.network.run(0.01)
            if count := len(self.delivered) - self._consumed:
                self.network.issue_as(self.reader, self._subscription, Consumed(count))
                self._consumed += count

    def lose(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first copy of a segment goes nowhere, as with a relay that dies."""
        forwarding = self.source.node.parts.forwarding
        originate, lost = forwarding.originate, [number]

        def loses(message: RoutedMessage) -> bool:
            if isinstance(message, Segment) and message.route.sequence & 0xFFFF_FFFF in lost:
                lost.clear()
                return True
            return originate(message)

        monkeypatch.setattr(type(forwarding), "originate", lambda _, message: loses(message))


@pytest.fixture
def full() -> FullTopic:
    return FullTopic()


def names(first: int, last: int) -> list[str]:
    return [f"{number}" for number in range(first, last + 1)]


def test_stream_whose_segment_behind_a_gap_was_refused_goes_on_when_there_is_room(
    full: FullTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.lose(3, monkeypatch)
    full.put("1")
    full.network.run(0.05)
    full.put(*names(2, 60))
    full.network.run(0.5)
    full.read()
    full.consume(2)
    assert full.delivered == [name.encode() for name in names(1, 60)]


def test_source_that_was_refused_hears_at_once_of_room(full: FullTopic) -> None:
    full.put("1")
    full.network.run(0.05)
    full.put(*names(2, 8))
    full.network.run(10)
    full.read()
    full.consume(0.1)
    assert full.delivered == [name.encode() for name in names(1, 8)]


def test_copy_underway_of_a_segment_that_was_refused_is_in_doubt_and_never_taken_twice(
    full: FullTopic,
) -> None:
    full.put("1")
    full.network.run(0.05)
    full.put("2", "3")
    full.put("4", timeout_s=0.385)
    end_ns = full.network.now_ns + int(0.384 * S)
    full.put("5", "6", "7")
    full.network.run((end_ns - full.network.now_ns) / S - 0.1)
    full.read()
    full.consume(3)
    assert full.delivered == [name.encode() for name in names(1, 7)]
    assert [moved.withdrawn for moved in full.moved if moved.withdrawn] == []
