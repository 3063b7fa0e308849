"""Reliable broadcasts at rest: all who were held alive all the time have each, or none has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.broadcast import copies, retention, window
from bmgd.core.broadcast.orphans import ORPHAN_NS
from bmgd.core.commands import Subscribe, Unsubscribe
from bmgd.core.effects import Announce, Effect, RecordChanged, TellMissed
from bmgd.core.events import CommandIssued, Event
from bmgd.sim.checkers.broadcasts import FEW_LIVES, NEWS, LifeKey, retention_of, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, counter_of
from bmgd.wire.broadcast_messages import ReliableBroadcast

LEAPT_NS = ORPHAN_NS // 2
"""A holder whose clock leapt so far may have let its copies go before it could share them."""
LITTLE_BYTES = 1 << 20
"""Less room for copies than this is found full in a simulation."""
ANSWER_NS = 3_000_000_000
"""So long after it is held alive again a node may still be outside of an audience."""


@dataclass(slots=True)
class _Process:
    """One life of one node as its reader saw it."""

    node_id: NodeId
    life: Incarnation
    reads_since_ns: int
    request: int
    got: dict[LifeKey, set[int]] = field(default_factory=dict)
    missed: dict[LifeKey, set[int]] = field(default_factory=dict)


class AllHaveItOrNone(Checker):
    """Of the nodes that nobody held dead meanwhile, all have a broadcast, or none; others are told.

    Meanwhile is from when it was sent until the end. A node counts if its program has read, in one life
    of the node, since before it was sent, and if the source knew of that life: others begin later. Who
    was held dead has it, or is told that it missed it; unless, when it came back, nobody knew of it any
    more: a life that another followed is forgotten after `ORPHAN_NS`. Nor is it told where the clocks of
    all who have it leapt so far since: they kept their copies no longer.

    Sent is when the source numbered it. A source without any link sends its first frame much later; a
    life of which it learns in between was not known when the broadcast was sent, and begins after it.

    A source gives up pieces when it learns of a member of an older release: who lacks one is told. So is
    who keeps less beyond a gap than a source may have underway, which only a narrow bound makes possible.
    Where the room for copies is full, and their source has ended, who lacks one misses it, and may not
    be told. Nor is who had no room for a further source, where it remembers few.
    """

    name: ClassVar[str] = "all-have-it-or-none"
    events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Announce, TellMissed, RecordChanged, ReliableBroadcast)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._processes: dict[NodeId, _Process] = {}
        self._sent: dict[tuple[NodeId, Incarnation, int], int] = {}
        self._clocks_ns: dict[tuple[NodeId, Incarnation, int], dict[NodeId, int]] = {}
        """By how much each place's clock was ahead of virtual time when it was sent."""
        self._numbered: dict[LifeKey, int] = {}
        self._owed: dict[
            tuple[NodeId, Incarnation, int], frozenset[tuple[NodeId, Incarnation]]
        ] = {}
        self._last_dead_ns: dict[NodeId, int] = {}
        self._pieces: set[tuple[NodeId, Incarnation, int]] = set()
        self._lives_max = retention.LIVES_MAX
        """The least bound there was: a narrow one may be widened when the faults are over."""
        self._begun: Counter[NodeId] = Counter()
        """How many processes have had an id: one that lost its state does not know it either."""

    def on_boot(self, journal: Journal) -> None:
        self._processes.pop(journal.place, None)
        self._begun[journal.host.id] += 1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        now_ns = self.scene.now_ns
        self._lives_max = min(self._lives_max, retention.LIVES_MAX)
        match event:
            case CommandIssued(request, Subscribe(topic)) if topic == NEWS:
                own = journal.incarnation
                self._processes[journal.place] = _Process(journal.host.id, own, now_ns, request)
            case CommandIssued(request, Unsubscribe()):
                read = self._processes.get(journal.place)
                if read is not None and read.request == request:
                    del self._processes[journal.place]
        self._note_sent(journal, now_ns)
        process = self._processes.get(journal.place)
        for effect in effects:
            if isinstance(effect, RecordChanged):
                self._on_record(effect, now_ns)
            elif process is not None and isinstance(effect, Announce) and effect.sequence:
                life = effect.source, effect.incarnation
                process.got.setdefault(life, set()).add(effect.sequence)
            elif process is not None and isinstance(effect, TellMissed):
                life = effect.source, effect.incarnation
                told = range(effect.first, effect.last + 1)
                process.missed.setdefault(life, set()).update(told)

    def _note_sent(self, journal: Journal, now_ns: int) -> None:
        """What this node has numbered since; what was stable at once is for nobody else."""
        own, life = source_of(journal).window, (journal.host.id, journal.incarnation)
        before = self._numbered.get(life, 0)
        self._numbered[life] = max(before, own.next - 1)
        for sent in reversed(own.unstable):
            if sent.sequence <= before:
                break
            if not sent.command.topic:
                continue
            self._sent[*life, sent.sequence] = now_ns
            self._clocks_ns[*life, sent.sequence] = {
                place: other.host.offset_ns for place, other in self.scene.journals.items()
            }
            if sent.command.piece is not None:
                self._pieces.add((*life, sent.sequence))
            audience = ((1 << sent.id_space) - 1) & ~sent.exceptions
            self._owed[*life, sent.sequence] = self._known_to(journal, audience)

    def _known_to(self, journal: Journal, audience: int) -> frozenset[tuple[NodeId, Incarnation]]:
        """The lives that read, and that a source knows of, or waits for as founders."""
        membership = journal.inside.membership
        found = []
        for process in self._processes.values():
            record = membership.exceptions().get(process.node_id)
            known = membership.incarnation(process.node_id)
            if record is not None or counter_of(process.life) > 1:
                # A life that followed another, and was only met, is not held alive yet.
                known = UNKNOWN_INCARNATION if record is None else record.incarnation
            is_waited_for = not known and not membership.is_gone(process.node_id)
            is_waited_for &= self._begun[process.node_id] == 1
            if not (audience >> process.node_id & 1 or membership.is_gone(process.node_id)):
                # It joined in the same step, afterwards.
                continue
            if known == process.life or is_waited_for:
                found.append((process.node_id, process.life))
        return frozenset(found)

    def _on_record(self, changed: RecordChanged, now_ns: int) -> None:
        # Who learns that it lives holds it dead no more; for a while yet its source may not know.
        self._last_dead_ns[changed.id] = now_ns

    def at_rest(self, journals: Sequence[Journal]) -> None:
        judged = [
            (journal, process)
            for journal in journals
            if (process := self._processes.get(journal.place)) is not None
            and process.life == journal.incarnation
            and process.node_id == journal.host.id
        ]
        for (source, life, count), sent_ns in self._sent.items():
            there = [
                (journal, process)
                for journal, process in judged
                if process.reads_since_ns < sent_ns
                and process.node_id != source
                and (process.node_id, process.life) in self._owed[source, life, count]
            ]
            self._judge((source, life), count, sent_ns, there)
        self._judge_sources(journals)

    def _judge(
        self,
        life: LifeKey,
        count: int,
        sent_ns: int,
        there: Sequence[tuple[Journal, _Process]],
    ) -> None:
        holders = [j for j, p in there if count in p.got.get(life, ())]
        have = [journal.host.id for journal in holders]
        before_ns = self._clocks_ns[*life, count]
        keeps = any(j.host.offset_ns - before_ns.get(j.place, 0) < LEAPT_NS for j in holders)
        for journal, process in there:
            if count in process.got.get(life, ()):
                continue
            told = count in process.missed.get(life, ()) or _waits(journal, life, count)
            if told and (self._may_be_given_up(life, count) or self._was_full(journal)):
                continue
            if told and (retention.AHEAD_MAX < window.UNSTABLE_MAX or self._had_no_room(life)):
                continue
            always = self._last_dead_ns.get(process.node_id, -1) + ANSWER_NS < sent_ns
            if always and have:
                what = "is told that it missed" if told else "does not have"
                self.violate(journal, f"{what} {count} of {life}, which {have} have")
            elif keeps and not told and self._is_remembered(life, count):
                if self._had_no_room(life) or self._knew_no_source(journal, life):
                    continue
                self.violate(journal, f"lacks {count} of {life} and is not told; {have} have it")

    def _may_be_given_up(self, life: LifeKey, count: int) -> bool:
        """Whether its source can have learnt of a member that takes no pieces."""
        has_older = self.scene.network.conditions.older_percent > 0
        return has_older and (*life, count) in self._pieces

    def _was_full(self, journal: Journal) -> bool:
        """Whether a program that takes nothing, or has little room, had no room for more."""
        conditions = self.scene.network.conditions
        has_little = conditions.stalled_percent > 0 or conditions.narrow_percent > 0
        return has_little and journal.inside.to_many.announcements.dropped_reliable > 0

    def _had_no_room(self, life: LifeKey) -> bool:
        """Whether its source has ended, and copies found no room where there is little for them.

        Nobody but the source sends again: who is behind nodes without room may never hear of a copy.
        """
        has_little = copies.HELD_BYTES_MAX < LITTLE_BYTES
        refused = any(retention_of(journal).refused for journal in self._running())
        return has_little and refused and self._is_gone(life)

    def _knew_no_source(self, journal: Journal, life: LifeKey) -> bool:
        """Whether its source has ended, and where few are remembered there was no room for it here."""
        known = retention_of(journal)
        had_no_room = self._lives_max < FEW_LIVES and known.refused > 0
        return had_no_room and life not in known.lives and self._is_gone(life)

    def _is_gone(self, life: LifeKey) -> bool:
        return life not in {(journal.host.id, journal.incarnation) for journal in self._running()}

    def _running(self) -> list[Journal]:
        journals = self.scene.journals.values()
        return [each for each in journals if each.host.alive and not each.exited]

    def _is_remembered(self, life: LifeKey, count: int) -> bool:
        """Whether anybody who runs could still tell that there was such a broadcast."""
        heards = (retention_of(journal).lives.get(life) for journal in self._running())
        return any(heard is not None and heard.reach[1] >= count for heard in heards)

    def _judge_sources(self, journals: Sequence[Journal]) -> None:
        """At rest nothing is unstable, and nobody lacks anything of a source that runs."""
        for journal in journals:
            source = source_of(journal)
            if source.underway:
                self.violate(journal, f"{source.underway} broadcasts are not stable at rest")
            life, last = (journal.host.id, journal.incarnation), source.window.next - 1
            for other in journals:
                heard = other.inside.to_many.retention.lives.get(life)
                if heard is None or other is journal:
                    continue
                if heard.watermark < last:
                    self.violate(other, f"has {heard.watermark} of {life}, of {last}")
                elif heard.copies:
                    self.violate(other, f"keeps {len(heard.copies)} copies of {life} at rest")


def _waits(journal: Journal, life: LifeKey, count: int) -> bool:
    """Whether a reader is to be told that it missed this, once its topic carries a broadcast."""
    readers = journal.inside.to_many.announcements._readers.values()
    gaps = (reader.untold.get(life) for reader in readers if reader.topic == NEWS)
    return any(gap is not None and gap.first <= count <= gap.last for gap in gaps)
