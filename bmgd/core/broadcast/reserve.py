"""Room for reliable broadcasts of others beyond the bound: for those that wait longest for nothing.

Theory of operation. Copies go when they are stable, and a window bounds them for each source; but of
more than 2000 sources that broadcast at once the windows are more than a node keeps. Then each node has
taken those that came to it first, which are others at each; none becomes stable, and no room would ever
be made again. So there is a reserve, and all nodes give it to the same sources:

    kept, or refused --2 s, none of it stable for 20 s--> stuck --a low id--> its next has room
                                                                --others----> wait for those

The lowest of all that are stuck is let in everywhere; so it becomes stable, which makes room everywhere
and lets the next one be the lowest. A source that has just got on is not stuck, and lets others go first.
"""

from __future__ import annotations

from heapq import nsmallest

from bmgd.core.context import Context
from bmgd.types import Incarnation, NodeId

RESERVE_BYTES = 16 << 20
FIRST_MAX = 64
"""So many of the lowest have room at a time; half of the reserve is for the very lowest alone."""
STUCK_NS = 2_000_000_000
AGAIN_NS = 20_000_000_000
"""So long after more of it became stable a source lets others go first, for whom nothing did."""
WANTED_NS = 5_000_000_000
"""A source that has not come again for so long after it was refused wants no room any more."""
LOOK_NS = 100_000_000
"""So long it is remembered who is stuck."""

LifeKey = tuple[NodeId, Incarnation]


class BroadcastReserve:
    """Who waits at this node, and who of them has room beyond the bound."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._since_ns: dict[LifeKey, int] = {}
        self._refused_ns: dict[LifeKey, int] = {}
        self._moved_ns: dict[LifeKey, int] = {}
        self._first: list[NodeId] = []
        self._looked_ns: int | None = None

    def on_kept(self, key: LifeKey) -> None:
        """There is a copy of this life that is not stable."""
        self._since_ns.setdefault(key, self._context.now_ns)
        self._refused_ns.pop(key, None)

    def on_refused(self, key: LifeKey) -> None:
        """There was no room for the next of this life."""
        self._since_ns.setdefault(key, self._context.now_ns)
        self._refused_ns[key] = self._context.now_ns

    def on_stable(self, key: LifeKey, *, has_copies: bool) -> None:
        """More of this life is stable."""
        self._moved_ns[key] = self._context.now_ns
        if not has_copies:
            self._since_ns.pop(key, None)
            self._refused_ns.pop(key, None)

    def forget(self, key: LifeKey) -> None:
        """Nothing of this life is kept any more, or comes."""
        for known in (self._since_ns, self._refused_ns, self._moved_ns):
            known.pop(key, None)

    def admits(self, key: LifeKey, over_bytes: int) -> bool:
        """Whether the next of this life has room, with which so much would be kept beyond the bound.

        Complexity: O(lives) ten times a second, else O(1).
        """
        now_ns = self._context.now_ns
        if self._looked_ns is None or now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            self._first = nsmallest(
                FIRST_MAX, (each[0] for each in self._since_ns if self._is_stuck(each))
            )
        if key[0] not in self._first or not self._is_stuck(key):
            return False
        is_lowest = key[0] == self._first[0]
        return over_bytes <= (RESERVE_BYTES if is_lowest else RESERVE_BYTES // 2)

    def _is_stuck(self, key: LifeKey) -> bool:
        now_ns, membership = self._context.now_ns, self._context.membership
        if now_ns - self._since_ns.get(key, now_ns) < STUCK_NS:
            return False
        if now_ns - self._moved_ns.get(key, now_ns - AGAIN_NS) < AGAIN_NS:
            return False
        if now_ns - self._refused_ns.get(key, now_ns) > WANTED_NS:
            return False
        # Copies of a life that is over go by themselves.
        return membership.incarnation(key[0]) == key[1] and not membership.is_gone(key[0])
