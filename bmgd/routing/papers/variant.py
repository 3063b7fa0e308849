"""The variant of the basic algorithm: look whether a neighbor is linked to the destination.

If one is, the message goes to it, though another neighbor's id may be closer. The recursive
extension asks neighbors of neighbors, and so on: it finds every way of at most `levels` + 1 hops, so
it is the basic algorithm at 0 levels, the variant at 1, and optimal from diameter - 1 on.
"""

from __future__ import annotations

from bmgd.routing.papers import basic
from bmgd.routing.papers.distances import checked_way, hops_of, signed_jumps


def first_hop(n: int, distance: int, levels: int = 1) -> int:
    """The first jump of a way of at most `levels` + 1 hops; if there is none, that of `basic`.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.
        levels: how often to ask the neighbors of neighbors, from 0.

    Returns:
        A signed jump; of equally short ways the first, in the order of `basic`.

    Raises:
        GraphError: an argument is out of its range.

    O(δ**(levels + 1)). Source: Routing §2.3, ISPA07 §5.1.
    """
    d = checked_way(n, distance)
    for hops in range(1, levels + 2):
        jump = _way_of(n, d, hops)
        if jump:
            return jump
    return basic.first_hop(n, d)


def hop_count(n: int, distance: int, levels: int = 1) -> int:
    """The hops of a message when every node takes its `first_hop`; the errors are the same."""
    return hops_of(n, distance, lambda size, left: first_hop(size, left, levels))


def _way_of(n: int, distance: int, hops: int) -> int:
    """The first jump of a way of exactly `hops` hops, 0 if there is none."""
    for jump in signed_jumps(n):
        rest = (distance - jump) % n
        if rest == 0 if hops == 1 else _way_of(n, rest, hops - 1):
            return jump
    return 0
