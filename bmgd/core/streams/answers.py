"""What becomes of streams out: acknowledged, reset, without a way, or their destination gone."""

from __future__ import annotations

from collections.abc import Iterator

from bmgd.core.context import Context
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.show import gone_text
from bmgd.core.streams.sending import RETRY_MIN_NS, StreamSending
from bmgd.core.streams.stream_out import RESEND_MAX_NS, StreamOut
from bmgd.core.streams.table import StreamTable
from bmgd.core.work import Work
from bmgd.errors import (
    DeadError,
    LeavingError,
    NewLifeError,
    NoReaderError,
    ReaderLostError,
    UnreachableError,
)
from bmgd.types import NodeId
from bmgd.wire.stream_messages import ResetReason, SegmentAck, StreamReset, Unreachable

REROUTE_NS = 20_000_000
"""Within so long a stream whose next hop changed sends its lowest segment again."""


class StreamAnswers:
    """Takes what destinations and relays say of streams, and what is known of their nodes."""

    def __init__(
        self,
        context: Context,
        forwarding: Forwarding,
        work: Work,
        table: StreamTable,
        sending: StreamSending,
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._work = work
        self._table = table
        self._sending = sending

    def on_ack(self, ack: SegmentAck) -> None:
        """The destination told what it has of a stream."""
        stream = self._table.find(ack)
        if stream is None:
            return
        if stream.tag and ack.tag != stream.tag:
            return
        context, following = self._context, ack.route.sequence & 0xFFFF_FFFF
        if following > stream.next_sequence:
            return
        stream.tag = ack.tag
        done = stream.confirm(following, context.now_ns)
        if following < next(iter(stream.underway), stream.next_sequence):
            # An old one that was overtaken.
            return
        stream.answered = True
        stream.credit = max(stream.credit, ack.credit) if not ack.full else ack.credit
        for sending in done:
            self._sending.answer(stream, sending)
        first = stream.underway.get(following)
        if ack.full and first is not None:
            # A copy that came is refused once, whether it was flying or known to wait there.
            first.fulls += first.flying or first.held
            first.held = False
            stream.lose(first)
            if not stream.blocked:
                stream.blocked = True
                stream.backoff += 1
                stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        else:
            if stream.blocked:
                stream.blocked = False
                stream.backoff = 0
            if ack.gaps or stream.has_held:
                stream.hold(ack.gaps, context.now_ns)
            if done:
                stream.resend_ns = context.now_ns + context.jitter(stream.pause_ns())
        if done:
            self._sending.told(stream)
            self._sending.serve_waiting(stream.destination)
        self._sending.pump(stream)
        self._sending.finish_if_idle(stream)

    def on_reset(self, reset: StreamReset) -> None:
        """The destination takes nothing more of a stream."""
        stream = self._table.find(reset)
        if stream is None:
            return
        destination, number = stream.destination, reset.route.sequence & 0xFFFF_FFFF
        if reset.reason == ResetReason.FOREIGN_TAG:
            self._on_foreign_tag(stream, reset.tag)
            return
        if stream.tag not in (0, reset.tag):
            return
        match reset.reason:
            case ResetReason.LEAVING:
                detail = "it is leaving, and did not take the message"
                self._sending.end(stream, LeavingError(destination, detail), number)
            case ResetReason.NO_READER:
                error = NoReaderError(destination, stream.no_reader_text)
                self._sending.end(stream, error, number)
            case ResetReason.READER_LOST:
                detail = "the program that read it went away"
                self._sending.end(stream, ReaderLostError(destination, detail))
            case _:
                detail = "it does not know the stream any more; it may have taken the messages"
                self._sending.end(stream, UnreachableError(destination, detail))

    def _on_foreign_tag(self, stream: StreamOut, tag: int) -> None:
        if stream.tag == tag:
            return
        first = next(iter(stream.underway.values()), None)
        if not stream.tag and not stream.answered and first:
            # Nobody takes what is for no life, however often it was sent.
            stream.tag = tag
            self._sending.transmit(stream, first)
            self._table.set_timer(stream)
            return
        detail = "it began a new life; the former one may have taken the message"
        self._sending.end(stream, NewLifeError(stream.destination, detail))

    def on_unreachable(self, hint: Unreachable) -> None:
        """A relay found no way: only a hint, try again shortly."""
        peer = self._table.peers.get(hint.target)
        stream = peer.open.get(hint.route.sequence >> 32) if peer else None
        sending = stream.underway.get(hint.route.sequence & 0xFFFF_FFFF) if stream else None
        if stream is None or sending is None or stream.blocked:
            return
        stream.lose(sending)
        stream.hints += 1
        pause_ns = min(RETRY_MIN_NS << min(stream.hints - 1, 8), RESEND_MAX_NS)
        at_ns = self._context.now_ns + self._context.jitter(pause_ns)
        stream.resend_ns = min(stream.resend_ns, at_ns)
        self._table.set_timer(stream)

    def on_long_settled(self, key: int, taken: bool) -> None:
        """A reader here has taken a long message of this node's own, or went away."""
        stream = self._table.streams.get(key)
        if stream is None:
            return
        if not taken:
            detail = "the program that read it went away"
            self._sending.end(stream, ReaderLostError(stream.destination, detail, sent=True))
            return
        for sending in stream.confirm(stream.next_sequence, self._context.now_ns):
            self._sending.answer(stream, sending)
        self._sending.told(stream)
        self._sending.pump(stream)

    def on_gone(self, peer: NodeId) -> None:
        """A death is known: what was for that node has failed, a stream a piece."""
        if not any(stream.destination == peer for stream in self._table.streams.values()):
            return

        def ends() -> Iterator[None]:
            membership = self._context.membership
            for stream in list(self._table.streams.values()):
                to_gone = stream.destination == peer and membership.is_gone(peer)
                if to_gone and self._table.streams.get(stream.key) is stream:
                    detail = gone_text(membership, peer)
                    self._sending.end(stream, DeadError(peer, detail))
                    yield

        self._work.begin(f"ends {peer}", ends)

    def on_new_life(self, peer: NodeId) -> None:
        """A new life of a node is known: questions that the former one had are not answered."""
        known = self._table.known_tag(peer)
        for stream in list(self._table.streams.values()):
            if stream.inbox and stream.destination == peer and stream.tag not in (0, known):
                detail = "it began a new life; the former one may have taken the question"
                self._sending.end(stream, NewLifeError(peer, detail))

    def on_ways_changed(self) -> None:
        """The snapshot of next hops has changed: streams that left by another link ask at once."""
        streams = self._table.streams
        if streams and any(stream.underway for stream in streams.values()):
            self._work.begin("reroute", self._reroutes)

    def _reroutes(self) -> Iterator[None]:
        context = self._context
        for stream in list(self._table.streams.values()):
            if self._table.streams.get(stream.key) is not stream or not stream.underway:
                continue
            way = self._forwarding.way_to(stream.destination)
            # Without a next hop it was a search, whose way nobody knows.
            is_same = way is not None and way == stream.way
            if is_same or stream.blocked or stream.destination == context.id:
                continue
            stream.way = way
            at_ns = context.now_ns + context.random.randrange(1, REROUTE_NS)
            stream.resend_ns = min(stream.resend_ns, at_ns)
            self._table.set_timer(stream)
            yield

    def on_own_new_life(self) -> None:
        """This node began a new life: what the former one sent is no longer confirmed."""
        self.abandon("this node began a new life before the confirmation came")
        self._table.peers.clear()

    def abandon(self, why: str) -> None:
        """Give up everything that is underway; its programs are told."""
        for stream in list(self._table.streams.values()):
            if stream.is_idle and not stream.owner:
                self._sending.remove(stream)
            else:
                self._sending.end(stream, UnreachableError(stream.destination, why))
