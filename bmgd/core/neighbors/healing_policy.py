"""When the dead leave the graph: the healing policy, and who writes it down.

Theory of operation. Under the policy "every death" a verdict says *excluded* at once. Under any other
it says *dead*: the dead stay in the layout, messages find ways around them, and once the policy asks
for it all of them are written as *excluded*, so that every node's layout is the same again (Healing
§3.2). Whatever the policy, unless off, that is done when a node has one dead neighbor less than it has
neighbors, since with all of them dead it would be cut off.

Records are joined, so it does no harm when several write the same ones; to keep it from being many:

    who declares one dead     looks at once; its notice then says *excluded* of all the dead
    who hears of a dead one   looks after a pause, the longer the more living ids are below its own; by
                              then the first one's notice has come, and nothing is left to write

Deaths and dead neighbors are counted by everybody. Hops are computed by the node that declares one
dead, and by the lowest living id after its pause: all memberships that are equal give the same answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

from bmgd.core.context import Context
from bmgd.core.membership.notices import Notices
from bmgd.core.timers import TimerKey
from bmgd.healing import hop_overhead
from bmgd.policy import HealingTrigger
from bmgd.routing import rank_of
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId, Status

HEAL_TIMER = "heal"
PAUSE_NS = 25_000_000
PAUSES_MAX = 8
_BY_HOPS = (HealingTrigger.AVERAGE_HOPS, HealingTrigger.LONGEST_WAY)


@dataclass(slots=True)
class Healing:
    """Excludes the dead when the policy asks for it."""

    context: Context
    notices: Notices
    _looked_at: int = -1
    _counted_at: int = -1
    _neighbors: dict[int, tuple[NodeId, ...]] = field(default_factory=dict)
    _dead_neighbors: Counter[NodeId] = field(default_factory=Counter)

    def verdict(self) -> Status:
        """What a verdict writes."""
        if not self.context.has_quorum:
            return Status.DEAD
        at_once = self.context.settings.healing.trigger is HealingTrigger.EVERY_DEATH
        return Status.EXCLUDED if at_once else Status.DEAD

    def on_verdict(self) -> None:
        """This node has declared somebody dead: heal at once if that is due, before anybody is told."""
        if self._is_due(by_hops=True):
            self._heal()

    def look(self) -> None:
        """At the end of a step: if there are other dead than before, see later whether to heal."""
        context, membership = self.context, self.context.membership
        if membership.revision == self._looked_at:
            return
        self._looked_at = membership.revision
        if not membership.dead or context.settings.healing.trigger is HealingTrigger.OFF:
            return
        key = (HEAL_TIMER, 0, 0)
        if key not in context.timers:
            pauses = 1 + min(self._living_below(), PAUSES_MAX)
            context.timers.set(key, context.now_ns + pauses * PAUSE_NS)

    def on_timer(self, key: TimerKey) -> None:
        """Nobody has healed meanwhile, or there are new dead."""
        if self._is_due(by_hops=self._is_lowest()):
            self._heal()

    def _living_below(self) -> int:
        """How many living ids are below this node's, counted to `PAUSES_MAX`."""
        living = islice(self.context.membership.living(), PAUSES_MAX)
        return sum(node_id < self.context.id for node_id in living)

    def _is_lowest(self) -> bool:
        return self._living_below() == 0

    # --- whether ------------------------------------------------------------------------------

    def _is_due(self, *, by_hops: bool) -> bool:
        policy, dead = self.context.settings.healing, self.context.membership.dead
        if not self.context.has_quorum:
            return False
        match policy.trigger:
            case _ if not dead:
                return False
            case HealingTrigger.OFF:
                return False
            case HealingTrigger.EVERY_DEATH:
                return True
            case HealingTrigger.DEATHS if len(dead) >= policy.threshold:
                return True
            case _ if self._is_crowded():
                return True
            case _:
                return by_hops and policy.trigger in _BY_HOPS and self._is_far()

    def _is_crowded(self) -> bool:
        """Whether one more death could leave a living node without a living neighbor."""
        membership = self.context.membership
        limit = max(1, BinomialGraph(membership.layout_size).degree - 1)
        if len(membership.dead) < limit:
            return False
        self._count()
        return any(
            count >= limit and not membership.is_gone(peer)
            for peer, count in self._dead_neighbors.items()
        )

    def _count(self) -> None:
        """Bring the counts of dead neighbors up to date. O(log N) for each id that changed."""
        membership = self.context.membership
        if self._counted_at != membership.layout_revision:
            self._counted_at = membership.layout_revision
            self._neighbors.clear()
            self._dead_neighbors.clear()
        for number in self._neighbors.keys() - set(membership.dead):
            self._dead_neighbors.subtract(self._neighbors.pop(number))
        for number in membership.dead:
            if number not in self._neighbors:
                self._neighbors[number] = membership.neighbors(NodeId(number))
                self._dead_neighbors.update(self._neighbors[number])

    def _is_far(self) -> bool:
        """Whether ways around the dead are longer than the policy allows."""
        membership, policy = self.context.membership, self.context.settings.healing
        ranks = [rank_of(number, membership.outside) for number in membership.dead]
        overhead = hop_overhead(membership.layout_size, ranks)
        if policy.trigger is HealingTrigger.LONGEST_WAY:
            return overhead.hops > policy.threshold
        return overhead.percent > policy.threshold

    # --- doing it -----------------------------------------------------------------------------

    def _heal(self) -> None:
        """Write all the dead of the layout as excluded."""
        membership = self.context.membership
        dead = list(membership.dead)
        self.context.observe("healed", detail=f"{len(dead)} dead leave the graph")
        for number in dead:
            record = membership.get(NodeId(number))
            assert record is not None
            self.notices.publish(NodeId(number), record._replace(status=Status.EXCLUDED))
