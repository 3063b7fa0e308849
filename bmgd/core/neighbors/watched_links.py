"""Which links are watched: carry heartbeats all the time, so that silence on them means something.

Theory of operation. Up to `WATCH_ALL_MAX` ids in the layout every link is watched. Above, only those
to the ranks ±2^e for `EXPONENTS` exponents e, spread evenly over all from the least to the greatest:
so heartbeats cost the same whatever N is, both ends of a link agree about it, everybody is watched by
up to 12 others, and the watched links alone connect the graph (1 is among the powers), so that digests
still find what a flood has missed. Where the dead stay in the layout, the links of an id that less
than `WATCHERS_MIN` of its watchers could accuse are watched too. Every other link is tried in turn,
see `detector.py`.
"""

from __future__ import annotations

from bmgd.core.membership.membership import Membership
from bmgd.routing import id_of
from bmgd.types import NodeId

WATCH_ALL_MAX = 128
EXPONENTS = 6
WATCHERS_MIN = 4


def watched_powers(size: int) -> tuple[int, ...]:
    """The distances in ranks over which a layout of this size is watched, ascending."""
    count = (size - 1).bit_length()
    if count <= EXPONENTS:
        return tuple(1 << e for e in range(count))
    last = EXPONENTS - 1
    return tuple(1 << ((count - 1) * i + last // 2) // last for i in range(EXPONENTS))


def watchers(membership: Membership, node_id: NodeId) -> frozenset[NodeId]:
    """The ids over whose links an id of the layout is watched, in a layout above `WATCH_ALL_MAX`."""
    size, rank = membership.layout_size, membership.rank(node_id)
    if rank is None:
        return frozenset()
    steps = [sign * power for power in watched_powers(size) for sign in (1, -1)]
    found = {id_of((rank + step) % size, membership.outside) for step in steps}
    return frozenset(found - {node_id})


def watched_peers(membership: Membership, me: NodeId) -> frozenset[NodeId] | None:
    """The peers of a node whose links are watched; None for all.

    O(log(N) * log(N)), and as much for each neighbor where the dead stay in the layout.
    """
    if membership.layout_size <= WATCH_ALL_MAX:
        return None
    chosen = watchers(membership, me)
    if not membership.dead:
        return chosen
    if _is_short(membership, chosen):
        return None
    short = [p for p in membership.neighbors(me) if _is_short(membership, watchers(membership, p))]
    return chosen.union(short)


def _is_short(membership: Membership, watching: frozenset[NodeId]) -> bool:
    return sum(1 for peer in watching if not membership.is_gone(peer)) < WATCHERS_MIN
