"""One node's core: events in, effects out, no I/O, no clock, no randomness of its own.

Theory of operation. `step` hands an event to the part that it concerns. Parts give effects, and tell
facts (`context.py`); `_react` is the one place that says who reacts to which fact. At the end of each
step what follows from the changes is settled, in this order, so that the news travels first:

    notices flooded -> forwarding snapshot published -> links reconciled -> readiness

A step does a bounded amount of work: what goes over many messages or records is left to `work.py`,
and of many deadlines that are due together the first `DEADLINES_PER_STEP` are reached.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from bmgd.core.acknowledging import ACK_TIMER
from bmgd.core.asking import Asking
from bmgd.core.claims import Claims
from bmgd.core.comparison import Comparison, in_order
from bmgd.core.contests import CONTEST_TIMER, Contests
from bmgd.core.context import (
    AccusedSelf,
    Context,
    Fact,
    IdLost,
    LifeContested,
    Link,
    LinkLost,
    LinkOpened,
    LongSettled,
    QuestionsLost,
    RecordMoved,
    RoomFreed,
    Vetoed,
)
from bmgd.core.counts import Counts
from bmgd.core.detector import (
    ANSWER_TIMER,
    ASK_TIMER,
    BEAT_TIMER,
    DIGEST_TIMER,
    LATE_NS,
    SILENCE_TIMER,
    Detector,
)
from bmgd.core.dialling import DIAL_TIMER, JOIN_TIMER, Dialling
from bmgd.core.draining import Draining
from bmgd.core.effects import Close, Effect
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
from bmgd.core.eviction import EVICT_TIMER, Eviction
from bmgd.core.finding import FIND_TIMER, Finding
from bmgd.core.flood import Flood
from bmgd.core.forwarding import Forwarding
from bmgd.core.greeting import HELD_TIMER, Greeting
from bmgd.core.growth import ASSIGN_TIMER, GRANT_TIMER, JOIN_ASK_TIMER, Growth
from bmgd.core.healing_policy import HEAL_TIMER, Healing
from bmgd.core.inbound import GONE_TIMER, Inbound
from bmgd.core.lifecycle import LEAVE_TIMER, START_DEADLINE_TIMER, START_TIMER, Lifecycle
from bmgd.core.links import ACCUSED_TIMER, Links
from bmgd.core.meeting import Meeting
from bmgd.core.membership import EVERY_BUCKET
from bmgd.core.notices import NOTICES_TIMER, Notices
from bmgd.core.older import Older
from bmgd.core.outbound import Outbound
from bmgd.core.probing import PROBE_TIMER, Probing
from bmgd.core.quorum import QUORUM_TIMER, Quorum
from bmgd.core.redialling import REDIAL_TIMER, SEARCH_TIMER, Redialling
from bmgd.core.relayout import LINGER_TIMER, RELAYOUT_TIMER, Relayout
from bmgd.core.renewal import RENEW_TIMER, Renewal
from bmgd.core.requests import Requests
from bmgd.core.retirement import RETIRE_TIMER, Retirement
from bmgd.core.settings import Settings
from bmgd.core.show import show_members, show_status
from bmgd.core.stream_table import STREAM_TIMER
from bmgd.core.survey import TRACE_TIMER, Survey
from bmgd.core.timers import TimerKey
from bmgd.core.to_many import ToMany
from bmgd.core.topics import EXPIRY_TIMER, Topics
from bmgd.core.work import WORK_TIMER, Work
from bmgd.errors import InvariantError
from bmgd.types import (
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
)
from bmgd.wire.messages import (
    Answer,
    Ask,
    Broadcast,
    Buckets,
    Goodbye,
    Heartbeat,
    JoinGrant,
    JoinRequest,
    LinkMessage,
    Message,
    Multicast,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Probe,
    ProbeReply,
    ProgramAsk,
    ProgramList,
    Pull,
    ReadersAnswer,
    ReadersAsk,
    RecordPage,
    ReliableBroadcast,
    Report,
    ReportAsk,
    RoutedMessage,
    Segment,
    SegmentAck,
    SharedSegment,
    Skipped,
    Stable,
    StreamReset,
    TraceAnswer,
    TraceAsk,
    Unreachable,
    Unwanted,
    Watermark,
    Watermarks,
)

DEADLINES_PER_STEP = 256
"""Deadlines reached in one step; the others are reached in the next, which is due at once."""


class Node:
    """The core of one daemon.

    Args:
        settings: the configuration.
        incarnation: this life, its counter above any that is persisted.
        random: the only source of randomness; the same seed and events give the same effects.
        now_ns: monotonic nanoseconds.
        records, retired: what a contact told a joiner, sorted by id.
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
        context = self._context = Context(settings, incarnation, random)
        context.now_ns = context.began_ns = now_ns
        self._take_members(records, retired)
        work = self._work = Work(context)
        links = self._links = Links(context)
        notices = self._notices = Notices(context, links)
        comparison = self._comparison = Comparison(context, notices)
        self._retirement = Retirement(context, notices)
        forwarding = self._forwarding = Forwarding(context, links)
        self._quorum = Quorum(context)
        healing = self._healing = Healing(context, notices)
        detector = self._detector = Detector(
            context, links, notices, comparison, forwarding, healing
        )
        dialling = self._dialling = Dialling(context, links, detector)
        redialling = self._redialling = Redialling(context, links, dialling)
        self._flood = Flood(context)
        self._older = Older(context, links)
        self._claims = Claims(context, detector, dialling)
        self._contests = Contests(context, notices)
        self._renewal = Renewal(context, links, dialling)
        greeting = self._greeting = Greeting(context, links, dialling)
        topics = self._topics = Topics(context, work)
        outbound = self._outbound = Outbound(context, forwarding, topics, work)
        inbound = self._inbound = Inbound(context, forwarding, topics, work)
        to_many = self._to_many = ToMany(context, links, forwarding, topics, outbound, inbound)
        self._probing = Probing(context, forwarding)
        relayout = self._relayout = Relayout(context, links, dialling)
        lifecycle = self._lifecycle = Lifecycle(
            context,
            links,
            notices,
            detector,
            dialling,
            redialling,
            relayout,
            outbound,
            inbound,
            to_many,
            Draining(context, outbound, topics, to_many),
        )
        self._meeting = Meeting(context, links, notices, detector, dialling, greeting, lifecycle)
        self._eviction = Eviction(context, notices, forwarding, dialling)
        self._growth = Growth(context, links, notices, comparison, forwarding, work)
        self._survey = self._make_survey()
        self._asking = Asking(context, topics, outbound)
        self._finding = Finding(context, forwarding, topics, work)
        self._requests = self._make_requests()
        self._late_ns = now_ns
        self._timer_handlers = self._make_timer_handlers()
        context.timers.set((START_TIMER, 0, 0), now_ns)

    def _take_members(
        self,
        records: tuple[tuple[NodeId, Record], ...],
        retired: tuple[tuple[NodeId, NodeId], ...],
    ) -> None:
        """Begin with the members that a contact told, and with this node."""
        context, membership = self._context, self._context.membership
        for first, last, record in in_order(records, retired):
            if record is not None:
                membership.join(first, record)
            else:
                membership.retire_run(first, last)
        if membership.get(context.id) is None:
            membership.join(context.id, context.own_record())
        membership.limit(context.now_ns)

    def _make_survey(self) -> Survey:
        return Survey(
            self._context,
            self._links,
            self._forwarding,
            self._probing,
            self._detector,
            self._dialling,
            self._outbound,
            self._topics,
            self._relayout,
            self._quorum,
        )

    def _make_requests(self) -> Requests:
        return Requests(
            self._context,
            self._links,
            self._dialling,
            self._outbound,
            self._topics,
            self._probing,
            self._lifecycle,
            self._eviction,
            self._relayout,
            self._quorum,
            self._survey,
            self._to_many,
            self._asking,
            self._finding,
            self._inbound,
        )

    # --- what the shell sees ------------------------------------------------------------------

    @property
    def deadline_ns(self) -> int | None:
        """When `DeadlineReached` is wanted; None for never."""
        return self._context.timers.next_ns()

    @property
    def incarnation(self) -> Incarnation:
        """This node's life, as hellos tell it."""
        return self._context.incarnation

    @property
    def state(self) -> NodeState:
        """What the node is doing."""
        return self._context.state

    @property
    def counts(self) -> Counts:
        """What this core has counted since it began."""
        return self._context.counts

    @property
    def has_work(self) -> bool:
        """Whether work is under way that goes on in the steps that follow."""
        return self._work.is_underway

    def rebuild(self) -> None:
        """Make anew what follows from the rest, in a core that was read from a recording."""
        self._forwarding.rebuild()

    def show(self) -> dict[str, Any]:
        """What programs would be shown now: ``{"status":…, "members":…}``."""
        status = show_status(self._context, self._links)
        return {"status": status, "members": show_members(self._context)["members"]}

    @property
    def leave_by_ns(self) -> int:
        """Until when this node drains, once it is leaving."""
        return self._lifecycle.leave_by_ns

    def page(self, after: NodeId) -> RecordPage:
        """A page of all that this node believes, as a joiner is told it."""
        return self._comparison.page(PageAsk(after, EVERY_BUCKET))

    def inherit(self, former: Node) -> None:
        """Take over what waits for programs from the node that this process was, before a step."""
        self._topics.inherit(former._topics)
        self._to_many.inherit(former._to_many)

    def step(self, now_ns: int, event: Event) -> list[Effect]:
        """Take one event; return the effects, to be carried out in order.

        Args:
            now_ns: monotonic nanoseconds, never less than before.

        Raises:
            InvariantError: a bug; the process must end.
        """
        context = self._context
        if now_ns < context.now_ns:
            raise InvariantError("time went backwards")
        context.now_ns = now_ns
        if context.membership.is_limited:
            context.membership.limit(now_ns)
        self._notice_lag()
        # Who was late has more to do than to take it in.
        was_late = bool(context.effects)
        if not was_late and type(event) is Received and type(event.message) is Heartbeat:
            # Nearly all that an idle node gets: nothing follows from it that would have to be settled.
            link = self._links.get(event.link)
            if link is not None and self._detector.absorb(link, event.message):
                context.counts.received[Heartbeat] += 1
                return []
        if not was_late and type(event) is HeartbeatsAbsorbed and not self._detector.suspects:
            self._detector.on_absorbed(event.beats)
            return []
        try:
            self._on_event(event)
            self._settle()
        except (AssertionError, ArithmeticError, LookupError, ValueError, TypeError) as error:
            raise InvariantError(f"{type(event).__name__}: {error!r}") from error
        effects, context.effects = context.effects, []
        return effects

    # --- events -------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case Received(link_id, message):
                self._on_received(link_id, message)
            case Heard(link_ids):
                for link_id in link_ids:
                    link = self._links.get(link_id)
                    if link is not None:
                        self._detector.heard(link)
            case HeartbeatsAbsorbed(beats):
                self._detector.on_absorbed(beats)
            case DeadlineReached():
                self._on_deadline()
            case LinkUp():
                self._on_link_up(event)
            case LinkDown(link_id, evidence):
                self._greeting.on_hello_lost(link_id)
                self._growth.on_link_lost(link_id)
                self._links.lose(link_id, evidence)
            case DialFailed(peer) if peer == self._context.id:
                self._context.counts.failed[event.evidence] += 1
                self._claims.on_dial_failed(event)
            case DialFailed():
                self._context.counts.failed[event.evidence] += 1
                self._dialling.on_dial_failed(event)
                self._greeting.on_dial_failed(event)
                self._eviction.on_dial_failed(event)
                self._renewal.on_dial_failed(event)
            case Greeted():
                self._greeting.on_greeted(event)
            case JoinAsked():
                self._growth.on_join_asked(event)
            case Granted() | AskFailed():
                pass  # A joiner's; this one has joined.
            case CommandIssued(request, command):
                self._requests.on_command(request, command)
            case KeysChanged(keys):
                self._renewal.on_keys_changed(keys)
            case Backlog(link_id, backlog_bytes):
                if self._links.get(link_id) is not None:
                    self._outbound.sending.held.on_backlog(link_id, backlog_bytes)
                self._context.observe("backlog", detail=f"link {link_id}: {backlog_bytes} bytes")

    def _on_link_up(self, up: LinkUp) -> None:
        known = self._context.membership.vouched(up.peer)
        if up.incarnation < known or self._dialling.speaks_for_former_life(up.dial_number):
            # It is no link of these two lives, so it takes the place of none.
            self._context.emit(Close(up.link, "a former life"))
            self._dialling.on_former_life_linked(up.peer)
            return
        link = Link(
            id=up.link,
            peer=up.peer,
            incarnation=up.incarnation,
            address=up.address,
            dialled_by=self._context.id,
            dial_number=up.dial_number,
            heard_ns=self._context.now_ns,
            known_of_me=up.known_of_me,
            key=up.key,
            renews=up.renews,
            features=up.features,
        )
        self._links.open(link)

    def _on_received(self, link_id: LinkId, message: Message) -> None:
        self._context.counts.received[type(message)] += 1
        link = self._links.get(link_id)
        if link is not None:
            self._detector.heard(link)
            if not self._flood.admits(link, message):
                return
        if isinstance(message, LinkMessage):
            if link is not None:
                self._on_link_message(link, message)
            elif isinstance(message, Notice):
                self._notices.on_notice(None, message)
            elif isinstance(message, RecordPage):
                self._comparison.on_page(link_id, message)
            elif isinstance(message, PageAsk):
                self._growth.on_page_ask(link_id, message)
        elif message.route.destination == self._context.id:
            self._on_routed_message(message)
        elif isinstance(message, SharedSegment):
            # The link that it was to leave by has closed. It never searches.
            self._to_many.multicasting.pass_on(message)
        elif not self._forwarding.relay(message, None if link is None else link.peer):
            self._on_no_way(message)

    def _on_link_message(self, link: Link, message: LinkMessage) -> None:
        match message:
            case Heartbeat():
                self._detector.on_heartbeat(link, message)
            case Notice():
                self._notices.on_notice(link, message)
            case Ping():
                self._links.on_ping(link, message)
            case Pong(nonce):
                self._greeting.on_pong(link, nonce)
                self._links.on_pong(link, message)
            case Buckets():
                self._comparison.on_buckets(link, message)
            case PageAsk():
                self._comparison.on_page_ask(link, message)
            case RecordPage():
                self._comparison.on_page(link.id, message)
            case Unwanted(digest):
                link.unwanted = digest
                self._relayout.unsettled = True
            case OlderMembers():
                self._older.on_message(link, message)
            case Watermarks() | Pull():
                self._to_many.on_link_message(link, message)
            case Goodbye():
                # The shell turns a goodbye into LinkDown before it comes here.
                pass

    def _on_no_way(self, message: RoutedMessage) -> None:
        """A search of this node's own came back without having found its destination."""
        route = message.route
        if isinstance(message, Segment) and route.source == self._context.id:
            self._outbound.answers.on_unreachable(Unreachable(route, route.destination))

    def _on_routed_message(self, message: RoutedMessage) -> None:
        match message:
            case Segment():
                self._inbound.on_segment(message)
            case SegmentAck():
                self._outbound.answers.on_ack(message)
            case StreamReset():
                self._outbound.answers.on_reset(message)
            case Unreachable():
                self._outbound.answers.on_unreachable(message)
            case Probe():
                self._probing.on_probe(message)
            case ProbeReply():
                self._probing.on_reply(message)
            case Ask():
                self._detector.on_ask(message)
            case Answer():
                self._detector.on_answer(message)
                if message.suspect == message.route.source:
                    self._context.standing(message.suspect, message.incarnation)
                    self._eviction.on_life_learned(message.suspect)
            case JoinRequest():
                self._growth.on_request(message)
            case JoinGrant(_, incarnation, node_id):
                self._growth.on_grant(incarnation, node_id)
            case (
                Broadcast()
                | Multicast()
                | SharedSegment()
                | ReliableBroadcast()
                | Watermark()
                | Stable()
                | Skipped()
                | ProgramAsk()
                | ProgramList()
            ):
                self._to_many.on_message(message)
            case ReadersAsk():
                self._finding.on_ask(message)
            case ReadersAnswer():
                self._finding.on_answer(message)
            case ReportAsk():
                self._survey.on_ask(message)
            case Report():
                self._survey.on_report(message)
            case TraceAsk():
                self._survey.on_trace_ask(message)
            case TraceAnswer():
                self._survey.on_trace_answer(message)

    # --- deadlines ----------------------------------------------------------------------------

    def _notice_lag(self) -> None:
        due_ns = self._context.timers.next_ns()
        if due_ns is None or self._context.state is NodeState.STARTING:
            return
        # Until the deadline is reached every event finds it overdue: once is enough for one pause.
        lag_ns = self._context.now_ns - max(due_ns, self._late_ns)
        if lag_ns > LATE_NS:
            self._late_ns = self._context.now_ns
            self._detector.on_late(lag_ns)

    def _on_deadline(self) -> None:
        timers, now_ns = self._context.timers, self._context.now_ns
        due_ns = timers.next_ns()
        if due_ns is not None and now_ns - due_ns > LATE_NS // 16:
            self._detector.note_lag(now_ns - due_ns)
        for _ in range(DEADLINES_PER_STEP):
            key = timers.pop_due(now_ns)
            if key is None:
                return
            self._on_timer(key)
            self._react()

    def _on_timer(self, key: TimerKey) -> None:
        handler = self._timer_handlers.get(key[0])
        if handler is None:
            raise InvariantError(f"a timer without a handler: {key[0]}")
        handler(key)

    def _make_timer_handlers(self) -> dict[str, Callable[[TimerKey], None]]:
        """Every purpose of a deadline, and who reacts to it."""
        return {
            ACK_TIMER: self._inbound.acknowledging.on_ack_timer,
            ACCUSED_TIMER: self._links.on_accused_timer,
            ANSWER_TIMER: self._detector.on_answer_timer,
            ASK_TIMER: self._detector.on_ask_timer,
            ASSIGN_TIMER: self._growth.on_assign_timer,
            BEAT_TIMER: self._detector.on_beat_timer,
            CONTEST_TIMER: self._contests.on_timer,
            DIAL_TIMER: self._dialling.on_dial_timer,
            DIGEST_TIMER: self._detector.on_digest_timer,
            EXPIRY_TIMER: self._topics.on_expiry_timer,
            EVICT_TIMER: self._eviction.on_timer,
            GONE_TIMER: self._inbound.on_gone_timer,
            FIND_TIMER: self._finding.on_timer,
            HEAL_TIMER: self._healing.on_timer,
            HELD_TIMER: self._greeting.on_held_timer,
            JOIN_ASK_TIMER: self._growth.on_ask_timer,
            JOIN_TIMER: self._dialling.on_dial_timer,
            LEAVE_TIMER: self._lifecycle.on_leave_timer,
            NOTICES_TIMER: self._notices.on_timer,
            PROBE_TIMER: self._probing.on_timer,
            QUORUM_TIMER: self._quorum.on_timer,
            REDIAL_TIMER: self._redialling.on_redial_timer,
            SEARCH_TIMER: self._redialling.on_search_timer,
            LINGER_TIMER: self._relayout.on_linger_timer,
            RELAYOUT_TIMER: self._relayout.on_timer,
            RETIRE_TIMER: self._retirement.on_timer,
            GRANT_TIMER: self._growth.on_grant_timer,
            RENEW_TIMER: self._renewal.on_timer,
            SILENCE_TIMER: self._detector.on_silence_timer,
            START_DEADLINE_TIMER: self._lifecycle.on_start_deadline_timer,
            START_TIMER: self._lifecycle.on_start_timer,
            STREAM_TIMER: self._outbound.expiry.on_timer,
            WORK_TIMER: self._work.on_timer,
            TRACE_TIMER: self._survey.on_trace_timer,
            **self._to_many.timer_handlers(),
        }

    # --- facts --------------------------------------------------------------------------------

    def _react(self) -> None:
        facts = self._context.facts
        while facts:
            self._on_fact(facts.popleft())

    def _on_fact(self, fact: Fact) -> None:
        match fact:
            case LinkOpened(link):
                self._meeting.on_link_opened(link)
                self._older.on_link_opened(link)
                self._renewal.on_link_opened(link)
                self._to_many.on_link_opened(link)
            case LinkLost(link, evidence):
                self._context.counts.lost[evidence] += 1
                self._context.observe("link down", link.peer, link.incarnation, evidence.value)
                if not self._links.to(link.peer):
                    self._greeting.on_gone(link.peer)
                self._comparison.on_link_lost(link)
                self._dialling.on_link_lost(link, evidence)
            case LongSettled(source, stream, taken):
                if source == self._context.id:
                    self._outbound.answers.on_long_settled(-stream, taken)
                else:
                    self._inbound.on_long_settled(source, stream, taken)
            case QuestionsLost():
                self._asking.tell_lost(fact)
            case RoomFreed(topic):
                self._outbound.sending.on_room(topic)
                self._inbound.on_room(topic)
            case RecordMoved():
                self._on_record_moved(fact)
            case Vetoed(peer):
                self._relayout.unsettled = True
                self._dialling.on_vetoed(peer)
            case AccusedSelf(record, told_by) if self._is_claim(record):
                self._claims.on_claim(record, told_by)
            case AccusedSelf(record):
                self._lifecycle.on_accused_self(record)
            case LifeContested(node_id):
                self._contests.on_contested(node_id)
            case IdLost(why):
                self._on_id_lost(why)

    def _on_record_moved(self, moved: RecordMoved) -> None:
        context = self._context
        peer, status = moved.id, moved.after.status
        self._older.on_record_moved(moved)
        self._quorum.on_record_moved(moved)
        self._retirement.on_record_moved(moved)
        self._growth.on_record_moved(moved)
        if peer in context.membership.retired:
            context.moved_ns.pop(peer, None)
        elif moved.before is None or moved.before.status is not status:
            context.moved_ns[peer] = context.now_ns
        self._relayout.unsettled = True
        was_in = moved.before is not None and moved.before.status < Status.EXCLUDED
        is_in = status < Status.EXCLUDED
        if was_in != is_in:
            self._relayout.plan(grew=is_in)
        if peer == context.id:
            return
        self._to_many.on_record_moved(moved)
        if status >= Status.DEAD:
            self._detector.clear_suspicion(peer)
            self._links.accuse(peer)
            self._outbound.answers.on_gone(peer)
            self._inbound.on_gone(peer)
            self._growth.on_gone()
        else:
            self._links.close_life(
                peer, Incarnation(moved.after.incarnation - 1), "a new life is known"
            )
            self._detector.look_at(peer)
            self._dialling.reconcile()
            self._outbound.answers.on_new_life(peer)

    def _is_claim(self, record: Record) -> bool:
        return record.incarnation > self._context.incarnation and record.status < Status.DEAD

    def _on_id_lost(self, why: str) -> None:
        self._probing.abandon(why)
        self._eviction.abandon(why)
        self._survey.abandon(why)
        self._finding.abandon(why)
        self._lifecycle.displace(why)

    # --- what follows -------------------------------------------------------------------------

    def _settle(self) -> None:
        facts = self._context.facts
        self._react()
        self._lifecycle.renew_if_asked()
        if facts:
            self._react()
        self._healing.look()
        if facts:
            self._react()
        self._quorum.settle()
        self._notices.settle()
        if self._publish_ways():
            self._relayout.unsettled = True
        if self._relayout.unsettled:
            self._relayout.unsettled = False
            self._lifecycle.check_ready()
            self._relayout.release()
            self._publish_ways()
        self._detector.settle()
        self._work.settle()

    def _publish_ways(self) -> bool:
        """Publish changed ways, and tell who waits for one; whether any have changed.

        What was sent in this step may have published them already.
        """
        forwarding = self._forwarding
        if self._links.forwarding_stale:
            forwarding.publish()
        if not forwarding.has_news:
            return False
        forwarding.has_news = False
        self._outbound.answers.on_ways_changed()
        self._outbound.sending.held.on_ways_changed()
        return True
