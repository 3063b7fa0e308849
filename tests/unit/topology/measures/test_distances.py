"""Distances, degrees, and what is made of them."""

from __future__ import annotations

from itertools import combinations

import pytest

from bmgd.errors import GraphError
from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    Hypercube,
    Ring,
    SiblingTree,
    Topology,
    Torus,
)
from bmgd.topology.measures.distances import (
    Distances,
    all_pairs,
    distances,
    hops_from,
    level_sizes,
    links_of,
)
from bmgd.topology.measures.sizes import (
    Degrees,
    cost_factor,
    degrees,
    message_traffic_density,
    network_cost,
    weighted_cost_ratio,
)
from tests.unit.topology.graphs import ALL


@pytest.mark.parametrize("graph", [graph for graph in ALL if graph.size <= 130], ids=repr)
def test_distances_are_those_of_all_pairs(graph: Topology) -> None:
    links = links_of(graph)
    hops = [hops_from(links, node) for node in range(graph.size)]
    for of_node in hops:
        assert all(abs(of_node[a] - of_node[b]) <= 1 for a in range(graph.size) for b in links[a])
    every = [h for of_node in hops for h in of_node]
    assert all_pairs(links) == tuple(every.count(h) for h in range(max(every) + 1))
    found = distances(graph)
    assert found.diameter == max(every)
    pairs = graph.size * (graph.size - 1)
    assert found.average == pytest.approx(sum(every) / pairs if pairs else 0.0, rel=1e-12)


def test_level_sizes_count_nodes_by_distance() -> None:
    assert level_sizes(Hypercube(4).neighbors, 16, 5) == (1, 4, 6, 4, 1)
    assert level_sizes(links_of(Ring(6)).__getitem__, 6, 2) == (1, 2, 2, 1)


def test_distances_agree_with_the_binomial_graphs_own() -> None:
    for size in (2, 3, 12, 100, 777):
        graph = BinomialGraph(size)
        found = distances(graph)
        assert found.counts == level_sizes(graph.neighbors, size, 0)
        assert found.diameter == graph.diameter
        assert found.average == pytest.approx(graph.average_distance, rel=1e-12)


class _TwoParts:
    """Two pairs with nothing between them."""

    def __init__(self, symmetric: bool) -> None:
        self.size = 4
        self.symmetric = symmetric

    def neighbors(self, node: int) -> tuple[int, ...]:
        return (node ^ 1,)


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_graph_in_parts_is_refused(symmetric: bool) -> None:
    with pytest.raises(GraphError, match="not connected"):
        distances(_TwoParts(symmetric))


def test_a_large_graph_without_symmetry_is_refused() -> None:
    with pytest.raises(GraphError, match="not symmetric"):
        distances(SiblingTree(4, 2**15 + 1))


@pytest.mark.parametrize("graph", [graph for graph in ALL if graph.size <= 130], ids=repr)
def test_degrees_count_links_once(graph: Topology) -> None:
    pairs = combinations(range(graph.size), 2)
    links = sum(1 for a, b in pairs if b in graph.neighbors(a))
    counts = [len(graph.neighbors(node)) for node in range(graph.size)]
    assert degrees(graph) == Degrees(graph.size, min(counts), max(counts), links)


def test_the_papers_figures_of_merit_by_hand() -> None:
    torus = Torus((4, 4))
    counted, found = degrees(torus), distances(torus)
    assert found == Distances((1, 4, 6, 4, 1))
    assert found.average == pytest.approx(32 / 15)
    assert message_traffic_density(found, counted) == pytest.approx(32 / 15 * 16 / 32)
    assert cost_factor(found, counted) == 4 * 4
    assert network_cost(found, counted) == 4 * 32
    assert cost_factor(distances(CompleteGraph(9)), degrees(CompleteGraph(9))) == 8


def test_weighted_cost_ratio_of_a_hypercube_is_one() -> None:
    for n in (1, 7, 19):
        for weight in (0.0, 0.3, 1.0):
            assert weighted_cost_ratio(2**n, n, n, weight) == pytest.approx(1)
    assert weighted_cost_ratio(1024, 6, 14, 0.25) == pytest.approx((0.25 * 6 + 0.75 * 14) / 10)
