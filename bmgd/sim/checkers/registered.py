"""Registered programs: everybody who runs shows those of everybody who runs, and tells every change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.commands import Register, Unregister
from bmgd.core.effects import Displaced, Effect, ProgramsChanged, Reply
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.broadcasts import LifeKey, retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skipped
from bmgd.wire.features import Feature
from bmgd.wire.link_messages import Watermarks

_OF_SOURCES: Final[Kinds] = (ReliableBroadcast, Skipped, Watermarks)
"""What makes a node hear a life of a source."""

Shown = set[tuple[NodeId, Incarnation, str]]


class ProgramsAreKnown(Checker):
    """What a node tells of programs adds up, and at rest it is what runs at all nodes.

    A start is of one that does not run, an end of one that does, and changes are counted without a gap.
    What runs is what programs registered, and has not ended, where their process runs.

    Where a process goes on as another node, and so passes over what its former one had of a source, it
    asks the source which programs it has.
    """

    name: ClassVar[str] = "programs-are-known"
    events: ClassVar[Kinds] = (CommandIssued, *_OF_SOURCES)
    before_events: ClassVar[Kinds] = _OF_SOURCES
    effects: ClassVar[Kinds] = (ProgramsChanged, Reply, Displaced)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._shown: dict[NodeId, Shown] = {}
        self._revision: dict[NodeId, int] = {}
        self._registered: dict[NodeId, dict[int, str]] = {}
        self._asked: dict[int, str] = {}
        self._displaced: set[NodeId] = set()
        self._inherited: set[LifeKey] = set()
        """Lives of which a former node had something, and this one has heard nothing yet."""

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

    def before(self, journal: Journal, event: Event) -> None:
        self._inherited = set(retention_of(journal)._inherited)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if self._inherited:
            self._check_asking(journal)
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

    def _check_asking(self, journal: Journal) -> None:
        heard = self._inherited - retention_of(journal)._inherited.keys()
        self._inherited = set()
        for source, life in sorted(heard):
            row = journal.inside.to_many.programs._rows.get(source)
            is_asked = row is not None and row.life == life and row.wanted
            if not is_asked and journal.inside.believes(source, life) and not journal.exited:
                self.violate(journal, f"passes over what {source} sent, and wants no list of it")

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
