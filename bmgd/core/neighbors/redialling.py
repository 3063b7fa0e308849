"""Whom to dial though nobody says that it is there: the dead, and at the start anybody.

Theory of operation. The dead are dialled slowly, one at a time, for ever, by a few of those who would
be their neighbors if all were well and hardly ever by others, so that parted sides meet, and none that
is alone stays so. A node that begins and is dialled by nobody looks for one link the same way, faster,
since one is enough to be told of everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmgd.core.context import Context
from bmgd.core.links import Links
from bmgd.core.neighbors.dialling import JOIN_TIMER, Dialling
from bmgd.core.timers import TimerKey
from bmgd.routing import neighbor_ids
from bmgd.types import NodeId, NodeState, Status

REDIAL_TIMER = "redial"
SEARCH_TIMER = "search"
SEARCHES_PER_JOIN = 8
NEAR_DIALS = 6
"""How many of its would-be neighbors dial a dead node in one pause."""
STRANGER_DIALS = 1
"""How many of all others do."""
ALONE_PACE = 4
"""A node without a link dials the dead so many times as often."""
STRANGER_ODDS_MAX = 0.25
"""At most this share of the slow dials goes to any of the dead, not to would-be neighbors."""
LEFT_ODDS = 0.25
"""This share of the lots is among those that have left: however many they are, they hide nobody."""


@dataclass(slots=True)
class Redialling:
    """Dials those who are not known to be there; what comes of a dial is `Dialling`'s."""

    context: Context
    links: Links
    dialling: Dialling
    _searches: int = 0

    def start(self) -> None:
        """Begin to dial the dead, slowly; less slowly without any link."""
        pause_ns = self.context.settings.redial_ns
        if not self.links.table:
            pause_ns //= ALONE_PACE
        at_ns = self.context.now_ns + self.context.jitter(pause_ns)
        self.context.timers.set((REDIAL_TIMER, 0, 0), at_ns)

    def start_searching(self) -> None:
        """A moment after the start without a link, begin to dial whoever could be there."""
        pause_ns = self.context.settings.join_ns // (2 * SEARCHES_PER_JOIN)
        at_ns = self.context.now_ns + self.context.jitter(pause_ns)
        self.context.timers.set((SEARCH_TIMER, 0, 0), at_ns)

    def on_search_timer(self, key: TimerKey) -> None:
        """Nobody has come: one link is enough to be told of, and to learn of a newer layout.

        A node that starts again may have higher neighbors only, which hold it dead and wait for it.
        They are asked first; after the join timeout anybody is, the neighbors have been dialled by then.
        """
        context = self.context
        if context.state is not NodeState.JOINING or self.dialling.ever_linked:
            return
        self._searches += 1
        if self._searches < SEARCHES_PER_JOIN:
            waiting = [
                peer for peer in self.dialling.wanted if (JOIN_TIMER, peer, 0) in context.timers
            ]
            if waiting:
                self.dialling.dial(context.random.choice(waiting))
        else:
            membership = context.membership
            peer = membership.known_at(context.random.randrange(membership.known_count))
            if peer != context.id and peer not in self.dialling.wanted:
                self.dialling.dial(peer)
        pause_ns = context.jitter(context.settings.join_ns // SEARCHES_PER_JOIN)
        context.timers.set((SEARCH_TIMER, 0, 0), context.now_ns + pause_ns)

    def on_redial_timer(self, key: TimerKey) -> None:
        """Dial one of the dead, or none: so that each of them is dialled by a few, whatever N is."""
        peer = self._one_of_the_dead()
        if peer is not None:
            self.dialling.dial(peer)
        self.start()

    def _one_of_the_dead(self) -> NodeId | None:
        """A dead would-be neighbor, any dead id, or None, by lot; who has left may have come back.

        With L living and D dead, any dead one is dialled once in a pause by `STRANGER_DIALS` of all
        and by `NEAR_DIALS` of those that would be its neighbors if all were well; but nobody dials
        more than one, and who has no link always dials one, be it a neighbor or any.
        """
        context, membership = self.context, self.context.membership
        left = [i for i in map(NodeId, membership.gone) if membership.status_of(i) is Status.LEFT]
        dead = self._drawn(set(left))
        if not dead:
            return None
        near = self._would_be_neighbors(left)
        would_be = [peer for peer in dead if peer in near]
        living = max(1, membership.layout_size - len(membership.dead))
        if not self.links.table:
            return context.random.choice(context.random.choice((would_be, dead)) or dead)
        odds = min(STRANGER_ODDS_MAX, STRANGER_DIALS * len(dead) / living)
        if context.random.random() < odds:
            return context.random.choice(dead)
        if context.random.random() * len(near) < NEAR_DIALS * len(would_be):
            return context.random.choice(would_be)
        return None

    def _drawn(self, left: set[NodeId]) -> list[NodeId]:
        """All that are dead or excluded, or all that have left, by lot; without those that are linked."""
        gone = [
            NodeId(number)
            for number in self.context.membership.gone
            if number not in self.links.by_peer and number != self.context.id
        ]
        dead = [peer for peer in gone if peer not in left]
        if len(dead) < len(gone) and (not dead or self.context.random.random() < LEFT_ODDS):
            return [peer for peer in gone if peer in left]
        return dead

    def _would_be_neighbors(self, left: list[NodeId]) -> set[NodeId]:
        """This node's neighbors in the graph over all known ids but those that have left.

        Args:
            left: these, ascending.
        """
        membership, me = self.context.membership, self.context.id
        if membership.status_of(me) in (None, Status.LEFT):
            return set()
        # As in a layout, with places among the known ids instead of ids: retired ones have none.
        outside = [membership.known_place(each) for each in left]
        places = neighbor_ids(membership.known_place(me), membership.known_count, outside)
        return {membership.known_at(place) for place in places}
