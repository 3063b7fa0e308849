"""Distances by breadth-first search: diameter, average distance.

In a symmetric graph one source stands for all, and the binomial graph has a fast search of its own
(`bmgd.topology.levels`). In any other the searches from all nodes run at once:
the set of nodes within h+1 hops of a node is the union of those within h hops of its neighbors, and
with a node per bit of an integer a union takes a handful of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bmgd.errors import GraphError
from bmgd.topology.binomial import BinomialGraph
from bmgd.topology.levels import LEVELS_SIZE_MAX, ranks_per_level
from bmgd.topology.protocol import Topology

Links = Sequence[tuple[int, ...]]
"""The neighbors of node 0, 1, 2, ..."""

ALL_PAIRS_SIZE_MAX = 2**15
"""The largest graph that is searched from every node at once: 128 MiB per set of searches."""


@dataclass(frozen=True, slots=True)
class Distances:
    """How many ordered pairs of nodes are how far apart.

    Args:
        counts: the pairs at 0, 1, 2, ... hops; the first are the sources themselves.
    """

    counts: tuple[int, ...]

    @property
    def diameter(self) -> int:
        """The most hops between two nodes. Source: ISPA07 §3.2."""
        return len(self.counts) - 1

    @property
    def average(self) -> float:
        """The mean over ordered pairs of different nodes, 0.0 in a graph of one. Source: ISPA07 (3)."""
        pairs = sum(self.counts) - self.counts[0]
        return sum(hops * count for hops, count in enumerate(self.counts)) / pairs if pairs else 0.0


def links_of(graph: Topology) -> list[tuple[int, ...]]:
    """The neighbors of every node, in the order of nodes. O(links)."""
    return [graph.neighbors(node) for node in range(graph.size)]


def level_sizes(
    neighbors: Callable[[int], Iterable[int]], size: int, source: int
) -> tuple[int, ...]:
    """How many nodes are 0, 1, 2, ... hops from `source`; those that cannot be reached do not count.

    Args:
        neighbors: gives the nodes that a node has links to; it is called once for each that is
            reached, so it may as well be the graph's own method as a list's.
        size: the number of nodes.
        source: a node.

    O(links).
    """
    seen = bytearray(size)
    seen[source] = 1
    level = [source]
    found = []
    while level:
        found.append(len(level))
        following = []
        for node in level:
            for other in neighbors(node):
                if not seen[other]:
                    seen[other] = 1
                    following.append(other)
        level = following
    return tuple(found)


def hops_from(links: Links, source: int) -> list[int]:
    """The hops from `source` to every node, -1 where there is no path. O(links)."""
    hops = [-1] * len(links)
    hops[source] = 0
    queue = [source]
    for node in queue:
        for other in links[node]:
            if hops[other] < 0:
                hops[other] = hops[node] + 1
                queue.append(other)
    return hops


def distances(graph: Topology) -> Distances:
    """The distances between all nodes; from node 0 only, where the graph is symmetric.

    Raises:
        GraphError: the graph is not connected, or not symmetric and above 2**15 nodes.

    O(links) in a symmetric graph, else O(links * size * diameter / 64).
    """
    if isinstance(graph, BinomialGraph) and graph.size <= LEVELS_SIZE_MAX:
        return Distances(ranks_per_level(graph.size))
    if graph.symmetric:
        counts = level_sizes(graph.neighbors, graph.size, 0)
        reached, sources = sum(counts), 1
    else:
        if graph.size > ALL_PAIRS_SIZE_MAX:
            raise GraphError(f"{graph} is above {ALL_PAIRS_SIZE_MAX} nodes and not symmetric")
        counts = all_pairs(links_of(graph))
        reached, sources = sum(counts), graph.size
    if reached != sources * graph.size:
        raise GraphError(f"{graph} is not connected")
    return Distances(counts)


def all_pairs(links: Links) -> tuple[int, ...]:
    """How many ordered pairs of nodes are 0, 1, 2, ... hops apart; unconnected ones do not count.

    O(links * size * diameter / 64) machine words.
    """
    within = [1 << node for node in range(len(links))]
    counts = [len(links)]
    before = len(links)
    while True:
        following = []
        for node, neighbors in enumerate(links):
            union = within[node]
            for other in neighbors:
                union |= within[other]
            following.append(union)
        reached = sum(union.bit_count() for union in following)
        if reached == before:
            return tuple(counts)
        counts.append(reached - before)
        before, within = reached, following
