"""What a node remembers is of use: of links and of dials that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Dial, Effect, Renewed
from bmgd.core.events import DialFailed, Event, LinkUp
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, is_deadline


class MemoriesAreOfUse(Checker):
    """Nothing is remembered of a link that is gone, and no peer is held to be dialled that is not."""

    name: ClassVar[str] = "memories-are-of-use"
    events: ClassVar[Kinds] = (LinkUp, DialFailed, Look)
    effects: ClassVar[Kinds] = (Dial, Renewed)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside = journal.inside
        dialling = {p for p, peering in inside.dialling.peerings.items() if peering.dialling}
        if dialling and dialling - journal.dials.keys():
            lost = sorted(dialling - journal.dials.keys())
            self.violate(journal, f"holds {lost} to be dialled, which it does not dial")
        renewed = any(isinstance(effect, Renewed) for effect in effects)
        if renewed and inside.underway_count():
            self.violate(journal, "began a new life with messages of the former underway")
        if not is_deadline(event):
            return
        for link_id, link in inside.links.table.items():
            seen = journal.links.get(link_id)
            if seen is not None and link.heard_ns < min(seen.heard_ns, journal.now_ns):
                self.violate(journal, f"has heard {link.peer} and does not know it")
        full = inside.outbound.sending.held.links.difference(inside.links.table)
        if full:
            self.violate(journal, f"lets bulk wait for links {sorted(full)}, which are gone")
        membership = inside.membership
        for peer, peering in inside.dialling.peerings.items():
            if peer in membership.retired:
                # Of it nothing else is known, and it is forgotten with the next layout.
                continue
            if peering.linked and peering.linked > membership.vouched(peer):
                self.violate(journal, f"was linked to a life of {peer} that it does not know")
