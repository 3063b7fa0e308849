"""Reliable broadcasts, at their source: numbered, sent, confirmed, sent again, stable.

Theory of operation. A source life numbers its reliable broadcasts from 1, over all topics. Each has an
*audience* that never changes: the ids below an id space, but for exceptions. Every node of it keeps a
copy and acknowledges its *watermark*, up to which it has all (`broadcast_retention.py`). What all have
whom this node holds alive is *stable*: it is told to everybody, and the copies go.

    waiting --room in the window--> sent --every living node of the audience has it--> stable
                                     | 200 ms, then longer: sent again to whom it misses

Status only says whom to wait for. Who is held dead stays in the audience of what was sent before, and
is not in that of what is sent meanwhile. When it returns with the same life, it is told what it skips:
what became stable without it, and what was not for it; its programs see that as missed. A new life, and
who joins, skip everything that was sent before they were known.

The window, max(64 KiB, 32 MiB / living ids) of unstable broadcasts, bounds what all nodes keep of one
source, so that all sources together stay within a bound too. Beyond it broadcasts wait here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bmgd.core.announcements import Announcement, Announcements
from bmgd.core.branching import Branching
from bmgd.core.broadcasting import refusal_of
from bmgd.core.commands import BroadcastTo
from bmgd.core.context import Context, RecordMoved
from bmgd.core.effects import Reply
from bmgd.core.forwarding import Forwarding
from bmgd.core.gathering import failure_of
from bmgd.core.membership import Standing
from bmgd.core.timers import TimerKey
from bmgd.errors import BmgdError, DeadError, NewLifeError, RequestError, UnreachableError
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, ids_in, without
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Status, counter_of, incarnation_tag
from bmgd.wire.features import Feature
from bmgd.wire.id_sets import id_set_bytes
from bmgd.wire.messages import (
    EXCEPTIONS_BYTES_MAX,
    NORMAL_PRIORITY,
    SKIPS_MAX,
    BroadcastPiece,
    ReliableBroadcast,
    Route,
    Skip,
    Skipped,
    Stable,
    Watermark,
)

WINDOW_MIN_BYTES = 64 * 1024
WINDOW_ALL_BYTES = 32 << 20
"""Of all sources together, when each has its share."""
PIECES_WINDOW_BYTES = 1 << 20
"""Of pieces of long broadcasts less may be unstable, so that readers that are behind have room for it."""
OVERHEAD_BYTES = 256
"""What a broadcast costs beside its payload."""
UNSTABLE_MAX = 4096
WAITING_MAX = 65_536
WAITING_BYTES_MAX = 64 << 20
RELIABLE_ID_SPACE_MAX = 32_768
"""So that audience and cover fit into a frame beside the longest payload."""
RESEND_MIN_NS = 200_000_000
RESEND_MAX_NS = 2_000_000_000
RESEND_PIECE_NS = 1_500_000_000
"""Of a piece: a node's watermark waits up to a second for readers that are behind."""
RESEND_MORE_NS = 10_000_000
RESENT_PER_STEP_MAX = 32
RESENT_BYTES_PER_STEP_MAX = 1 << 20
SINGLY_MAX = 64
"""So many who miss a broadcast get it by their shortest ways; more by the tree."""
STABLE_NS = 100_000_000
RESEND_TIMER = "broadcast resend"
STABLE_TIMER = "broadcast stable"
REPORT_TIMER = "broadcast report"


@dataclass(slots=True, eq=False)
class _Sent:
    """A broadcast that is not stable; `missing` and `failed` speak of its audience."""

    command: BroadcastTo
    request: int
    deadline_ns: int
    sequence: int = 0
    id_space: int = 0
    exceptions: int = 0
    skips: tuple[Skip, ...] = ()
    missing: int = 0
    restarted: int = 0
    sent_ns: int = 0
    times: int = 0
    answered: bool = False

    @property
    def cost(self) -> int:
        return len(self.command.payload) + OVERHEAD_BYTES


@dataclass(slots=True, eq=False)
class _Peer:
    """What is known of a node of the audience.

    Args:
        life: whose watermark it is; 0 while it has not acknowledged anything.
        gone_at: the next sequence when it was held dead; 0 while it is not.
        skips: what it need not wait for, until it acknowledged to be beyond.
    """

    life: Incarnation = UNKNOWN_INCARNATION
    watermark: int = 0
    gone_at: int = 0
    skips: list[Skip] = field(default_factory=list)


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
        self._forwarding = forwarding
        self._branching = branching
        self._announcements = announcements
        self._next = 1
        self._stable = 0
        self._told_stable = 0
        self._unstable: deque[_Sent] = deque()
        self._unstable_bytes = 0
        self._waiting: deque[_Sent] = deque()
        self._waiting_bytes = 0
        self._requests: dict[int, _Sent] = {}
        self._peers: dict[NodeId, _Peer] = {}
        self._resent = 0

    @property
    def underway(self) -> int:
        """How many broadcasts wait, or are not stable."""
        return len(self._unstable) + len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """What they cost."""
        return self._unstable_bytes + self._waiting_bytes

    def show(self) -> dict[str, Any]:
        """For `bmgd status --json`."""
        return {
            "sent": self._next - 1,
            "stable": self._stable,
            "waiting": len(self._waiting),
            "resent": self._resent,
        }

    # --- sending ------------------------------------------------------------------------------

    def broadcast(self, request: int, command: BroadcastTo) -> None:
        """Take a broadcast from a program; one `Reply` follows, at the latest at its deadline."""
        context = self._context
        error = refusal_of(context, command.topic, command.payload) or self._refusal(command)
        if error is not None:
            context.emit(Reply(request, error=error))
            return
        sent = _Sent(command, request, context.now_ns + command.timeout_ns)
        self._requests[request] = sent
        self._waiting.append(sent)
        self._waiting_bytes += sent.cost
        context.timers.set((REPORT_TIMER, request, 0), sent.deadline_ns)
        self._send_waiting()

    @property
    def waiting(self) -> int:
        """How many wait for room in the window."""
        return len(self._waiting)

    def tell(self, payload: bytes) -> None:
        """Broadcast something of this node's own: of the empty topic, and nobody waits for a report.

        It goes whatever the state of this node is; the caller bounds how many wait.
        """
        sent = _Sent(BroadcastTo("", payload, True, 0), 0, 0, answered=True)
        self._waiting.append(sent)
        self._waiting_bytes += sent.cost
        self._send_waiting()

    def _refusal(self, command: BroadcastTo) -> BmgdError | None:
        refusal = self.reach_refusal(command.topic)
        if refusal is not None:
            return refusal
        error = self._pieces_refusal(command)
        if error is not None:
            return error
        size = self._waiting_bytes + len(command.payload)
        if len(self._waiting) >= WAITING_MAX or size > WAITING_BYTES_MAX:
            return RequestError("too many broadcasts wait for room")
        return None

    def reach_refusal(self, topic: str = "") -> BmgdError | None:
        """Why no frame could name all nodes; or not all would take one without a topic."""
        if not topic and not self._context.compatibility.common & Feature.PROGRAMS:
            return RequestError("a member of an older release knows nothing of programs")
        space = self._context.membership.id_space
        if space > RELIABLE_ID_SPACE_MAX:
            return RequestError(
                f"reliable broadcasts need an id space of at most {RELIABLE_ID_SPACE_MAX}"
            )
        if id_set_bytes(((1 << space) - 1) & ~self._living()) > EXCEPTIONS_BYTES_MAX:
            return RequestError("too many ids between the living ones are gone")
        return None

    def window_bytes(self) -> int:
        """How much may be unstable at a time, by what it costs."""
        living = max(1, self._living().bit_count())
        return max(WINDOW_MIN_BYTES, WINDOW_ALL_BYTES // living)

    def _send_waiting(self) -> None:
        window = self.window_bytes() if self._waiting else 0
        while self._waiting and len(self._unstable) < UNSTABLE_MAX:
            sent = self._waiting[0]
            most = window if sent.command.piece is None else min(window, PIECES_WINDOW_BYTES)
            if self._unstable and self._unstable_bytes + sent.cost > most:
                return
            self._waiting.popleft()
            self._waiting_bytes -= sent.cost
            # Ids may have become known, or gone, while it waited.
            error = self.reach_refusal(topic=sent.command.topic)
            error = error or self._pieces_refusal(sent.command)
            if error is None:
                self._send_first(sent)
            else:
                self._refuse(sent, error)

    def _send_first(self, sent: _Sent) -> None:
        context, living = self._context, self._living()
        sent.sequence = self._next
        self._next += 1
        sent.id_space = context.membership.id_space
        sent.exceptions = ((1 << sent.id_space) - 1) & ~living
        sent.missing = without(living, context.id)
        sent.skips = tuple(islice(self._skips_of(living), SKIPS_MAX))
        self._unstable.append(sent)
        self._unstable_bytes += sent.cost
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
        self._plan_resending()

    def _skips_of(self, living: int) -> Any:
        for node_id, peer in self._peers.items():
            if living >> node_id & 1:
                yield from peer.skips

    def _transmit(self, sent: _Sent, branches: list[Branch]) -> None:
        sent.sent_ns = self._context.now_ns
        sent.times += 1
        self._told_stable = self._stable
        command, piece = sent.command, sent.command.piece
        audience = sent.id_space, sent.exceptions
        route = self._route(sent.sequence)
        rest = (command.topic, command.payload, 0, (), *audience, sent.skips, self._stable)
        self._branching.send(
            ReliableBroadcast(route, *rest)
            if piece is None
            else BroadcastPiece(route, *rest, piece),
            branches,
        )

    def _route(self, sequence: int, to: NodeId | None = None, tag: int = 0) -> Route:
        route = self._forwarding.route_to(
            self._context.id if to is None else to,
            tag=tag,
            sequence=sequence,
            priority=NORMAL_PRIORITY if to is None else 0,
        )
        if to is not None:
            return route
        return self._branching.fresh(route)

    def _living(self) -> int:
        """The ids of the layout that are not held dead, this node among them."""
        own = self._context.id
        living = self._context.membership.living_set()
        return living | 1 << own if own < ID_SET_SPACE else living

    # --- sending again ------------------------------------------------------------------------

    def _plan_resending(self) -> None:
        key = (RESEND_TIMER, 0, 0)
        if key not in self._context.timers and (self._unstable or self._are_skips_untold()):
            self._context.timers.set(key, self._context.now_ns + RESEND_MIN_NS)

    def _are_skips_untold(self) -> bool:
        is_gone = self._context.membership.is_gone
        return any(peer.skips and not is_gone(each) for each, peer in self._peers.items())

    def on_resend_timer(self, key: TimerKey) -> None:
        """Send again what somebody misses for long, a bounded part of it in each step."""
        self._give_up_pieces()
        now_ns, living = self._context.now_ns, self._living()
        count = size = 0
        for sent in self._unstable:
            missing = sent.missing & living
            first_ns = RESEND_MIN_NS if sent.command.piece is None else RESEND_PIECE_NS
            pause_ns = min(first_ns << min(sent.times - 1, 8), RESEND_MAX_NS)
            if not missing or now_ns - sent.sent_ns < pause_ns:
                continue
            if count >= RESENT_PER_STEP_MAX or size > RESENT_BYTES_PER_STEP_MAX:
                self._context.timers.set(key, now_ns + RESEND_MORE_NS)
                break
            count += 1
            size += sent.cost
            self._transmit(sent, self._ways_to(sent, missing))
        self._resent += count
        self._tell_skips()
        self._plan_resending()

    def _give_up_pieces(self) -> None:
        """A member of an older release became known: who lacks a piece misses it, and is told."""
        if self._may_send_pieces():
            return
        living = self._living()
        for sent in list(self._unstable):
            if sent.command.piece is None:
                continue
            # Its program is told before: who is not waited for any more has not confirmed.
            self._answer(sent)
            for each in ids_in(sent.missing & living):
                peer = self._peers.setdefault(NodeId(each), _Peer())
                count = sent.sequence
                if peer.skips and peer.skips[-1].last == count - 1 and peer.skips[-1].missed:
                    peer.skips[-1] = peer.skips[-1]._replace(last=count)
                else:
                    peer.skips.append(Skip(NodeId(each), count, count, True))
                self._clear(NodeId(each), count, count)
        self._settle()

    def _may_send_pieces(self) -> bool:
        return bool(self._context.compatibility.common & Feature.BROADCAST_PIECES)

    def _pieces_refusal(self, command: BroadcastTo) -> BmgdError | None:
        if command.piece is None or self._may_send_pieces():
            return None
        older = self._context.compatibility.older()[:8]
        return RequestError(f"members of an older release take no long broadcasts: {older}")

    def _ways_to(self, sent: _Sent, missing: int) -> list[Branch]:
        """The second time by shortest ways, then by the tree and by shortest ways in turn."""
        if sent.times % 2 and missing.bit_count() <= SINGLY_MAX:
            return [Branch(each, 1 << each) for each in ids_in(missing)]
        return [Branch(self._context.id, missing)]

    def _tell_skips(self) -> None:
        is_gone = self._context.membership.is_gone
        for node_id, peer in self._peers.items():
            if peer.skips and not is_gone(node_id):
                self._tell_skips_to(node_id, peer)

    def _tell_skips_to(self, node_id: NodeId, peer: _Peer) -> None:
        tag = incarnation_tag(peer.life)
        route = self._route(self._next - 1, node_id, tag)
        self._forwarding.originate(Skipped(route, tuple(peer.skips[:SKIPS_MAX]), self._stable))

    # --- what comes back ----------------------------------------------------------------------

    def on_watermark(self, message: Watermark) -> None:
        """A node tells up to where it has everything of this life."""
        context, node_id = self._context, message.route.source
        life = message.route.source_incarnation
        if context.membership.status_of(node_id) is None:
            return
        if message.route.destination_tag != context.own_tag or message.watermark >= self._next:
            return
        if node_id == context.id or context.standing(node_id, life) is not Standing.CURRENT:
            return
        peer = self._peers.get(node_id)
        if peer is None:
            gone_at = 1 if context.membership.is_gone(node_id) else 0
            peer = self._peers[node_id] = _Peer(gone_at=gone_at)
        if peer.life > life:
            self._correct(peer, life)
        elif peer.life not in (UNKNOWN_INCARNATION, life):
            self._begin_anew(node_id, peer, life)
        peer.life = life
        if message.watermark > peer.watermark:
            before, peer.watermark = peer.watermark, message.watermark
            self._clear(node_id, before + 1, message.watermark)
        peer.skips = [skip for skip in peer.skips if skip.last > peer.watermark]
        self._clear_skipped(node_id, peer)
        if message.asks:
            self._tell_skips_to(node_id, peer)
        self._settle()

    def _clear(self, node_id: NodeId, first: int, last: int) -> None:
        """A node has these, or skips them."""
        if not self._unstable:
            return
        lowest = self._unstable[0].sequence
        living = self._living()
        start, end = max(first - lowest, 0), last - lowest + 1
        for sent in islice(self._unstable, start, max(start, end)):
            sent.missing = without(sent.missing, node_id)
            if not sent.missing & living:
                self._answer(sent)

    def _clear_skipped(self, node_id: NodeId, peer: _Peer) -> None:
        for skip in peer.skips:
            self._clear(node_id, skip.first, skip.last)

    def _settle_all(self) -> None:
        """Somebody is waited for no longer, or again."""
        living = self._living()
        for sent in self._unstable:
            if not sent.missing & living:
                self._answer(sent)
        self._settle()

    def _settle(self) -> None:
        """Let go of what is stable."""
        living = self._living()
        before = self._stable
        while self._unstable and not self._unstable[0].missing & living:
            sent = self._unstable.popleft()
            self._answer(sent)
            self._unstable_bytes -= sent.cost
            self._stable = sent.sequence
        if self._stable > before:
            key = (STABLE_TIMER, 0, 0)
            if key not in self._context.timers:
                self._context.timers.set(key, self._context.now_ns + STABLE_NS)
            self._send_waiting()

    def on_stable_timer(self, key: TimerKey) -> None:
        """An idle source tells what is stable; a busy one has told it by its broadcasts."""
        if self._told_stable >= self._stable:
            return
        self._told_stable = self._stable
        message = Stable(self._route(self._next - 1), 0, (), self._stable)
        others = without(self._living(), self._context.id)
        self._branching.send(message, [Branch(self._context.id, others)])

    # --- reports ------------------------------------------------------------------------------

    def on_report_timer(self, key: TimerKey) -> None:
        """The program waits no longer; what was sent stays on its way."""
        sent = self._requests.get(key[1])
        if sent is None:
            return
        if not sent.sequence:
            self._waiting.remove(sent)
            self._waiting_bytes -= sent.cost
            sent.missing = self._living()
        self._answer(sent)

    def _answer(self, sent: _Sent) -> None:
        if sent.answered:
            return
        sent.answered = True
        del self._requests[sent.request]
        self._context.timers.cancel((REPORT_TIMER, sent.request, 0))
        audience = ((1 << sent.id_space) - 1) & ~sent.exceptions
        confirmed = audience & ~sent.missing & ~sent.restarted
        failed = [
            failure_of(NodeId(each), self._why(sent, each), sent=bool(sent.sequence))
            for each in ids_in(sent.missing | sent.restarted)
        ]
        self._context.emit(
            Reply(sent.request, {"confirmed": list(ids_in(confirmed)), "failed": failed})
        )

    def _refuse(self, sent: _Sent, error: BmgdError) -> None:
        """It was not sent, and never will be; of news of this node the next one will show a gap."""
        if sent.answered:
            return
        sent.answered = True
        del self._requests[sent.request]
        self._context.timers.cancel((REPORT_TIMER, sent.request, 0))
        self._context.emit(Reply(sent.request, error=error))

    def _why(self, sent: _Sent, node_id: NodeId) -> Any:
        status = self._context.membership.status_of(node_id)
        if sent.restarted >> node_id & 1:
            return NewLifeError(node_id, "it began a new life before it confirmed")
        if status is not None and status >= Status.DEAD:
            return DeadError(node_id, f"it is {status.name.lower()}")
        if not sent.sequence:
            return UnreachableError(node_id, "no room in the window before the deadline")
        return UnreachableError(node_id, "sent, not confirmed before the deadline")

    # --- who is waited for --------------------------------------------------------------------

    def on_record_moved(self, moved: RecordMoved) -> None:
        """A node died, returned, began a new life, or joined."""
        if moved.id == self._context.id or self._next == 1:
            return
        before, after = moved.before, moved.after
        was_gone = before is None or before.status >= Status.DEAD
        is_gone = after.status >= Status.DEAD
        if is_gone and not was_gone:
            peer = self._peers.setdefault(moved.id, _Peer())
            peer.gone_at = peer.gone_at or self._next
        elif not is_gone:
            former = UNKNOWN_INCARNATION if before is None else before.incarnation
            self._on_alive(moved.id, after.incarnation, former, was_gone=was_gone)
        self._settle_all()
        self._send_waiting()

    def _on_alive(
        self, node_id: NodeId, life: Incarnation, former: Incarnation, *, was_gone: bool
    ) -> None:
        context, peer = self._context, self._peers.get(node_id)
        if peer is None:
            if not was_gone:
                # It has been waited for all the time.
                return
            peer = self._peers[node_id] = _Peer(gone_at=1)
        # A record that asks for its own says nothing of its life.
        life = life or peer.life
        known = peer.life or former
        if not known and node_id < context.membership.founding_size and counter_of(life) == 1:
            # A founder of which nothing was heard was waited for: it was held dead by mistake.
            known = life
        if peer.life > life:
            self._correct(peer, life)
        if peer.life != life and (peer.life or (peer.gone_at and known != life)):
            self._begin_anew(node_id, peer, life)
        elif peer.gone_at:
            self._take_back(node_id, peer)
        peer.life = life

    @staticmethod
    def _correct(peer: _Peer, life: Incarnation) -> None:
        """The life that acknowledged was assumed, and is none: how far this one is, it will say."""
        peer.life, peer.watermark = life, 0

    def _begin_anew(self, node_id: NodeId, peer: _Peer, life: Incarnation) -> None:
        """A new life has nothing, and misses nothing of what was before it."""
        for sent in self._unstable:
            if sent.missing >> node_id & 1:
                sent.missing = without(sent.missing, node_id)
                sent.restarted |= 1 << node_id
        peer.life, peer.watermark = life, 0
        peer.gone_at = self._next if self._context.membership.is_gone(node_id) else 0
        peer.skips = [Skip(node_id, 1, self._next - 1, False)] if self._next > 1 else []
        self._tell_skips_to(node_id, peer)
        self._plan_resending()

    def _take_back(self, node_id: NodeId, peer: _Peer) -> None:
        """The same life is held alive again: it is told what has gone on without it."""
        gone_at, peer.gone_at = peer.gone_at, 0
        beyond = _beyond(peer)
        if beyond < self._stable:
            peer.skips.append(Skip(node_id, beyond + 1, self._stable, True))
        if gone_at < self._next:
            peer.skips.append(Skip(node_id, gone_at, self._next - 1, True))
        if peer.skips:
            while len(peer.skips) > SKIPS_MAX:
                # What lies between two of them is missed too.
                a, b = peer.skips[:2]
                peer.skips[:2] = [Skip(node_id, a.first, max(a.last, b.last), True)]
                self._clear_skipped(node_id, peer)
            self._tell_skips_to(node_id, peer)
            self._plan_resending()

    # --- the end ------------------------------------------------------------------------------

    def abandon(self, error: BmgdError) -> None:
        """Give up everything that is not confirmed; programs are told."""
        for request, sent in list(self._requests.items()):
            sent.answered = True
            self._context.timers.cancel((REPORT_TIMER, request, 0))
            self._context.emit(Reply(request, error=error))
        self._requests.clear()

    def on_own_new_life(self) -> None:
        """A new life numbers its broadcasts from 1; what the former one sent is others' to settle."""
        detail = "this node began a new life before everybody confirmed it"
        self.abandon(UnreachableError(self._context.id, detail, sent=True))
        self._next, self._stable, self._told_stable = 1, 0, 0
        self._unstable.clear()
        self._waiting.clear()
        self._unstable_bytes = self._waiting_bytes = 0
        self._peers.clear()
        for name in (RESEND_TIMER, STABLE_TIMER):
            self._context.timers.cancel((name, 0, 0))


def _beyond(peer: _Peer) -> int:
    """Up to where a node has everything, or skips it."""
    beyond = peer.watermark
    for skip in sorted(peer.skips, key=lambda skip: skip.first):
        if skip.first <= beyond + 1:
            beyond = max(beyond, skip.last)
    return beyond
