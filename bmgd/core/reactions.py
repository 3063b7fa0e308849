"""Who reacts to which fact: the one place that knows.

Theory of operation. A part calls the parts below it, and tells a fact for those above it (`context.py`).
Facts wait until the part that told them is done, and are handed out here in the order in which they were
told. Reactions may tell facts too; these come after those that wait. So no two parts know each
other in both directions.
"""

from __future__ import annotations

from bmgd.core.context import (
    AccusedSelf,
    Fact,
    FirstRecord,
    IdLost,
    LifeContested,
    LinkLost,
    LinkOpened,
    LongSettled,
    QuestionsLost,
    RecordMoved,
    RoomFreed,
    Vetoed,
)
from bmgd.core.parts import Parts
from bmgd.types import Incarnation, NodeId, Record, Status


class Reactions:
    """Hands the facts that the parts of one node tell to those whom they concern."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def react(self) -> None:
        """Hand out the facts that were told, and those that they give rise to."""
        facts = self._parts.context.facts
        while facts:
            self._on_fact(facts.popleft())

    def _on_fact(self, fact: Fact) -> None:
        parts = self._parts
        match fact:
            case LinkOpened(link):
                parts.meeting.on_link_opened(link)
                parts.older.on_link_opened(link)
                parts.renewal.on_link_opened(link)
                parts.to_many.on_link_opened(link)
            case LinkLost(link, evidence):
                parts.context.counts.lost[evidence] += 1
                parts.context.observe("link down", link.peer, link.incarnation, evidence.value)
                if not parts.links.to(link.peer):
                    parts.greeting.on_gone(link.peer)
                parts.dialling.on_link_lost(link, evidence)
            case LongSettled(source, stream, taken):
                if source == parts.context.id:
                    parts.outbound.answers.on_long_settled(-stream, taken)
                else:
                    parts.inbound.on_long_settled(source, stream, taken)
            case QuestionsLost():
                parts.asking.tell_lost(fact)
            case RoomFreed(topic):
                parts.outbound.sending.on_room(topic)
                parts.inbound.on_room(topic)
            case RecordMoved():
                self._on_record_moved(fact)
            case Vetoed(peer):
                parts.relayout.unsettled = True
                parts.dialling.on_vetoed(peer)
            case AccusedSelf(record, told_by) if self._is_claim(record):
                parts.claims.on_claim(record, told_by)
            case AccusedSelf(record):
                parts.lifecycle.on_accused_self(record)
            case FirstRecord():
                parts.to_many.orphans.ask_neighbors()
            case LifeContested(node_id):
                parts.contests.on_contested(node_id)
            case IdLost(why, told_by):
                self._on_id_lost(why, told_by)

    def _on_record_moved(self, moved: RecordMoved) -> None:
        parts, context = self._parts, self._parts.context
        peer, status = moved.id, moved.after.status
        parts.older.on_record_moved(moved)
        parts.quorum.on_record_moved(moved)
        parts.retirement.on_record_moved(moved)
        parts.growth.on_record_moved(moved)
        if peer in context.membership.retired:
            context.moved_ns.pop(peer, None)
        elif moved.before is None or moved.before.status is not status:
            context.moved_ns[peer] = context.now_ns
        parts.relayout.unsettled = True
        was_in = moved.before is not None and moved.before.status < Status.EXCLUDED
        is_in = status < Status.EXCLUDED
        if was_in != is_in:
            parts.relayout.plan(grew=is_in)
        if peer == context.id:
            return
        parts.to_many.on_record_moved(moved)
        if status >= Status.DEAD:
            parts.detector.clear_suspicion(peer)
            parts.links.accuse(peer)
            parts.outbound.answers.on_gone(peer)
            parts.inbound.on_gone(peer)
            parts.growth.on_gone()
        else:
            parts.links.close_life(
                peer, Incarnation(moved.after.incarnation - 1), "a new life is known"
            )
            parts.detector.look_at(peer)
            parts.dialling.reconcile()
            parts.outbound.answers.on_new_life(peer)

    def _is_claim(self, record: Record) -> bool:
        return record.incarnation > self._parts.context.incarnation and record.status < Status.DEAD

    def _on_id_lost(self, why: str, told_by: NodeId | None) -> None:
        parts = self._parts
        parts.probing.abandon(why)
        parts.eviction.abandon(why)
        parts.survey.abandon(why)
        parts.finding.abandon(why)
        parts.lifecycle.displace(why, told_by)
