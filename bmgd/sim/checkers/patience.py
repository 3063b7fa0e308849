"""The core's own time: its deadlines lie ahead, and it is as patient as it is late itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Observed
from bmgd.core.events import DeadlineReached, Event
from bmgd.core.neighbors.detector import LATE_NS, STRETCH_MAX
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import NodeId

_NOTED_NS: Final = LATE_NS // 16
"""A lag above this one stretches the timeout."""


class DeadlinesLieAhead(Checker):
    """No step sets a deadline in the past: it would say that the node was late, and has heard nobody."""

    name: ClassVar[str] = "deadlines-lie-ahead"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._due_ns: int | None = None

    def before(self, journal: Journal, event: Event) -> None:
        self._due_ns = journal.host.node.deadline_ns

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        due_ns = journal.host.node.deadline_ns
        if due_ns is None or due_ns >= journal.now_ns or journal.exited:
            return
        # What was overdue before may still wait for its turn.
        if self._due_ns is None or due_ns < self._due_ns:
            past_ns = journal.now_ns - due_ns
            self.violate(journal, f"sets a deadline that was due {past_ns / 1e6:g} ms ago")


class PatienceFollowsTheOwnLag(Checker):
    """A node that reaches its deadlines late waits longer for others, and for no other reason."""

    name: ClassVar[str] = "patience-follows-the-own-lag"
    events: ClassVar[Kinds] = (DeadlineReached,)
    effects: ClassVar[Kinds] = (Observed,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._stretch_ns: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._stretch_ns[journal.place] = 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        stretch_ns = inside.detector.stretch_ns
        before_ns, self._stretch_ns[journal.place] = self._stretch_ns[journal.place], stretch_ns
        lag_ns = min(journal.lag_ns, STRETCH_MAX * inside.settings.timeout_ns)
        if stretch_ns > max(before_ns, lag_ns):
            self.violate(journal, f"waits {stretch_ns / 1e6:g} ms longer, {lag_ns / 1e6:g} ms late")
        if before_ns < stretch_ns and journal.lag_ns <= _NOTED_NS:
            self.violate(journal, f"waits longer, and was only {lag_ns / 1e6:g} ms late")
        if not is_deadline(event):
            # It may have noted this pause before.
            return
        # With a round of heartbeats a quarter of it is forgotten.
        if lag_ns > _NOTED_NS and stretch_ns < lag_ns * 3 // 4 and not journal.exited:
            self.violate(journal, f"is {lag_ns / 1e6:g} ms late, and waits no longer for others")
