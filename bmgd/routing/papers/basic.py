"""The basic algorithm: send to the neighbor whose id is closest to the destination's.

Algorithm 2 writes the distance as |destID - neighborID|. Taken literally, ids 0 and n - 1 would be
far apart although they are linked, and the overhead would depend on the source; measured around the
ring it gives the overheads that the paper prints, digit by digit.
"""

from __future__ import annotations

from bmgd.routing.papers.distances import around, checked_way, hops_of, signed_jumps


def first_hop(n: int, distance: int) -> int:
    """The jump to the neighbor that is closest to the destination on the ring.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Returns:
        A signed jump; of equally close neighbors the first, shorter jumps before longer ones and
        clockwise before counterclockwise. The order makes no difference to the hops.

    Raises:
        GraphError: an argument is out of its range.

    O(δ). Source: Routing §2.2, Algorithm 2; ISPA07 §5.1, Algorithm 1.
    """
    d = checked_way(n, distance)
    return min(signed_jumps(n), key=lambda jump: around(n, d - jump))


def hop_count(n: int, distance: int) -> int:
    """The hops of a message when every node takes its `first_hop`; the errors are the same."""
    return hops_of(n, distance, first_hop)
