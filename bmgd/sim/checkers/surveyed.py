"""Who is asked for reports and for readers, and whose answer is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.commands import AskReports, FindReaders
from bmgd.core.effects import Effect, Reply, Reported, Send
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId, incarnation_tag
from bmgd.wire.ask_messages import ReadersAsk, Report

SOON_NS: Final = 40_000_000
"""A search that has more time than this asks everybody, unless its node is late."""


@dataclass(slots=True)
class _Asking:
    """What one process has asked others.

    Args:
        asks: how often programs asked for reports.
        taken: of each node, the ask that the last report which was told answers.
        searches: for readers: what was asked, and when.
        asked_ns: when each node was asked last for the readers of a topic.
    """

    asks: int = 0
    taken: dict[NodeId, int] = field(default_factory=dict)
    searches: dict[int, tuple[FindReaders, int]] = field(default_factory=dict)
    asked_ns: dict[tuple[NodeId, str], int] = field(default_factory=dict)


class AskedAreHeard(Checker):
    """A report that answers an ask of this life is told: one of each node for each ask, no older one.

    A node is called silent about its readers only if it was asked, if there is a link to it.
    """

    name: ClassVar[str] = "asked-are-heard"
    events: ClassVar[Kinds] = (CommandIssued, Report)
    effects: ClassVar[Kinds] = (Reply, ReadersAsk)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asking: dict[NodeId, _Asking] = {}

    def on_boot(self, journal: Journal) -> None:
        self._asking[journal.place] = _Asking()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        asking = self._asking[journal.place]
        match event:
            case CommandIssued(_, AskReports()):
                asking.asks += 1
            case CommandIssued(request, FindReaders() as command):
                asking.searches[request] = command, journal.now_ns
            case Received(_, Report() as report) if report.route.destination == journal.host.id:
                self._on_report(journal, asking, report, effects)
            case _:
                pass
        for effect in effects:
            match effect:
                case Send(_, ReadersAsk() as ask) if ask.route.source == journal.host.id:
                    asking.asked_ns[ask.route.destination, ask.topic] = journal.now_ns
                case Reply(request, result, None) if request in asking.searches:
                    self._on_found(journal, asking, *asking.searches.pop(request), result["silent"])
                case _:
                    pass

    def _on_report(
        self, journal: Journal, asking: _Asking, report: Report, effects: Sequence[Effect]
    ) -> None:
        route = report.route
        source, number = route.source, route.sequence
        is_asked = (
            route.destination_tag == incarnation_tag(journal.incarnation)
            and asking.taken.get(source, 0) < number <= asking.asks
            and journal.inside.membership.in_layout(source)
        )
        is_told = any(isinstance(effect, Reported) for effect in effects)
        if is_told:
            asking.taken[source] = number
        if is_told != is_asked:
            what = "tells" if is_told else "does not tell"
            self.violate(
                journal, f"{what} the report {number} of {source}, {asking.asks} were asked"
            )

    def _on_found(
        self,
        journal: Journal,
        asking: _Asking,
        command: FindReaders,
        since_ns: int,
        silent: Sequence[NodeId],
    ) -> None:
        # While a member is of an older release nobody is asked.
        is_older = self.scene.network.conditions.older_percent > 0
        if is_older or command.timeout_ns < SOON_NS + journal.longest_lag_ns:
            return
        for node_id in silent:
            is_linked = any(link.opened_ns < since_ns for link in journal.to(node_id))
            if is_linked and asking.asked_ns.get((node_id, command.topic), -1) < since_ns:
                self.violate(journal, f"calls {node_id} silent, which it did not ask")
