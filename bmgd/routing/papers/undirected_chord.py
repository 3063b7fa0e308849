"""The optimal routing of undirected Chord, used on a binomial graph.

Chord's ring has a power of two of nodes; there a shortest path is a distance written as the
difference of two numbers with the fewest one bits together, and that is the non-adjacent form of the
shorter way around. On a binomial graph of another size it is still a walk, though no longer always
the shortest: it never goes around the ring.

Routing's footnote 2 says how undirected Chord itself would be made of another size (groups of nodes,
a power of two of them); its figure 3 shows "an undirected chord routing algorithm on BMG topology",
which has no groups, and whose overhead is 0 at powers of two and at the middle points between them.
The form of the shorter way has both properties.
"""

from __future__ import annotations

from bmgd.routing.papers.distances import checked_distance, checked_way
from bmgd.routing.papers.forms import Form, top_of


def form(n: int, distance: int) -> Form:
    """The non-adjacent form of the shorter way around, clockwise if both are as long.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Raises:
        GraphError: an argument is out of its range.

    O(1). Source: Routing §1 and figure 3; Ganesan and Manku, "Optimal routing in Chord" (2004).
    """
    d = checked_way(n, distance)
    x, sign = (d, 1) if d <= n - d else (n - d, -1)
    return Form((3 * x & ~x) >> 1, (x & ~(3 * x)) >> 1, top_of(n), sign)


def hop_count(n: int, distance: int) -> int:
    """The number of jumps of the `form`, 0 for distance 0; the errors are the same."""
    return form(n, distance).weight if checked_distance(n, distance) else 0


def first_hop(n: int, distance: int) -> int:
    """The longest jump of the `form`, with its sign; the errors are the same."""
    return form(n, distance).jumps[-1]
