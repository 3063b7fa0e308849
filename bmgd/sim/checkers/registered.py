"""Registered programs: everybody who runs shows those of everybody who runs, and tells every change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.commands import Register, Unregister
from bmgd.core.effects import Displaced, Effect, ProgramsChanged, Reply
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId
from bmgd.wire.features import Feature

Shown = set[tuple[NodeId, Incarnation, str]]


class ProgramsAreKnown(Checker):
    """What a node tells of programs adds up, and at rest it is what runs at all nodes.

    A start is of one that does not run, an end of one that does, and changes are counted without a gap.
    What runs is what programs registered, and has not ended, where their process runs.
    """

    name: ClassVar[str] = "programs-are-known"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (ProgramsChanged, Reply, Displaced)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._shown: dict[NodeId, Shown] = {}
        self._revision: dict[NodeId, int] = {}
        self._registered: dict[NodeId, dict[int, str]] = {}
        self._asked: dict[int, str] = {}
        self._displaced: set[NodeId] = set()

    def on_boot(self, journal: Journal) -> None:
        place = journal.place
        self._shown[place] = set()
        self._revision[place] = 0
        if place in self._displaced:
            # Another node in the same process: its programs go on.
            self._displaced.remove(place)
            names = self._registered.get(place, {}).values()
            self._shown[place] = {(journal.host.id, journal.incarnation, n) for n in names}
        else:
            self._registered[place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        place = journal.place
        match event:
            case CommandIssued(request, Register(name)):
                self._asked[request] = name
            case CommandIssued(request, Unregister()):
                self._registered[place].pop(request, None)
        for effect in effects:
            match effect:
                case Reply(request, error=None) if request in self._asked:
                    self._registered[place][request] = self._asked.pop(request)
                case Reply(request):
                    self._asked.pop(request, None)
                case Displaced():
                    self._displaced.add(place)
                case ProgramsChanged():
                    self._follow(journal, effect)
                case _:
                    pass

    def _follow(self, journal: Journal, changed: ProgramsChanged) -> None:
        shown, place = self._shown[journal.place], journal.place
        self._revision[place] += 1
        if changed.revision != self._revision[place]:
            self.violate(journal, f"counts {changed.revision} after {self._revision[place] - 1}")
            self._revision[place] = changed.revision
        for change in changed.changes:
            key = change.id, change.incarnation, change.name
            if change.started and key in shown:
                self.violate(journal, f"tells that {key} started, which runs")
            if not change.started and key not in shown:
                self.violate(journal, f"tells that {key} ended, which does not run")
            if change.started:
                shown.add(key)
            else:
                shown.discard(key)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        common = [journal.inside.context.compatibility.common for journal in journals]
        if not all(features & Feature.PROGRAMS for features in common):
            # A member is of a release that knows no programs: they are told when it was replaced.
            return
        wanted: Shown = set()
        for journal in journals:
            own = journal.host.id, journal.incarnation
            wanted |= {(*own, name) for name in self._registered[journal.place].values()}
        for journal in journals:
            programs = journal.inside.to_many.programs
            shown = self._shown[journal.place]
            if shown != wanted:
                lacks, more = sorted(wanted - shown), sorted(shown - wanted)
                self.violate(journal, f"lacks the programs {lacks}, and has shown {more}")
            snapshot = {
                (row["id"], row["incarnation"], row["name"]) for row in programs.show()["programs"]
            }
            if snapshot != shown:
                self.violate(journal, f"shows {sorted(snapshot)}, and has told {sorted(shown)}")
            count = sum(len(row.names) for row in programs._rows.values())
            if count != programs._known:
                self.violate(journal, f"counts {programs._known} programs, knows {count}")
            if any(row.wanted and row.shown for row in programs._rows.values()):
                self.violate(journal, "asks for lists of programs at rest")
