"""Breadth-first search for every message, and the table that keeps its results.

Optimal by definition: it knows nothing of powers of two. Algorithm 1 marks nodes INIT, START and
DONE; here a node that is not INIT has a parent, and DONE is never asked for. Searched from the own
node, which is rank 0, to the rank at the distance.
"""

from __future__ import annotations

from bmgd.routing.papers.distances import checked_distance, checked_way, hops_of, signed_jumps
from bmgd.topology import BinomialGraph
from bmgd.types import Rank


def first_hop(n: int, distance: int) -> int:
    """The first jump of the path that the search finds.

    Args:
        n: the size of the graph, 2..2**31; in practice to some thousands.
        distance: the destination's rank minus the own one, above -n and below n, not 0.

    Returns:
        A jump within 1..n-1. The second scan of the paper tests ``State[nodeID]`` in line 13, a
        misprint: it is the neighbor that must be INIT.

    Raises:
        GraphError: an argument is out of its range.

    O(n log n) and n words of memory; the papers say O(δ^D) (Routing) and O(|V| + |E|) (ISPA07).
    Source: Routing §2.1, Algorithm 1.
    """
    destination = checked_way(n, distance)
    parent = {0: 0}
    queue = [0]
    for at in queue:
        if at == destination:
            break
        for jump in signed_jumps(n):
            neighbor = (at + jump) % n
            if neighbor not in parent:
                parent[neighbor] = at
                queue.append(neighbor)
    at = destination
    while parent[at] != 0:
        at = parent[at]
    return at


def hop_count(n: int, distance: int) -> int:
    """The hops of a message when every node searches; arguments and errors as `first_hop`."""
    return hops_of(n, checked_distance(n, distance), first_hop)


class RoutingTable:
    """The neighbors of one node for every destination, sorted by the path through them.

    "The lower priority neighbor will be used as an alternative for the next hop when the highest
    priority neighbor dies." It holds n * δ numbers at every node, so δ * n**2 in a cluster (Routing
    speaks of O(n**2)); it shows what the exact formula spares.

    Args:
        size: the size n of the graph, 2..2**31; in practice to some thousands.
        rank: the node whose table it is, 0..n-1.

    Raises:
        GraphError: an argument is out of its range.

    O(n * δ log δ). Source: ISPA07 §5.1, Routing §2.1.
    """

    def __init__(self, size: int, rank: int) -> None:
        graph = BinomialGraph(size)
        neighbors = graph.neighbors(rank)
        hops = _searched(size)
        self._rows: dict[Rank, tuple[Rank, ...]] = {}
        for destination in map(Rank, range(size)):
            if destination != rank:
                through = {each: hops[(destination - each) % size] for each in neighbors}
                self._rows[destination] = tuple(sorted(neighbors, key=through.__getitem__))

    def next_hops(self, destination: int) -> tuple[Rank, ...]:
        """Every neighbor, the best first; of equally good ones the lower rank first.

        Raises:
            KeyError: the destination is the node itself, or not in the graph.
        """
        return self._rows[Rank(destination)]


def _searched(n: int) -> list[int]:
    """The hops from rank 0 to every rank."""
    hops = {0: 0}
    queue = [0]
    for at in queue:
        for jump in signed_jumps(n):
            neighbor = (at + jump) % n
            if neighbor not in hops:
                hops[neighbor] = hops[at] + 1
                queue.append(neighbor)
    return [hops[d] for d in range(n)]
