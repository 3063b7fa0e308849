"""Failed nodes: the reference against the plain definition, C against the reference."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from math import comb
from random import Random

import pytest

from bmgd import _labroutes
from bmgd.errors import GraphError
from bmgd.topology import BinomialGraph
from bmgd.topology.faults import (
    FaultCounts,
    component_sizes,
    fault_orders,
    fault_sets,
    sets_with_node_0,
    survivors_by_hops,
)


def hops_from(graph: BinomialGraph, source: int, alive: set[int]) -> dict[int, int]:
    """Breadth-first search among the living, node by node."""
    hops = {source: 0}
    queue = deque([source])
    while queue:
        at = queue.popleft()
        for other in graph.neighbors(at):
            if other in alive and other not in hops:
                hops[other] = hops[at] + 1
                queue.append(other)
    return hops


def by_definition(size: int, failed: int) -> FaultCounts:
    """Every set of failed nodes, examined plainly."""
    graph = BinomialGraph(size)
    disconnected = unreachable = measured = hops = diameters = most = 0
    for dead in combinations(range(size), failed):
        alive = set(range(size)).difference(dead)
        ways = [h for node in alive for h in hops_from(graph, node, alive).values() if h]
        missing = len(alive) * (len(alive) - 1) - len(ways)
        disconnected += missing > 0
        unreachable += missing
        if ways:
            measured += 1
            hops += sum(ways)
            diameters += max(ways)
            most = max(most, *ways)
    return FaultCounts(disconnected, unreachable, measured, hops, diameters, most)


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8, 9, 11])
def test_fault_sets_with_node_0_stand_for_all_sets(size: int) -> None:
    for failed in range(size + 1):
        total = sets_with_node_0(size, failed)
        *sums, most = fault_sets(size, failed, 0, total, distances=True)
        scaled = [each * size // failed if failed else each for each in sums]
        assert (*scaled, most) == by_definition(size, failed), failed


def test_fault_sets_in_parts_are_the_whole() -> None:
    for module in (fault_sets, _labroutes.fault_sets):
        total = sets_with_node_0(12, 9)
        whole = module(12, 9, 0, total, True)
        parts = [module(12, 9, first, min(7, total - first), True) for first in range(0, total, 7)]
        assert tuple(sum(part[i] for part in parts) for i in range(5)) == tuple(whole[:5])
        assert max(part[5] for part in parts) == whole[5]


@pytest.mark.parametrize("distances", [False, True])
def test_fault_sets_in_c_are_those_of_the_reference(distances: bool) -> None:
    random = Random(3)
    cases = [(n, f, 0, sets_with_node_0(n, f)) for n in range(2, 11) for f in range(n + 1)]
    for size in (24, 33, 63, 64):
        for failed in (0, 1, 2, 8, size // 2, size - 2, size - 1, size):
            total = sets_with_node_0(size, failed)
            first = random.randrange(total)
            cases += [
                (size, failed, first, min(20, total - first)),
                (size, failed, max(0, total - 20), min(20, total)),
            ]
    for case in cases:
        assert _labroutes.fault_sets(*case, distances) == fault_sets(*case, distances), case


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 12, 17, 33, 100])
def test_fault_orders_in_c_are_those_of_the_reference(size: int) -> None:
    assert _labroutes.fault_orders(size, 25, size) == fault_orders(size, 25, size)


def test_fault_orders_agree_with_the_exhaustive_counts() -> None:
    """A share found in 20,000 orders is within 5 deviations of the exact one."""
    size, samples = 11, 20_000
    found = _labroutes.fault_orders(size, samples, 1)
    for failed in range(size + 1):
        exact = by_definition(size, failed)
        share = exact.disconnected / comb(size, failed)
        deviation = (share * (1 - share) / samples) ** 0.5
        assert abs(found[1][failed] / samples - share) <= 5 * deviation, failed


def test_fault_orders_fall_apart_where_the_counts_say() -> None:
    first, disconnected, isolated, unreachable = _labroutes.fault_orders(64, 200, 9)
    assert len(first) == 200
    earliest = min(first)
    assert earliest >= BinomialGraph(64).degree
    assert disconnected[earliest] > 0
    assert not any(disconnected[:earliest])
    assert all(
        0 <= lone <= apart <= 200 for lone, apart in zip(isolated, disconnected, strict=True)
    )
    assert all(
        (share > 0) == (apart > 0) for share, apart in zip(unreachable, disconnected, strict=True)
    )


def test_component_sizes_are_those_of_a_plain_search() -> None:
    random = Random(5)
    for _ in range(300):
        size = random.randint(1, 60)
        dead = random.sample(range(size), random.randint(0, size))
        alive = set(range(size)).difference(dead)
        graph, sizes = BinomialGraph(size), []
        while alive:
            part = hops_from(graph, min(alive), alive)
            sizes.append(len(part))
            alive.difference_update(part)
        assert component_sizes(size, dead) == tuple(sorted(sizes, reverse=True))


def test_survivors_by_hops_are_those_of_a_plain_search() -> None:
    random = Random(6)
    for _ in range(300):
        size = random.randint(1, 60)
        dead = random.sample(range(size), random.randint(0, size - 1))
        alive = set(range(size)).difference(dead)
        source = random.choice(sorted(alive))
        hops = list(hops_from(BinomialGraph(size), source, alive).values())
        expected = tuple(hops.count(h) for h in range(max(hops) + 1))
        assert survivors_by_hops(size, dead, source) == expected


def test_survivors_by_hops_from_a_failed_node_is_an_error() -> None:
    with pytest.raises(GraphError, match="source 3 has failed"):
        survivors_by_hops(9, [3], 3)
    with pytest.raises(GraphError, match="source 9"):
        survivors_by_hops(9, [3], 9)


def test_component_sizes_of_a_node_without_neighbors() -> None:
    assert component_sizes(100_000, BinomialGraph(100_000).neighbors(7)) == (100_000 - 35, 1)


@pytest.mark.parametrize(
    "case",
    [(1, 0, 0, 0), (65, 0, 0, 0), (9, 10, 0, 0), (9, -1, 0, 0), (9, 3, 29, 0), (9, 3, 20, 9)],
)
def test_fault_sets_out_of_range_are_errors(case: tuple[int, int, int, int]) -> None:
    for module in (fault_sets, _labroutes.fault_sets):
        with pytest.raises(GraphError):
            module(*case, True)


@pytest.mark.parametrize(
    "case", [(1, 1, 1), (2**24 + 1, 0, 0), (9, -1, 0), (9, 2**20 + 1, 0), (9, 1, -1)]
)
def test_fault_orders_out_of_range_are_errors(case: tuple[int, int, int]) -> None:
    for module in (fault_orders, _labroutes.fault_orders):
        with pytest.raises(GraphError):
            module(*case)


def test_component_sizes_out_of_range_are_errors() -> None:
    with pytest.raises(GraphError, match="failed node 9"):
        component_sizes(9, [9])
    with pytest.raises(GraphError):
        component_sizes(0, [])
