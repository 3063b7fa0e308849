"""The binomial graph as its users see it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from bmgd.errors import GraphError
from bmgd.topology import SIZE_MAX, BinomialGraph


@pytest.mark.parametrize("size", [0, -1, SIZE_MAX + 1])
def test_a_graph_refuses_sizes_out_of_range(size: int) -> None:
    with pytest.raises(GraphError, match="size"):
        BinomialGraph(size)


def test_a_graph_of_one_has_no_links() -> None:
    graph = BinomialGraph(1)
    assert (graph.size, graph.jumps, graph.degree, graph.diameter) == (1, (), 0, 0)
    assert graph.average_distance == 0.0
    assert graph.neighbors(0) == ()
    assert graph.path(0, 0) == (0,)


def test_a_graph_of_two_has_one_link() -> None:
    graph = BinomialGraph(2)
    assert (graph.jumps, graph.degree, graph.diameter) == ((1,), 1, 1)
    assert graph.average_distance == 1.0
    assert graph.neighbors(1) == (0,)
    assert graph.next_hops(0, 1) == (1,)


def test_jumps_are_the_powers_of_two_strictly_below_the_size() -> None:
    assert BinomialGraph(8).jumps == (1, 2, 4)
    assert BinomialGraph(9).jumps == (1, 2, 4, 8)
    assert BinomialGraph(SIZE_MAX).jumps == tuple(1 << i for i in range(31))


def test_neighbors_are_mutual_and_as_many_as_the_degree() -> None:
    for size in range(1, 130):
        graph = BinomialGraph(size)
        for rank in range(size):
            neighbors = graph.neighbors(rank)
            assert len(neighbors) == graph.degree
            assert list(neighbors) == sorted(set(neighbors) - {rank})
            assert all(rank in graph.neighbors(other) for other in neighbors)


def test_paths_go_over_links_and_are_as_long_as_the_hop_count() -> None:
    random = Random(1)
    for size in [*range(2, 60), 1000, 4097, 10**6, SIZE_MAX - 1, SIZE_MAX]:
        graph = BinomialGraph(size)
        for _ in range(10):
            a, b = random.randrange(size), random.randrange(size)
            path = graph.path(a, b)
            assert (path[0], path[-1]) == (a, b)
            assert len(path) == graph.hops(a, b) + 1 == graph.hops(b, a) + 1
            for here, there in pairwise(path):
                assert there in graph.neighbors(here)
                assert there in graph.next_hops(here, b)
                assert graph.next_hop(here, b) == there


def test_next_hops_are_the_neighbors_one_hop_closer_ascending() -> None:
    for size in range(2, 70):
        graph = BinomialGraph(size)
        for a, b in ((0, size - 1), (size // 2, 1), (size - 1, size // 3)):
            if a == b:
                continue
            closer = [r for r in graph.neighbors(a) if graph.hops(r, b) == graph.hops(a, b) - 1]
            assert list(graph.next_hops(a, b)) == closer


def test_a_rank_has_no_next_hop_to_itself() -> None:
    graph = BinomialGraph(12)
    assert graph.hops(5, 5) == 0
    assert graph.path(5, 5) == (5,)
    for method in (graph.next_hop, graph.next_hops):
        with pytest.raises(GraphError):
            method(5, 5)


def test_ranks_out_of_range_are_refused() -> None:
    graph = BinomialGraph(12)
    for rank in (-1, 12, 2**40):
        with pytest.raises(GraphError, match="rank"):
            graph.neighbors(rank)
        for method in (graph.hops, graph.next_hop, graph.next_hops, graph.path):
            with pytest.raises(GraphError, match="rank"):
                method(rank, 3)
            with pytest.raises(GraphError, match="rank"):
                method(3, rank)


def test_diameter_and_average_distance_agree_with_the_hop_counts() -> None:
    for size in [*range(2, 100), 777]:
        graph = BinomialGraph(size)
        hops = [graph.hops(0, b) for b in range(1, size)]
        assert graph.diameter == max(hops)
        assert graph.average_distance == pytest.approx(sum(hops) / (size - 1), rel=1e-12)


def test_average_distance_refuses_sizes_too_large_to_search() -> None:
    with pytest.raises(GraphError, match="too large"):
        BinomialGraph(2**24 + 1).average_distance  # noqa: B018


def test_graphs_of_one_size_are_equal() -> None:
    assert BinomialGraph(5) == BinomialGraph(5) != BinomialGraph(6)
    assert len({BinomialGraph(5), BinomialGraph(5), BinomialGraph(6)}) == 2
    assert repr(BinomialGraph(5)) == "BinomialGraph(5)"
