"""Readers that are slow: a source of pieces waits for those who take some, and for nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.broadcast.watermarks import WATERMARK_TIMER
from bmgd.core.commands import ConsumedAnnouncements
from bmgd.core.effects import Effect
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.broadcasts import LifeKey, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Watermark

WAITS_NS: Final = 1_000_000_000
"""So long a reader that takes nothing is waited for."""
SLACK_NS: Final = 200_000_000


class SlowReadersStallNobody(Checker):
    """What a node has is acknowledged, and what waits at its source is sent, whoever takes nothing.

    A watermark waits for readers of pieces only while one took something within a second; when that was
    is remembered. Where nothing of a source is unstable, what waits there goes within a second, whatever
    its own readers take.
    """

    name: ClassVar[str] = "slow-readers-stall-nobody"
    events: ClassVar[Kinds] = (CommandIssued, Look)
    effects: ClassVar[Kinds] = (Watermark,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._took_ns: dict[NodeId, int] = {}
        self._since: dict[NodeId, dict[LifeKey, tuple[int, int]]] = {}
        self._head: dict[NodeId, tuple[object, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._took_ns[journal.place] = 0
        self._since[journal.place] = {}
        self._head.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        place = journal.place
        if isinstance(event, CommandIssued) and isinstance(event.command, ConsumedAnnouncements):
            self._took_ns[place] = journal.now_ns
            reader = journal.inside.to_many.announcements._readers.get(event.request)
            if reader is not None and reader.moved_ns != journal.now_ns:
                self.violate(
                    journal, f"does not remember that reader {event.request} took something"
                )
        if not is_deadline(event) or journal.exited:
            return
        if journal.lag_ns > SLACK_NS:
            # It stood still, or its clock leapt: what is overdue is done in the next steps.
            self._since[place] = {}
            self._head.pop(place, None)
            return
        self._look_at_watermarks(journal)
        self._look_at_source(journal)

    def _look_at_watermarks(self, journal: Journal) -> None:
        inside, before = journal.inside, self._since[journal.place]
        waiting: dict[LifeKey, tuple[int, int]] = {}
        for name, source, life in inside.deadlines():
            if name != WATERMARK_TIMER:
                continue
            key = NodeId(source), Incarnation(life)
            heard = inside.to_many.retention.lives.get(key)
            if heard is None:
                continue
            # With less to acknowledge than before, something was acknowledged meanwhile.
            size = heard.unacknowledged_bytes
            last, since_ns = before.get(key, (size, journal.now_ns))
            waiting[key] = size, since_ns if size >= last else journal.now_ns
            waited_ns = journal.now_ns - max(waiting[key][1], self._took_ns[journal.place])
            if waited_ns > WAITS_NS + SLACK_NS:
                text = f"has not acknowledged what {source} sent for {waited_ns / 1e6:.0f} ms"
                self.violate(journal, text)
        self._since[journal.place] = waiting

    def _look_at_source(self, journal: Journal) -> None:
        window = source_of(journal).window
        if not window.waiting or window.unstable:
            self._head.pop(journal.place, None)
            return
        head, since_ns = self._head.get(journal.place, (None, 0))
        if head is not window.waiting[0]:
            self._head[journal.place] = window.waiting[0], journal.now_ns
        elif journal.now_ns - since_ns > WAITS_NS + SLACK_NS:
            waited_ns = journal.now_ns - since_ns
            self.violate(
                journal, f"has sent nothing for {waited_ns / 1e6:.0f} ms, and something waits"
            )
