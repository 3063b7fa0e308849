"""A core waits as long as is stated: each deadline that it sets is of a known kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.core.timers import TimerKey
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import EVERY, Checker, Kinds, Scene
from bmgd.sim.witness.waits import OF_LIVES, OF_NOBODY, OF_ONE, Node
from bmgd.types import NodeId


class WaitsAreAsStated(Checker):
    """A deadline that is set is as far ahead as is stated for its purpose, and of whom that is for."""

    name: ClassVar[str] = "waits-are-as-stated"
    events: ClassVar[Kinds] = EVERY
    before_events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._count: dict[NodeId, int] = {}
        self._stretch_ns: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._count[journal.place] = journal.inside.deadlines_set()
        self._stretch_ns[journal.place] = 0

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside, place = journal.inside, journal.place
        before, before_ns = self._count[place], self._stretch_ns[place]
        self._count[place] = inside.deadlines_set()
        self._stretch_ns[place] = inside.detector.stretch_ns
        if self._count[place] == before or journal.exited:
            return
        # A round of heartbeats in the same step forgets a quarter of it.
        node = Node(inside.settings, max(before_ns, self._stretch_ns[place], journal.lag_ns))
        for key, due_ns in inside.set_since(before):
            wait_ns = due_ns - journal.now_ns
            if -journal.lag_ns <= wait_ns < 0:
                # It was late: the time of what it waits for is over by now.
                wait_ns = 0
            wrong = _wrong(key, wait_ns, node)
            if wrong:
                self.violate(journal, f"sets a deadline {key}, {wrong}")


def _wrong(key: TimerKey, wait_ns: int, node: Node) -> str:
    """What is wrong with a deadline that was just set; "" for nothing."""
    purpose, first, second = key
    if purpose in OF_NOBODY:
        spans, fits = OF_NOBODY[purpose](node), first == second == 0
    elif purpose in OF_ONE:
        spans, fits = OF_ONE[purpose](node), second == 0
    elif purpose in OF_LIVES:
        spans, fits = OF_LIVES[purpose](node), second > 0
    else:
        return "which is not known"
    if not fits:
        return "which is not of whom it is for"
    if any(least_ns <= wait_ns <= most_ns for least_ns, most_ns in spans):
        return ""
    return f"{wait_ns / 1e6:g} ms ahead"
