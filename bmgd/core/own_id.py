"""What refusals say of this node's own id: that its life is not the latest, or that the id is another's.

Theory of operation. Who refuses this node for its id says why, and which life of the id it knows:

    refused as          | this node
    --------------------+--------------------------------------------------------------------------
    stale incarnation   | begins a life above the known one, and dials again
      a joiner's first  | loses the id: it was given twice; the greater life as at a duplicate
    duplicate           | dials again; loses the id if this goes on beyond the timeout and an ask
    left; retired       | ends: it was evicted; loses the id, which was given up
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bmgd.core.context import Context
from bmgd.core.effects import Exit
from bmgd.types import Incarnation, NodeId, counter_of, outranks
from bmgd.wire.hello import Refusal

OF_OWN_ID: Final = frozenset(
    {Refusal.STALE_INCARNATION, Refusal.DUPLICATE, Refusal.LEFT, Refusal.RETIRED}
)
"""The refusals that are about this node's id."""
NEW_LIFE_NS: Final = 2_000_000
"""So soon who refused a former life is dialled again by the one that follows it."""


@dataclass(slots=True)
class OwnId:
    """Whether this node keeps its id, as its peers see it."""

    context: Context
    _duplicate_since_ns: int = 0

    def on_linked(self) -> None:
        """A link is up: nobody else has the id."""
        self._duplicate_since_ns = 0

    def on_refused(self, peer: NodeId, refusal: Refusal, known_of_me: Incarnation) -> int | None:
        """A peer refused this node for its id.

        Args:
            peer: who did.
            refusal: one of `OF_OWN_ID`.
            known_of_me: the life of this node's id that the peer knows.

        Returns:
            after how many nanoseconds to dial it again; None where that is of no use.
        """
        context = self.context
        if refusal is Refusal.LEFT:
            context.emit(Exit(1, "this node was evicted from the cluster"))
        elif refusal is Refusal.RETIRED:
            why = f"the id {context.id} was given up while this node was away"
            context.lose_id(why, peer)
        elif refusal is Refusal.STALE_INCARNATION and not self._is_greater_twin(known_of_me):
            self._renew_above(peer, known_of_me)
            return NEW_LIFE_NS
        elif not self._give_way_in_time(peer):
            return context.settings.ask_ns // 2
        return None

    def _renew_above(self, peer: NodeId, known_of_me: Incarnation) -> None:
        # Dials of the former life come back so too, after a new one has begun: once is enough.
        context = self.context
        if not outranks(known_of_me, context.incarnation):
            return
        if self._is_first_of_joiner():
            # Such a life follows no other: somebody else was given the id too, and is the greater one.
            context.lose_id(f"the id {context.id} was given twice", peer)
        else:
            context.begin_above(known_of_me, f"told by node {peer} in a refusal")

    def _is_first_of_joiner(self) -> bool:
        context = self.context
        return context.settings.takes_new_id and counter_of(context.incarnation) == 1

    def _is_greater_twin(self, known_of_me: Incarnation) -> bool:
        """Whether this id was given twice, and this life is the greater of the two.

        The greater one keeps the id if the other hears of it. Where all refuse it for the lesser one's
        sake, nobody does: then it gives way.
        """
        own = self.context.incarnation
        return self._is_first_of_joiner() and outranks(known_of_me, own) and known_of_me < own

    def _give_way_in_time(self, peer: NodeId) -> bool:
        """Lose the id if another daemon has had it for long; returns whether that is so."""
        context = self.context
        self._duplicate_since_ns = self._duplicate_since_ns or context.now_ns
        patience_ns = context.settings.timeout_ns + context.settings.ask_ns
        is_old = context.now_ns - self._duplicate_since_ns > patience_ns
        if is_old:
            context.lose_id(f"another living daemon has the id {context.id}", peer)
        return is_old
