"""Which side of a partition goes on: never two, and each node by a count of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bmgd.core.effects import Effect, RecordChanged
from bmgd.core.events import Event
from bmgd.core.membership.membership import Membership
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene
from bmgd.types import NodeId, Status


@dataclass(frozen=True, slots=True)
class _Count:
    """What one node believes of all ids that have not left.

    Args:
        living, counted: ids held to live, and all that count, both sorted.
        holds: whether the living are a majority, ties to the side with the lowest id.
    """

    living: frozenset[NodeId]
    counted: frozenset[NodeId]
    holds: bool


def _count(membership: Membership) -> _Count:
    """Count from the records alone: more than half, or just half with the lowest of all."""
    statuses = {
        NodeId(number): membership.status_of(NodeId(number))
        for number in range(membership.id_space)
    }
    counted = frozenset(i for i, s in statuses.items() if s is not None and s is not Status.LEFT)
    living = frozenset(i for i in counted if statuses[i] in (Status.EXPECTED, Status.ALIVE))
    lowest = min(counted, default=None)
    holds = len(living) * 2 > len(counted) or (
        len(living) * 2 == len(counted) and (lowest is None or lowest in living)
    )
    return _Count(living, counted, holds)


class OneSideGoesOn(Checker):
    """Under a quorum of the majority no two nodes go on whose living are disjoint.

    Each node's own answer is that of the count over its records: more than half of all that have not
    left, or half with the lowest of them. Who lost the majority stands aside once `ask_ns` has passed,
    and who has it does not.
    """

    name: ClassVar[str] = "one-side-goes-on"
    events: ClassVar[Kinds] = (Look,)
    effects: ClassVar[Kinds] = (RecordChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counts: dict[NodeId, tuple[int, _Count]] = {}
        self._lost_ns: dict[NodeId, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._counts.pop(journal.place, None)
        self._lost_ns.pop(journal.place, None)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        context = journal.inside.context
        if not context.settings.quorum or journal.exited:
            return
        count = self._count_of(journal)
        if context.has_quorum != count.holds:
            self.violate(
                journal,
                f"{len(count.living)} of {len(count.counted)} live, the lowest of them "
                f"{min(count.living, default=None)} of {min(count.counted, default=None)}: "
                f"it {'goes on' if context.has_quorum else 'stands aside'}",
            )
        elif context.has_quorum:
            self._check_alone(journal, count)
        self._check_standing(journal, count)

    def _count_of(self, journal: Journal) -> _Count:
        membership = journal.inside.membership
        known = self._counts.get(journal.place)
        if known is None or known[0] != membership.revision:
            known = membership.revision, _count(membership)
            self._counts[journal.place] = known
        return known[1]

    def _check_alone(self, journal: Journal, count: _Count) -> None:
        """Two majorities of the same ids have one in common."""
        for place, other in self.scene.journals.items():
            if place == journal.place or other.exited or not other.host.alive:
                continue
            if not other.inside.context.has_quorum or place not in self._counts:
                continue
            theirs = self._counts[place][1]
            if theirs.counted == count.counted and not theirs.living & count.living:
                self.violate(
                    journal,
                    f"goes on with {sorted(count.living)}, {other.host.id} without any of them",
                )

    def _check_standing(self, journal: Journal, count: _Count) -> None:
        context, place = journal.inside.context, journal.place
        if count.holds:
            self._lost_ns.pop(place, None)
            if context.stands_aside:
                self.violate(journal, "stands aside with the majority")
            return
        since_ns = self._lost_ns.setdefault(place, journal.now_ns)
        if journal.now_ns - since_ns > context.settings.ask_ns and not context.stands_aside:
            late_ns = journal.now_ns - since_ns - context.settings.ask_ns
            if late_ns > journal.lag_ns:
                self.violate(journal, f"goes on {late_ns / 1e6:.0f} ms after it must stand aside")
