"""Reliable broadcasts of sources that are gone: what neighbors tell of them is taken in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.watermarks import REMIND_TIMER
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.sim.checkers.broadcasts import retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.wire.link_messages import Held, Watermarks


class NeighborsAreHeard(Checker):
    """What a neighbor tells to have of a source that is gone is known here from then on.

    By that copies are pulled, and who has less is told. Where the source lives, as far as is known here,
    and more of it is stable than has come, the source is to be asked.
    """

    name: ClassVar[str] = "neighbors-are-heard"
    events: ClassVar[Kinds] = (Watermarks,)
    before_events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = ()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, Received) or not isinstance(event.message, Watermarks):
            return
        # What comes behind the end of a link is not heard.
        link = journal.former_links.get(event.link)
        if link is None or journal.exited:
            return
        latest = {(held.source, held.incarnation): held for held in event.message.held}
        for key, held in latest.items():
            heard = retention_of(journal).lives.get(key)
            if heard is None or not _is_known(journal, held):
                continue
            told = held.watermark, held.highest
            if heard.told.get(link.peer) != told:
                self.violate(journal, f"does not heed that {link.peer} has {told} of {key}")
            self._check_asking(journal, heard, held)

    def _check_asking(self, journal: Journal, heard: Heard, held: Held) -> None:
        is_whole = held.stable <= heard.watermark
        if is_whole or not journal.inside.believes(*heard.key):
            return
        if journal.inside.membership.is_gone(heard.source):
            return
        is_planned = (REMIND_TIMER, *heard.key) in journal.inside.deadlines()
        if not (heard.asking and is_planned):
            text = f"does not ask {heard.source}, of which {held.stable} are stable"
            self.violate(journal, f"{text}, and {heard.watermark} have come")


def _is_known(journal: Journal, held: Held) -> bool:
    """Whether a life is the one that is believed, or one before it."""
    membership = journal.inside.membership
    is_former = held.incarnation < membership.vouched(held.source)
    return is_former or held.incarnation == membership.incarnation(held.source)
