"""From a changed layout to changed links: gathered, then followed, then let go of by agreement.

Changes of the layout are gathered for a moment before links follow, the longer the more members there
are, and twice as long each time while changes go on: so many deaths at once make few new graphs, and
the dials do not delay the news of the first. The difference between the neighbors wanted before and
after is Algorithm 1 of Healing; links follow it by being reconciled with what is wanted, whatever was
before, and the new ones are up before the old ones go.

Old links are let go of when the layout has come to rest: while a link is up to somebody who is held
gone, one of the two errs, and who returns seldom comes alone. When two halves of a cluster meet, each is
told that it is dead, and refutes node by node; the layouts in between are nobody's for long, and links
that both the first and the last want are not worth closing for them.

For comparison there is the *naive* method of Healing §3.1: all links that were up when the layout
changed are closed, and all that are wanted dialled anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bmgd.core.context import Context
from bmgd.core.links import Links
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId, NodeState, Status

RELAYOUT_TIMER = "relayout"
LINGER_TIMER = "linger"
LINGER_NS = 250_000_000
"""For so long after somebody came into the layout unwanted links stay."""
RELAYOUT_PER_MEMBER_NS = 300_000
RELAYOUT_SPREAD_MAX_NS = 50_000_000
STREAK_PAUSE_MAX_NS = 400_000_000
STREAK_PAUSES = 8
"""So many pauses without a change of the layout end a streak of changes."""


@dataclass(slots=True)
class Relayout:
    """Keeps the wanted neighbors those of the layout.

    Attributes:
        unsettled: something changed on which it depends whether unwanted links may go.
        relayouts: how often links have followed a change of the layout.
        links_added, links_removed: how many of this node's links that has added and removed in all,
            those to the dead not counted.
    """

    context: Context
    links: Links
    dialling: Dialling
    unsettled: bool = False
    relayouts: int = 0
    links_added: int = 0
    links_removed: int = 0
    _planned_ns: int = 0
    _followed_ns: int = 0
    _pause_ns: int = 0
    _former: tuple[NodeId, ...] = ()
    _exact: bool = False

    def plan(self, *, grew: bool) -> None:
        """The layout changed, and `grew` if somebody came into it: follow it soon."""
        context, key = self.context, (RELAYOUT_TIMER, 0, 0)
        self.unsettled = True
        if grew:
            context.timers.set((LINGER_TIMER, 0, 0), context.now_ns + LINGER_NS)
        if key not in context.timers:
            members = context.membership.layout_size
            spread_ns = min(members * RELAYOUT_PER_MEMBER_NS, RELAYOUT_SPREAD_MAX_NS)
            pause_ns = context.settings.relayout_ns + spread_ns
            if context.now_ns - self._followed_ns < STREAK_PAUSES * self._pause_ns:
                longest_ns = max(pause_ns, STREAK_PAUSE_MAX_NS)
                pause_ns = min(max(pause_ns, 2 * self._pause_ns), longest_ns)
            self._pause_ns, self._planned_ns = pause_ns, context.now_ns
            context.timers.set(key, context.now_ns + pause_ns)

    def on_timer(self, key: TimerKey) -> None:
        """The changes have been gathered."""
        before = self.dialling.wanted
        naive = self.context.settings.reconstructs
        if naive:
            self._close_all()
        self.follow()
        self._followed_ns = self.context.now_ns
        self._tally(set(before), set(self.dialling.wanted), naive=naive)

    def on_linger_timer(self, key: TimerKey) -> None:
        """Nobody has come into the layout for a while."""
        self.unsettled = True

    def _close_all(self) -> None:
        """Close every link that belongs to the former layout."""
        for link in list(self.links.table.values()):
            if link.opened_ns < self._planned_ns:
                self.links.close(link, "reconstruction")

    def _tally(self, before: set[NodeId], after: set[NodeId], *, naive: bool) -> None:
        """Count what Algorithm 1, or the naive method, changes at this node."""
        is_gone = self.context.membership.is_gone
        kept = set() if naive else before & after
        added = sum(not is_gone(peer) for peer in after - kept)
        removed = sum(not is_gone(peer) for peer in before - kept)
        self.relayouts += 1
        self.links_added += added
        self.links_removed += removed
        self.context.observe("relayout", detail=f"{added} links to add, {removed} to remove")

    def follow(self) -> None:
        """Want the neighbors of the present layout, and dial those that have no link."""
        context = self.context
        self.unsettled = True
        self.links.forwarding_stale = True
        self._former = self.dialling.wanted
        self.dialling.wanted = context.membership.neighbors(context.id)
        if context.state is not NodeState.LEAVING:
            self.dialling.reconcile()
            self.dialling.prune()

    def show(self) -> dict[str, Any]:
        """The part of `bmgd status --json` about healing."""
        settings = self.context.settings
        return {
            "policy": str(settings.healing),
            "reconstruction": "naive" if settings.reconstructs else "adaptive",
            "unhealed": list(self.context.membership.dead),
            "relayouts": self.relayouts,
            "links_added": self.links_added,
            "links_removed": self.links_removed,
        }

    def release(self) -> None:
        """Let go of unwanted links where both ends are settled; tell when the links are exact."""
        settled = self._is_settled()
        self.links.release_unwanted(self.dialling.wanted, self._former, settled=settled)
        self._note_exactness()

    def _is_settled(self) -> bool:
        """Whether the layout rests, and each wanted link is up, or its id gone, broken, or never came.

        In the common case nobody is looked up: it is asked for at the end of most steps after a change.
        """
        timers, is_gone = self.context.timers, self.context.membership.is_gone
        if (RELAYOUT_TIMER, 0, 0) in timers or (LINGER_TIMER, 0, 0) in timers:
            return False
        accused = [link.peer for link in self.links.table.values() if link.accused_ns]
        if accused and any(map(is_gone, accused)):
            return False
        linked = self.links.by_peer
        not_linked = [peer for peer in self.dialling.wanted if peer not in linked]
        return not not_linked or all(map(self._is_settled_without, not_linked))

    def _is_settled_without(self, peer: NodeId) -> bool:
        """Whether no link to a wanted peer is waited for."""
        membership = self.context.membership
        if membership.is_gone(peer):
            return True
        peering = self.dialling.peering(peer)
        # A neighbor that is only new is waited for: a founder that never came has been dialled in vain.
        was_tried = self.dialling.may_suspect_never_linked and peering.attempts > 0
        never_came = was_tried and not peering.linked
        return peering.broken or (never_came and membership.status_of(peer) is Status.EXPECTED)

    def _note_exactness(self) -> None:
        context, linked, wanted = self.context, self.links.by_peer, self.dialling.wanted
        # While a change is followed most calls find links too many: then nobody is looked up.
        exact = (
            (RELAYOUT_TIMER, 0, 0) not in context.timers
            and len(linked) <= len(wanted)
            and self._are_wanted_and_alive(linked)
        )
        if exact and not self._exact:
            context.observe("links exact", detail=f"{len(linked)} links")
        self._exact = exact

    def _are_wanted_and_alive(self, linked: Mapping[NodeId, object]) -> bool:
        """Whether these are all wanted peers that are not held dead, and nobody else."""
        is_gone, wanted = self.context.membership.is_gone, self.dialling.wanted
        missing = [peer for peer in wanted if peer not in linked]
        if len(wanted) - len(missing) != len(linked) or not all(map(is_gone, missing)):
            return False
        return not any(map(is_gone, linked))
