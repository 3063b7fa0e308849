"""Breadth-first search over a whole binomial graph, with a rank per bit of one big integer.

It uses nothing but the definition of the graph, so it also serves to check the formulas.
"""

from __future__ import annotations

from bmgd.errors import GraphError
from bmgd.topology.distance import checked_size

LEVELS_SIZE_MAX = 2**24
"""The largest size that is searched; it takes about a second and 16 MiB."""


def levels(size: int) -> list[int]:
    """The sets of ranks at 0, 1, 2, ... hops from rank 0.

    Args:
        size: the size n of the graph, 1..2**24.

    Returns:
        One integer per level, up to the diameter; bit r of level h is set where rank r is h hops
        away.

    Raises:
        GraphError: the size is out of its range.

    O(n * log(n)**2 / 64) machine words. Source: Routing §2.1, Algorithm 1.
    """
    n = checked_size(size)
    if n > LEVELS_SIZE_MAX:
        raise GraphError(f"size {n} is above {LEVELS_SIZE_MAX}, too large to search rank by rank")
    everyone = (1 << n) - 1
    jumps = [1 << i for i in range(n.bit_length()) if 1 << i < n]
    reached = frontier = 1
    found = [frontier]
    while reached != everyone:
        spread = 0
        for jump in jumps:
            spread |= frontier << jump | frontier >> (n - jump)
            spread |= frontier >> jump | frontier << (n - jump)
        frontier = spread & everyone & ~reached
        reached |= frontier
        found.append(frontier)
    return found


def ranks_per_level(size: int) -> tuple[int, ...]:
    """How many ranks are 0, 1, 2, ... hops from rank 0; the arguments and errors of `levels`."""
    return tuple(level.bit_count() for level in levels(size))
