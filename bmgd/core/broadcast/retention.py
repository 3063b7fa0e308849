"""Reliable broadcasts, at every node: taken in order, kept until they are stable, acknowledged.

Theory of operation. Of each life of a source this node has a *watermark*: all that was for it up to
there has been given to its readers, in the source's order. What comes beyond a gap waits. Copies are
kept until the source tells that they are stable, whoever reads them. The watermark goes straight to
the source.

    comes above a gap --> waiting --gap closes--> given to readers, kept --stable--> gone
                                  --skipped-----> shown to readers as missed

Here is which lives are known, and what comes of each. Copies and their room are in
`broadcast/copies.py`, what readers get and miss in `broadcast/delivery.py`, what the source is told in
`broadcast/watermarks.py`; all of them work on what is known of one life, `broadcast/heard.py`.

Whether a broadcast is taken depends on its source's life and on its audience, never on whether the
source is held dead: a node that refused what others took, because of a rumor, could not mend it later.
For the same reason a former life's broadcasts are taken while others may have them: until this node
has forgotten that life (`broadcast/orphans.py`).
"""

from __future__ import annotations

from typing import Any

from bmgd.core.broadcast.announcements import Announcements
from bmgd.core.broadcast.copies import BroadcastCopies
from bmgd.core.broadcast.delivery import BroadcastDelivery
from bmgd.core.broadcast.heard import Heard, LifeKey
from bmgd.core.broadcast.programs import Programs
from bmgd.core.broadcast.watermarks import BroadcastWatermarks
from bmgd.core.context import Context
from bmgd.core.forwarding.branching import Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.membership.membership import Standing
from bmgd.core.timers import TimerKey
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import without
from bmgd.types import Incarnation, NodeId, Status
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skipped, Stable

LIVES_MAX = 65_536
"""Lives of sources; at the bound one that is over, not shared and without copies, makes room."""
FORMER_MAX = 4
"""Of one source that many lives are known beside the present one; a further former one is not taken."""
FULL_NS = 1_000_000_000
"""So long nobody is looked for that could make room, after none was found."""
AHEAD_MAX = 8192
"""How far beyond the watermark something may wait."""


class BroadcastRetention:
    """What this node has of others' reliable broadcasts.

    Attributes:
        lives: by source and incarnation.
        by_source: the same by source, then by incarnation.
        changed: lives of which something came in this step, for whoever tells neighbors of it.
        refused: how many broadcasts that came were not taken.
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
        self._branching = branching
        self._programs = programs
        self.copies = BroadcastCopies(context)
        self.delivery = BroadcastDelivery(context, self.copies, announcements, programs)
        self.watermarks = BroadcastWatermarks(context, forwarding, announcements)
        self.lives: dict[LifeKey, Heard] = {}
        self.by_source: dict[NodeId, dict[Incarnation, Heard]] = {}
        self.changed: dict[LifeKey, None] = {}
        self._forgotten: dict[NodeId, Incarnation] = {}
        self._inherited: dict[LifeKey, int] = {}
        self._full_until_ns = 0
        self.refused = 0

    def inherit(self, former: BroadcastRetention, sent: int) -> None:
        """Take over how far readers got as the node that this process was before.

        From there on they see what comes to this one, and are told what they missed in between.

        Args:
            sent: how many broadcasts that node has numbered: its own readers were shown all of them.
        """
        former.on_own_life_over(former._context.incarnation, sent)
        given = {heard.key: heard.watermark for heard in former.lives.values() if heard.given}
        self._inherited = _latest(former._inherited | given)

    def on_own_life_over(self, incarnation: Incarnation, sent: int) -> None:
        """A life of this node is over, in which it has numbered so many: its readers were shown all.

        They are again others' broadcasts where this process is another node later.
        """
        if sent:
            # Such a life is over, and seldom heard of again: it is the first to be forgotten.
            own = {(self._context.id, incarnation): sent}
            self._inherited = _latest(own | self._inherited)

    def show(self) -> dict[str, Any]:
        """For `bmgd status --json`."""
        return {
            "taken": self.delivery.taken,
            "missed": self.delivery.missed,
            "refused": self.refused,
            "copies": sum(len(heard.copies) for heard in self.lives.values()),
            "copies_bytes": self.copies.held_bytes,
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
        for heard in self.lives.values():
            if not heard.copies and not heard.shared and self._is_over(heard):
                self.forget(heard)
                return True
        self._full_until_ns = self._context.now_ns + FULL_NS
        return False

    def _is_over(self, heard: Heard) -> bool:
        """Whether nothing comes of this life any more; who is only held dead may refute it."""
        membership = self._context.membership
        has_left = membership.status_of(heard.source) is Status.LEFT
        return has_left or membership.incarnation(heard.source) > heard.incarnation

    def forget(self, heard: Heard) -> None:
        """Nothing more is taken of this life, or of those before it."""
        self.copies.drop_all(heard)
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
        self.watermarks.forget(heard)

    def is_orphan(self, heard: Heard) -> bool:
        """Whether the source's life is over, or is none, as far as is known here."""
        return heard.is_orphan(self._context.membership)

    # --- what comes ---------------------------------------------------------------------------

    def on_broadcast(self, message: ReliableBroadcast) -> None:
        """A copy came: send it on, and take it where it is new."""
        route = message.route
        if self._context.is_of_own_life(route):
            # This node lies on the way from one head to another.
            self._send_on(message)
            return
        heard = self.hear(route.source, route.source_incarnation)
        if heard is None:
            self.refused += 1
            if route.source == self._context.id:
                return
        else:
            self._take(heard, message)
        self._send_on(message)

    def _send_on(self, message: ReliableBroadcast | Stable) -> None:
        me = self._context.id
        left = (Branch(branch.head, without(branch.cover, me)) for branch in message.branches)
        self._branching.send(message, [branch for branch in left if branch.cover])

    def _take(self, heard: Heard, message: ReliableBroadcast) -> None:
        count, me = message.route.sequence, self._context.id
        heard.note_came(self._context.now_ns)
        is_for_me = me < message.id_space and not message.exceptions >> me & 1
        for skip in message.skips:
            if skip.id == me:
                self.delivery.skip_in_frame(heard, skip)
        if count > heard.watermark and not is_for_me:
            self.delivery.skip(heard, count, count)
        elif heard.watermark < count <= heard.watermark + AHEAD_MAX and count not in heard.copies:
            if self.copies.keep(heard, message):
                self.changed[heard.key] = None
            else:
                self.refused += 1
        self._advance(heard)
        self._learn_stable(heard, message.stable)
        self.watermarks.acknowledge_soon(heard, len(message.payload))

    def on_stable(self, message: Stable) -> None:
        """A source tells everybody what is stable."""
        route = message.route
        heard = self.lives.get((route.source, route.source_incarnation))
        if heard is not None:
            self._learn_stable(heard, message.stable)
        self._send_on(message)

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
                is_said = route.destination_tag == self._context.own_tag
                heard.begun |= is_said
                self.delivery.add_skip(
                    heard, skip.first, skip.last, missed=skip.missed, said=is_said
                )
        self._advance(heard)
        self._learn_stable(heard, message.stable)
        self.watermarks.remind_no_more(heard)
        self.watermarks.acknowledge_soon(heard, 0)

    def _learn_stable(self, heard: Heard, stable: int) -> None:
        if stable <= heard.stable:
            return
        former, heard.stable = heard.stable, stable
        end = min(stable, heard.watermark)
        if end - former > len(heard.copies):
            gone = [count for count in heard.copies if count <= end]
        else:
            gone = [count for count in range(former + 1, end + 1) if count in heard.copies]
        self.copies.on_stable(heard, gone)
        self.watermarks.remind_no_more(heard)

    # --- what does not come any more ----------------------------------------------------------

    def skip(self, heard: Heard, first: int, last: int) -> None:
        """Nobody has these any more."""
        self.delivery.skip(heard, first, last)
        self._advance(heard)

    def give_up_gaps(self, heard: Heard) -> None:
        """What is missing of that which is here, or which neighbors told of, does not come any more."""
        while heard.copies and max(heard.copies) > heard.watermark:
            first = heard.watermark + 1
            beyond = min(count for count in heard.copies if count >= first)
            self.skip(heard, first, beyond - 1)
            if heard.watermark < beyond:
                return
        top = heard.told_top
        # Who was not there misses nothing; its source, if it lives after all, says where it begins.
        if top > heard.watermark and self.delivery.was_there_before(heard):
            self.skip(heard, heard.watermark + 1, top)

    def _advance(self, heard: Heard) -> None:
        if self.delivery.advance(heard):
            self.changed[heard.key] = None

    # --- deadlines ----------------------------------------------------------------------------

    def on_watermark_timer(self, key: TimerKey) -> None:
        """What came lately of a life is acknowledged."""
        heard = self.lives.get((NodeId(key[1]), Incarnation(key[2])))
        if heard is not None:
            self.watermarks.on_timer(heard)

    def on_remind_timer(self, key: TimerKey) -> None:
        """Something of a life is still to come: its source is reminded, or neighbors see to it."""
        heard = self.lives.get((NodeId(key[1]), Incarnation(key[2])))
        if heard is None or not self.watermarks.waits(heard):
            return
        if self.is_orphan(heard):
            self.changed[heard.key] = None
        else:
            self.watermarks.remind(heard)


def _latest(shown: dict[LifeKey, int]) -> dict[LifeKey, int]:
    """As many lives as are remembered: the latest are the likeliest to be heard of again."""
    return dict(list(shown.items())[-LIVES_MAX:])
