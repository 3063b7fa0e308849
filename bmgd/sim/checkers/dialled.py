"""What a node concludes from dials, and when it begins one."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import ClassVar

from bmgd.core.effects import Dial, Effect, Observed, Renewed, Welcome
from bmgd.core.events import DeadlineReached, DialFailed, Event, LinkDown, LinkUp
from bmgd.core.neighbors.dialling import JOIN_TIMER
from bmgd.core.neighbors.redialling import REDIAL_TIMER
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Evidence, Incarnation, NodeId, NodeState


class DialsConclude(Checker):
    """Who is refused where its link has just closed without goodbye has the proof that its peer is dead.

    It says so at once. Who leaves a dial to the other end does not begin that wait anew, and a node
    without a link dials one of those that are gone in each pause.
    """

    name: ClassVar[str] = "dials-conclude"
    events: ClassVar[Kinds] = (DeadlineReached, DialFailed, LinkDown, LinkUp)
    effects: ClassVar[Kinds] = (Welcome, Observed, Renewed)
    before_events: ClassVar[Kinds] = (DeadlineReached, DialFailed, LinkDown)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._closed: dict[NodeId, dict[NodeId, Incarnation]] = {}
        """The lives whose only link closed without goodbye, and that were dialled in that step."""
        self._proven: Incarnation | None = None
        self._joins: dict[NodeId, int] = {}
        """For whose dial a node waits, and until when."""
        self._gone: frozenset[int] | None = None
        """Whom a node without a link may dial in this step; None where it need not dial."""

    def on_boot(self, journal: Journal) -> None:
        self._closed[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        inside = journal.inside
        self._proven, self._joins, self._gone = None, {}, None
        if isinstance(event, DialFailed):
            life = self._closed[journal.place].pop(event.peer, None)
            if life is not None and self._is_proof(journal, event, life):
                self._proven = life
            return
        timers = inside.context.timers
        for purpose, number, _ in inside.deadlines():
            if purpose == JOIN_TIMER:
                self._joins[NodeId(number)] = timers.due_ns((JOIN_TIMER, number, 0)) or 0
        redial_ns = timers.due_ns((REDIAL_TIMER, 0, 0))
        if not journal.links and redial_ns is not None and redial_ns <= journal.now_ns:
            self._gone = _gone(journal)

    @staticmethod
    def _is_proof(journal: Journal, failed: DialFailed, life: Incarnation) -> bool:
        inside = journal.inside
        record = inside.membership.get(failed.peer)
        is_that_life = inside.membership.vouched(failed.peer) == life
        is_refused = failed.evidence is Evidence.REFUSED and not inside.settings.proxied
        is_held_alive = record is not None and not inside.membership.is_gone(failed.peer)
        return is_refused and is_that_life and is_held_alive and not journal.to(failed.peer)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        # Of events that it is not told of before, nothing was noted.
        (joins, self._joins), (gone, self._gone) = (self._joins, {}), (self._gone, None)
        closed = self._closed[journal.place]
        told = {(e.event, e.peer) for e in effects if isinstance(e, Observed)}
        if isinstance(event, DialFailed) and self._proven is not None:
            if ("verdict", event.peer) not in told:
                self.violate(
                    journal, f"has the proof that {event.peer} is dead, and does not say so"
                )
            return
        if any(isinstance(effect, Renewed) for effect in effects):
            closed.clear()
        for peer in [p for p in closed if journal.to(p) or ("vetoed", p) in told]:
            del closed[peer]
        dialled = {effect.peer: effect.known for effect in effects if isinstance(effect, Dial)}
        if isinstance(event, LinkUp):
            closed.pop(event.peer, None)
        elif isinstance(event, LinkDown):
            self._note_closed(journal, event, dialled)
        for peer, due_ns in joins.items():
            now_due_ns = journal.inside.context.timers.due_ns((JOIN_TIMER, peer, 0))
            is_other = now_due_ns is not None and now_due_ns != due_ns
            if is_other and due_ns > journal.now_ns and peer not in dialled:
                self.violate(journal, f"waits anew for a dial of {peer}")
        if gone and not journal.exited:
            self._check_redial(journal, gone, set(dialled))

    def _note_closed(
        self, journal: Journal, down: LinkDown, dialled: dict[NodeId, Incarnation]
    ) -> None:
        link = journal.former_links.get(down.link)
        if link is None or down.evidence not in (Evidence.EOF, Evidence.RESET):
            return
        if not journal.to(link.peer) and dialled.get(link.peer) == link.incarnation:
            self._closed[journal.place][link.peer] = link.incarnation

    def _check_redial(self, journal: Journal, gone: Set[int], dialled: Set[NodeId]) -> None:
        timers = journal.inside.context.timers
        due_ns = timers.due_ns((REDIAL_TIMER, 0, 0))
        # Of many deadlines that are due some are reached in the next step.
        was_reached = due_ns is not None and due_ns > journal.now_ns
        is_leaving = journal.inside.context.state is NodeState.LEAVING
        if not was_reached or is_leaving or gone != _gone(journal):
            return
        underway = journal.dials.keys() - dialled
        if gone.isdisjoint(dialled | underway) and not journal.links:
            self.violate(journal, f"has no link, and dials none of {sorted(gone)}")


def _gone(journal: Journal) -> frozenset[int]:
    """Whom a node holds gone, without itself."""
    return frozenset(journal.inside.membership.gone) - {journal.host.id}
