"""Ids for joiners: who is asked for one, and can give it, does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Grant, Refuse, Send
from bmgd.core.events import DeadlineReached, Event, JoinAsked, LinkDown, Received
from bmgd.core.joining import growth
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import Incarnation, LinkId, NodeId, NodeState
from bmgd.wire.ask_messages import JoinGrant, JoinRequest

GATHERED_NS: Final = 10_000_000
"""For so long requests are gathered before ids are given out."""
SLACK_NS: Final = 100_000_000


class JoinersAreGivenIds(Checker):
    """Who is ready, holds no lower id alive, and agrees with its neighbors answers a request with an id.

    Whoever asks is linked to it from then until now: else the answer may have no way. So is a joiner that
    asks it itself.
    """

    name: ClassVar[str] = "joiners-are-given-ids"
    events: ClassVar[Kinds] = (JoinRequest, JoinAsked, LinkDown, DeadlineReached)
    effects: ClassVar[Kinds] = (JoinGrant, Grant, Refuse)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[NodeId, dict[Incarnation, tuple[NodeId, int]]] = {}
        self._came: dict[NodeId, dict[Incarnation, tuple[LinkId, int]]] = {}
        """The joiners that ask each process itself."""

    def on_boot(self, journal: Journal) -> None:
        self._asked[journal.place], self._came[journal.place] = {}, {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        asked, came = self._asked[journal.place], self._came[journal.place]
        match event:
            case Received(_, JoinRequest() as request) if self._may_give(journal):
                is_here = request.route.destination == journal.host.id
                if is_here and not _is_full(journal, request.incarnation):
                    asker = request.route.source
                    asked.setdefault(request.incarnation, (asker, journal.now_ns))
            case JoinAsked(link, None, life) if self._may_give(journal):
                came.pop(life, None)
                if not _is_full(journal, life):
                    came[life] = link, journal.now_ns
            case _:
                pass
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, JoinGrant):
                asked.pop(effect.message.incarnation, None)
            elif isinstance(effect, Grant):
                # A joiner that asks here itself by now is told over its own link.
                for life, _ in journal.inside.growth._given:
                    asked.pop(life, None)
        if came:
            self._strike_off(journal, event, effects)
        if (asked or came) and is_deadline(event):
            self._dun(journal, asked)

    def _strike_off(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        """Who is answered, or went away, is owed nothing."""
        done = {effect.link for effect in effects if isinstance(effect, Grant | Refuse)}
        if isinstance(event, LinkDown):
            done.add(event.link)
        came = self._came[journal.place]
        for life in [life for life, (link, _) in came.items() if link in done]:
            del came[life]

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
        came = self._came[journal.place]
        for life, (_, since_ns) in list(came.items()):
            if not self._may_give(journal):
                del came[life]
            elif journal.now_ns - since_ns > GATHERED_NS + SLACK_NS + journal.lag_ns:
                del came[life]
                self.violate(journal, "gives a joiner that asks it no id")


def _is_full(journal: Journal, life: Incarnation) -> bool:
    """Whether as many requests are gathered as there may be, and this one is not among them."""
    wishes = journal.inside.growth._wishes
    return life not in wishes and len(wishes) >= growth.JOINS_OPEN_MAX
