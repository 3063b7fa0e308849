"""What neighbors are asked for of sources that are gone, and what is remembered of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import ClassVar, NamedTuple

from bmgd.core.broadcast import orphans
from bmgd.core.broadcast.heard import Heard
from bmgd.core.effects import Effect, Send
from bmgd.core.events import DeadlineReached, Event, Received
from bmgd.sim.checkers.broadcasts import LifeKey, retention_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import EVERY, Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.link_messages import Pull, Watermarks


class _Asked(NamedTuple):
    """Who was asked last for what is missing, how much there was then, and how often anybody was."""

    peer: NodeId | None
    at: tuple[int, int]
    times: int


class NeighborsAreAskedAnew(Checker):
    """Neighbors are asked for what is missing of a source that is gone, as often as is remembered.

    After something came, who sent it counts as never asked. When all who may have more were asked in
    vain, as often as may be, they are asked anew with the next telling. Nothing is remembered of what
    neighbors told of a life when it is shared with them no more.
    """

    name: ClassVar[str] = "neighbors-are-asked-anew"
    events: ClassVar[Kinds] = EVERY
    before_events: ClassVar[Kinds] = (Watermarks, DeadlineReached)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._shared: dict[NodeId, set[LifeKey]] = {}
        self._asked: dict[LifeKey, _Asked] = {}
        self._told_again_ns = 0

    def on_boot(self, journal: Journal) -> None:
        self._shared[journal.place] = set()

    def before(self, journal: Journal, event: Event) -> None:
        inside, lives = journal.inside.to_many.orphans, retention_of(journal).lives
        keys: Iterable[LifeKey] = inside._orphans
        if isinstance(event, Received) and isinstance(event.message, Watermarks):
            keys = [(held.source, held.incarnation) for held in event.message.held]
        self._told_again_ns = inside._told_again_ns
        self._asked = {
            key: _Asked(heard.asked, heard.asked_at, heard.asks)
            for key in keys
            if (heard := lives.get(key)) is not None
        }

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        inside, lives = journal.inside.to_many.orphans, retention_of(journal).lives
        shared = self._shared[journal.place]
        if not shared and not inside._orphans and not self._asked:
            return
        asked, self._asked = self._asked, {}
        for key in shared - inside._orphans.keys():
            if key in lives and not _is_fresh(lives[key]):
                self.violate(journal, f"shares {key} no more, and remembers what neighbors told")
        sent = Counter[LifeKey]()
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Pull):
                sent[effect.message.source, effect.message.incarnation] += 1
        if asked:
            self._check_asked(journal, asked, sent)
        if isinstance(event, DeadlineReached) and inside._told_again_ns > self._told_again_ns:
            # In the same step links may have come or gone.
            there = *journal.former_links.values(), *journal.links.values()
            linked = {link.peer for link in there}
            for key in shared & inside._orphans.keys():
                # The last time that is left may be this one.
                if not sent[key] and _is_given_up(lives[key], linked):
                    self.violate(journal, f"gives up to ask for {key}, of which others have more")
        self._shared[journal.place] = set(inside._orphans)

    def _check_asked(
        self, journal: Journal, asked: dict[LifeKey, _Asked], sent: Counter[LifeKey]
    ) -> None:
        lives = retention_of(journal).lives
        for key, before in asked.items():
            heard = lives.get(key)
            if heard is None:
                continue
            if heard.asks - before.times != sent[key]:
                more = heard.asks - before.times
                self.violate(journal, f"asks {sent[key]} times for {key}, and counts {more}")
            if sent[key] == 1 and heard.asked is not None and heard.asked == before.peer:
                in_vain = heard.pulled.get(heard.asked, 0)
                if heard.asked_at != before.at and in_vain > 1:
                    text = (
                        f"asked {heard.asked} for {key} {in_vain} times in vain, but got something"
                    )
                    self.violate(journal, text)


def _is_fresh(heard: Heard) -> bool:
    """Whether nothing is remembered of what neighbors told of a life, or were told."""
    known = (heard.told, heard.said, heard.said_ns, heard.pulled, heard.unanswered)
    return not any(known) and heard.asked is None


def _is_given_up(heard: Heard, linked: Set[NodeId]) -> bool:
    """Whether all linked ones who may have more were asked three times in vain, and for each gap.

    Who told of no more than is here may have what is missing below that.
    """
    top = max(heard.copies, default=0)
    here = {heard.watermark, *(count for count in heard.copies if count > heard.watermark)}
    gaps = sum(count + 1 not in here for count in here)
    beyond = [
        peer
        for peer, (watermark, highest) in heard.told.items()
        if peer in linked
        and (
            watermark > heard.watermark
            or highest > max(top, heard.watermark)
            or (gaps > 1 and highest > heard.watermark)
        )
    ]
    most = orphans.PULLS_MAX + min(gaps, orphans.GAPS_MAX)
    return bool(beyond) and all(heard.pulled.get(peer, 0) >= most for peer in beyond)
