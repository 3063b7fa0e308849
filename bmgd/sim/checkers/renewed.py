"""Links that are made anew when the keys change: one after the other, with pauses, until none is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Dial, Displaced, Effect, Welcome
from bmgd.core.events import DeadlineReached, DialFailed, Event, KeysChanged, LinkUp
from bmgd.core.neighbors.renewal import RENEW_TIMER
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId


class LinksAreRenewed(Checker):
    """At rest each link is made under the first key, where all have the same.

    A node renews one link at a time, and none in the pause after a failure; it pauses only where a link
    waits to be renewed.
    """

    name: ClassVar[str] = "links-are-renewed"
    events: ClassVar[Kinds] = (KeysChanged, LinkUp, DialFailed, DeadlineReached)
    effects: ClassVar[Kinds] = (Dial, Welcome)
    before_events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._pauses: dict[NodeId, bool] = {}

    def on_boot(self, journal: Journal) -> None:
        self._pauses[journal.place] = False

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not self.scene.network.keys or journal.exited:
            return
        pauses = (RENEW_TIMER, 0, 0) in journal.inside.deadlines()
        has_begun = pauses and not self._pauses[journal.place]
        self._pauses[journal.place] = pauses
        if any(isinstance(effect, Displaced) for effect in effects):
            return
        if has_begun and not journal.inside.renewal._waiting:
            self.violate(journal, "pauses, and has no link to renew")
        for effect in effects:
            if not isinstance(effect, Dial) or not effect.renews:
                continue
            if pauses:
                self.violate(journal, f"renews the link to {effect.peer} in its pause")
            others = {peer for peer, (dial, _) in journal.dials.items() if dial.renews}
            if others - {effect.peer}:
                text = f"renews the link to {effect.peer}, and at the same time those to"
                self.violate(journal, f"{text} {sorted(others - {effect.peer})}")

    def at_rest(self, journals: Sequence[Journal]) -> None:
        firsts = {journal.host.keys[:1] for journal in journals}
        if len(firsts) != 1:
            return
        first = "".join(firsts.pop())
        for journal in journals:
            for link in journal.links.values():
                if link.key != first:
                    text = f"the link to {link.peer} is made under {link.key!r}"
                    self.violate(journal, f"{text}, all have {first!r}")
