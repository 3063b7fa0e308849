"""What readers are shown of broadcasts: each in its source's order, once, and every hole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from bmgd.core.broadcast import announcements, retention
from bmgd.core.commands import BroadcastTo, Subscribe
from bmgd.core.effects import Announce, Effect, Reply, TellMissed
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.sim.checkers.broadcasts import FEW_LIVES, NEWS, LifeKey, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.host import Host
from bmgd.types import Incarnation, NodeId
from bmgd.wire.broadcast_messages import Piece, ReliableBroadcast


class ReadersSeeEverything(Checker):
    """A reader gets each source life's reliable broadcasts in order, once; it is told of every hole.

    That its topic carries some is remembered, for the holes that come.
    In the simulation nearly all are on one topic: their counts follow one another, but for the others,
    or what is between is told as missed, where the topic has carried any. Each is what its source was
    given. At best effort each payload comes once at most; a multicast only to those it names.
    A process that becomes another node may forget how far readers got, where it remembers few lives.
    """

    name: ClassVar[str] = "readers-see-everything"
    events: ClassVar[Kinds] = (CommandIssued, ReliableBroadcast)
    effects: ClassVar[Kinds] = (Announce, TellMissed, ReliableBroadcast)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._last: dict[tuple[int, NodeId, Incarnation], tuple[int, NodeId]] = {}
        """Up to where a reader was shown a life, and as which node."""
        self._lives_max = retention.LIVES_MAX
        """The least bound there was: a narrow one may be widened when the faults are over."""
        self._payloads: Counter[tuple[int, bytes]] = Counter()
        self._texts: dict[tuple[NodeId, Incarnation, int], tuple[bytes, Piece | None]] = {}
        """As its source was given it, or as a reader was first shown it."""
        self._readers: set[int] = set()
        self._of_others: set[tuple[NodeId, Incarnation, int]] = set()
        self._next: dict[LifeKey, int] = {}
        self._carrying: set[Host] = set()
        """Where a reliable broadcast has come."""

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        self._lives_max = min(self._lives_max, retention.LIVES_MAX)
        match event:
            case CommandIssued(request, Subscribe(topic)) if topic == NEWS:
                self._readers.add(request)
            case CommandIssued(_, BroadcastTo(reliable=True)):
                self._carrying.add(journal.host)
            case Received(_, ReliableBroadcast(route, topic)) if topic:
                self._carrying.add(journal.host)
                if topic != NEWS:
                    count = route.source, route.source_incarnation, route.sequence
                    self._of_others.add(count)
            case _:
                pass
        self._note_programs(journal, event, effects)
        for effect in effects:
            if isinstance(effect, Announce):
                self._on_announced(journal, effect)
            elif isinstance(effect, TellMissed) and effect.request in self._readers:
                if journal.host not in self._carrying:
                    text = f"tells a reader what it missed of {effect.source}, whose topic carries none"
                    self.violate(journal, text)
                self._follow(journal, effect, effect.first, effect.last)

    def _note_programs(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        """Which of the counts that this node has given are of news of programs, not of broadcasts."""
        window, life = source_of(journal).window, (journal.host.id, journal.incarnation)
        first = self._next.get(life, 1)
        if window.next <= first:
            return
        self._next[life] = window.next
        topics = {sent.sequence: sent.command.topic for sent in window.unstable}
        for sent in window.unstable:
            if sent.sequence >= first:
                text = sent.command.payload, sent.command.piece
                self._texts[(*life, sent.sequence)] = text
        match event:
            case CommandIssued(request, BroadcastTo(reliable=True)) if (
                window.next - 1 not in topics and _is_answered(request, effects)
            ):
                # It was stable at once, because nobody else is there; those before it came to be so
                # when nobody looked, and so no reader was shown them.
                topics[window.next - 1] = NEWS
            case _:
                pass
        for count in range(first, window.next):
            if not topics.get(count):
                self._of_others.add((*life, count))

    def _on_announced(self, journal: Journal, effect: Announce) -> None:
        key = effect.request, effect.payload
        self._payloads[key] += 1
        if self._payloads[key] > 1:
            self.violate(journal, f"a reader gets a broadcast of {effect.source} again")
        if not effect.sequence:
            return
        carrying = journal.inside.to_many.announcements._carrying
        if effect.topic not in carrying and len(carrying) < announcements.TOPICS_MAX:
            self.violate(journal, f"shows one on {effect.topic!r}, and forgets that there are any")
        self._follow(journal, effect, effect.sequence, effect.sequence)
        known = (effect.source, effect.incarnation, effect.sequence)
        text = effect.payload, effect.piece
        if self._texts.setdefault(known, text) != text:
            self.violate(journal, f"another payload than its source was given as {known}")

    def _follow(
        self, journal: Journal, effect: Announce | TellMissed, first: int, last: int
    ) -> None:
        key = effect.request, effect.source, effect.incarnation
        before, by = self._last.get(key, (None, None))
        follows = before
        while follows is not None and follows + 1 < first:
            if (effect.source, effect.incarnation, follows + 1) not in self._of_others:
                break
            follows += 1
        is_forgotten = by != journal.host.id and self._lives_max < FEW_LIVES
        is_hole = follows is not None and first != follows + 1 and not is_forgotten
        if last < first or is_hole:
            self.violate(journal, f"a reader is shown {first}..{last} after {before} of {key[1:]}")
        self._last[key] = last, journal.host.id


def _is_answered(request: int, effects: Sequence[Effect]) -> bool:
    """Whether a broadcast has its report; one that waits for room has none, nor a number."""
    return any(isinstance(e, Reply) and e.request == request and not e.error for e in effects)
