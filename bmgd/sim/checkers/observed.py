"""What a node says of itself in its log, and what a program ended, is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.commands import CloseStream, Withdraw
from bmgd.core.effects import Effect, Observed, StreamEnded
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId


class ExactLinksAreExact(Checker):
    """A node says that its links are exact when they are those of its layout to whom it holds alive."""

    name: ClassVar[str] = "exact-links-are-exact"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Observed,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not any(isinstance(e, Observed) and e.event == "links exact" for e in effects):
            return
        membership, wanted = journal.inside.membership, journal.inside.dialling.wanted
        linked = sorted({link.peer for link in journal.links.values()})
        alive = sorted(peer for peer in wanted if not membership.is_gone(peer))
        if linked != alive:
            self.violate(journal, f"says that its links are exact: to {linked}, not {alive}")


class ClosedStreamsEnd(Checker):
    """A stream that its program has closed is over when nothing of it is underway.

    A segment that its program has given up waits no more: it is told as not sent, or as in doubt.
    """

    name: ClassVar[str] = "closed-streams-end"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (StreamEnded,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._closed: dict[NodeId, set[int]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._closed[journal.place] = set()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        closed = self._closed[journal.place]
        match event:
            case CommandIssued(request, CloseStream(abandon)):
                stream = journal.inside.outbound.table.owned.get(request)
                if stream is not None and (abandon or stream.is_idle):
                    self.violate(journal, f"stream {request} was closed, and goes on")
                closed.add(request)
            case CommandIssued(request, Withdraw(number)) if number:
                stream = journal.inside.outbound.table.owned.get(request)
                waiting = (*stream.queue, *stream.underway.values()) if stream else ()
                if any(s.number == number and not (s.is_mark or s.doubted) for s in waiting):
                    self.violate(journal, f"segment {number} of {request} was given up, and waits")
            case _:
                pass
        for effect in effects:
            if isinstance(effect, StreamEnded):
                closed.discard(effect.request)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            owned = journal.inside.outbound.table.owned
            left = [r for r in sorted(self._closed[journal.place]) if r in owned]
            idle = [request for request in left if owned[request].is_idle]
            if idle:
                self.violate(journal, f"streams {idle} were closed, are done, and have not ended")
