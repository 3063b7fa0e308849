"""Whose hello waits for its answer, and what ends that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Displaced, Effect, Refuse, Welcome
from bmgd.core.events import DeadlineReached, DialFailed, Event, Greeted, LinkDown, LinkUp
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import UNKNOWN_INCARNATION, LinkId, NodeId, NodeState
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Pong


class HeldHellosHaveAReason(Checker):
    """A hello is held, until it is answered, only where the life that is known could still be there.

    That is where it has a link, or is believed to live at another address; then it is held. When its
    time is over it is refused as busy only where something came of that life meanwhile.
    """

    name: ClassVar[str] = "held-hellos-have-a-reason"
    events: ClassVar[Kinds] = (Greeted, LinkUp, LinkDown, DialFailed, Pong, Look)
    effects: ClassVar[Kinds] = (Welcome, Refuse)
    before_events: ClassVar[Kinds] = (Greeted, DeadlineReached)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._is_elsewhere = False
        """Whether the known life of who says hello may be at an address that is not the newcomer's."""
        self._held: dict[LinkId, tuple[Greeted, int]] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._held = dict(journal.hellos) if journal.hellos else {}
        if isinstance(event, Greeted):
            membership = journal.inside.membership
            record = membership.get(event.peer)
            known = membership.incarnation(event.peer)
            is_other = known not in (UNKNOWN_INCARNATION, event.incarnation)
            has_moved = record is not None and record.address != event.address
            self._is_elsewhere = is_other and has_moved and not membership.is_gone(event.peer)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if journal.exited or any(isinstance(effect, Displaced) for effect in effects):
            return
        waiting = {hello.peer for hello, _ in journal.hellos.values()}
        if journal.inside.held() != waiting:
            text = f"holds the hellos of {sorted(journal.inside.held())}"
            self.violate(journal, f"{text}, waiting are {sorted(waiting)}")
        if isinstance(event, Greeted):
            self._check_new(journal, event)
        elif is_deadline(event) and self._held:
            self._check_busy(journal, effects)

    def _check_new(self, journal: Journal, hello: Greeted) -> None:
        is_linked = any(
            link.peer == hello.peer and link.incarnation < hello.incarnation
            for link in journal.former_links.values()
        )
        if hello.link in journal.hellos and not is_linked and not self._is_elsewhere:
            self.violate(
                journal, f"holds the hello of {hello.peer}, and nobody else can have its id"
            )
        if hello.link in journal.links and self._is_elsewhere:
            self.violate(journal, f"welcomes {hello.peer}, which may live elsewhere")

    def _check_busy(self, journal: Journal, effects: Sequence[Effect]) -> None:
        refused = [e for e in effects if isinstance(e, Refuse) and e.refusal is Refusal.BUSY]
        if journal.inside.context.state is NodeState.LEAVING:
            return
        for refuse in refused:
            if refuse.link not in self._held:
                continue
            hello, since_ns = self._held[refuse.link]
            if not self._has_come(journal, hello.peer, since_ns):
                self.violate(journal, f"is too busy for {hello.peer}, whose former life is silent")

    @staticmethod
    def _has_come(journal: Journal, peer: NodeId, since_ns: int) -> bool:
        """Whether a node has heard a peer since then, or takes it for heard as it was late itself."""
        return journal.late_ns > since_ns or any(
            link.peer == peer and link.heard_ns > since_ns for link in journal.former_links.values()
        )
