"""Self-healing by the adaptive method: which links change when nodes die, and what waiting costs.

Only the links that differ between the graph over all nodes and the graph over the survivors are
touched. When to heal is decided in `bmgd.core.neighbors.healing_policy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from operator import index
from typing import NamedTuple

from bmgd.errors import GraphError
from bmgd.routing import link_changes
from bmgd.topology import BinomialGraph
from bmgd.topology.distance import checked_size
from bmgd.types import NodeId


class LinkDiff(NamedTuple):
    """The links of one node that healing changes, as ids of the other ends, ascending.

    `removed` contains the dead neighbors, whose links are gone already.
    """

    added: tuple[NodeId, ...]
    removed: tuple[NodeId, ...]


def link_diff(size: int, node_id: int, dead: Iterable[int]) -> LinkDiff:
    """What the death of some nodes changes at one survivor.

    Args:
        size: the size N of the original graph, 1..2**31. Ids are its ranks, from 0; they stay.
        node_id: the survivor, 0..N-1.
        dead: the ids of all dead nodes, in any order.

    Returns:
        The links to add and to remove.

    Raises:
        GraphError: an argument is out of its range, or `node_id` is dead.

    O(D log D + log(N) log(D)) for D dead nodes. Source: Healing §3.1, Algorithm 1.
    """
    n = checked_size(size)
    gone = sorted({index(d) for d in dead})
    if gone and not 0 <= gone[0] <= gone[-1] < n:
        raise GraphError(f"a dead id is not within 0..{n - 1}: {gone[0]}, {gone[-1]}")
    return LinkDiff(*link_changes(n, node_id, gone))


OVERHEAD_WORK_MAX = 2**21
"""Above this many pairs (1448 nodes), ways are measured from evenly spread survivors only."""


class HopOverhead(NamedTuple):
    """How much longer ways between survivors are than they would be in the healed graph.

    Args:
        average, optimal_average: mean hops between two survivors, now and in the healed graph.
        longest, optimal_longest: the most hops between two survivors, now and in the healed graph.

    `average` and `longest` are infinite where a survivor cannot reach another.
    """

    average: float
    optimal_average: float
    longest: float
    optimal_longest: int

    @property
    def percent(self) -> float:
        """By how many percent the average way is too long."""
        return 100 * (self.average / self.optimal_average - 1) if self.optimal_average else 0.0

    @property
    def hops(self) -> float:
        """By how many hops the longest way is too long."""
        return self.longest - self.optimal_longest


def hop_overhead(size: int, dead: Iterable[int]) -> HopOverhead:
    """What the dead cost those who route around them, as long as the graph is not healed.

    Args:
        size: the size N of the graph that the links follow, 1..2**31.
        dead: the ranks of the dead in it, in any order.

    Returns:
        Ways in the graph without the dead, next to ways in the graph of size N minus the dead. Exact
        for N <= 1448; above, the ways from as many evenly spread survivors as keep the pairs
        below `OVERHEAD_WORK_MAX`, to all others: the same ones for every caller.

    Raises:
        GraphError: an argument is out of its range.

    One breadth-first search for each survivor measured, O(N * log(N) * diameter / 64) each. Source:
    Healing §3.2.
    """
    n = checked_size(size)
    gone = sorted({index(d) for d in dead})
    if gone and not 0 <= gone[0] <= gone[-1] < n:
        raise GraphError(f"a dead rank is not within 0..{n - 1}: {gone[0]}, {gone[-1]}")
    survivors = n - len(gone)
    if survivors < 2:
        return HopOverhead(0.0, 0.0, 0, 0)
    alive = (1 << n) - 1
    for rank in gone:
        alive ^= 1 << rank
    optimal, optimal_longest, _ = _ways_from(0, (1 << survivors) - 1, survivors)
    is_dead = set(gone)
    sources = [rank for rank in range(n) if rank not in is_dead]
    sources = sources[:: -(-len(sources) * n // OVERHEAD_WORK_MAX)]
    total = longest = 0
    for source in sources:
        hops, most, reached = _ways_from(source, alive, n)
        if reached < survivors:
            return HopOverhead(inf, optimal / (survivors - 1), inf, optimal_longest)
        total += hops
        longest = max(longest, most)
    average = total / (len(sources) * (survivors - 1))
    return HopOverhead(average, optimal / (survivors - 1), longest, optimal_longest)


def _ways_from(source: int, alive: int, n: int) -> tuple[int, int, int]:
    """Sum and maximum of the hops from one rank to all it reaches, and how many those are.

    Sets of ranks are integers, one bit each: a step along a jump rotates the whole set.
    """
    jumps = BinomialGraph(n).jumps
    reached = frontier = 1 << source
    total = hops = longest = 0
    while frontier:
        spread = 0
        for jump in jumps:
            spread |= frontier << jump | frontier >> (n - jump)
            spread |= frontier >> jump | frontier << (n - jump)
        frontier = spread & alive & ~reached
        reached |= frontier
        hops += 1
        if frontier:
            total += hops * frontier.bit_count()
            longest = hops
    return total, longest, reached.bit_count()
