"""Reliable broadcasts whose source is gone: neighbors compare what they have, the lower pulls.

Theory of operation. A life of a source that is held dead, or was followed by another, sends nothing
again. Whoever has copies of it then tells its watermark to all its neighbors, and to each that it links
later. A neighbor that has less pulls the copies, one that has more answers with its own, and whoever
gets more tells it on. Who skips what a neighbor told of tells it on too, and fetches the copies for
whoever asks (`broadcast/copy_relay.py`). So what one survivor has, all get that it is connected to,
over links that exist; nobody decides anything, so nothing has to be taken back when the source turns
out to live.

    a source is gone --copies here--> tell all neighbors --theirs is higher--> pull, tell on
                                                         --theirs is lower---> they pull
                     --30 s--> copies go; a life that another followed is forgotten

Copies that a neighbor has no more were stable: everybody had them whom the source held alive. Who finds
that it lacks such ones was held dead, or began later: it skips them.
"""

from __future__ import annotations

from bmgd.core.broadcast.copies import copy_for
from bmgd.core.broadcast.copy_relay import CopyRelay
from bmgd.core.broadcast.heard import Heard, LifeKey
from bmgd.core.broadcast.retention import BroadcastRetention
from bmgd.core.context import Context, Link, RecordMoved
from bmgd.core.links import Links
from bmgd.core.membership.membership import Standing
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId
from bmgd.wire.bounds import WATERMARKS_MAX
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.link_messages import Held, Pull, Watermarks

ORPHAN_NS = 30_000_000_000
ORPHAN_TIMER = "broadcast orphans"
TELL_NS = 2_000_000
TELL_AGAIN_NS = 500_000_000
PULLED_MAX = 16
PULLS_MAX = 3
"""So often a neighbor is asked in vain, before all were; one that has copies answers the first time."""
GAPS_MAX = 32
"""And once more for each gap, of so many."""
PULL_NS = TELL_AGAIN_NS // 2
"""So long after the last copy came nobody is asked again while more of an answer may be on its way."""
PULL_DOUBLINGS = 4
"""So often that doubles, for who was asked and sent nothing yet."""
TOLD_MAX = 1024
"""Lives told to one neighbor in one step; of more it asks again."""


class BroadcastOrphans:
    """What this node shares with its neighbors of sources that are gone."""

    def __init__(self, context: Context, links: Links, retention: BroadcastRetention) -> None:
        self._context = context
        self._links = links
        self._retention = retention
        self._relay = CopyRelay(context, links)
        self._orphans: dict[LifeKey, None] = {}
        self._untold: dict[LifeKey, None] = {}
        self._told_again_ns = 0
        self._asks_until_ns = 0
        self._askers: dict[NodeId, int] = {}
        self._unvouched: dict[NodeId, set[NodeId]] = {}
        """Sources with a life that nobody vouched for yet, and the neighbors that told of it."""

    @property
    def unshared(self) -> int:
        """How many orphans no linked neighbor is known to have as far as this node has them."""
        return sum(
            1
            for key in self._orphans
            if (heard := self._retention.lives[key]).copies and not self._is_shared(heard)
        )

    def _is_shared(self, heard: Heard) -> bool:
        reach = heard.reach
        return any(heard.told.get(peer, (0, 0)) >= reach for peer in self._links.by_peer)

    # --- who is gone --------------------------------------------------------------------------

    def on_record_moved(self, moved: RecordMoved) -> None:
        """A source may be gone, or have returned; what was told of a life of it may count now."""
        for peer in self._unvouched.pop(moved.id, ()):
            link = self._links.to(peer)
            if link is not None and self._context.now_ns < self._asks_until_ns:
                self._context.send(link.id, Watermarks((), asks=True))
        for heard in list(self._retention.by_source.get(moved.id, {}).values()):
            if self._retention.is_orphan(heard):
                self._adopt(heard)
            elif heard.orphan_ns:
                self._give_back(heard)

    def _adopt(self, heard: Heard) -> None:
        if heard.key not in self._orphans:
            heard.orphan_ns, heard.shared = self._context.now_ns, True
            self._orphans[heard.key] = None
            self._retention.watermarks.forget(heard)
            self._skip_stable(heard)
        if heard.copies or heard.told or self._asking():
            self._tell_soon(heard)
        else:
            self._wake_in(ORPHAN_NS)

    def _skip_stable(self, heard: Heard) -> None:
        """What neighbors told to be stable everybody has whom the source held alive: nobody keeps it."""
        if heard.told_stable > heard.watermark:
            self._retention.skip(heard, heard.watermark + 1, heard.told_stable)

    def _asking(self) -> bool:
        """Whether a neighbor that was held dead may still lack what nobody keeps any more."""
        now_ns = self._context.now_ns
        self._askers = {peer: until for peer, until in self._askers.items() if until > now_ns}
        return bool(self._askers)

    def _give_back(self, heard: Heard) -> None:
        """Its source is there again, perhaps after the copies went: that knows best."""
        self._orphans.pop(heard.key, None)
        self._untold.pop(heard.key, None)
        heard.orphan_ns, heard.shared = 0, False
        heard.forget_neighbors()
        self._retention.watermarks.ask(heard)

    def on_changed(self) -> None:
        """Something came in this step."""
        for key in list(self._retention.changed):
            heard = self._retention.lives.get(key)
            if heard is not None and self._retention.is_orphan(heard):
                self._adopt(heard)
        self._retention.changed.clear()

    def on_link_opened(self, link: Link) -> None:
        """A new neighbor is told, whatever was said to a former life of it."""
        if self._links.get(link.id) is None:
            # It was closed in the step in which it opened.
            return
        if self._context.now_ns < self._asks_until_ns:
            self._context.send(link.id, Watermarks((), asks=True))
        for key in self._orphans:
            heard = self._retention.lives[key]
            heard.told.pop(link.peer, None)
            heard.pulled.pop(link.peer, None)
            heard.unanswered.pop(link.peer, None)
            heard.said.pop(link.peer, None)
            heard.wanted.pop(link.peer, None)
            if heard.asked == link.peer:
                # Its answer went with the former link.
                heard.asked = None
            if self._has_news(heard):
                self._tell_soon(heard)

    def ask_neighbors(self) -> None:
        """This node was held dead, or may have been: neighbors tell of all that went on without it."""
        self._asks_until_ns = self._context.now_ns + ORPHAN_NS
        self._unvouched.clear()
        for link in list(self._links.table.values()):
            self._context.send(link.id, Watermarks((), asks=True))

    # --- telling ------------------------------------------------------------------------------

    def _tell_soon(self, heard: Heard) -> None:
        self._untold[heard.key] = None
        self._wake_in(TELL_NS)

    def _wake_in(self, pause_ns: int) -> None:
        timers, key = self._context.timers, (ORPHAN_TIMER, 0, 0)
        at_ns = self._context.now_ns + pause_ns
        planned_ns = timers.due_ns(key)
        if planned_ns is None or planned_ns > at_ns:
            timers.set(key, at_ns)

    def on_timer(self, key: TimerKey) -> None:
        """Tell and pull what changed; all of it again after a while; let go of what is old."""
        now_ns = self._context.now_ns
        self._expire()
        changed = [self._retention.lives[each] for each in self._untold]
        self._untold.clear()
        if now_ns - self._told_again_ns >= TELL_AGAIN_NS:
            self._told_again_ns = now_ns
            changed = [self._retention.lives[each] for each in self._orphans]
            for heard in changed:
                self._doubt(heard)
                self._ask_anew(heard)
        for heard in changed:
            self._pull(heard)
        for link in [links[0] for links in self._links.by_peer.values()]:
            self._tell(link, [heard for heard in changed if self._is_news(heard, link.peer)])
        self._plan_next()

    def _plan_next(self) -> None:
        """Where there is nothing to compare any more, what is left is to let go of it."""
        lives = [self._retention.lives[each] for each in self._orphans]
        if any(heard.copies or heard.told for heard in lives):
            self._wake_in(TELL_AGAIN_NS)
        elif lives:
            over_ns = min(heard.orphan_ns for heard in lives) + ORPHAN_NS
            self._wake_in(over_ns - self._context.now_ns)

    @staticmethod
    def _doubt(heard: Heard) -> None:
        """Who was told, and has not told to have as much, is told again, if it could get it here."""
        if not heard.copies:
            return
        reach = heard.reach
        for peer in list(heard.said):
            if heard.told.get(peer, (0, 0)) < reach:
                del heard.said[peer]

    def _is_news(self, heard: Heard, peer: NodeId) -> bool:
        """Whether a neighbor does not know how far this node has it, and wants to, or may have less."""
        if peer == heard.source:
            # It lives again: what its former life sent is nothing that it would take.
            return False
        wants = self._has_news(heard) or peer in heard.told or peer in self._askers
        return heard.said.get(peer) != heard.reach and wants

    @staticmethod
    def _has_news(heard: Heard) -> bool:
        """Whether there are copies here, or this node skips some that a neighbor told of.

        Of what it skips nobody else may tell those behind it. What is stable everybody has.
        """
        skipped = min(heard.watermark, heard.told_top)
        return bool(heard.copies) or skipped > max(heard.stable, heard.told_stable)

    def _tell(self, link: Link, lives: list[Heard]) -> None:
        entries = []
        for heard in lives[:TOLD_MAX]:
            watermark, highest = heard.said[link.peer] = heard.reach
            heard.said_ns[link.peer] = self._context.now_ns
            entries.append(Held(heard.source, heard.incarnation, watermark, heard.stable, highest))
        for start in range(0, len(entries), WATERMARKS_MAX):
            held = tuple(entries[start : start + WATERMARKS_MAX])
            self._context.send(link.id, Watermarks(held, asks=False))

    def _expire(self) -> None:
        """Nobody comes any more who could lack these."""
        now_ns = self._context.now_ns
        for key in list(self._orphans):
            heard = self._retention.lives[key]
            if now_ns - heard.orphan_ns < ORPHAN_NS:
                continue
            self._retention.give_up_gaps(heard)
            self._retention.copies.drop_all(heard)
            del self._orphans[key]
            heard.shared = False
            self._untold.pop(key, None)
            heard.forget_neighbors()
            if self._context.membership.incarnation(heard.source) > heard.incarnation:
                self._retention.forget(heard)
        self._retention.changed.clear()

    # --- pulling ------------------------------------------------------------------------------

    def on_watermarks(self, link: Link, message: Watermarks) -> None:
        """A neighbor tells what it has: pull what is more, tell it what is less."""
        now_ns = self._context.now_ns
        for held in message.held:
            heard = self._retention.hear(held.source, held.incarnation)
            if heard is None:
                self._note_unvouched(link.peer, held)
                continue
            told = held.watermark, held.highest
            said_ns = heard.said_ns.get(link.peer, 0)
            if heard.told.get(link.peer) == told and now_ns - said_ns >= TELL_AGAIN_NS // 2:
                # It says so again because it does not know how far this node has it.
                heard.said.pop(link.peer, None)
            if heard.told.get(link.peer) != told:
                heard.pulled.pop(link.peer, None)
            heard.told[link.peer] = told
            heard.told_stable = max(heard.told_stable, held.stable)
            heard.told_top = max(heard.told_top, held.highest)
            if self._retention.is_orphan(heard):
                self._adopt(heard)
                self._skip_stable(heard)
                self._tell_soon(heard)
            else:
                if heard.told_stable > heard.watermark:
                    # A source that lives knows itself what this node skips.
                    self._retention.watermarks.ask_later(heard)
                self._pull(heard)
        if message.asks:
            # A source may be gone already, and not known to be.
            self._askers[link.peer] = now_ns + ORPHAN_NS
            lives = self._retention.lives.values()
            over = [heard for heard in lives if self._retention.is_orphan(heard)]
            self._tell(link, [heard for heard in over if heard.reach[1]])

    def _note_unvouched(self, peer: NodeId, held: Held) -> None:
        """Who was asked tells once: it is asked again when the record of that life has come."""
        if self._context.now_ns >= self._asks_until_ns:
            return
        if self._context.standing(held.source, held.incarnation) is Standing.UNVOUCHED:
            self._unvouched.setdefault(held.source, set()).add(peer)

    def _pull(self, heard: Heard) -> None:
        """Ask the neighbor that was asked in vain least often; of those, the one that has most.

        Who is further comes first of those, but may have skipped what is missing here; who is not may
        yet have it, below something that came. Each time in vain a neighbor is asked for another gap:
        what is too much for a link at once drops the same ones again. One answer is waited for at a
        time: over a slow link each copy of it would ask for as much again.
        """
        if heard.asked is not None and heard.asked_at != (heard.watermark, len(heard.copies)):
            heard.pulled.pop(heard.asked, None)
        if heard.asked is not None and heard.came >= heard.awaited:
            heard.unanswered.pop(heard.asked, None)
        gaps = self._gaps(heard)
        most = self._pulls_max(gaps)
        asked = [p for p in self._beyond(heard) if heard.pulled.get(p, 0) < most]
        if not asked:
            return
        further = self._further(heard)
        best = max(asked, key=lambda p: (-heard.pulled.get(p, 0), p in further, heard.told[p]))
        if self._awaits(heard, best):
            return
        gaps = [first for first in gaps if first <= max(heard.told[best])]
        first = gaps[heard.pulled.get(best, 0) % len(gaps)]
        heard.asks += 1
        heard.pulled[best] = heard.pulled.get(best, 0) + 1
        heard.asked, heard.asked_at = best, (heard.watermark, len(heard.copies))
        heard.asked_ns = self._context.now_ns
        heard.unanswered[best] = heard.unanswered.get(best, 0) + 1
        heard.awaited = heard.came + min(PULLED_MAX, max(heard.told[best]) - first + 1)
        link = self._links.to(best)
        assert link is not None
        self._context.send(link.id, Pull(heard.source, heard.incarnation, first))

    def _awaits(self, heard: Heard, peer: NodeId) -> bool:
        """Whether more of the last answer may be on its way, so that a neighbor is not asked yet."""
        if heard.asked not in self._links.by_peer or heard.came >= heard.awaited:
            return False
        pause_ns = PULL_NS << min(heard.unanswered.get(peer, 0), PULL_DOUBLINGS)
        if heard.came_ns > heard.asked_ns:
            # The rest can have been dropped: it is late when it takes longer than what came.
            pause_ns = min(max(PULL_NS, 2 * heard.gap_ns), PULL_NS << PULL_DOUBLINGS)
        return self._context.now_ns - max(heard.asked_ns, heard.came_ns) < pause_ns

    def _beyond(self, heard: Heard) -> list[NodeId]:
        """Linked neighbors that told of something that is missing here, or may be."""
        watermark, highest = heard.reach
        has_gap = highest - watermark > sum(count > watermark for count in heard.copies)
        further = self._further(heard)
        return [
            peer
            for peer, (_, top) in heard.told.items()
            if peer in self._links.by_peer and (peer in further or (has_gap and top > watermark))
        ]

    @staticmethod
    def _further(heard: Heard) -> set[NodeId]:
        """Neighbors, linked or not, that told of a higher watermark or a higher count."""
        watermark, highest = heard.reach
        return {p for p, (theirs, top) in heard.told.items() if theirs > watermark or top > highest}

    @staticmethod
    def _pulls_max(gaps: list[int]) -> int:
        """So often one neighbor is asked in vain for what is missing here."""
        return PULLS_MAX + min(len(gaps), GAPS_MAX)

    @staticmethod
    def _gaps(heard: Heard) -> list[int]:
        """From which counts on something is missing: after the watermark, and after what came."""
        waiting = sorted(count for count in heard.copies if count > heard.watermark)
        return [c + 1 for c in (heard.watermark, *waiting) if c + 1 not in heard.copies]

    def _ask_anew(self, heard: Heard) -> None:
        """All linked ones that may have more were asked in vain; what they sent can have been lost."""
        most = self._pulls_max(self._gaps(heard))
        beyond = self._beyond(heard)
        if all(heard.pulled.get(peer, 0) >= most for peer in beyond):
            for peer in beyond:
                heard.pulled.pop(peer, None)

    def on_pull(self, link: Link, message: Pull) -> None:
        """A neighbor asks for copies: it gets the next few, and asks again; or they are asked for."""
        heard = self._retention.lives.get((message.source, message.incarnation))
        if heard is None:
            return
        counts = sorted(count for count in heard.copies if count >= message.first)
        for count in counts[:PULLED_MAX]:
            copy = copy_for(heard.copies[count], link.peer, heard.stable)
            if link.knows(type(copy)):
                self._context.send(link.id, copy)
        if not counts and heard.key in self._orphans:
            self._relay.ask_for(link, heard, message.first)

    def on_copy(self, message: ReliableBroadcast) -> None:
        """A copy came: what is not kept here may be what a neighbor asked for."""
        route = message.route
        heard = self._retention.lives.get((route.source, route.source_incarnation))
        if heard is not None and heard.key in self._orphans and route.sequence not in heard.copies:
            self._relay.pass_on(heard, message)
