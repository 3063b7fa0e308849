"""Reliable broadcasts, at their source: numbered, sent, confirmed, sent again, stable.

Theory of operation. A source life numbers its reliable broadcasts from 1, over all topics. Each has an
*audience* that never changes: the ids below an id space, but for exceptions. Every node of it keeps a
copy and acknowledges its *watermark*, up to which it has all (`broadcast/retention.py`). What all have
whom this node holds alive is *stable*: it is told to everybody, and the copies go.

    waiting --room in the window--> sent --every living node of the audience has it--> stable
                                     | not in time: sent again to whom it misses

Status only says whom to wait for. Who is held dead stays in the audience of what was sent before, and
is not in that of what is sent meanwhile.

What waits and what is unstable is in `broadcast/window.py`, what is known of each node and what it skips
in `broadcast/peers.py`, how long nodes are waited for in `broadcast/answer_times.py`, what programs are
told in `broadcast/reports.py`; `broadcast/frames.py` sends. Here is when each of it happens.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from bmgd.core.broadcast.announcements import BEHIND_NS, Announcement, Announcements
from bmgd.core.broadcast.answer_times import RESEND_MAX_NS
from bmgd.core.broadcast.broadcasting import refusal_of
from bmgd.core.broadcast.frames import STABLE_TIMER, BroadcastFrames
from bmgd.core.broadcast.peers import RESEND_TIMER, BroadcastPeers
from bmgd.core.broadcast.reports import BroadcastReports
from bmgd.core.broadcast.window import BroadcastWindow, OwnBroadcast
from bmgd.core.commands import BroadcastTo
from bmgd.core.context import Context, RecordMoved
from bmgd.core.effects import Reply
from bmgd.core.forwarding.branching import Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.timers import TimerKey
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ids_in
from bmgd.types import NodeId
from bmgd.wire.bounds import SKIPS_MAX
from bmgd.wire.broadcast_messages import Watermark

RESEND_PIECE_NS = 1_500_000_000
"""Of a piece: a node's watermark waits up to a second for readers that are behind."""
RESEND_MORE_NS = 10_000_000
RESENT_PER_STEP_MAX = 32
RESENT_BYTES_PER_STEP_MAX = 1 << 20
SEND_TIMER = "broadcast send"
SEND_MORE_NS = 1_000_000
SENT_PER_STEP_MAX = 512
LOOK_AGAIN_NS = 20_000_000
"""While a piece waits for readers at this node."""
SINGLY_MAX = 64
"""So many who miss a broadcast get it by their shortest ways; more by the tree."""


class BroadcastSource:
    """This node's own reliable broadcasts."""

    def __init__(
        self,
        context: Context,
        forwarding: Forwarding,
        branching: Branching,
        announcements: Announcements,
    ) -> None:
        self._context = context
        self._announcements = announcements
        window = self.window = BroadcastWindow(context)
        self.reports = BroadcastReports(context, window)
        self.frames = BroadcastFrames(context, forwarding, branching, window)
        self.peers = BroadcastPeers(context, window, self.reports, self.frames)
        self._resent = 0
        self._untold: bytes | None = None
        """The last news of this node, if that could not be sent."""
        self._held_ns: int | None = None
        """Since when the piece that is next waits for readers at this node."""

    @property
    def underway(self) -> int:
        """How many broadcasts wait, or are not stable."""
        return len(self.window.unstable) + len(self.window.waiting)

    def show(self) -> dict[str, Any]:
        """For `bmgd status --json`."""
        return {
            "sent": self.window.next - 1,
            "stable": self.window.stable,
            "waiting": len(self.window.waiting),
            "resent": self._resent,
        }

    # --- sending ------------------------------------------------------------------------------

    def broadcast(self, request: int, command: BroadcastTo) -> None:
        """Take a broadcast from a program; one `Reply` follows, at the latest at its deadline."""
        context = self._context
        error = refusal_of(context, command.topic, command.payload) or self.window.refusal(command)
        if error is not None:
            context.emit(Reply(request, error=error))
            return
        sent = OwnBroadcast(command, request, context.now_ns + command.timeout_ns)
        self.reports.expect(sent)
        self.window.put(sent)
        self._send_waiting()

    def tell(self, payload: bytes) -> None:
        """Broadcast something of this node's own: of the empty topic, and nobody waits for a report.

        It goes whatever the state of this node is; the caller bounds how many wait. The last one goes
        later when it cannot be sent now; of those before it others ask for what they lack then.
        """
        self._put_own(payload)
        self._send_waiting()

    def tell_in_next_step(self, payload: bytes) -> None:
        """As `tell`, for a node that is not stepped yet."""
        self._put_own(payload)
        self._context.timers.set((SEND_TIMER, 0, 0), self._context.now_ns)

    def _put_own(self, payload: bytes) -> None:
        self.window.put(OwnBroadcast(BroadcastTo("", payload, True, 0), 0, 0, answered=True))

    def _send_waiting(self) -> None:
        """Send what has room, a bounded part in each step.

        What is stable at once, for want of others, frees room in this loop.
        """
        window = self.window
        bytes_max = window.bytes_max() if window.waiting else 0
        for _ in range(SENT_PER_STEP_MAX):
            if self._must_wait() or (sent := window.pop_waiting(bytes_max)) is None:
                return
            # Ids may have become known, or gone, while it waited.
            error = window.audience_refusal(sent.command)
            if error is None:
                self._send_first(sent)
            else:
                self.reports.refuse(sent, error)
            if not sent.command.topic:
                # What was refused before shows as a gap in the news.
                self._untold = None if error is None else sent.command.payload
        if window.waiting:
            self._context.timers.set((SEND_TIMER, 0, 0), self._context.now_ns + SEND_MORE_NS)

    def _must_wait(self) -> bool:
        """Whether a piece is next, and a reader at this node is behind: others withhold watermarks."""
        command = self.window.waiting[0].command if self.window.waiting else None
        now_ns = self._context.now_ns
        if (
            command is None
            or command.piece is None
            or not self._announcements.is_behind(command.topic)
        ):
            self._held_ns = None
            return False
        if self._held_ns is None:
            self._held_ns = now_ns
        if now_ns - self._held_ns >= BEHIND_NS:
            # They take something, and too little: so far they are passed by.
            self._held_ns = None
            return False
        self._context.timers.set((SEND_TIMER, 0, 0), now_ns + LOOK_AGAIN_NS)
        return True

    def on_send_timer(self, key: TimerKey) -> None:
        """More waits than one step sends, or readers here may have taken what they were behind with."""
        self._send_waiting()

    def _send_first(self, sent: OwnBroadcast) -> None:
        context, window = self._context, self.window
        window.number(sent)
        sent.skips = tuple(islice(self.peers.skips_of(window.living()), SKIPS_MAX))
        if sent.command.topic:
            self._announcements.announce(
                Announcement(
                    context.id,
                    context.incarnation,
                    sent.sequence,
                    sent.command.topic,
                    sent.command.payload,
                    sent.command.piece,
                )
            )
        self._transmit(sent, [Branch(context.id, sent.missing)])
        self._settle()
        self.peers.plan_resending()

    def _transmit(self, sent: OwnBroadcast, branches: list[Branch]) -> None:
        """Send it, and decide how long it is waited for: as nodes acknowledge, and longer each time."""
        self.frames.transmit(sent, branches)
        first_ns = self.peers.times.pause_ns
        if sent.command.piece is not None:
            first_ns = max(first_ns, RESEND_PIECE_NS)
        sent.pause_ns = max(first_ns, min(first_ns << min(sent.times - 1, 8), RESEND_MAX_NS))

    # --- sending again ------------------------------------------------------------------------

    def on_resend_timer(self, key: TimerKey) -> None:
        """Send again what somebody misses for long, a bounded part of it in each step."""
        self._give_up_pieces()
        now_ns, living = self._context.now_ns, self.window.living()
        measured_ns = self.peers.times.measured_ns
        count = size = 0
        for sent in self.window.unstable:
            missing = sent.missing & living
            if not missing or now_ns - sent.sent_ns < max(sent.pause_ns, measured_ns):
                continue
            if count >= RESENT_PER_STEP_MAX or size > RESENT_BYTES_PER_STEP_MAX:
                self._context.timers.set(key, now_ns + RESEND_MORE_NS)
                break
            count += 1
            size += sent.cost
            if sent.times == 1:
                self.peers.times.on_again(now_ns, sent.sent_ns)
            self._transmit(sent, self._ways_to(sent, missing))
        self._resent += count
        self.peers.tell_skips()
        self.peers.plan_resending()

    def _give_up_pieces(self) -> None:
        """A member of an older release became known: who lacks a piece misses it, and is told."""
        if self.window.may_send_pieces():
            return
        living = self.window.living()
        for sent in list(self.window.unstable):
            if sent.command.piece is None:
                continue
            # Its program is told before: who is not waited for any more has not confirmed.
            self.reports.answer(sent)
            for each in ids_in(sent.missing & living):
                self.peers.pass_over(NodeId(each), sent.sequence)
        self._settle()
        self._send_waiting()

    def _ways_to(self, sent: OwnBroadcast, missing: int) -> list[Branch]:
        """The second time by shortest ways, then by the tree and by shortest ways in turn."""
        if sent.times % 2 and missing.bit_count() <= SINGLY_MAX:
            return [Branch(each, 1 << each) for each in ids_in(missing)]
        return [Branch(self._context.id, missing)]

    # --- what is stable -----------------------------------------------------------------------

    def on_watermark(self, message: Watermark) -> None:
        """A node tells up to where it has everything of this life."""
        if self.peers.on_watermark(message):
            self._settle()
            self._send_waiting()

    def on_record_moved(self, moved: RecordMoved) -> None:
        """A node died, returned, began a new life, or joined."""
        if moved.id == self._context.id:
            return
        if self.window.next > 1:
            # Who is gone or back comes first: what is sent from here on is counted from that.
            self.peers.on_record_moved(moved)
            self._settle_all()
            self._send_waiting()
        if self._untold is not None and self.window.reach_refusal() is None:
            untold, self._untold = self._untold, None
            self.tell(untold)

    def _settle_all(self) -> None:
        """Somebody is waited for no longer, or again."""
        living = self.window.living()
        for sent in self.window.unstable:
            if not sent.missing & living:
                self.reports.answer(sent)
        self._settle()

    def _settle(self) -> None:
        """Let go of what is stable."""
        window, living = self.window, self.window.living()
        before = window.stable
        while (sent := window.pop_stable(living)) is not None:
            self.reports.answer(sent)
        if window.stable > before:
            self.frames.plan_stable()

    # --- the end ------------------------------------------------------------------------------

    def abandon(self, why: str) -> None:
        """Give up everything that is not confirmed; programs are told."""
        self.reports.abandon(why)

    def on_own_new_life(self) -> None:
        """A new life numbers its broadcasts from 1; what the former one sent is others' to settle."""
        self.abandon("this node began a new life before everybody confirmed it")
        self.window.begin_anew()
        self._untold = None
        self.peers.begin_anew()
        for name in (RESEND_TIMER, SEND_TIMER, STABLE_TIMER):
            self._context.timers.cancel((name, 0, 0))
