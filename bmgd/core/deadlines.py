"""What each deadline of a node is for, and what is done when it has come, or has long passed.

Theory of operation. All parts set their deadlines in one heap (`timers.py`), under a key that begins
with a purpose; here is who reacts to each purpose. Of many that are due together the first
`DEADLINES_PER_STEP` are reached in one step. A deadline that is long overdue when any event comes says
that this node did not run for a while, so it has heard nobody meanwhile: the detector is told, once.
"""

from __future__ import annotations

from collections.abc import Callable

from bmgd.core.forwarding.probing import PROBE_TIMER
from bmgd.core.joining.eviction import EVICT_TIMER
from bmgd.core.joining.growth import ASSIGN_TIMER, GRANT_TIMER, JOIN_ASK_TIMER
from bmgd.core.lifecycle import LEAVE_TIMER, START_DEADLINE_TIMER, START_TIMER
from bmgd.core.links import ACCUSED_TIMER
from bmgd.core.membership.contests import CONTEST_TIMER
from bmgd.core.membership.notices import NOTICES_TIMER
from bmgd.core.membership.quorum import QUORUM_TIMER
from bmgd.core.membership.retirement import RETIRE_TIMER
from bmgd.core.neighbors.detector import (
    ASK_TIMER,
    BEAT_TIMER,
    DIGEST_TIMER,
    LATE_NS,
    SILENCE_TIMER,
)
from bmgd.core.neighbors.dialling import DIAL_TIMER, JOIN_TIMER
from bmgd.core.neighbors.greeting import HELD_TIMER
from bmgd.core.neighbors.healing_policy import HEAL_TIMER
from bmgd.core.neighbors.observer import ANSWER_TIMER
from bmgd.core.neighbors.redialling import REDIAL_TIMER, SEARCH_TIMER
from bmgd.core.neighbors.relayout import LINGER_TIMER, RELAYOUT_TIMER
from bmgd.core.neighbors.renewal import RENEW_TIMER
from bmgd.core.parts import Parts
from bmgd.core.reactions import Reactions
from bmgd.core.streams.acknowledging import ACK_TIMER
from bmgd.core.streams.finding import FIND_TIMER
from bmgd.core.streams.inbound import GONE_TIMER
from bmgd.core.streams.table import STREAM_TIMER
from bmgd.core.survey import TRACE_TIMER
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import EXPIRY_TIMER
from bmgd.core.work import WORK_TIMER
from bmgd.errors import InvariantError
from bmgd.types import NodeState

DEADLINES_PER_STEP = 256
"""Deadlines reached in one step; the others are reached in the next, which is due at once."""


class Deadlines:
    """Reaches the deadlines of one node.

    Args:
        parts: whose deadlines they are.
        reactions: what follows from a deadline before the next is reached.
    """

    def __init__(self, parts: Parts, reactions: Reactions) -> None:
        self._parts = parts
        self._reactions = reactions
        self._late_ns = parts.context.now_ns
        self._handlers = self._make_handlers()

    def notice_lag(self) -> None:
        """Let the detector know, once for each pause, that a deadline is long overdue."""
        context = self._parts.context
        due_ns = context.timers.next_ns()
        if due_ns is None or context.state is NodeState.STARTING:
            return
        # Until the deadline is reached every event finds it overdue: once is enough for one pause.
        lag_ns = context.now_ns - max(due_ns, self._late_ns)
        if lag_ns > LATE_NS:
            self._late_ns = context.now_ns
            self._parts.detector.on_late(lag_ns)

    def on_due(self) -> None:
        """Reach the deadlines that are due, a bounded number of them."""
        context = self._parts.context
        timers, now_ns = context.timers, context.now_ns
        due_ns = timers.next_ns()
        if due_ns is not None and now_ns - due_ns > LATE_NS // 16:
            self._parts.detector.note_lag(now_ns - due_ns)
        for _ in range(DEADLINES_PER_STEP):
            key = timers.pop_due(now_ns)
            if key is None:
                return
            self._on_timer(key)
            self._reactions.react()

    def _on_timer(self, key: TimerKey) -> None:
        handler = self._handlers.get(key[0])
        if handler is None:
            raise InvariantError(f"a timer without a handler: {key[0]}")
        handler(key)

    def _make_handlers(self) -> dict[str, Callable[[TimerKey], None]]:
        """Every purpose of a deadline, and who reacts to it."""
        parts = self._parts
        return {
            ACK_TIMER: parts.inbound.acknowledging.on_ack_timer,
            ACCUSED_TIMER: parts.links.on_accused_timer,
            ANSWER_TIMER: parts.observer.on_answer_timer,
            ASK_TIMER: parts.detector.on_ask_timer,
            ASSIGN_TIMER: parts.growth.on_assign_timer,
            BEAT_TIMER: parts.detector.on_beat_timer,
            CONTEST_TIMER: parts.contests.on_timer,
            DIAL_TIMER: parts.dialling.on_dial_timer,
            DIGEST_TIMER: parts.detector.on_digest_timer,
            EXPIRY_TIMER: parts.topics.on_expiry_timer,
            EVICT_TIMER: parts.eviction.on_timer,
            GONE_TIMER: parts.inbound.on_gone_timer,
            FIND_TIMER: parts.finding.on_timer,
            HEAL_TIMER: parts.healing.on_timer,
            HELD_TIMER: parts.greeting.on_held_timer,
            JOIN_ASK_TIMER: parts.growth.on_ask_timer,
            JOIN_TIMER: parts.dialling.on_dial_timer,
            LEAVE_TIMER: parts.lifecycle.on_leave_timer,
            NOTICES_TIMER: parts.notices.on_timer,
            PROBE_TIMER: parts.probing.on_timer,
            QUORUM_TIMER: parts.quorum.on_timer,
            REDIAL_TIMER: parts.redialling.on_redial_timer,
            SEARCH_TIMER: parts.redialling.on_search_timer,
            LINGER_TIMER: parts.relayout.on_linger_timer,
            RELAYOUT_TIMER: parts.relayout.on_timer,
            RETIRE_TIMER: parts.retirement.on_timer,
            GRANT_TIMER: parts.growth.on_grant_timer,
            RENEW_TIMER: parts.renewal.on_timer,
            SILENCE_TIMER: parts.detector.on_silence_timer,
            START_DEADLINE_TIMER: parts.lifecycle.on_start_deadline_timer,
            START_TIMER: parts.lifecycle.on_start_timer,
            STREAM_TIMER: parts.outbound.expiry.on_timer,
            WORK_TIMER: parts.work.on_timer,
            TRACE_TIMER: parts.survey.on_trace_timer,
            **parts.to_many.timer_handlers(),
        }
