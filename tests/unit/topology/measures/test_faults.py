"""Connectivity, separators, fault diameter and bisection, against trying everything."""

from __future__ import annotations

from itertools import combinations
from math import comb
from random import Random

import pytest

from bmgd.errors import GraphError
from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    CubeConnectedCycles,
    Hypercube,
    Ring,
    SiblingTree,
    Topology,
    Torus,
)
from bmgd.topology.measures.bisection import bisection_width, cut_links, smallest_cut_found
from bmgd.topology.measures.connectivity import link_connectivity, node_connectivity
from bmgd.topology.measures.distances import links_of
from bmgd.topology.measures.faults import fault_diameter
from bmgd.topology.measures.separators import disconnecting_share, smallest_separators
from tests.unit.topology.graphs import ALL

SMALL = [graph for graph in ALL if 2 <= graph.size <= 13]


def diameter_without(graph: Topology, failed: tuple[int, ...]) -> int | None:
    """The diameter of what remains, None if it is in parts."""
    rest = [node for node in range(graph.size) if node not in failed]
    most = 0
    for source in rest:
        seen = {source: 0}
        queue = [source]
        for node in queue:
            for other in graph.neighbors(node):
                if other not in seen and other not in failed:
                    seen[other] = seen[node] + 1
                    queue.append(other)
        if len(seen) < len(rest):
            return None
        most = max(most, *seen.values())
    return most


def tried_connectivity(graph: Topology) -> int:
    for failures in range(graph.size - 1):
        for failed in combinations(range(graph.size), failures):
            if diameter_without(graph, failed) is None:
                return failures
    return graph.size - 1


def tried_link_connectivity(graph: Topology) -> int:
    """Every set of nodes that holds node 0, and not all, is one side of a cut."""
    links = links_of(graph)
    return min(cut_links(links, side) for side in range(1, 2**graph.size - 1, 2))


def tried_bisection(graph: Topology) -> int:
    links = links_of(graph)
    halves = combinations(range(graph.size), graph.size // 2)
    return min(cut_links(links, sum(1 << node for node in half)) for half in halves)


@pytest.mark.parametrize("graph", SMALL, ids=repr)
def test_connectivity_is_that_of_trying_every_set(graph: Topology) -> None:
    assert node_connectivity(graph) == tried_connectivity(graph)
    assert link_connectivity(graph) == tried_link_connectivity(graph)


def test_connectivity_of_a_pair_of_graphs_that_share_one_node() -> None:
    class Bow:
        """Two triangles with one node in common: κ is 1 where λ is 2."""

        size = 5
        symmetric = False

        def neighbors(self, node: int) -> tuple[int, ...]:
            return ((1, 2), (0, 2), (0, 1, 3, 4), (2, 4), (2, 3))[node]

    assert (node_connectivity(Bow()), link_connectivity(Bow())) == (1, 2)


def test_connectivity_of_larger_graphs_is_their_known_one() -> None:
    assert node_connectivity(Hypercube(6)) == link_connectivity(Hypercube(6)) == 6
    assert node_connectivity(Torus((5, 6))) == 4
    assert node_connectivity(CubeConnectedCycles(4)) == 3
    assert node_connectivity(CompleteGraph(9)) == link_connectivity(CompleteGraph(9)) == 8
    assert node_connectivity(CompleteGraph(1)) == link_connectivity(CompleteGraph(1)) == 0


@pytest.mark.parametrize(
    "graph",
    [*(BinomialGraph(n) for n in range(4, 14)), Torus((3, 4)), Hypercube(3), Ring(9), Ring(4)],
    ids=repr,
)
def test_separators_are_as_many_as_trying_every_set_finds(graph: Topology) -> None:
    kappa = node_connectivity(graph)
    tried = sum(
        diameter_without(graph, failed) is None for failed in combinations(range(graph.size), kappa)
    )
    assert smallest_separators(graph) == tried
    assert disconnecting_share(graph, kappa) == tried / comb(graph.size, kappa)


def test_separators_of_a_graph_without_symmetry_are_refused() -> None:
    with pytest.raises(GraphError, match="not symmetric"):
        smallest_separators(SiblingTree(4, 9))


@pytest.mark.parametrize("graph", SMALL, ids=repr)
def test_fault_diameter_is_that_of_trying_every_set(graph: Topology) -> None:
    for failures in range(node_connectivity(graph)):
        tried = [
            diameter_without(graph, failed) for failed in combinations(range(graph.size), failures)
        ]
        assert fault_diameter(graph, failures) == max(d for d in tried if d is not None)


def test_fault_diameter_of_hypercubes_is_one_more_than_the_diameter() -> None:
    for n in (3, 4, 5):
        assert fault_diameter(Hypercube(n)) == n + 1


def test_fault_diameter_with_as_many_failures_as_disconnect_is_refused() -> None:
    with pytest.raises(GraphError, match="can disconnect"):
        fault_diameter(Ring(6), 2)


@pytest.mark.parametrize("graph", SMALL, ids=repr)
def test_bisection_is_that_of_trying_every_half(graph: Topology) -> None:
    assert bisection_width(links_of(graph)) == tried_bisection(graph)


def test_bisection_of_larger_graphs_is_their_known_one() -> None:
    assert bisection_width(links_of(Hypercube(5))) == 16
    assert bisection_width(links_of(Torus((4, 8)))) == 8
    assert bisection_width(links_of(Ring(32))) == 2
    with pytest.raises(GraphError, match="too many"):
        bisection_width(links_of(Ring(33)))


def test_a_cut_that_is_found_is_one() -> None:
    links = links_of(Torus((8, 8)))
    assert smallest_cut_found(links, Random(3), 10) == 16
    assert smallest_cut_found(links, Random(3), 1) >= 16
