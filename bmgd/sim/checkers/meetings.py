"""What a node makes of the life that it meets as a link comes up, and what it tells there of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.effects import Displaced, Effect, RecordChanged, Send
from bmgd.core.events import Event, Greeted, LinkUp
from bmgd.sim.checkers.journal import Journal, SeenLink
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, Status
from bmgd.wire.link_messages import Notice


class MeetingsAreTold(Checker):
    """That a link leads to a life which is no news is written as no record, and told to nobody.

    No news is the first life of a founder that is met, and one that was met before. Who has a record of
    its own tells it over each link that comes up.
    """

    name: ClassVar[str] = "meetings-are-told"
    events: ClassVar[Kinds] = (LinkUp, Greeted)
    before_events: ClassVar[Kinds] = (LinkUp, Greeted)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._known: Incarnation | None = None
        """The life that is known of a founder of which there is no record; None for others."""
        self._has_own = False

    def before(self, journal: Journal, event: Event) -> None:
        assert isinstance(event, LinkUp | Greeted)
        membership, records = journal.inside.membership, journal.inside.membership.exceptions()
        is_plain = event.peer < membership.founding_size and event.peer not in records
        self._known = membership.incarnation(event.peer) if is_plain else None
        self._has_own = journal.host.id in records

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if journal.exited or any(isinstance(effect, Displaced) for effect in effects):
            return
        for link in journal.links.values():
            if link.id not in journal.former_links:
                self._check(journal, link, effects)

    def _check(self, journal: Journal, link: SeenLink, effects: Sequence[Effect]) -> None:
        if self._known in (UNKNOWN_INCARNATION, link.incarnation):
            for effect in effects:
                if isinstance(effect, RecordChanged) and effect.id == link.peer:
                    record = effect.record
                    told = record.incarnation, record.version, record.status
                    if told == (link.incarnation, 0, Status.ALIVE):
                        text = f"writes {record} of {link.peer}, whose life is no news"
                        self.violate(journal, text)
        notices = [
            effect.message
            for effect in effects
            if isinstance(effect, Send)
            and effect.link == link.id
            and isinstance(effect.message, Notice)
        ]
        me = journal.host.id
        if self._has_own and not any(me in dict(notice.records) for notice in notices):
            self.violate(
                journal, f"does not tell {link.peer} its own record as their link comes up"
            )
