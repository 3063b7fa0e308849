"""Streams between two nodes: what an end acknowledges, and what the other sends on that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.core.streams import inbound
from bmgd.core.streams.stream_in import StreamIn
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_of, segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.bounds import GAPS_MAX
from bmgd.wire.segments import cost_of
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag, SharedSegment

SPAN = 4096

StreamKey = tuple[NodeId, Incarnation, NodeId, Incarnation, int]
"""The place and life of one end, the other end and its life, and the stream's id."""


def stream_key(journal: Journal, peer: NodeId, life: Incarnation, sequence: int) -> StreamKey:
    """The name of a stream whose other end is this life of a peer."""
    return journal.place, journal.incarnation, peer, life, sequence >> 32


@dataclass(slots=True)
class _Arrived:
    """Which numbers of a stream have come.

    Args:
        whole: all up to this one.
        beyond: the others.
        copies: how often each came that may still be refused, less its refusals.
    """

    whole: int = 0
    beyond: set[int] = field(default_factory=set)
    copies: dict[int, int] = field(default_factory=dict)

    def add(self, number: int) -> None:
        """One has come."""
        self.copies[number] = self.copies.get(number, 0) + 1
        if number > self.whole:
            self.beyond.add(number)
        while self.whole + 1 in self.beyond:
            self.whole += 1
            self.beyond.remove(self.whole)

    def missing(self, first: int, last: int) -> list[int]:
        """Those of a range that have not come."""
        first = max(first, self.whole + 1)
        return [number for number in range(first, last + 1) if number not in self.beyond]

    def refuse(self, number: int) -> bool:
        """A copy is told to be refused; whether one was left that had come."""
        self.copies = {known: count for known, count in self.copies.items() if known >= number}
        self.copies[number] = self.copies.get(number, 0) - 1
        return self.copies[number] >= 0


_StreamName = tuple[NodeId, Incarnation, NodeId, int]
"""The place and life of one end, the other end, and the stream's id, which lives use again."""


@dataclass(slots=True)
class _Passed:
    """How far a stream is, and what all before that costs.

    Args:
        costs: of what came, and was not passed yet.
    """

    next: int = 1
    cost: int = 0
    costs: dict[int, int] = field(default_factory=dict)


class AcksAreHonest(Checker):
    """An acknowledgement says what came, to its source's life, and with the own tag.

    It names as gaps all runs that are kept beyond the next segment, and nothing else, and tells no more
    credit than the node counts. It refuses no segment more often than a copy of it came, and no new
    stream while there is room for one. Credit is counted from the cost of all that was taken.
    """

    name: ClassVar[str] = "acks-are-honest"
    events: ClassVar[Kinds] = (Segment, SharedSegment)
    effects: ClassVar[Kinds] = (SegmentAck,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._arrived: dict[_StreamName, dict[Incarnation, _Arrived]] = {}
        self._passed: dict[NodeId, dict[StreamKey, _Passed]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._passed[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for segment in segments_that_came(event):
            route = segment.route
            if route.destination == journal.host.id:
                self._check_taken(journal, segment)
            name = self._name(journal, route.source, route.sequence)
            lives = self._arrived.setdefault(name, {})
            lives.setdefault(route.source_incarnation, _Arrived()).add(route.sequence & 0xFFFF_FFFF)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, SegmentAck):
                self._check(journal, event, effect.message)

    @staticmethod
    def _name(journal: Journal, peer: NodeId, sequence: int) -> _StreamName:
        return journal.place, journal.incarnation, peer, sequence >> 32

    def _check(self, journal: Journal, event: Event, ack: SegmentAck) -> None:
        route = ack.route
        came = event.message if isinstance(event, Received) else None
        if route.source != journal.host.id or isinstance(came, SegmentAck):
            # Another's, or its own on a search that came by here.
            return
        following = route.sequence & 0xFFFF_FFFF
        if ack.tag != incarnation_tag(journal.incarnation):
            self.violate(journal, "acknowledges with a tag that is not its own")
        lives = self._arrived.get(self._name(journal, route.destination, route.sequence), {})
        named = [life for life in lives if incarnation_tag(life) == route.destination_tag]
        if not named:
            self.violate(
                journal, f"acknowledges to a life of {route.destination} that sent nothing"
            )
            return
        arrived = lives[named[-1]]
        missing = arrived.missing(1, following - 1)
        if missing:
            self.violate(journal, f"acknowledges {missing[:4]} of {route.destination}, not come")
        if ack.full and not arrived.refuse(following):
            self.violate(
                journal, f"refuses {following} of {route.destination} more often than it came"
            )
        for first, last in ack.gaps:
            if arrived.missing(first, last):
                self.violate(journal, f"says to have {first} to {last}, which have not come")
        stream = journal.inside.stream_in(route.destination, route.sequence >> 32)
        if ack.full and stream is None:
            self._check_refused(journal, event, ack)
        if stream is None or stream.closed or stream.next != following:
            # It went on, or ended, in the same step.
            return
        if incarnation_tag(stream.incarnation) == route.destination_tag:
            self._check_told(journal, stream, ack)

    def _check_taken(self, journal: Journal, segment: Segment) -> None:
        """What a stream is said to have taken costs as much as what it passed."""
        route = segment.route
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return
        key = stream_key(journal, route.source, route.source_incarnation, route.sequence)
        passed = self._passed[journal.place].setdefault(key, _Passed())
        passed.costs[route.sequence & 0xFFFF_FFFF] = cost_of(segment.body)
        stream = journal.inside.stream_in(route.source, route.sequence >> 32)
        if stream is None or stream.closed or stream.incarnation != route.source_incarnation:
            return
        while passed.next < stream.next and passed.next in passed.costs:
            passed.cost += passed.costs.pop(passed.next)
            passed.next += 1
        if passed.next == stream.next:
            taken = passed.cost + (passed.costs.get(stream.next, 0) if stream.awaited else 0)
            if stream.taken != taken:
                text = f"has taken {taken} bytes of {route.source}, and counts {stream.taken}"
                self.violate(journal, text)

    def _check_refused(self, journal: Journal, event: Event, ack: SegmentAck) -> None:
        """A stream that is not known is refused where there is no room for it."""
        for segment in segments_that_came(event):
            if segment.route.sequence >> 32 == ack.route.sequence >> 32:
                source, replaced = segment.route.source, segment.replaces
                is_known = not replaced or journal.inside.stream_in(source, replaced) is not None
                room = inbound.STREAMS_MAX - len(journal.inside.streams_in())
                if room > (0 if is_known else 1):
                    self.violate(journal, f"refuses a stream of {source}, with room for {room}")

    def _check_told(self, journal: Journal, stream: StreamIn, ack: SegmentAck) -> None:
        """What is told of a stream is what is held of it."""
        runs = tuple(_runs(sorted({*stream.kept, *([stream.next] if stream.awaited else ())})))
        if ack.gaps != runs[:GAPS_MAX]:
            self.violate(journal, f"says to have {ack.gaps}, and keeps {runs}")
        if ack.credit > stream.credit and stream.key in journal.inside.inbound.granting.active:
            self.violate(journal, f"tells a credit of {ack.credit}, and counts {stream.credit}")


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Numbers in ascending order, as runs without a gap."""
    run: tuple[int, int] | None = None
    for number in numbers:
        if run is not None and number == run[1] + 1:
            run = run[0], number
            continue
        if run is not None:
            yield run
        run = number, number
    if run is not None:
        yield run


class SourcesKeepTheirCredit(Checker):
    """Beyond one segment nothing is sent above the credit told, and none before the first answer.

    What is sent names a floor above no stream that waits for an answer, and is within the span. What
    tells that no end of a long message comes follows the beginning of one.
    """

    name: ClassVar[str] = "sources-keep-their-credit"
    events: ClassVar[Kinds] = (SegmentAck,)
    effects: ClassVar[Kinds] = (Segment, SharedSegment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told: dict[StreamKey, tuple[int, int]] = {}
        self._sent: dict[StreamKey, tuple[int, int]] = {}
        self._unfinished: dict[StreamKey, bool] = {}
        """Whether the last segment of a stream that has its first id is a piece that is not the last."""

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received) and isinstance(event.message, SegmentAck):
            ack = event.message
            key = stream_key(journal, ack.route.source, Incarnation(0), ack.route.sequence)
            credit, following = self._told.get(key, (0, 1))
            number = ack.route.sequence & 0xFFFF_FFFF
            self._told[key] = max(credit, ack.credit), max(following, number)
        for effect in effects:
            for segment in segments_of(effect.message) if isinstance(effect, Send) else ():
                self._check(journal, segment)

    def _check(self, journal: Journal, segment: Segment) -> None:
        route = segment.route
        if (route.source, route.source_incarnation) != (journal.host.id, journal.incarnation):
            return
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return
        number = route.sequence & 0xFFFF_FFFF
        key = stream_key(journal, route.destination, Incarnation(0), route.sequence)
        highest, cost = self._sent.get(key, (0, 0))
        credit, following = self._told.get(key, (0, 1))
        if number > highest:
            cost += cost_of(segment.body)
            self._sent[key] = number, cost
            self._check_mark(journal, key, segment)
            if number > highest + 1:
                self.violate(journal, f"sends {number} to {route.destination} after {highest}")
            if number > following and cost > credit:
                self.violate(journal, f"sends {cost} bytes on a credit of {credit}")
        self._check_floor(journal, segment)

    def _check_mark(self, journal: Journal, key: StreamKey, segment: Segment) -> None:
        """What may have begun under another id is not looked at."""
        if segment.route.sequence & 0xFFFF_FFFF == 1 and not segment.replaces:
            self._unfinished[key] = False
        if key not in self._unfinished:
            return
        is_mark = not (segment.body or segment.flags & SegmentFlag.CLOSE)
        if is_mark and not self._unfinished[key]:
            text = f"ends a long message to {segment.route.destination}, of which nothing was sent"
            self.violate(journal, text)
        self._unfinished[key] = segment.size > 0 and not segment.flags & SegmentFlag.LAST

    def _check_floor(self, journal: Journal, segment: Segment) -> None:
        route, stream_id = segment.route, segment.route.sequence >> 32
        for open_id, stream in journal.inside.open_ids(route.destination).items():
            if stream.underway and open_id < segment.floor:
                self.violate(journal, f"waits on stream {open_id}, its floor is {segment.floor}")
        if stream_id >= segment.floor + SPAN:
            self.violate(journal, f"stream {stream_id} is beyond the span of {segment.floor}")
