"""How much a node sends at once, and what of it waits for a link that has much to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Deliver, Effect, Send
from bmgd.core.events import Backlog, Event
from bmgd.core.streams import held_bulk
from bmgd.core.streams.stream_out import StreamOut
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.sim.checkers.streams import StreamKey, stream_key
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.routes import BULK_PRIORITY
from bmgd.wire.segments import OVERHEAD_BYTES
from bmgd.wire.stream_messages import Segment, SegmentAck

SENT_BY_EVENT_MAX = 64
"""A burst of one stream, what a search or an unsent frame brings back, and acknowledgements."""
SENT_MAX = 640
"""Deadlines, pieces of work and acknowledgements of one step, and some room."""
HANDED_MAX = 1024


class StepsOfStreamsAreBounded(Checker):
    """One step sends and hands out a bounded number of segments, whatever waits."""

    name: ClassVar[str] = "steps-of-streams-are-bounded"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Segment, SegmentAck, Deliver)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        sent = handed = 0
        for effect in effects:
            if isinstance(effect, Deliver):
                handed += 1
            elif isinstance(effect, Send) and isinstance(effect.message, Segment | SegmentAck):
                sent += 1
        most = SENT_MAX if is_deadline(event) else SENT_BY_EVENT_MAX
        if sent > most:
            self.violate(journal, f"sends {sent} segments in a step, at most {most}")
        if handed > HANDED_MAX:
            self.violate(journal, f"hands out {handed} segments in a step, at most {HANDED_MAX}")


class OwnBulkWaits(Checker):
    """A node sends nothing new of a stream of the bulk class over a link that has much to write, but for
    a byte for seven that its other streams send over it meanwhile. When the link has little to write
    again, what waited for it has its turn; the first that waits when enough was sent meanwhile.
    """

    name: ClassVar[str] = "own-bulk-waits"
    events: ClassVar[Kinds] = (Backlog,)
    before_events: ClassVar[Kinds] = (Backlog,)
    effects: ClassVar[Kinds] = (Segment,)

    SHARE: ClassVar[int] = 7

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._passed: dict[NodeId, dict[LinkId, int]] = {}
        """Of each link that has much to write: what went past the bulk that waits for it, in bytes."""
        self._highest: dict[StreamKey, int] = {}
        self._waiting: list[StreamOut] = []
        """The streams that wait for the link that an event is of."""
        self._first: dict[tuple[NodeId, LinkId], StreamOut] = {}
        """The stream that waits first for each link, after the last step that was looked at."""

    def on_boot(self, journal: Journal) -> None:
        self._passed[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._waiting = []
        if isinstance(event, Backlog):
            held = journal.inside.outbound.sending.held._links.get(event.link)
            self._waiting = [] if held is None else list(held.streams.values())

    def _check_turns(self, journal: Journal, link: LinkId) -> None:
        sending = journal.inside.outbound.sending
        for stream in self._waiting:
            is_there = journal.inside.outbound.table.streams.get(stream.key) is stream
            if is_there and stream.queue and stream.key not in sending._ready:
                text = f"a stream to {stream.destination} does not go on over link {link}"
                self.violate(journal, f"{text}, which has little to write")

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        passed = self._passed[journal.place]
        if isinstance(event, Backlog) and event.backlog_bytes > held_bulk.BACKLOG_LOW_BYTES:
            passed.setdefault(event.link, 0)
        elif isinstance(event, Backlog):
            passed.pop(event.link, None)
            self._check_turns(journal, event.link)
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, Segment):
                continue
            route = effect.message.route
            if route.source == journal.host.id and route.sequence:
                self._check(journal, effect.link, effect.message)
        self._check_first(journal, effects)

    def _check_first(self, journal: Journal, effects: Sequence[Effect]) -> None:
        """Who waits first does so until enough has passed it."""
        passed_by = {
            effect.link
            for effect in effects
            if isinstance(effect, Send)
            and isinstance(effect.message, Segment)
            and effect.message.route.source == journal.host.id
            and effect.message.route.priority != BULK_PRIORITY
        }
        for link, held in journal.inside.outbound.sending.held._links.items():
            first = next(iter(held.streams.values()), None)
            known = self._first.pop((journal.place, link), None)
            if first is None or not first.queue:
                continue
            self._first[journal.place, link] = first
            cost = self.SHARE * first.queue[0].cost
            if first is known and link in passed_by and held.passed_bytes >= cost:
                text = f"a stream to {first.destination} waits for link {link}"
                self.violate(journal, f"{text}, and {held.passed_bytes} bytes have passed it")

    def _check(self, journal: Journal, link: LinkId, segment: Segment) -> None:
        route, passed = segment.route, self._passed[journal.place]
        cost = len(segment.body) + OVERHEAD_BYTES
        if route.priority != BULK_PRIORITY:
            if link in passed:
                passed[link] += cost
            return
        key = stream_key(journal, route.destination, Incarnation(0), route.sequence)
        highest, number = self._highest.get(key, 0), route.sequence & 0xFFFF_FFFF
        self._highest[key] = max(highest, number)
        if link not in passed or number <= highest:
            return
        passed[link] -= self.SHARE * cost
        if passed[link] < 0:
            passed[link] = 0
            self.violate(journal, f"sends bulk to {route.destination} over a link that is full")
