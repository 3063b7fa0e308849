"""What two ends of a link believe differently: told as the link begins, and found by digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from bmgd.core.effects import Effect, RecordChanged, Send, Welcome
from bmgd.core.events import DeadlineReached, Event, HeartbeatsAbsorbed, LinkUp, Received
from bmgd.sim.checkers.journal import Journal, SeenLink
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import LinkId, NodeId, Status
from bmgd.wire.link_messages import Buckets, Heartbeat, Notice

SHOWN_AGAIN_NS: Final = 20_000_000
"""So long after the first digest that differs a node shows its own again."""
SLACK_NS: Final = 60_000_000
"""Deadlines that are noticed late, and reached in turns: less than from one heartbeat to the next."""
FLOOD_NS: Final = 100_000_000
"""For so long a record that changed may be on its way over all links."""


class DifferencesAreCompared(Checker):
    """After one digest that differs a node shows its own again; after two in a row it sends buckets.

    And only then: the first one may be older than what both ends believe now.
    """

    name: ClassVar[str] = "differences-are-compared"
    events: ClassVar[Kinds] = (Heartbeat, HeartbeatsAbsorbed, DeadlineReached)
    before_events: ClassVar[Kinds] = (Heartbeat,)
    effects: ClassVar[Kinds] = (Buckets,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._digest = 0
        self._differed: dict[NodeId, set[LinkId]] = {}
        """Links on which the last digest differed."""
        self._owed: dict[NodeId, dict[LinkId, int]] = {}
        """Since when the own digest is to be shown again."""

    def on_boot(self, journal: Journal) -> None:
        self._differed[journal.place], self._owed[journal.place] = set(), {}

    def before(self, journal: Journal, event: Event) -> None:
        self._digest = journal.inside.membership.digest

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        differed, owed = self._differed[journal.place], self._owed[journal.place]
        asked = {
            effect.link
            for effect in effects
            if isinstance(effect, Send)
            and isinstance(effect.message, Buckets)
            and effect.message.answer
        }
        wanted: set[LinkId] = set()
        match event:
            case Received(link, Heartbeat() as beat) if link in journal.links:
                if beat.digest == self._digest:
                    differed.discard(link)
                elif link in differed:
                    differed.remove(link)
                    wanted.add(link)
                else:
                    differed.add(link)
                    owed[link] = journal.now_ns
            case HeartbeatsAbsorbed(beats):
                differed.difference_update(beat.link for beat in beats)
            case _:
                pass
        if asked != wanted:
            self.violate(journal, f"asks for buckets on {sorted(asked)}, not {sorted(wanted)}")
        if owed and is_deadline(event):
            self._dun(journal, owed)

    def _dun(self, journal: Journal, owed: dict[LinkId, int]) -> None:
        for link_id, since_ns in list(owed.items()):
            link = journal.links.get(link_id)
            if link is None or link.beat_ns >= since_ns + SHOWN_AGAIN_NS:
                del owed[link_id]
            elif journal.now_ns - since_ns > SHOWN_AGAIN_NS + SLACK_NS + journal.lag_ns:
                del owed[link_id]
                self.violate(journal, f"does not show {link.peer} its digest again")


class BeginningsTellOfTheGone(Checker):
    """Of its other end a new link is told only that it is held gone, in the very life that it leads.

    Beside that it is told what changes at the same time, like every link.
    """

    name: ClassVar[str] = "beginnings-tell-of-the-gone"
    events: ClassVar[Kinds] = (LinkUp,)
    effects: ClassVar[Kinds] = (Welcome, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._moved: dict[NodeId, dict[NodeId, int]] = {}
        """When each record changed last."""

    def on_boot(self, journal: Journal) -> None:
        self._moved[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        moved = self._moved[journal.place]
        for effect in effects:
            if isinstance(effect, RecordChanged):
                moved[effect.id] = journal.now_ns
        opened = {effect.link for effect in effects if isinstance(effect, Welcome)}
        if isinstance(event, LinkUp):
            opened.add(event.link)
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, Notice):
                continue
            link = journal.links.get(effect.link)
            if link is not None and link.id in opened:
                self._check(journal, link, effect.message)

    def _check(self, journal: Journal, link: SeenLink, notice: Notice) -> None:
        for node_id, record in notice.records:
            if node_id != link.peer:
                continue
            moved_ns = self._moved[journal.place].get(node_id, -FLOOD_NS)
            # A host that stood still tells its news when it runs again.
            is_news = journal.now_ns - moved_ns < FLOOD_NS + journal.lag_ns
            is_gone = record.status >= Status.DEAD and record.incarnation == link.incarnation
            if not is_gone and not is_news:
                self.violate(journal, f"tells {node_id}, which it holds alive, its own record")
