"""One node's core: events in, effects out, no I/O, no clock, no randomness of its own.

Theory of operation. `step` hands an event to the part that it concerns (`parts.py`); a message goes by
`receiving.py`, a deadline by `deadlines.py`. Parts give effects, and tell facts (`context.py`);
`reactions.py` is the one place that says who reacts to which fact. At the end of each step what follows
from the changes is settled, in this order, so that the news travels first:

    notices flooded -> forwarding snapshot published -> links reconciled -> readiness

A step does a bounded amount of work: what goes over many messages or records is left to `work.py`,
and of many deadlines that are due together only some are reached.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from bmgd.core.context import Link
from bmgd.core.counts import Counts
from bmgd.core.deadlines import Deadlines
from bmgd.core.effects import Close, Effect, Reply
from bmgd.core.events import (
    AskFailed,
    Backlog,
    CommandIssued,
    DeadlineReached,
    DialFailed,
    Event,
    Granted,
    Greeted,
    Heard,
    HeartbeatsAbsorbed,
    JoinAsked,
    KeysChanged,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.lifecycle import START_TIMER
from bmgd.core.membership.membership import EVERY_BUCKET
from bmgd.core.parts import Parts
from bmgd.core.reactions import Reactions
from bmgd.core.receiving import Receiving
from bmgd.core.settings import Settings
from bmgd.core.show import show_members, show_status
from bmgd.errors import InvariantError
from bmgd.types import Evidence, Incarnation, NodeId, NodeState, Record
from bmgd.wire.link_messages import Heartbeat, PageAsk, RecordPage

BUGS: Final = (
    *(ArithmeticError, AssertionError, AttributeError),
    *(LookupError, TypeError, ValueError),
)
"""What a step raises only where its code is wrong."""


class Node:
    """The core of one daemon.

    Args:
        settings: the configuration.
        incarnation: this life, its counter above any that is persisted.
        random: the only source of randomness; the same seed and events give the same effects.
        now_ns: monotonic nanoseconds.
        records, retired: what a contact told a joiner, sorted by id.

    Attributes:
        parts: what it consists of; who checks a node reads there.
    """

    def __init__(
        self,
        settings: Settings,
        incarnation: Incarnation,
        random: Random,
        now_ns: int,
        records: tuple[tuple[NodeId, Record], ...] = (),
        retired: tuple[tuple[NodeId, NodeId], ...] = (),
    ) -> None:
        self.parts = Parts(settings, incarnation, random, now_ns, records, retired)
        self._reactions = Reactions(self.parts)
        self._deadlines = Deadlines(self.parts, self._reactions)
        self._receiving = Receiving(self.parts)
        self.parts.context.timers.set((START_TIMER, 0, 0), now_ns)

    # --- what the shell sees ------------------------------------------------------------------

    @property
    def deadline_ns(self) -> int | None:
        """When `DeadlineReached` is wanted; None for never."""
        return self.parts.context.timers.next_ns()

    @property
    def incarnation(self) -> Incarnation:
        """This node's life, as hellos tell it."""
        return self.parts.context.incarnation

    @property
    def state(self) -> NodeState:
        """What the node is doing."""
        return self.parts.context.state

    @property
    def counts(self) -> Counts:
        """What this core has counted since it began."""
        return self.parts.context.counts

    @property
    def has_work(self) -> bool:
        """Whether work is under way that goes on in the steps that follow."""
        return self.parts.work.is_underway

    def rebuild(self) -> None:
        """Make anew what follows from the rest, in a core that was read from a recording."""
        self.parts.forwarding.rebuild()

    def show(self) -> dict[str, Any]:
        """What programs would be shown now: ``{"status":…, "members":…}``."""
        status = show_status(self.parts.context, self.parts.links)
        return {"status": status, "members": show_members(self.parts.context)["members"]}

    def status(self, request: int) -> Reply:
        """The answer to `ShowStatus`, of a node that is stepped no more."""
        return self.parts.requests.status(request)

    @property
    def leave_by_ns(self) -> int:
        """Until when this node drains, once it is leaving."""
        return self.parts.lifecycle.leave_by_ns

    def page(self, after: NodeId) -> RecordPage:
        """A page of all that this node believes, as a joiner is told it."""
        return self.parts.comparison.page(PageAsk(after, EVERY_BUCKET))

    def inherit(self, former: Node) -> None:
        """Take over what waits for programs from the node that this process was, before a step."""
        self.parts.topics.inherit(former.parts.topics)
        self.parts.outbound.table.inherit(former.parts.outbound.table)
        self.parts.to_many.inherit(former.parts.to_many)

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        """Take one event; return the effects, to be carried out in order.

        Args:
            now_ns: monotonic nanoseconds, never less than before.

        Raises:
            InvariantError: a bug; the process must end.
        """
        parts, context = self.parts, self.parts.context
        if now_ns < context.now_ns:
            raise InvariantError("time went backwards")
        context.now_ns = now_ns
        allowance = context.membership.allowance
        if allowance.is_limited:
            allowance.limit(now_ns)
        self._deadlines.notice_lag()
        # Who was late has more to do than to take it in.
        was_late = bool(context.effects)
        if not was_late and type(event) is Received and type(event.message) is Heartbeat:
            # Nearly all that an idle node gets: nothing follows from it that would have to be settled.
            link = parts.links.get(event.link)
            if link is not None and parts.detector.absorb(link, event.message):
                context.counts.received[Heartbeat] += 1
                return []
        if not was_late and type(event) is HeartbeatsAbsorbed and not parts.detector.suspects:
            parts.detector.on_absorbed(event.beats)
            return []
        try:
            self._on_event(event)
            self._settle()
        except BUGS as error:
            raise InvariantError(f"{type(event).__name__}: {error!r}") from error
        effects, context.effects = context.effects, []
        return effects

    # --- events -------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        parts = self.parts
        match event:
            case Received(link_id, message):
                self._receiving.on_received(link_id, message)
            case Heard(link_ids):
                for link_id in link_ids:
                    link = parts.links.get(link_id)
                    if link is not None:
                        parts.detector.heard(link)
            case HeartbeatsAbsorbed(beats):
                parts.detector.on_absorbed(beats)
            case DeadlineReached():
                self._deadlines.on_due()
            case LinkUp():
                self._on_link_up(event)
            case LinkDown(link_id, evidence):
                parts.greeting.on_hello_lost(link_id)
                parts.growth.on_link_lost(link_id)
                parts.links.lose(link_id, evidence)
            case DialFailed(peer) if peer == parts.context.id:
                parts.context.counts.failed[event.evidence] += 1
                parts.claims.on_dial_failed(event)
            case DialFailed():
                parts.context.counts.failed[event.evidence] += 1
                parts.dialling.on_dial_failed(event)
                parts.greeting.on_dial_failed(event)
                parts.eviction.on_dial_failed(event)
                parts.renewal.on_dial_failed(event)
            case Greeted():
                parts.greeting.on_greeted(event)
            case JoinAsked():
                parts.growth.on_join_asked(event)
            case Granted() | AskFailed():
                pass  # A joiner's; this one has joined.
            case CommandIssued(request, command):
                parts.requests.on_command(request, command)
            case KeysChanged(keys):
                parts.renewal.on_keys_changed(keys)
            case Backlog(link_id, backlog_bytes):
                if parts.links.get(link_id) is not None:
                    parts.outbound.sending.held.on_backlog(link_id, backlog_bytes)
                parts.context.observe("backlog", detail=f"link {link_id}: {backlog_bytes} bytes")

    def _on_link_up(self, up: LinkUp) -> None:
        parts, context = self.parts, self.parts.context
        known = context.membership.vouched(up.peer)
        if up.incarnation < known or parts.dialling.speaks_for_former_life(up.dial_number):
            # It is no link of these two lives, so it takes the place of none.
            context.emit(Close(up.link, "a former life"))
            parts.dialling.on_former_life_linked(up.peer)
            parts.renewal.on_dial_failed(DialFailed(up.peer, Evidence.EOF))
            return
        link = Link(
            id=up.link,
            peer=up.peer,
            incarnation=up.incarnation,
            address=up.address,
            dialled_by=context.id,
            dial_number=up.dial_number,
            heard_ns=context.now_ns,
            known_of_me=up.known_of_me,
            key=up.key,
            renews=up.renews,
            features=up.features,
        )
        parts.links.open(link)

    # --- what follows -------------------------------------------------------------------------

    def _settle(self) -> None:
        parts, react = self.parts, self._reactions.react
        facts = parts.context.facts
        react()
        parts.lifecycle.renew_if_asked()
        if facts:
            react()
        parts.healing.look()
        if facts:
            react()
        parts.quorum.settle()
        parts.notices.settle()
        if self._publish_ways():
            parts.relayout.unsettled = True
        if parts.relayout.unsettled:
            parts.relayout.unsettled = False
            parts.lifecycle.check_ready()
            parts.relayout.release()
            self._publish_ways()
        parts.detector.settle()
        parts.work.settle()

    def _publish_ways(self) -> bool:
        """Publish changed ways, and tell who waits for one; whether any have changed.

        What was sent in this step may have published them already.
        """
        parts, forwarding = self.parts, self.parts.forwarding
        if parts.links.forwarding_stale:
            forwarding.publish()
        if not forwarding.has_news:
            return False
        forwarding.has_news = False
        parts.outbound.answers.on_ways_changed()
        parts.outbound.sending.held.on_ways_changed()
        return True
