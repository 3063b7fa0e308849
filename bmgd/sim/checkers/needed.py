"""What is sent for reliable broadcasts: as often as they need it to be whole, and no more often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from bmgd.core.broadcast import source
from bmgd.core.effects import Effect, RecordChanged, Send
from bmgd.core.events import Event, Received
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.answer_times import AGAIN_MAX_NS, AGAIN_NS, AnswerTimes
from bmgd.sim.checkers.broadcasts import LifeKey, acknowledged_by, is_taken, source_of
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Look, Scene, is_deadline
from bmgd.types import Incarnation, NodeId, Status
from bmgd.wire.broadcast_messages import (
    BroadcastPiece,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.routes import Route

PIECE_AGAIN_NS: Final = 1_500_000_000
MORE_NS: Final = 10_000_000
"""Until the next part of many that are sent again."""
SHORT_COST: Final = 512
"""More than a short broadcast costs of what may be sent again in a step."""
TOLD_NS: Final = 100_000_000
SLACK_NS: Final = 50_000_000
STEPS_NS: Final = 200_000_000
"""Of many deadlines that are due some are reached in later steps."""


@dataclass(slots=True)
class _Out:
    """How often a broadcast left its source, and when last.

    Args:
        pause_ns: it is not sent again before so long after that.
        since_ns: since when it could be sent again.
        dark_pause_ns: the pause when it may have been sent once more to nobody, as there was no link to
            who lacks it; 0 where there was always one.
        early_ns: when it was last too early to send it again; how long nodes take may have fallen since.
    """

    times: int = 0
    sent_ns: int = 0
    pause_ns: int = 0
    since_ns: int = 0
    dark_pause_ns: int = 0
    early_ns: int = 0

    def leave(self, now_ns: int, first_ns: int, *, is_piece: bool) -> None:
        """It is sent now; what is sent once is waited for so long."""
        self.times, self.sent_ns, self.since_ns = self.times + 1, now_ns, now_ns
        first_ns = max(first_ns, PIECE_AGAIN_NS) if is_piece else first_ns
        self.pause_ns = max(first_ns, min(first_ns << min(self.times - 1, 8), AGAIN_MAX_NS))


@dataclass(slots=True)
class _Life:
    """One life of one node, as its broadcasts went out and others answered.

    Args:
        was_alone: whether at the last look nobody was linked and held alive.
        took_ns: how long it took to acknowledge what is acknowledged in this step, if that is measured.
    """

    incarnation: Incarnation
    out: dict[int, _Out] = field(default_factory=dict)
    told: int = 0
    excused: int = 0
    stable: int = 0
    stable_ns: int = 0
    was_alone: bool = False
    looked_ns: int = 0
    acknowledged: dict[LifeKey, int] = field(default_factory=dict)
    times: AnswerTimes = field(default_factory=AnswerTimes)
    took_ns: int | None = None


class SourcesSendWhatIsMissed(Checker):
    """A source sends a broadcast again to who has not acknowledged it, when its pause is over.

    The pause is 200 ms (of a piece 1.5 s) and doubles, up to 2 s; it is longer where nodes take longer to
    acknowledge what was sent once, or nothing is acknowledged before it is sent again. What is stable
    goes with broadcasts; it is told by itself when none has told it within 100 ms, and once. Who asks is
    answered, also who asks a former life of the source. To more than a bound who lack it a broadcast goes
    by the tree, not to each by its own way. Where a narrow bound lets one be sent again in a step, the
    last of many may wait, as the first are due again before their turn.
    """

    name: ClassVar[str] = "sources-send-what-is-missed"
    events: ClassVar[Kinds] = (Watermark, Look)
    before_events: ClassVar[Kinds] = (Watermark,)
    effects: ClassVar[Kinds] = (ReliableBroadcast, Stable)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._lives: dict[NodeId, _Life] = {}

    def on_boot(self, journal: Journal) -> None:
        self._lives[journal.place] = _Life(journal.incarnation)

    def before(self, journal: Journal, event: Event) -> None:
        came = event.message if isinstance(event, Received) else None
        if isinstance(came, Watermark):
            self._lives[journal.place].took_ns = _took_ns(journal, came)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        life = self._lives[journal.place]
        if life.incarnation != journal.incarnation:
            # How long others take is as it was.
            life = _Life(journal.incarnation, times=life.times)
            self._lives[journal.place] = life
        came = event.message if isinstance(event, Received) else None
        if isinstance(came, Watermark):
            self._on_watermark(journal, life, came, effects)
        # What comes back from a link that has closed, or from a search, is sent on, and not sent again.
        if not isinstance(came, ReliableBroadcast | Stable):
            self._check_sent(journal, life, effects)
        if is_deadline(event) and not journal.exited:
            self._check_late(journal, life)
        pause_ns = source_of(journal).peers.times.pause_ns
        if not life.times.follow(journal.now_ns, pause_ns):
            text = f"waits {pause_ns / 1e6:.0f} ms before it sends again, as nobody acknowledges"
            self.violate(journal, text)

    def _on_watermark(
        self, journal: Journal, life: _Life, came: Watermark, effects: Sequence[Effect]
    ) -> None:
        if came.asks:
            self._check_answered(journal, came.route, effects)
        if not is_taken(journal, came):
            return
        route, membership = came.route, journal.inside.membership
        if life.took_ns is not None and membership.status_of(route.source) not in (
            None,
            Status.LEFT,
        ):
            life.times.measure(life.took_ns)
        key = route.source, route.source_incarnation
        count = acknowledged_by(journal, came)
        life.acknowledged[key] = max(life.acknowledged.get(key, 0), count)

    def _check_answered(self, journal: Journal, route: Route, effects: Sequence[Effect]) -> None:
        """Over a link to who asks, if its life is believed; it may mean a former life of this node."""
        inside = journal.inside
        is_believed = inside.believes(route.source, route.source_incarnation)
        is_there = inside.membership.in_layout(route.source) and journal.to(route.source)
        if route.destination != journal.host.id or not is_believed or not is_there:
            return
        if not any(
            isinstance(effect, Send)
            and isinstance(effect.message, Skipped)
            and effect.message.route.destination == route.source
            for effect in effects
        ):
            self.violate(journal, f"does not answer {route.source}, which asks what it skips")

    def _check_sent(self, journal: Journal, life: _Life, effects: Sequence[Effect]) -> None:
        covered: dict[int, int] = {}
        heads: dict[int, int] = {}
        told, pieces, moved = life.told, set(), 0
        for effect in effects:
            if isinstance(effect, RecordChanged):
                # A host that was late may send it again and find it dead in one step.
                moved |= 1 << effect.id
            message = effect.message if isinstance(effect, Send) else None
            if not isinstance(message, ReliableBroadcast | Stable):
                continue
            if message.route.source != journal.host.id:
                continue
            told = max(told, message.stable)
            if isinstance(message, Stable):
                if message.stable <= life.told:
                    self.violate(journal, f"tells again that {message.stable} is stable")
                continue
            count = message.route.sequence
            if isinstance(message, BroadcastPiece):
                pieces.add(count)
            for branch in message.branches:
                covered[count] = covered.get(count, 0) | branch.cover
                heads[count] = heads.get(count, 0) | 1 << branch.head
        life.told = told
        for count, ids in covered.items():
            out = life.out.setdefault(count, _Out())
            if out.times:
                self._check_again(journal, life, count, ids)
                if not moved and ids.bit_count() > source.SINGLY_MAX:
                    self._check_tree(journal, count, heads[count])
                gone = ids_in(ids & ~moved & ~source_of(journal).window.living())
                if gone:
                    self.violate(journal, f"sends {count} again to {gone}, which are held dead")
            times = _times_sent(journal, count)
            if times > out.times + 1:
                # It was sent to nobody before, and nobody saw that.
                out.times, life.times.dark_ns = times - 1, journal.now_ns
            elif out.times == 1:
                life.times.double(journal.now_ns, out.sent_ns)
            out.leave(journal.now_ns, life.times.pause_ns, is_piece=count in pieces)

    def _check_again(self, journal: Journal, life: _Life, count: int, ids: int) -> None:
        out = life.out[count]
        past_ns = journal.now_ns - out.sent_ns
        if past_ns < max(out.pause_ns, life.times.measured_ns):
            self.violate(journal, f"sends {count} again after {past_ns / 1e6:.0f} ms")
        life_of = journal.inside.membership.incarnation
        have = [
            each
            for each in map(NodeId, ids_in(ids))
            if life.acknowledged.get((each, life_of(each)), 0) >= count
        ]
        if have:
            self.violate(journal, f"sends {count} again to {have}, which acknowledged it")

    def _check_tree(self, journal: Journal, count: int, heads: int) -> None:
        """The tree's steps lead a power of two ahead in the layout, and on from those that are dead."""
        membership = journal.inside.membership
        layout = [i for i in range(membership.id_space) if membership.in_layout(NodeId(i))]
        if journal.host.id not in layout:
            return
        steps: set[NodeId] = set()
        beyond = [journal.host.id]
        while beyond:
            ahead = _steps_ahead(layout, beyond.pop())
            beyond += [i for i in ahead if membership.is_gone(i) and i not in steps]
            steps.update(ahead)
        far = sorted(set(layout).intersection(ids_in(heads)) - steps)
        if far:
            self.violate(journal, f"sends {count} again to each of {far}, and not by the tree")

    # --- what is late -------------------------------------------------------------------------

    def _check_late(self, journal: Journal, life: _Life) -> None:
        window, now_ns = source_of(journal).window, journal.now_ns
        living, linked = window.living(), 0
        for link in journal.links.values():
            if link.opened_ns < life.looked_ns:
                linked |= 1 << link.peer
        if window.stable > life.stable:
            life.stable, life.stable_ns = window.stable, now_ns
            life.out = {count: out for count, out in life.out.items() if count > window.stable}
        life.looked_ns = now_ns
        is_late = journal.lag_ns > SLACK_NS
        is_alone = not linked & living
        if is_late or is_alone:
            life.times.dark_ns = now_ns
        if is_late or is_alone or life.was_alone:
            # There may have been nobody to tell: who is back meanwhile is told what it skips.
            life.excused = life.stable
        life.was_alone = is_alone
        if is_late:
            # It stood still: what is overdue is done in the next steps.
            life.stable_ns = now_ns
        elif (
            max(life.told, life.excused) < life.stable
            and now_ns - life.stable_ns > TOLD_NS + STEPS_NS
        ):
            self.violate(journal, f"has not told that {life.stable} is stable")
            life.stable_ns = now_ns
        slack_ns = AGAIN_NS + STEPS_NS + MORE_NS * len(window.unstable)
        for behind, sent in enumerate(window.unstable):
            known = life.out.setdefault(sent.sequence, _Out(since_ns=now_ns))
            if is_late or not sent.missing & living & linked:
                known.dark_pause_ns = max(known.dark_pause_ns, life.times.pause_ns)
                known.since_ns = life.times.dark_ns = now_ns
                continue
            pause_ns = max(known.pause_ns, known.dark_pause_ns, life.times.measured_ns)
            if known.dark_pause_ns or not known.times:
                pause_ns = max(pause_ns, AGAIN_MAX_NS, life.times.pause_ns)
            if now_ns - known.since_ns < pause_ns or _has_no_turn(behind):
                known.early_ns = now_ns
            elif now_ns > max(known.since_ns + pause_ns, known.early_ns) + slack_ns:
                self.violate(journal, f"does not send {sent.sequence} again, which is missed")
                known.since_ns = now_ns


def _steps_ahead(layout: Sequence[int], node_id: NodeId) -> list[NodeId]:
    """Whom the tree of a node leads to first (ISPA07 §5.3): the ids 1, 2, 4, ... ranks after its own."""
    size, rank = len(layout), layout.index(node_id)
    steps = (1 << bit for bit in range(size.bit_length()))
    return [NodeId(layout[(rank + step) % size]) for step in steps if step < size]


def _has_no_turn(behind: int) -> bool:
    """Whether so many come before it that the first of them may be due again before its turn.

    It may only be so where a narrow bound lets one be sent again in a step.
    """
    has_one = source.RESENT_PER_STEP_MAX == 1 or source.RESENT_BYTES_PER_STEP_MAX < SHORT_COST
    return has_one and behind * MORE_NS >= AGAIN_NS


def _times_sent(journal: Journal, count: int) -> int:
    """How often a source has sent a broadcast, as it counts; 0 for one that is stable."""
    unstable = source_of(journal).window.unstable
    is_there = unstable and count >= unstable[0].sequence
    return unstable[count - unstable[0].sequence].times if is_there else 0


def _took_ns(journal: Journal, came: Watermark) -> int | None:
    """How long a node took to acknowledge what it does now; None where that is not measured."""
    source, node_id = source_of(journal), came.route.source
    unstable, peer = source.window.unstable, source.peers.by_id.get(node_id)
    known = peer.watermark if peer is not None and peer.life == came.route.source_incarnation else 0
    count = min(came.watermark, source.window.next - 1)
    if count <= known or not unstable or count < unstable[0].sequence:
        return None
    sent = unstable[count - unstable[0].sequence]
    is_measured = sent.times == 1 and sent.command.piece is None and node_id != journal.host.id
    return journal.now_ns - sent.sent_ns if is_measured else None
