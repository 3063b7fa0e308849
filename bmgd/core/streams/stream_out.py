"""One stream out of this node: what waits, what is underway, and how much of it may be.

Theory of operation. A *segment* waits in `queue` until it may be sent, then it is `underway` until the
destination's next expected number is above its own. Segments underway are

    flying --ack names it within a gap--> held        (there, but behind one that is missing)
           --silence, or later ones came--> lost      (sent again first, as the window allows)

The *window* bounds what is flying: 128 KiB at first, more with every acknowledgement, 4 MiB at most,
half after a loss. *Credit* is the destination's: the cost, counted from the stream's first segment, up
to which it will hold. Before the first acknowledgement, and with credit used up, one segment at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bmgd.core.topics.questions import Asker
from bmgd.types import LinkId, NodeId
from bmgd.wire.segments import OVERHEAD_BYTES

NEVER_NS: Final = 1 << 62
WINDOW_FIRST: Final = 128 * 1024
WINDOW_MIN: Final = 64 * 1024
WINDOW_MAX: Final = 4 * 1024 * 1024
UNDERWAY_MAX: Final = 1024
"""Segments of one stream that are underway."""
RESEND_MIN_NS: Final = 200_000_000
RESEND_MAX_NS: Final = 2_000_000_000
REORDER_NS: Final = 20_000_000
"""A segment sent so long ago, when later ones are there, is lost and not only late."""
NUMBER_MAX: Final = 2**31
"""Segments under one stream id; then it is renewed."""


@dataclass(slots=True, eq=False)
class Sending:
    """A segment that its destination has not confirmed.

    Args:
        number: the program's count of the stream's segments, from 1; of a mark, that of the next one.
        request: of a message that is answered by itself, or 0.
        deadline_ns: when its time is over; `NEVER_NS` for never.
        closes: it is the empty one at the stream's end.
        tag: of the destination's life that was known when it was put; 0 for none.
        sequence: in the stream as it is on the wire, from 1; 0 until it is sent.
        transmissions: how often it was sent.
        fulls: how often the destination answered that it had no room for it.
        flying, held, lost: see above.
        doubted: its program was told that its time is over.
        question: of questions, the number of the first.
        answers: of answers, the questions that were owed, and begin to be answered in it.
    """

    number: int
    count: int
    body: bytes = field(repr=False)
    size: int
    first: bool
    last: bool
    deadline_ns: int
    request: int = 0
    closes: bool = False
    tag: int = 0
    sequence: int = 0
    sent_ns: int = 0
    transmissions: int = 0
    fulls: int = 0
    flying: bool = False
    held: bool = False
    lost: bool = False
    doubted: bool = False
    question: int = 0
    answers: tuple[int, ...] = ()

    @property
    def cost(self) -> int:
        """What it costs, in bytes."""
        return len(self.body) + OVERHEAD_BYTES

    @property
    def put_cost(self) -> int:
        """What it costs of the room that its program has: a mark nothing, of which it does not know."""
        return 0 if self.is_mark else self.cost

    @property
    def is_mark(self) -> bool:
        """Whether it is none of the program's: empty, it ends a long message or the stream."""
        return not (self.count or self.size)

    @property
    def may_be_taken(self) -> bool:
        """Whether a transmission is not known to have been refused."""
        return self.transmissions > self.fulls


@dataclass(slots=True, eq=False)
class StreamOut:
    """A stream of one program, or one that messages sent singly share.

    Args:
        key: numbers it in this node's life.
        owner: the request that opened it, or 0.
        priority, best_effort: see `bmgd.core.commands.OpenStream`.
        id: its number on the wire; 0 while it has none.
        replaces: the id that it had before, or 0.
        tag: of the destination's life that it is for; 0 when not known.
        next_number, next_sequence: of the next segment put, and sent first.
        put_cost, done_cost: of all segments that its program put, and of those that are done.
        granted: up to which `put_cost` the program may put.
        sent_cost: of all segments under this id.
        credit: the destination's, of this id.
        answered: whether the destination has acknowledged anything under this id.
        closing: its program puts nothing more. ending: its last, empty segment was put.
        abandoned: its program is gone.
        long_size, long_left: bytes of the long message put last, and how many of them were not put yet.
        unfinished: the segment put last is a piece, and not the last one of its message.
        cutting: what follows of that message is not sent.
        extra: what `granted` allows beyond one segment.
        losses: how many segments are lost. has_held: whether any is held.
        blocked: the destination had no room; it is asked again at `resend_ns`.
        resend_ns: when silence is over.
        sent_ns: when a segment of it was sent last.
        way: the link that it left by last.
        inbox: of a stream of questions, where the answers go; else 0.
        asked: questions put into it.
        answers: of a stream of answers, who owes them and to whom; else None.
        is_for_asker: it tells an asker what is lost, for this node itself.
    """

    key: int
    owner: int
    destination: NodeId
    topic: str
    priority: int
    best_effort: bool
    id: int = 0
    replaces: int = 0
    tag: int = 0
    queue: deque[Sending] = field(default_factory=deque)
    underway: dict[int, Sending] = field(default_factory=dict)
    next_number: int = 1
    next_sequence: int = 1
    put_cost: int = 0
    done_cost: int = 0
    granted: int = 0
    sent_cost: int = 0
    credit: int = 0
    answered: bool = False
    blocked: bool = False
    closing: bool = False
    abandoned: bool = False
    long_size: int = 0
    long_left: int = 0
    cutting: bool = False
    unfinished: bool = False
    ending: bool = False
    extra: int = 0
    losses: int = 0
    has_held: bool = False
    window: int = WINDOW_FIRST
    threshold: int = WINDOW_MAX
    flight: int = 0
    recovery: int = 0
    backoff: int = 0
    hints: int = 0
    srtt_ns: int = 0
    resend_ns: int = NEVER_NS
    earliest_ns: int = NEVER_NS
    sent_ns: int = 0
    way: LinkId | None = None
    inbox: int = 0
    asked: int = 0
    answers: tuple[int, Asker] | None = None
    is_for_asker: bool = False

    @property
    def first_question(self) -> int:
        """The number of the first question of a stream: streams have their own."""
        return self.key << 32 | 1

    @property
    def no_reader_text(self) -> str:
        """What it means that nobody takes what is sent."""
        if self.answers is not None or self.is_for_asker:
            return "the program that asked is gone"
        return f"nobody reads {self.topic!r} there, or takes long messages"

    @property
    def next_done(self) -> int:
        """All segments with a lower number are done."""
        for sending in self.underway.values():
            return sending.number
        return self.queue[0].number if self.queue else self.next_number

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is to be done."""
        return not self.queue and not self.underway

    @property
    def is_within_long(self) -> bool:
        """Whether what it sends next goes on with a long message, under the same id."""
        if not self.queue:
            return self.unfinished
        return self.queue[0].size > 0 and not self.queue[0].first

    def fits(self, piece: Sending) -> bool:
        """Whether a piece can be of the message that it says, as long as that was said to be."""
        left = piece.size if piece.first else self.long_left
        is_whole = len(piece.body) == left if piece.last else len(piece.body) < left
        return is_whole and (piece.first or piece.size == self.long_size)

    def on_piece_put(self, piece: Sending) -> None:
        """A piece was put, whatever becomes of it."""
        if piece.first:
            self.long_size = self.long_left = piece.size
        self.long_left -= len(piece.body)

    def may_send(self, cost: int) -> bool:
        """Whether a segment that was not sent yet may be sent now."""
        if self.blocked:
            return False
        if not self.underway:
            return True
        return (
            self.answered
            and self.sent_cost + cost <= self.credit
            and self.flight + cost <= self.window
            and len(self.underway) < UNDERWAY_MAX
            and self.next_sequence < NUMBER_MAX
        )

    def may_resend(self, cost: int) -> bool:
        """Whether a lost segment may be sent again now."""
        return not self.flight or (not self.blocked and self.flight + cost <= self.window)

    def on_sent(self, sending: Sending, now_ns: int) -> None:
        """A segment was put into an outbox."""
        if not sending.sequence:
            sending.sequence = self.next_sequence
            self.next_sequence += 1
            self.sent_cost += sending.cost
            self.underway[sending.sequence] = sending
        self.take_off(sending)
        self._find(sending)
        sending.flying = True
        sending.held = False
        sending.sent_ns = self.sent_ns = now_ns
        sending.transmissions += 1
        self.flight += sending.cost

    def take_off(self, sending: Sending) -> None:
        """It is not flying any more."""
        if sending.flying:
            sending.flying = False
            self.flight -= sending.cost

    def lose(self, sending: Sending) -> None:
        """Hold it to be lost."""
        self.take_off(sending)
        self.losses += not sending.lost
        sending.lost = True

    def _find(self, sending: Sending) -> None:
        self.losses -= sending.lost
        sending.lost = False

    def confirm(self, following: int, now_ns: int) -> list[Sending]:
        """The destination expects this sequence next: what is below is done, and removed."""
        done = []
        while self.underway:
            sequence = next(iter(self.underway))
            if sequence >= following:
                break
            sending = self.underway.pop(sequence)
            self.take_off(sending)
            self._find(sending)
            self.done_cost += sending.put_cost
            done.append(sending)
        if done:
            self._measure(done[-1], now_ns)
            self._widen(sum(sending.cost for sending in done))
            self.backoff = self.hints = 0
        return done

    def _measure(self, sending: Sending, now_ns: int) -> None:
        if sending.transmissions == 1:
            sample_ns = now_ns - sending.sent_ns
            self.srtt_ns = (7 * self.srtt_ns + sample_ns) // 8 if self.srtt_ns else sample_ns

    def _widen(self, confirmed: int) -> None:
        if self.window < self.threshold:
            self.window += confirmed
        else:
            self.window += max(1, confirmed * WINDOW_MIN // self.window)
        self.window = min(self.window, WINDOW_MAX)

    def narrow(self) -> None:
        """A segment was lost: half the window, once for everything that was underway then."""
        lowest = next(iter(self.underway), self.next_sequence)
        if lowest >= self.recovery:
            self.recovery = self.next_sequence
            self.window = self.threshold = max(self.window // 2, WINDOW_MIN)

    def hold(self, gaps: Sequence[tuple[int, int]], now_ns: int) -> None:
        """The destination has what is within the gaps; what it lacks before them may be lost."""
        highest = gaps[-1][1] if gaps else 0
        at, late_ns = 0, now_ns - max(REORDER_NS, self.srtt_ns * 5 // 4)
        found_lost = False
        self.has_held = bool(gaps)
        for sequence, sending in self.underway.items():
            while at < len(gaps) and gaps[at][1] < sequence:
                at += 1
            if at < len(gaps) and gaps[at][0] <= sequence:
                self.take_off(sending)
                self._find(sending)
                sending.held = True
            elif sending.held:
                # Taken back.
                sending.held = False
                self.lose(sending)
            elif sequence < highest and sending.flying and sending.sent_ns < late_ns:
                self.lose(sending)
                found_lost = True
        if found_lost:
            self.narrow()

    def lose_all(self) -> None:
        """Silence: nothing that is not held by the destination is believed to arrive."""
        for sending in self.underway.values():
            if not sending.held:
                self.lose(sending)

    def lowest(self) -> Sending | None:
        """The lowest segment underway that the destination has not said to hold."""
        for sending in self.underway.values():
            if not sending.held:
                return sending
        return next(iter(self.underway.values()), None)

    def pause_ns(self) -> int:
        """How long an answer is waited for."""
        base_ns = max(RESEND_MIN_NS, 3 * self.srtt_ns)
        return min(base_ns << min(self.backoff, 8), RESEND_MAX_NS)

    def drop_id(self) -> None:
        """Go on under a new id: nothing may be underway under the old one."""
        if self.id:
            self.replaces = self.id
        self.id = 0
        self.next_sequence = 1
        self.sent_cost = self.credit = self.flight = self.recovery = 0
        self.answered = self.blocked = False
        self.backoff = self.hints = self.losses = 0
        self.has_held = False
        self.resend_ns = NEVER_NS
