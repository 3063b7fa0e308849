"""Streams into a node that have less credit than a segment: they wait for room, and are told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look
from bmgd.wire.segments import COST_MAX
from bmgd.wire.stream_messages import Segment

IDLE_NS: Final = 1_000_000_000
"""Whose source has sent nothing for so long is asked for nothing."""


class StarvingAreFed(Checker):
    """A stream that goes on, and was told of credit for less than a segment, waits for its topic's room.

    Else its source would send one segment for each answer, for ever. One that is owed an acknowledgement
    is looked at when that is told.
    """

    name: ClassVar[str] = "starving-are-fed"
    events: ClassVar[Kinds] = (CommandIssued, Segment, Look)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if journal.exited:
            return
        inbound = journal.inside.inbound
        starved = inbound.granting.starved
        for key, stream in inbound.granting.active.items():
            is_idle = stream.heard_ns + IDLE_NS <= journal.now_ns
            if stream.closed or is_idle or key in inbound.acknowledging.owed:
                continue
            if stream.credit - stream.taken < COST_MAX and key not in starved:
                text = f"has {stream.credit - stream.taken} bytes of credit, and waits for none"
                self.violate(journal, f"stream {key[1]} of {key[0]} {text}")
