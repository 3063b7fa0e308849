"""The equivalence class method: a distance d is as good as d + l * n, after l loops around the ring.

The consecutive bit elimination is applied to d and |d +- l*n| in both directions, and the lightest
wins. |d - l*n| is the other direction with one loop less, so these are d + l*n clockwise and
(n - d) + l*n counterclockwise. No loop at all is the consecutive bit elimination itself; how many
are needed is `loops_needed`, and the exact formula of `bmgd.topology.distance` decides it as it
goes.
"""

from __future__ import annotations

from typing import Final

from bmgd.routing.papers.bit_elimination import eliminated
from bmgd.routing.papers.distances import checked_distance, checked_way
from bmgd.routing.papers.forms import Form, lighter, top_of
from bmgd.topology.distance import hop_count as optimal_hop_count

LOOPS: Final = 4
"""How many the paper takes."""


def form(n: int, distance: int, loops: int = LOOPS) -> Form:
    """The lightest walk within some loops; of equal ones the one with fewest, clockwise first.

    Args:
        n: the size of the graph, 2..2**31.
        distance: the destination's rank minus the own one, above -n and below n, not 0.
        loops: the most loops, from 0.

    Raises:
        GraphError: an argument is out of its range.

    O(loops * log(n)**2); the paper, which scans the bits once, says O(loops * log n).
    Source: Routing §3.3.
    """
    d, top = checked_way(n, distance), top_of(n)
    best = lighter(eliminated(d, top), eliminated(n - d, top, -1))
    for loop in range(1, loops + 1):
        best = lighter(best, eliminated(d + loop * n, top))
        best = lighter(best, eliminated(n - d + loop * n, top, -1))
    return best


def hop_count(n: int, distance: int, loops: int = LOOPS) -> int:
    """The number of jumps of the `form`, 0 for distance 0; the errors are the same."""
    return form(n, distance, loops).weight if checked_distance(n, distance) else 0


def first_hop(n: int, distance: int, loops: int = LOOPS) -> int:
    """The longest jump of the `form`, with its sign; the errors are the same."""
    return form(n, distance, loops).jumps[-1]


def loops_needed(n: int, distance: int) -> int:
    """The least number of loops that gives the optimum for one distance, not 0.

    A walk of l loops is at least l jumps of at most 2**top long, so it ends below the diameter.
    """
    d = checked_way(n, distance)
    optimal = optimal_hop_count(n, d)
    return next(loops for loops in range(optimal + 1) if hop_count(n, d, loops) == optimal)
