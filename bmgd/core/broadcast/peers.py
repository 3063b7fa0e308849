"""What a source knows of each node: how far it is, and what it need not wait for.

Theory of operation. A node acknowledges its *watermark*, for one life of its own. Whoever is held dead
is not in the audience of what is sent meanwhile. When it returns with the same life, it is told what it
*skips*: what became stable without it, and what was not for it; its programs see that as missed. A new
life, and who joins, skip everything that was sent before they were known.

    waited for --held dead--> gone --same life--> told its skips --acknowledges to be beyond--> waited for
        '--new life--> told its skips

A founder that has lost its state may begin a life below its former one. Where nothing but an
acknowledgement told of that one, it is waited for again, also for what the former one acknowledged.

Skips are told again, after longer and longer pauses, until the node acknowledges to be beyond them. Where
no way leads to a node each of them is a search through all others, and all sources have some for it.
A node that skips a broadcast is not missing from it any more. `broadcast/__init__.py` has all the cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from bmgd.core.broadcast.answer_times import RESEND_MIN_NS, AnswerTimes
from bmgd.core.broadcast.frames import BroadcastFrames
from bmgd.core.broadcast.reports import BroadcastReports
from bmgd.core.broadcast.window import BroadcastWindow, OwnBroadcast
from bmgd.core.context import Context, RecordMoved
from bmgd.core.membership.membership import Standing
from bmgd.routing.id_sets import without
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId, Record, Status, counter_of
from bmgd.wire.broadcast_messages import Skip, Watermark

RESEND_TIMER = "broadcast resend"
TELL_MAX_NS = 8_000_000_000
"""Pauses between skips that are told again double up to this."""


@dataclass(slots=True, eq=False)
class Peer:
    """What is known of a node of the audience.

    Args:
        life: whose watermark it is; 0 while it has not acknowledged anything.
        gone_at: the next sequence when it was held dead; 0 while it is not.
        skips: what it need not wait for, until it acknowledged to be beyond; in order, and what touches
            is one, so they are fewer than what is unstable.
        told: how often it was told of them since it was heard of; told_ns: when the last time.
    """

    life: Incarnation = UNKNOWN_INCARNATION
    watermark: int = 0
    gone_at: int = 0
    skips: list[Skip] = field(default_factory=list)
    told: int = 0
    told_ns: int = 0

    @property
    def tell_ns(self) -> int:
        """When it is to be told of its skips again."""
        pause_ns = RESEND_MIN_NS << min(self.told - 1, 8) if self.told else 0
        return self.told_ns + min(pause_ns, TELL_MAX_NS)

    def skip(self, more: Skip) -> None:
        """It need not wait for these either, and is to be told soon."""
        self.told = 0
        before, *others = sorted([*self.skips, more])
        ranges = [before]
        for skip in others:
            before = ranges[-1]
            if skip.first <= before.last + 1 and skip.missed == before.missed:
                ranges[-1] = before._replace(last=max(before.last, skip.last))
            else:
                ranges.append(skip)
        self.skips = ranges

    def beyond(self) -> int:
        """Up to where it has everything, or skips it."""
        beyond = self.watermark
        for skip in self.skips:
            if skip.first <= beyond + 1:
                beyond = max(beyond, skip.last)
        return beyond


class BroadcastPeers:
    """Those of whom a source knows more than that they are waited for.

    Attributes:
        by_id: what is known, by id.
        times: how long they take to acknowledge.
    """

    def __init__(
        self,
        context: Context,
        window: BroadcastWindow,
        reports: BroadcastReports,
        frames: BroadcastFrames,
    ) -> None:
        self._context = context
        self._window = window
        self._reports = reports
        self._frames = frames
        self.by_id: dict[NodeId, Peer] = {}
        self.times = AnswerTimes()
        self._left_at = 1
        """The next sequence when the last one left: of those who have, nothing else is known."""

    def begin_anew(self) -> None:
        """A new life of this node has sent nothing, and waits for nobody."""
        self.by_id.clear()
        self._left_at = 1

    # --- skips --------------------------------------------------------------------------------

    def skips_of(self, living: int) -> Iterator[Skip]:
        """What some ids need not wait for."""
        for node_id, peer in self.by_id.items():
            if living >> node_id & 1:
                yield from peer.skips

    def tell_skips(self) -> None:
        """Tell everybody who is not gone what it need not wait for, again, where it is time."""
        is_gone, now_ns = self._context.membership.is_gone, self._context.now_ns
        for node_id, peer in self.by_id.items():
            if peer.skips and not is_gone(node_id) and now_ns >= peer.tell_ns:
                self._tell_skips_to(node_id, peer)

    def pass_over(self, node_id: NodeId, sequence: int) -> None:
        """A node will not get a broadcast: it misses it, and is told."""
        peer = self.by_id.setdefault(node_id, Peer())
        peer.skip(Skip(node_id, sequence, sequence, True))
        self._clear(node_id, sequence, sequence)

    def plan_resending(self) -> None:
        """Plan to send and to tell again, while there is somebody who may need it."""
        key = (RESEND_TIMER, 0, 0)
        if key not in self._context.timers and (self._window.unstable or self._are_skips_untold()):
            self._context.timers.set(key, self._context.now_ns + RESEND_MIN_NS)

    def _are_skips_untold(self) -> bool:
        is_gone = self._context.membership.is_gone
        return any(peer.skips and not is_gone(each) for each, peer in self.by_id.items())

    def _tell_skips_to(self, node_id: NodeId, peer: Peer) -> None:
        peer.told += 1
        peer.told_ns = self._context.now_ns
        self._frames.tell_skips(node_id, peer.life, peer.skips)

    # --- watermarks ---------------------------------------------------------------------------

    def on_watermark(self, message: Watermark) -> bool:
        """A node tells up to where it has everything of this life; whether that is taken."""
        context, node_id = self._context, message.route.source
        life = message.route.source_incarnation
        if context.membership.status_of(node_id) in (None, Status.LEFT):
            return False
        if node_id == context.id or context.standing(node_id, life) is not Standing.CURRENT:
            return False
        if message.route.destination_tag != context.own_tag:
            if message.asks:
                self._frames.tell_own_life(node_id, life)
            return False
        if self._window.next == 1:
            # Records are not followed yet: a life that is noted now would stay when another has come.
            if message.asks:
                self._frames.tell_skips(node_id, life, ())
            return False
        peer = self._acknowledging(node_id, life)
        peer.told = 0
        # One that was told untruly what is stable may be beyond all that there is: it gets none of that.
        watermark = min(message.watermark, self._window.next - 1)
        if watermark > peer.watermark:
            before, peer.watermark = peer.watermark, watermark
            self._measure(watermark)
            self._clear(node_id, before + 1, watermark)
        peer.skips = [skip for skip in peer.skips if skip.last > peer.watermark]
        self._clear_skipped(node_id, peer)
        if message.asks:
            self._tell_skips_to(node_id, peer)
        return True

    def _measure(self, sequence: int) -> None:
        """A node has acknowledged up to this one: how long that took, where it was sent once."""
        unstable = self._window.unstable
        if not unstable or sequence < unstable[0].sequence:
            return
        sent = unstable[sequence - unstable[0].sequence]
        if sent.times == 1 and sent.command.piece is None:
            self.times.add(self._context.now_ns - sent.sent_ns)

    def _acknowledging(self, node_id: NodeId, life: Incarnation) -> Peer:
        """Who acknowledges, as that life."""
        peer = self.by_id.get(node_id)
        if peer is None:
            gone_at = 1 if self._context.membership.is_gone(node_id) else 0
            peer = self.by_id[node_id] = Peer(gone_at=gone_at)
        if peer.life > life:
            self._correct(node_id, peer, life)
        elif peer.life not in (UNKNOWN_INCARNATION, life):
            self._begin_anew(node_id, peer, life, self._window.next)
        peer.life = life
        return peer

    def _clear(self, node_id: NodeId, first: int, last: int) -> None:
        """A node has these, or skips them."""
        unstable = self._window.unstable
        if not unstable:
            return
        lowest = unstable[0].sequence
        living = self._window.living()
        start, end = max(first - lowest, 0), last - lowest + 1
        for sent in islice(unstable, start, max(start, end)):
            sent.missing = without(sent.missing, node_id)
            if not sent.missing & living:
                self._reports.answer(sent)

    def _clear_skipped(self, node_id: NodeId, peer: Peer) -> None:
        for skip in peer.skips:
            self._clear(node_id, skip.first, skip.last)

    # --- who is waited for --------------------------------------------------------------------

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Another node died, returned, began a new life, or joined."""
        before, after = moved.before, moved.after
        peer = self.by_id.get(moved.id)
        if after.status is Status.LEFT and self._waited_for(moved, peer) <= after.incarnation:
            self._on_left(moved.id)
            return
        was_gone = before is None or before.status >= Status.DEAD
        if after.status < Status.DEAD:
            self._on_alive(moved.id, after.incarnation, before)
            return
        following = self._window.next if was_gone else self._first_without(moved.id)
        if self._is_new(moved, peer):
            # It is first heard of as dead: it may yet say that it lives.
            peer = peer or self.by_id.setdefault(moved.id, Peer())
            self._begin_anew(moved.id, peer, after.incarnation, following)
        elif not was_gone:
            peer = peer or self.by_id.setdefault(moved.id, Peer())
            peer.gone_at = peer.gone_at or following
            linked = self._context.membership.linked(moved.id)
            if not peer.life and linked > after.incarnation:
                # It was that life that was waited for: here the death of a former one is told.
                peer.life = linked

    def _on_left(self, node_id: NodeId) -> None:
        """That life does not return, and ids that have left are more and more: it is forgotten.

        Should it return all the same, it is told that it misses what it has not confirmed until now.
        """
        for sent in self._window.unstable:
            sent.left |= sent.missing & 1 << node_id
        self.by_id.pop(node_id, None)
        self._left_at = self._window.next

    def _waited_for(self, moved: RecordMoved, peer: Peer | None) -> Incarnation:
        """The life that is waited for; where no record told of that one, it is linked."""
        if peer is not None and peer.life:
            return peer.life
        before = moved.before
        if before is None or before.status >= Status.DEAD:
            return UNKNOWN_INCARNATION
        return self._context.membership.linked(moved.id)

    @staticmethod
    def _is_new(moved: RecordMoved, peer: Peer | None) -> bool:
        """Whether one that is held dead joins, or is in another life than it was known to be.

        A founder that was held dead before it was heard of is in its first life. Who has acknowledged
        nothing, and was not held dead, has been waited for in whatever life.
        """
        before, life = moved.before, moved.after.incarnation
        if before is None:
            return peer is None
        if before.status is Status.LEFT:
            return peer is None and counter_of(life) > 1
        known = UNKNOWN_INCARNATION if peer is None else peer.life
        if before.status >= Status.DEAD:
            known = known or before.incarnation
            return known < life if known else counter_of(life) > 1
        return UNKNOWN_INCARNATION < known < life

    def _first_without(self, node_id: NodeId) -> int:
        """From which sequence on nothing is for a node: some may be sent before its death is seen."""
        first = self._window.next
        for sent in reversed(self._window.unstable):
            if not sent.exceptions >> node_id & 1:
                break
            first = sent.sequence
        return first

    def _first_with(self, node_id: NodeId, gone_at: int) -> int:
        """From which sequence on all is for a life: some may be sent before it is seen here.

        Of a life that is back this is what was sent since its id was held dead, and is for it. A life
        that follows one that was alive until now is known since this step: what was sent before was for
        the former one.
        """
        first = self._window.next
        for sent in reversed(self._window.unstable):
            is_since = sent.sequence >= gone_at if gone_at else self._is_just_sent(sent)
            if not is_since or not self._is_for(sent, node_id):
                break
            first = sent.sequence
        return first

    def _is_just_sent(self, sent: OwnBroadcast) -> bool:
        return sent.times == 1 and sent.sent_ns == self._context.now_ns

    @staticmethod
    def _is_for(sent: OwnBroadcast, node_id: NodeId) -> bool:
        return node_id < sent.id_space and not sent.exceptions >> node_id & 1

    def _on_alive(self, node_id: NodeId, life: Incarnation, before: Record | None) -> None:
        context, peer = self._context, self.by_id.get(node_id)
        former = UNKNOWN_INCARNATION if before is None else before.incarnation
        is_known = peer is not None or before is None
        if peer is None:
            if before is not None and before.status < Status.DEAD:
                # It has been waited for all the time.
                return
            peer = self.by_id[node_id] = Peer(gone_at=1)
        # What is for one of whom nothing is known can have been for a former life, which left.
        following = self._first_with(node_id, peer.gone_at if is_known else self._left_at)
        # A record that asks for its own says nothing of its life; nor does one of a former life, where
        # a later one is linked: it is that which is waited for.
        life = max(life, context.membership.linked(node_id)) if life else peer.life
        known = peer.life or former
        if not known and node_id < context.membership.founding_size and counter_of(life) == 1:
            # A founder of which nothing was heard was waited for: it was held dead by mistake.
            known = life
        if peer.life > life:
            self._correct(node_id, peer, life)
        if peer.life != life and (peer.life or (peer.gone_at and known != life)):
            self._begin_anew(node_id, peer, life, following)
        elif peer.gone_at:
            self._take_back(node_id, peer, following)
        peer.life = life

    def _begin_anew(self, node_id: NodeId, peer: Peer, life: Incarnation, following: int) -> None:
        """A new life has nothing, and misses nothing of what was before it: below `following`."""
        for sent in self._window.unstable:
            if sent.missing >> node_id & 1 and sent.sequence < following:
                sent.missing = without(sent.missing, node_id)
                sent.restarted |= 1 << node_id
        peer.life, peer.watermark = life, 0
        peer.gone_at = following if self._context.membership.is_gone(node_id) else 0
        peer.skips = [Skip(node_id, 1, following - 1, False)] if following > 1 else []
        peer.told = 0
        self._tell_skips_to(node_id, peer)
        self.plan_resending()

    def _correct(self, node_id: NodeId, peer: Peer, life: Incarnation) -> None:
        """The life that acknowledged was assumed, or this one, a lower one, has forgotten it.

        What that acknowledged this one may lack: it is waited for again, and skips what is stable. Who
        is held dead is told of that when it is back.
        """
        acknowledged, peer.life, peer.watermark = peer.watermark, life, 0
        if self._window.stable and not peer.gone_at:
            peer.skip(Skip(node_id, 1, self._window.stable, False))
            self._tell_skips_to(node_id, peer)
        for sent in self._window.unstable:
            if sent.sequence > acknowledged:
                break
            if self._is_for(sent, node_id):
                sent.missing |= 1 << node_id
        self._clear_skipped(node_id, peer)
        self.plan_resending()

    def _take_back(self, node_id: NodeId, peer: Peer, following: int) -> None:
        """The same life is alive again: it is told what has gone on without it, below `following`."""
        stable = self._window.stable
        gone_at, peer.gone_at = peer.gone_at, 0
        beyond = peer.beyond()
        if beyond < stable:
            peer.skip(Skip(node_id, beyond + 1, stable, True))
        if gone_at < following:
            peer.skip(Skip(node_id, gone_at, following - 1, True))
        if peer.skips:
            self._tell_skips_to(node_id, peer)
            self.plan_resending()
