"""How much a node sends at once, and what of it waits for a link that has much to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Deliver, Effect, Send
from bmgd.core.events import Backlog, Event
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
    a byte for seven that its other streams send over it meanwhile.
    """

    name: ClassVar[str] = "own-bulk-waits"
    events: ClassVar[Kinds] = (Backlog,)
    effects: ClassVar[Kinds] = (Segment,)

    LOW_BYTES: ClassVar[int] = 64 * 1024
    SHARE: ClassVar[int] = 7

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._passed: dict[NodeId, dict[LinkId, int]] = {}
        """Of each link that has much to write: what went past the bulk that waits for it, in bytes."""
        self._highest: dict[StreamKey, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._passed[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        passed = self._passed[journal.place]
        if isinstance(event, Backlog) and event.backlog_bytes > self.LOW_BYTES:
            passed.setdefault(event.link, 0)
        elif isinstance(event, Backlog):
            passed.pop(event.link, None)
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, Segment):
                continue
            route = effect.message.route
            if route.source == journal.host.id and route.sequence:
                self._check(journal, effect.link, effect.message)

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
