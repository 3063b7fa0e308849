"""The link layer keeps its rules, and no step of a core does more than its budget allows.

The first three are looked at by `bmgd.sim.linkmodel`, which stands before each host's links; it reports
under their names. It is also set before a link that is given more at once than those of a short run are.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Final

from bmgd.core.effects import Effect
from bmgd.core.events import Event
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.sim.crammed import CrammedLink
from bmgd.sim.linkmodel import BOUNDED
from bmgd.sim.modellink import LOSE_NOTHING, OVERTAKE

STEP_EFFECTS_MAX: Final = 4096
"""What one step may order at most; a step that orders more keeps its node from its heartbeats."""


class LinksLoseNothing(Checker):
    """What a link accepted is written whole and in order, or given back; what came has one fate.

    Nothing that was accepted before a goodbye is missing at a peer that lives to read it.
    """

    name: ClassVar[str] = LOSE_NOTHING
    events: ClassVar[Kinds] = ()

    def on_boot(self, journal: Journal) -> None:
        host = journal.host
        random = Random(f"a crammed link beside {host.node.incarnation}")
        report = self.scene.on_link_rule_broken
        CrammedLink(random, lambda name, text: report(host, name, text)).cram()


class UrgentOvertakesBulk(Checker):
    """Urgent frames go before the bulk that waits, and never into the midst of a frame."""

    name: ClassVar[str] = OVERTAKE
    events: ClassVar[Kinds] = ()


class OutboxesAreBounded(Checker):
    """No outbox takes more than its bounds; what it drops is counted once."""

    name: ClassVar[str] = BOUNDED
    events: ClassVar[Kinds] = ()


class StepsAreBounded(Checker):
    """No step is above its budget of work."""

    name: ClassVar[str] = "steps-are-bounded"

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if len(effects) > STEP_EFFECTS_MAX:
            text = (
                f"{len(effects)} effects of one {type(event).__name__}, at most {STEP_EFFECTS_MAX}"
            )
            self.violate(journal, text)
