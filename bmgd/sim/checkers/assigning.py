"""Ids for joiners: who is asked for one, and can give it, does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Grant, Send
from bmgd.core.events import DeadlineReached, Event, Received
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, NodeState
from bmgd.wire.ask_messages import JoinGrant, JoinRequest

GATHERED_NS: Final = 10_000_000
"""For so long requests are gathered before ids are given out."""
SLACK_NS: Final = 100_000_000


class JoinersAreGivenIds(Checker):
    """Who is ready, holds no lower id alive, and agrees with its neighbors answers a request with an id.

    Whoever asks is linked to it from then until now: else the answer may have no way.
    """

    name: ClassVar[str] = "joiners-are-given-ids"
    events: ClassVar[Kinds] = (JoinRequest, DeadlineReached)
    effects: ClassVar[Kinds] = (JoinGrant, Grant)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[Incarnation, tuple[NodeId, int]]] = {}

    def on_boot(self, journal: Journal) -> None:
        self._asked[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        asked = self._asked[journal.place]
        match event:
            case Received(_, JoinRequest() as request) if self._may_give(journal):
                if request.route.destination == journal.host.id:
                    asker = request.route.source
                    asked.setdefault(request.incarnation, (asker, journal.now_ns))
            case _:
                pass
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, JoinGrant):
                asked.pop(effect.message.incarnation, None)
            elif isinstance(effect, Grant):
                # A joiner that asks here itself by now is told over its own link.
                for life, _ in journal.inside.growth._given:
                    asked.pop(life, None)
        if asked and is_deadline(event):
            self._dun(journal, asked)

    def _may_give(self, journal: Journal) -> bool:
        context, links = journal.inside.context, journal.inside.links.table
        lowest = next(context.membership.living(), None)
        is_first = context.state is NodeState.READY and lowest == journal.host.id
        return is_first and context.has_quorum and all(link.agreed for link in links.values())

    def _dun(self, journal: Journal, asked: dict[Incarnation, tuple[NodeId, int]]) -> None:
        for life, (asker, since_ns) in list(asked.items()):
            links = journal.to(asker)
            is_linked = bool(links) and links[0].opened_ns < since_ns
            if not is_linked or not self._may_give(journal):
                del asked[life]
            elif journal.now_ns - since_ns > GATHERED_NS + SLACK_NS + journal.lag_ns:
                del asked[life]
                self.violate(journal, f"gives the joiner that {asker} asks for no id")
