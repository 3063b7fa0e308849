"""Pages of records that a node fetches from another: it goes on to the last one, and floods the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from bmgd.core.effects import Effect, RecordChanged, Send
from bmgd.core.events import Event, Received
from bmgd.core.membership import comparison
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import LinkId, NodeId, Record
from bmgd.wire.link_messages import Notice, PageAsk, RecordPage

PAGE_NS: Final = 3_000_000_000
"""So long the next page is waited for, whoever else could be asked."""
FLOOD_NS: Final = 100_000_000
"""How long a changed record may be gathered with others before it goes out."""


@dataclass(slots=True)
class _Fetch:
    link: LinkId
    ask: PageAsk
    asked_ns: int
    began_ns: int


class PagesFollowEachOther(Checker):
    """A page that goes on is followed by an ask for the next one; of all only the first is passed on.

    Who waits for a page has no other fetch. One that lasts for minutes may end, where others wait; and
    runs of retired ids are not all taken over at once.
    """

    name: ClassVar[str] = "pages-follow-each-other"
    events: ClassVar[Kinds] = (RecordPage,)
    before_events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (PageAsk, Notice, RecordChanged)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._fetch: dict[NodeId, _Fetch] = {}
        self._changed: dict[NodeId, dict[NodeId, int]] = {}
        """When the record of each id changed last by something that is passed on."""
        self._kept: dict[NodeId, dict[NodeId, Record]] = {}
        """What later pages brought, which is not passed on."""

    def on_boot(self, journal: Journal) -> None:
        self._fetch.pop(journal.place, None)
        self._changed[journal.place], self._kept[journal.place] = {}, {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        page = event.message if isinstance(event, Received) else None
        fetch, brought = self._fetch.get(journal.place), set[tuple[NodeId, Record]]()
        link = event.link if isinstance(event, Received) else None
        if fetch is not None and isinstance(page, RecordPage) and fetch.link == link:
            del self._fetch[journal.place]
            is_in_time = journal.now_ns - fetch.asked_ns < PAGE_NS
            if is_in_time and link in journal.former_links:
                self._check_next(journal, fetch, page, effects)
                brought = set(page.records) if fetch.ask.after else brought
        self._note_asks(journal, fetch, effects)
        self._note_changes(journal, effects, brought)
        if self._kept[journal.place]:
            self._check_told(journal, effects)

    def _note_asks(self, journal: Journal, fetch: _Fetch | None, effects: Sequence[Effect]) -> None:
        for effect in effects:
            ask = effect.message if isinstance(effect, Send) else None
            if isinstance(effect, Send) and isinstance(ask, PageAsk):
                goes_on = fetch is not None and ask.after and fetch.link == effect.link
                began_ns = fetch.began_ns if fetch is not None and goes_on else journal.now_ns
                self._fetch[journal.place] = _Fetch(effect.link, ask, journal.now_ns, began_ns)

    def _check_next(
        self, journal: Journal, fetch: _Fetch, page: RecordPage, effects: Sequence[Effect]
    ) -> None:
        if page.retired or fetch.link not in journal.links or journal.exited:
            return
        asked = [
            effect.message
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, PageAsk)
        ]
        is_long = journal.now_ns - fetch.began_ns > comparison.FETCH_NS
        expected = []
        if page.following is not None and page.following > fetch.ask.after:
            expected = [PageAsk(page.following, fetch.ask.buckets)]
        if asked != expected and not (is_long and not asked):
            self.violate(journal, f"asks for {asked} after a page that goes on at {page.following}")

    def _note_changes(
        self, journal: Journal, effects: Sequence[Effect], brought: set[tuple[NodeId, Record]]
    ) -> None:
        changed, kept = self._changed[journal.place], self._kept[journal.place]
        for effect in effects:
            if not isinstance(effect, RecordChanged):
                continue
            # What is about to be told of an id anyway is told as it is now.
            is_due = journal.now_ns - changed.get(effect.id, -FLOOD_NS) < FLOOD_NS + journal.lag_ns
            if (effect.id, effect.record) in brought and not is_due:
                kept[effect.id] = effect.record
            else:
                changed[effect.id] = journal.now_ns
                kept.pop(effect.id, None)

    def _check_told(self, journal: Journal, effects: Sequence[Effect]) -> None:
        kept = self._kept[journal.place]
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, Notice):
                continue
            link = journal.links.get(effect.link)
            for node_id, record in effect.message.records:
                # The other end of a link is told what is believed of itself, and by itself what it is.
                is_own = link is None or node_id in (link.peer, journal.host.id)
                if kept.get(node_id) == record and not is_own:
                    self.violate(journal, f"passes on {record} of {node_id}, of a later page")
