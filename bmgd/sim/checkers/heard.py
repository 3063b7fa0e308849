"""What a source makes of answers to its streams: what is there, what waits, how long answers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.core.streams.stream_out import StreamOut
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_of
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag, SharedSegment

_Name = tuple[Incarnation, NodeId, int]
"""The life of a source, the destination, and the id of the stream."""


@dataclass(slots=True)
class _Trips:
    """How long the answers to a stream took, at least and at most, whatever its id was."""

    shortest_ns: int
    longest_ns: int


@dataclass(slots=True)
class _Sources:
    """What one process has sent.

    Args:
        sent_ns: of each stream with an id, when each segment was sent first and last.
        trips: by the streams' keys.
    """

    sent_ns: dict[_Name, dict[int, tuple[int, int]]] = field(default_factory=dict)
    trips: dict[tuple[Incarnation, int], _Trips] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """A stream whose destination tells of it now, as it was before.

    Args:
        underway: the numbers of its segments that are not acknowledged.
    """

    stream: StreamOut
    underway: tuple[int, ...]
    blocked: bool


class AnswersAreHeeded(Checker):
    """A source holds those segments for being there that the last answer names, and no others.

    An answer that there is room ends its waiting for that, and whatever goes on begins to be asked for
    at the shortest pause. The time that it holds an answer to take is one that answers took.
    """

    name: ClassVar[str] = "answers-are-heeded"
    events: ClassVar[Kinds] = (SegmentAck,)
    before_events: ClassVar[Kinds] = (SegmentAck,)
    effects: ClassVar[Kinds] = (Segment, SharedSegment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._sources: dict[NodeId, _Sources] = {}
        self._asked: _Asked | None = None

    def on_boot(self, journal: Journal) -> None:
        self._sources[journal.place] = _Sources()

    def before(self, journal: Journal, event: Event) -> None:
        self._asked = None
        assert isinstance(event, Received)
        ack = event.message
        if not isinstance(ack, SegmentAck) or ack.route.destination != journal.host.id:
            return
        stream = journal.inside.open_ids(ack.route.source).get(ack.route.sequence >> 32)
        if stream is not None:
            self._asked = _Asked(stream, tuple(stream.underway), stream.blocked)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and isinstance(event, Received):
            assert isinstance(event.message, SegmentAck)
            self._on_ack(journal, asked, event.message)
        for effect in effects:
            for segment in segments_of(effect.message) if isinstance(effect, Send) else ():
                self._note_sent(journal, segment)

    def _note_sent(self, journal: Journal, segment: Segment) -> None:
        route = segment.route
        if (route.source, route.source_incarnation) != (journal.host.id, journal.incarnation):
            return
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return
        name = journal.incarnation, route.destination, route.sequence >> 32
        sent = self._sources[journal.place].sent_ns.setdefault(name, {})
        number = route.sequence & 0xFFFF_FFFF
        first_ns, _ = sent.get(number, (journal.now_ns, 0))
        sent[number] = first_ns, journal.now_ns

    def _on_ack(self, journal: Journal, asked: _Asked, ack: SegmentAck) -> None:
        stream, route = asked.stream, ack.route
        following = route.sequence & 0xFFFF_FFFF
        done = [number for number in asked.underway if number < following]
        # Also with an answer that ends the stream's id: the stream goes on with another one.
        trips = self._note_trips(journal, stream, route.sequence >> 32, done)
        is_open = journal.inside.open_ids(route.source).get(route.sequence >> 32) is stream
        if not is_open or not stream.answered or stream.tag != ack.tag:
            return
        if not journal.inside.believes(route.source, route.source_incarnation):
            # It was not taken for an answer: of a former life.
            return
        if any(number in stream.underway for number in done):
            # Nor is one of another life for which the stream is, or of what was never sent.
            return
        self._check_trips(journal, stream, trips)
        if ack.full or following < min(asked.underway, default=following + 1):
            # Overtaken by a later one, or a refusal.
            return
        name = f"stream {route.sequence >> 32} to {route.source}"
        if stream.blocked:
            self.violate(journal, f"waits for room with {name}, and was told of it")
        if (asked.blocked or done) and stream.backoff:
            self.violate(journal, f"waits {stream.backoff} times twice as long for {name}")
        self._check_held(journal, stream, ack, name)

    def _check_held(self, journal: Journal, stream: StreamOut, ack: SegmentAck, name: str) -> None:
        named = {n for first, last in ack.gaps for n in range(first, last + 1)}
        there = {number for number, sending in stream.underway.items() if sending.held}
        sent_now = {
            number
            for number, sending in stream.underway.items()
            if sending.sent_ns == journal.now_ns
        }
        wrong = (there ^ (named & stream.underway.keys())) - sent_now
        if wrong:
            self.violate(journal, f"{name} has {ack.gaps} there, and it holds {sorted(there)} so")

    def _note_trips(
        self, journal: Journal, stream: StreamOut, stream_id: int, done: Sequence[int]
    ) -> _Trips | None:
        sources, life = self._sources[journal.place], journal.incarnation
        sent = sources.sent_ns.get((life, stream.destination, stream_id), {})
        trips = sources.trips.get((life, stream.key))
        for number in done:
            first_ns, last_ns = sent.pop(number, (0, journal.now_ns))
            shortest_ns, longest_ns = journal.now_ns - last_ns, journal.now_ns - first_ns
            if trips is None:
                trips = sources.trips[life, stream.key] = _Trips(shortest_ns, longest_ns)
            trips.shortest_ns = min(trips.shortest_ns, shortest_ns)
            trips.longest_ns = max(trips.longest_ns, longest_ns)
        return trips

    def _check_trips(self, journal: Journal, stream: StreamOut, trips: _Trips | None) -> None:
        """What a stream holds an answer to take is within what its answers took."""
        if trips is None or not stream.srtt_ns:
            return
        if not trips.shortest_ns <= stream.srtt_ns <= trips.longest_ns:
            text = f"holds an answer of {stream.destination} to take {stream.srtt_ns / 1e6:g} ms"
            self.violate(journal, f"{text}, it never did")
