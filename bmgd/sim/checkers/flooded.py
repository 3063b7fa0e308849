"""A member that sends more of what costs a core than sound ones do is slowed and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, Observed, Overlooked, Send
from bmgd.core.events import Event, Received
from bmgd.core.forwarding.flood import Rate
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds
from bmgd.wire.link_messages import Notice

_RATES: Final = {
    "cluster": Rate.CLUSTER,
    "programs": Rate.PROGRAMS,
    "gone sources": Rate.ORPHANS,
}


class FloodsAreSlowed(Checker):
    """What is beyond a sender's rate is dropped, counted and named once in a while; nothing else is.

    Whoever sends is remembered with what it has sent, and only so many are.
    """

    name: ClassVar[str] = "floods-are-slowed"
    events: ClassVar[Kinds] = (Received,)
    sees_dropped: ClassVar[bool] = True

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        """A message came that is counted, or is beyond its sender's rate."""
        if not isinstance(event, Received):
            return
        if not journal.drops:
            if event.link in journal.former_links and not journal.absorbs:
                self._check_remembered(journal)
            return
        kind = type(event.message).__name__
        self._count(journal)
        if any(isinstance(effect, Send) for effect in effects):
            self.violate(journal, f"does something for a {kind} beyond the rate")
        overlooked = [e.notice for e in effects if isinstance(e, Overlooked)]
        if overlooked != ([event.message] if isinstance(event.message, Notice) else []):
            self.violate(journal, f"a {kind} beyond the rate, and the link layer is told otherwise")
        peer = journal.links[event.link].peer
        expected = journal.rates.named(journal.now_ns, peer, event.message)
        named = [e.peer for e in effects if isinstance(e, Observed) and e.event == "flooding"]
        if named != ([] if expected is None else [expected]):
            self.violate(journal, f"{named} are named for a flood by way of {peer}")

    def _check_remembered(self, journal: Journal) -> None:
        """Who sent this is remembered as it is to be, and nobody else is than is to be."""
        table, expected = journal.inside.flood._empty_ns, journal.rates.remembered
        if len(table) != len(expected):
            self.violate(journal, f"remembers {len(table)} senders, not {len(expected)}")
        sender = journal.rates.sender
        if sender is not None:
            neighbor, source, what = sender
            at_ns = table.get((neighbor, source, _RATES[what]))
            if at_ns != expected[sender]:
                text = f"remembers {neighbor}, and {source} behind it, until {at_ns}"
                self.violate(journal, f"{text}, not {expected[sender]}")

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals:
            self._count(journal)

    def _count(self, journal: Journal) -> None:
        counted = journal.inside.context.counts.plain["flooded_messages"]
        if counted != journal.rates.dropped:
            text = (
                f"has dropped {counted} messages, {journal.rates.dropped} were beyond their rates"
            )
            self.violate(journal, text)
