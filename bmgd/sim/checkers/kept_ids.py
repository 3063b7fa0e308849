"""Ids and who loses them: to a duplicate, and only when that has been said for long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Displaced, Effect, Exit, Observed, Renewed, Welcome
from bmgd.core.events import DialFailed, Event, LinkUp
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import UNKNOWN_INCARNATION, NodeId, NodeState, counter_of
from bmgd.wire.hello import Refusal

_DUPLICATE: Final = "another living daemon has the id"
_OF_DUPLICATES: Final = (Refusal.DUPLICATE, Refusal.STALE_INCARNATION)


class IdsAreKept(Checker):
    """An id is lost to a duplicate only when that has been said for as long as a dead one is waited for.

    Then it is lost. A joiner in its first life that is told of another one with its id loses it at once,
    for such a life follows no other; in a later life it begins the next.
    """

    name: ClassVar[str] = "ids-are-kept"
    events: ClassVar[Kinds] = (DialFailed, LinkUp)
    effects: ClassVar[Kinds] = (Exit, Displaced, Welcome)
    before_events: ClassVar[Kinds] = (DialFailed,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._own = UNKNOWN_INCARNATION
        self._since_ns: dict[NodeId, dict[Refusal, int]] = {}
        """Since when each process is refused so for its id, without a link meanwhile."""

    def on_boot(self, journal: Journal) -> None:
        self._since_ns[journal.place] = {}

    def before(self, journal: Journal, event: Event) -> None:
        self._own = journal.incarnation

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        since_ns = self._since_ns[journal.place]
        failed = event if isinstance(event, DialFailed) and _is_heeded(journal, event) else None
        if failed is not None and failed.refusal in _OF_DUPLICATES:
            since_ns.setdefault(failed.refusal, journal.now_ns)
        whys = [e.reason for e in effects if isinstance(e, Exit)]
        whys += [e.detail for e in effects if isinstance(e, Observed) and e.event == "displaced"]
        settings = journal.inside.settings
        patience_ns = settings.timeout_ns + settings.ask_ns
        waited_ns = journal.now_ns - min(since_ns.values(), default=journal.now_ns)
        if waited_ns <= patience_ns and any(why.startswith(_DUPLICATE) for why in whys):
            self.violate(journal, f"loses its id after {waited_ns / 1e6:g} ms")
        if failed is not None and not whys:
            self._check_kept(journal, failed, effects)
        if any(link not in journal.former_links for link in journal.links):
            since_ns.clear()

    def _check_kept(self, journal: Journal, failed: DialFailed, effects: Sequence[Effect]) -> None:
        """Whether a node that is refused, and goes on, may have its id."""
        settings, refusal = journal.inside.settings, failed.refusal
        if journal.inside.context.state is NodeState.LEAVING:
            return
        since_ns = self._since_ns[journal.place].get(Refusal.DUPLICATE, journal.now_ns)
        is_over = journal.now_ns - since_ns > settings.timeout_ns + settings.ask_ns
        if refusal is Refusal.DUPLICATE and is_over:
            self.violate(journal, "is a duplicate for long, and keeps its id")
        is_first = settings.takes_new_id and counter_of(self._own) == 1
        has_renewed = any(isinstance(effect, Renewed) for effect in effects)
        if refusal is Refusal.STALE_INCARNATION and is_first and has_renewed:
            self.violate(journal, "was given an id that another has, and begins a new life")


def _is_heeded(journal: Journal, failed: DialFailed) -> bool:
    """Whether a node heeds who refuses it: no dial to itself, nor to whom it is linked."""
    return failed.peer != journal.host.id and not journal.to(failed.peer)
