"""Reliable broadcasts, at every node: taken in order, kept until they are stable, acknowledged.

Theory of operation. Of each life of a source this node has a *watermark*: all that was for it up to
there has been given to its readers, in the source's order. What comes beyond a gap waits. Copies are
kept until the source tells that they are stable, whoever reads them. The watermark goes straight to
the source, after a quarter of a window or 20 ms.

    comes above a gap --> waiting --gap closes--> given to readers, kept --stable--> gone
                                  --skipped-----> shown to readers as missed

Whether a broadcast is taken depends on its source's life and on its audience, never on whether the
source is held dead: a node that refused what others took, because of a rumor, could not mend it later.
For the same reason a former life's broadcasts are taken while others may have them: until this node
has forgotten that life (`broadcast_orphans.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bmgd.core.announcements import Announcement, Announcements
from bmgd.core.branching import Branching
from bmgd.core.broadcast_reserve import BroadcastReserve
from bmgd.core.broadcast_window import (
    OVERHEAD_BYTES,
    PIECES_WINDOW_BYTES,
    WINDOW_ALL_BYTES,
    WINDOW_MIN_BYTES,
)
from bmgd.core.context import Context
from bmgd.core.forwarding import Forwarding
from bmgd.core.membership import Standing
from bmgd.core.programs import Programs
from bmgd.core.timers import TimerKey
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import without
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.broadcast_messages import (
    BroadcastPiece,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.holding import audience_bytes

WATERMARK_NS = 20_000_000
REMIND_NS = 1_000_000_000
REMIND_MAX_NS = 8_000_000_000
LIVES_MAX = 65_536
"""Lives of sources; at the bound one of a gone source, not shared and without copies, makes room."""
FORMER_MAX = 4
"""Of one source that many lives are known beside the present one; a further former one is not taken."""
FULL_NS = 1_000_000_000
"""So long nobody is looked for that could make room, after none was found."""
HELD_BYTES_MAX = 128 << 20
"""Of all sources together; beyond it the sources send again, and those that are stuck have a reserve."""
AHEAD_MAX = 8192
"""How far beyond the watermark something may wait."""
SHOWN_MAX = 2**64 - 1
"""What a count is shown as at most: others name the ranges that are missed."""
REFUTED_NS = 10_000_000_000
"""What was passed over so shortly before this node refuted its death was not for it because of that."""
SKIPS_KEPT_MAX = 64
"""Ranges above a gap; beyond it only one that closes the gap is taken, others are told again."""
PIECE_TOPICS_MAX = 16
"""Topics of long broadcasts of one source whose readers are waited for at a time."""
WATERMARK_TIMER = "broadcast watermark"
REMIND_TIMER = "broadcast remind"

LifeKey = tuple[NodeId, Incarnation]


def copy_cost(message: ReliableBroadcast) -> int:
    """What a copy costs: its payload, and what of its audience may take as much in memory."""
    return len(message.payload) + OVERHEAD_BYTES + audience_bytes(message)


@dataclass(slots=True, eq=False)
class Heard:
    """What this node has of one life of a source.

    Attributes:
        watermark: all for this node up to here was given to its readers, or is skipped.
        stable: up to where the source told that everybody has it.
        copies: what is kept, by its count: up to the watermark in order, and what waits beyond.
        skips: ranges that are not for this node, above the watermark, and whether they are missed.
        given: whether readers were shown anything of it: a broadcast, or that they missed one.
        begun: whether the source itself told this life what it skips: what it sends later is for it too.
        silent: from which count on, and when last, it was passed over and nobody told; or None.
        pieces_of: topics of which readers were given pieces since the last acknowledgement.
        asking: whether the source is to say what this node skips, until it does.
        orphan_ns: since when nobody was there who would send it again; 0 when somebody is.
        shared: whether neighbors compare what they have of it, because of that.
        told_stable: up to where neighbors told that it is stable.
        told, said, said_ns: the reach that neighbors told, that they were told, and when.
        pulled: how often neighbors were asked for copies, and none came.
        asked, asked_at: who was asked last, and the watermark and the number of copies then.
        asks: how often anybody was.
    """

    source: NodeId
    incarnation: Incarnation
    watermark: int = 0
    stable: int = 0
    copies: dict[int, ReliableBroadcast] = field(default_factory=dict)
    copies_bytes: int = 0
    skips: list[tuple[int, int, bool]] = field(default_factory=list)
    given: bool = False
    begun: bool = False
    silent: tuple[int, int] | None = None
    unacknowledged_bytes: int = 0
    pieces_of: dict[str, None] = field(default_factory=dict)
    reminded_ns: int = 0
    asking: bool = False
    orphan_ns: int = 0
    shared: bool = False
    told_stable: int = 0
    told: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    said: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    said_ns: dict[NodeId, int] = field(default_factory=dict)
    pulled: dict[NodeId, int] = field(default_factory=dict)
    asked: NodeId | None = None
    asked_at: tuple[int, int] = (0, 0)
    asks: int = 0

    @property
    def key(self) -> LifeKey:
        return self.source, self.incarnation

    @property
    def reach(self) -> tuple[int, int]:
        """The watermark, and the highest count of which there is a copy, or the watermark."""
        return self.watermark, max(self.watermark, max(self.copies, default=0))

    def forget_neighbors(self) -> None:
        """Nothing is shared with neighbors any more: what they told and were told is void."""
        self.told_stable = 0
        self.told.clear()
        self.said.clear()
        self.said_ns.clear()
        self.pulled.clear()
        self.asked = None


class BroadcastRetention:
    """What this node has of others' reliable broadcasts.

    Attributes:
        lives: by source and incarnation.
        by_source: the same by source, then by incarnation.
        changed: lives of which something came in this step, for whoever tells neighbors of it.
    """

    def __init__(
        self,
        context: Context,
        forwarding: Forwarding,
        branching: Branching,
        announcements: Announcements,
        programs: Programs,
    ) -> None:
        self._context = context
        self._forwarding = forwarding
        self._branching = branching
        self._announcements = announcements
        self._programs = programs
        self.lives: dict[LifeKey, Heard] = {}
        self.by_source: dict[NodeId, dict[Incarnation, Heard]] = {}
        self.changed: dict[LifeKey, None] = {}
        self._forgotten: dict[NodeId, Incarnation] = {}
        self._inherited: dict[LifeKey, int] = {}
        self._full_until_ns = 0
        self._reserve = BroadcastReserve(context)
        self.held_bytes = 0
        self.taken = 0
        self.missed = 0
        self.refused = 0

    def inherit(self, former: BroadcastRetention) -> None:
        """Take over how far readers got as the node that this process was before.

        From there on they see what comes to this one, and are told what they missed in between.
        """
        given = {heard.key: heard.watermark for heard in former.lives.values() if heard.given}
        known = former._inherited if len(former._inherited) < LIVES_MAX else {}
        self._inherited = known | given

    def show(self) -> dict[str, Any]:
        """For `bmgd status --json`."""
        return {
            "taken": self.taken,
            "missed": self.missed,
            "refused": self.refused,
            "copies": sum(len(heard.copies) for heard in self.lives.values()),
            "copies_bytes": self.held_bytes,
        }

    # --- lives --------------------------------------------------------------------------------

    def hear(self, source: NodeId, incarnation: Incarnation) -> Heard | None:
        """What is held of a source's life, from now on; None where it is not to be taken."""
        membership = self._context.membership
        if source == self._context.id or membership.status_of(source) is None:
            return None
        standing = self._context.standing(source, incarnation)
        if standing is Standing.UNVOUCHED:
            return None
        heard = self.lives.get((source, incarnation))
        if heard is not None:
            return heard
        if standing is Standing.FORMER and len(self.by_source.get(source, ())) > FORMER_MAX:
            return None
        if incarnation <= self._forgotten.get(source, 0) or not self._make_room():
            return None
        heard = self.lives[source, incarnation] = Heard(source, incarnation)
        reached = self._inherited.pop(heard.key, None)
        if reached is not None:
            heard.watermark, heard.given = reached, True
            # What came up to there was the former node's; what runs at the source this one must ask.
            self._programs.on_skipped(source, incarnation)
        lives = self.by_source.setdefault(source, {})
        # Of former lives nobody sends again any more.
        self.changed.update((former.key, None) for former in lives.values())
        lives[incarnation] = heard
        return heard

    def _make_room(self) -> bool:
        if len(self.lives) < LIVES_MAX:
            return True
        if self._context.now_ns < self._full_until_ns:
            return False
        is_gone = self._context.membership.is_gone
        for heard in self.lives.values():
            if not heard.copies and not heard.shared and is_gone(heard.source):
                self.forget(heard)
                return True
        self._full_until_ns = self._context.now_ns + FULL_NS
        return False

    def forget(self, heard: Heard) -> None:
        """Nothing more is taken of this life, or of those before it."""
        self.drop_copies(heard)
        del self.lives[heard.key]
        del self.by_source[heard.source][heard.incarnation]
        if not self.by_source[heard.source]:
            del self.by_source[heard.source]
        self.changed.pop(heard.key, None)
        former = self._forgotten.get(heard.source, Incarnation(0))
        vouched = self._context.membership.vouched(heard.source)
        if not former < vouched < heard.incarnation:
            # Else it was assumed, and the life that is vouched for is still to be taken.
            self._forgotten[heard.source] = max(former, heard.incarnation)
        self._cancel_timers(heard)

    def drop_copies(self, heard: Heard) -> None:
        """Nobody is helped by them any more."""
        self.held_bytes -= heard.copies_bytes
        heard.copies.clear()
        heard.copies_bytes = 0
        self._reserve.forget(heard.key)

    def _cancel_timers(self, heard: Heard) -> None:
        for name in (WATERMARK_TIMER, REMIND_TIMER):
            self._context.timers.cancel((name, *heard.key))

    # --- what comes ---------------------------------------------------------------------------

    def on_broadcast(self, message: ReliableBroadcast) -> None:
        """A copy came: send it on, and take it where it is new."""
        route = message.route
        heard = self.hear(route.source, route.source_incarnation)
        if heard is None:
            self.refused += 1
            if route.source == self._context.id:
                return
        else:
            self._take(heard, message)
        me = self._context.id
        left = (Branch(branch.head, without(branch.cover, me)) for branch in message.branches)
        self._branching.send(message, [branch for branch in left if branch.cover])

    def _take(self, heard: Heard, message: ReliableBroadcast) -> None:
        count, me = message.route.sequence, self._context.id
        is_for_me = me < message.id_space and not message.exceptions >> me & 1
        for skip in message.skips:
            if skip.id == me:
                self._add_skip(heard, skip.first, skip.last, missed=skip.missed)
        if count > heard.watermark and not is_for_me:
            self._add_skip(heard, count, count, missed=self.was_there_before(heard))
        elif heard.watermark < count <= heard.watermark + AHEAD_MAX and count not in heard.copies:
            self._keep(heard, message)
        self._advance(heard)
        self._learn_stable(heard, message.stable)
        self._acknowledge_soon(heard, len(message.payload))

    def _keep(self, heard: Heard, message: ReliableBroadcast) -> None:
        cost = copy_cost(message)
        over_bytes = self.held_bytes + cost - HELD_BYTES_MAX
        is_next = message.route.sequence == heard.watermark + 1
        if over_bytes > 0 and not (is_next and self._reserve.admits(heard.key, over_bytes)):
            self.refused += 1
            if is_next:
                self._reserve.on_refused(heard.key)
            return
        self._reserve.on_kept(heard.key)
        self.changed[heard.key] = None
        route = message.route
        if route.search is not None:
            route = replace(route, search=None)
        if message.branches or route is not message.route:
            # Where this one went on to is in no count, and may be much more than all the rest.
            message = replace(message, route=route, branches=())
        heard.copies[message.route.sequence] = message
        heard.copies_bytes += cost
        self.held_bytes += cost

    def was_there_before(self, heard: Heard) -> bool:
        """Whether what this node did not get of a life is missed by its programs.

        It is where they got something of it, or may have: a founder in its first life was there, and so
        was who was told by the source where it begins. Who refuted its death was known before, and what
        was sent meanwhile was not for it.
        """
        context = self._context
        is_first = not context.followed and context.id < context.membership.founding_size
        was_held_dead = context.version > 0
        return heard.given or heard.begun or is_first or was_held_dead

    def skip(self, heard: Heard, first: int, last: int) -> None:
        """These do not come: nobody has them any more."""
        self._add_skip(heard, first, last, missed=self.was_there_before(heard))
        self._advance(heard)

    def _add_skip(self, heard: Heard, first: int, last: int, *, missed: bool) -> None:
        if last <= heard.watermark:
            return
        apart = []
        for a, b, is_missed in heard.skips:
            # Copies of one broadcast tell the same: what is told again takes no room.
            if is_missed == missed and a <= last + 1 and first <= b + 1:
                first, last = min(first, a), max(last, b)
            else:
                apart.append((a, b, is_missed))
        if len(apart) >= SKIPS_KEPT_MAX and first > heard.watermark + 1:
            return
        heard.skips = sorted([*apart, (first, last, missed)])

    def _advance(self, heard: Heard) -> None:
        """Give to readers what is next, as far as it is there."""
        before = heard.watermark
        while True:
            count = heard.watermark + 1
            message = heard.copies.get(count)
            skipped = next((s for s in heard.skips if s[0] <= count <= s[1]), None)
            if message is not None:
                heard.watermark = count
                self._give(heard, message)
            elif skipped is not None:
                self._pass_over(heard, skipped)
            else:
                break
        if heard.watermark > before:
            heard.skips = [s for s in heard.skips if s[1] > heard.watermark]
            self.changed[heard.key] = None

    def _give(self, heard: Heard, message: ReliableBroadcast) -> None:
        self.taken += 1
        heard.given = True
        if message.topic:
            piece = message.piece if isinstance(message, BroadcastPiece) else None
            if piece is not None and len(heard.pieces_of) < PIECE_TOPICS_MAX:
                heard.pieces_of[message.topic] = None
            self._announcements.announce(
                Announcement(
                    heard.source,
                    heard.incarnation,
                    message.route.sequence,
                    message.topic,
                    message.payload,
                    piece,
                )
            )
        else:
            self._programs.on_told(heard.source, heard.incarnation, message.payload)
        if message.route.sequence <= heard.stable:
            self._drop(heard, message.route.sequence)
            self._reserve.on_stable(heard.key, has_copies=bool(heard.copies))

    def _pass_over(self, heard: Heard, skipped: tuple[int, int, bool]) -> None:
        """Up to the end of what is skipped, or to the next that is here all the same."""
        first = heard.watermark + 1
        last = skipped[1]
        here = min((count for count in heard.copies if first <= count <= last), default=last + 1)
        heard.watermark = min(last, here - 1)
        self._programs.on_skipped(heard.source, heard.incarnation)
        # Who had something of this life misses what it skips, whatever the source thought.
        if skipped[2] or heard.given:
            self._tell_missed(heard, first)
        else:
            heard.silent = (heard.silent or (first, 0))[0], self._context.now_ns

    def _tell_missed(self, heard: Heard, first: int) -> None:
        """Show readers that they do not get what lies between this count and the watermark."""
        heard.silent = None
        heard.given = True
        self.missed = min(self.missed + heard.watermark - first + 1, SHOWN_MAX)
        self._announcements.tell_missed(heard.source, heard.incarnation, first, heard.watermark)

    def on_refuted(self) -> None:
        """This node was held dead: what was not for it just before it heard so, it missed.

        Readers who got something that came later are not told: they would see it out of order.
        """
        for heard in self.lives.values():
            if heard.silent is not None and not heard.given:
                first, at_ns = heard.silent
                if self._context.now_ns - at_ns <= REFUTED_NS:
                    self._tell_missed(heard, first)

    def _drop(self, heard: Heard, count: int) -> None:
        message = heard.copies.pop(count)
        cost = copy_cost(message)
        heard.copies_bytes -= cost
        self.held_bytes -= cost

    # --- stability ----------------------------------------------------------------------------

    def on_stable(self, message: Stable) -> None:
        """A source tells everybody what is stable."""
        route = message.route
        heard = self.lives.get((route.source, route.source_incarnation))
        if heard is not None:
            self._learn_stable(heard, message.stable)
        me = self._context.id
        left = (Branch(branch.head, without(branch.cover, me)) for branch in message.branches)
        self._branching.send(message, [branch for branch in left if branch.cover])

    def on_skipped(self, message: Skipped) -> None:
        """A source tells this node what it skips."""
        route = message.route
        if route.destination_tag not in (0, self._context.own_tag):
            return
        heard = self.hear(route.source, route.source_incarnation)
        if heard is None:
            return
        heard.asking = False
        for skip in message.skips:
            if skip.id == self._context.id:
                heard.begun |= route.destination_tag == self._context.own_tag
                self._add_skip(heard, skip.first, skip.last, missed=skip.missed)
        self._advance(heard)
        self._learn_stable(heard, message.stable)
        self._remind_no_more(heard)
        self._acknowledge_soon(heard, 0)

    def _learn_stable(self, heard: Heard, stable: int) -> None:
        if stable <= heard.stable:
            return
        former, heard.stable = heard.stable, stable
        end = min(stable, heard.watermark)
        if end - former > len(heard.copies):
            gone = [count for count in heard.copies if count <= end]
        else:
            gone = [count for count in range(former + 1, end + 1) if count in heard.copies]
        for count in gone:
            self._drop(heard, count)
        self._reserve.on_stable(heard.key, has_copies=bool(heard.copies))
        self._remind_no_more(heard)

    # --- watermarks ---------------------------------------------------------------------------

    def _acknowledge_soon(self, heard: Heard, size: int) -> None:
        if self.is_orphan(heard):
            return
        heard.unacknowledged_bytes += size + OVERHEAD_BYTES
        timers, key = self._context.timers, (WATERMARK_TIMER, *heard.key)
        living = max(1, self._context.membership.layout_size - len(self._context.membership.dead))
        window = max(WINDOW_MIN_BYTES, WINDOW_ALL_BYTES // living)
        if heard.pieces_of:
            window = min(window, PIECES_WINDOW_BYTES)
        if heard.unacknowledged_bytes * 4 >= window and not self._must_wait(heard):
            self._acknowledge(heard, asks=False)
        elif key not in timers:
            timers.set(key, self._context.now_ns + WATERMARK_NS)
        if heard.copies:
            self._remind_later(heard)

    def _remind_no_more(self, heard: Heard) -> None:
        # A life that was followed may not be adopted yet: with copies, this deadline sees to it.
        if not (heard.copies or heard.asking or heard.stable > heard.watermark):
            self._context.timers.cancel((REMIND_TIMER, *heard.key))

    def adopted(self, heard: Heard) -> None:
        """Its source is gone: there is nobody to remind."""
        self._cancel_timers(heard)

    def _remind_later(self, heard: Heard) -> None:
        key = (REMIND_TIMER, *heard.key)
        if key not in self._context.timers:
            heard.reminded_ns = REMIND_NS
            self._context.timers.set(key, self._context.now_ns + REMIND_NS)

    def on_watermark_timer(self, key: TimerKey) -> None:
        """What came lately is acknowledged."""
        heard = self.lives.get((NodeId(key[1]), Incarnation(key[2])))
        if heard is None:
            return
        if self._must_wait(heard):
            self._context.timers.set(key, self._context.now_ns + WATERMARK_NS)
            return
        self._acknowledge(heard, asks=heard.stable > heard.watermark)

    def _must_wait(self, heard: Heard) -> bool:
        """Whether readers of a long broadcast are behind: its source sends as they take."""
        return any(map(self._announcements.is_behind, heard.pieces_of))

    def _acknowledge(self, heard: Heard, *, asks: bool) -> None:
        heard.unacknowledged_bytes = 0
        heard.pieces_of.clear()
        self._context.timers.cancel((WATERMARK_TIMER, *heard.key))
        if self.is_orphan(heard):
            return
        tag = incarnation_tag(heard.incarnation)
        route = self._forwarding.route_to(heard.source, tag=tag, sequence=heard.watermark)
        self._forwarding.originate(Watermark(route, heard.watermark, heard.stable, asks))

    def on_remind_timer(self, key: TimerKey) -> None:
        """Copies are kept for long: the source may not have heard, or not have been heard."""
        heard = self.lives.get((NodeId(key[1]), Incarnation(key[2])))
        if heard is None or not (heard.copies or heard.asking or heard.stable > heard.watermark):
            return
        if self.is_orphan(heard):
            self.changed[heard.key] = None
            return
        self._acknowledge(heard, asks=True)
        heard.reminded_ns = min(2 * heard.reminded_ns, REMIND_MAX_NS)
        self._context.timers.set(key, self._context.now_ns + heard.reminded_ns)

    def ask(self, heard: Heard) -> None:
        """Let the source say what went on without this node (RESYNC)."""
        if self.is_orphan(heard):
            return
        heard.asking = True
        self._acknowledge(heard, asks=True)
        self._remind_later(heard)

    def ask_later(self, heard: Heard) -> None:
        """Let the source say within a second what this node skips: neighbors have none of it any more."""
        if not self.is_orphan(heard):
            heard.asking = True
            self._remind_later(heard)

    def copy_for(self, heard: Heard, count: int, peer: NodeId) -> ReliableBroadcast:
        """A copy for one neighbor, that covers nobody else."""
        message = heard.copies[count]
        route = replace(message.route, destination=peer, hop_budget=0, search=None)
        return replace(message, route=route, branches=(), stable=heard.stable)

    def give_up_gaps(self, heard: Heard) -> None:
        """What is missing of that which is here, or which neighbors told of, does not come any more."""
        while heard.copies and max(heard.copies) > heard.watermark:
            first = heard.watermark + 1
            beyond = min(count for count in heard.copies if count >= first)
            self.skip(heard, first, beyond - 1)
            if heard.watermark < beyond:
                return
        top = max((told[1] for told in heard.told.values()), default=0)
        if heard.given and top > heard.watermark:
            self.skip(heard, heard.watermark + 1, top)

    def is_orphan(self, heard: Heard) -> bool:
        """Whether the source's life is over, or is none, as far as is known here."""
        membership = self._context.membership
        known = membership.incarnation(heard.source)
        return membership.is_gone(heard.source) or known != heard.incarnation
