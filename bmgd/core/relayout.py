"""From a changed layout to changed links: gathered, then followed, then let go of by agreement.

Changes of the layout are gathered for a moment before links follow, the longer the more members there
are: so many deaths at once make one new graph, and the dials do not delay the news of the first. The
difference between the neighbors wanted before and after is Algorithm 1 of Healing; here it is never
computed as such, since the links are reconciled with what is wanted, whatever was before.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmgd.core.context import Context
from bmgd.core.dialling import Dialling
from bmgd.core.links import Links
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId, NodeState, Status

RELAYOUT_TIMER = "relayout"
RELAYOUT_PER_MEMBER_NS = 300_000
RELAYOUT_SPREAD_MAX_NS = 50_000_000


@dataclass(slots=True)
class Relayout:
    """Keeps the wanted neighbors those of the layout.

    Attributes:
        unsettled: something changed on which it depends whether unwanted links may go.
    """

    context: Context
    links: Links
    dialling: Dialling
    unsettled: bool = False
    _former: tuple[NodeId, ...] = ()
    _exact: bool = False

    def plan(self) -> None:
        """The layout changed: follow it soon."""
        context, key = self.context, (RELAYOUT_TIMER, 0, 0)
        self.unsettled = True
        if key not in context.timers:
            members = context.membership.layout_size
            pause_ns = min(members * RELAYOUT_PER_MEMBER_NS, RELAYOUT_SPREAD_MAX_NS)
            context.timers.set(key, context.now_ns + context.settings.relayout_ns + pause_ns)

    def on_timer(self, key: TimerKey) -> None:
        """The changes have been gathered."""
        self.follow()

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

    def release(self) -> None:
        """Let go of unwanted links where both ends are settled; tell when the links are exact."""
        settled = self._is_settled()
        self.links.release_unwanted(self.dialling.wanted, self._former, settled=settled)
        self._note_exactness()

    def _is_settled(self) -> bool:
        """Whether each wanted link is up, or its id is gone, broken, or never came."""
        if (RELAYOUT_TIMER, 0, 0) in self.context.timers:
            return False
        return all(self._is_settled_with(peer) for peer in self.dialling.wanted)

    def _is_settled_with(self, peer: NodeId) -> bool:
        membership = self.context.membership
        if peer in self.links.by_peer or membership.is_gone(peer):
            return True
        peering = self.dialling.peering(peer)
        never_came = self.dialling.may_accuse_strangers and not peering.linked
        return peering.broken or (never_came and membership.status_of(peer) is Status.EXPECTED)

    def _note_exactness(self) -> None:
        context, linked = self.context, self.links.by_peer
        exact = (RELAYOUT_TIMER, 0, 0) not in context.timers and linked.keys() == {
            peer for peer in self.dialling.wanted if not context.membership.is_gone(peer)
        }
        if exact and not self._exact:
            context.observe("links exact", detail=f"{len(linked)} links")
        self._exact = exact
