"""Algorithm 1 of Healing as a function."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from bmgd import _fastroute
from bmgd.errors import GraphError
from bmgd.healing import LinkDiff, hop_overhead, link_diff
from bmgd.routing import reference
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId


def by_definition(size: int, node_id: int, dead: set[int]) -> LinkDiff:
    """Both graphs written out, compared as sets of original ids."""
    alive = [node for node in range(size) if node not in dead]
    before = set(BinomialGraph(size).neighbors(node_id))
    after = {alive[r] for r in BinomialGraph(len(alive)).neighbors(alive.index(node_id))}
    added, removed = sorted(after - before), sorted(before - after)
    return LinkDiff(tuple(map(NodeId, added)), tuple(map(NodeId, removed)))


def test_link_diff_is_what_the_two_graphs_differ_in() -> None:
    random = Random(1)
    for _ in range(600):
        size = random.randint(1, 200)
        dead = set(random.sample(range(size), random.randint(0, size - 1)))
        node = random.choice([each for each in range(size) if each not in dead])
        expected = by_definition(size, node, dead)
        assert link_diff(size, node, dead) == expected
        assert reference.link_changes(size, node, sorted(dead)) == expected
        assert _fastroute.link_changes(size, node, sorted(dead)) == expected


def test_link_diff_is_symmetric() -> None:
    dead = [3, 4, 11, 30]
    diffs = {node: link_diff(40, node, dead) for node in range(40) if node not in dead}
    for node, diff in diffs.items():
        assert all(node in diffs[other].added for other in diff.added)
        assert all(node in diffs[other].removed for other in diff.removed if other not in dead)


def test_link_diff_removes_dead_neighbors_and_never_adds_the_dead() -> None:
    dead = {1, 2, 9}
    diff = link_diff(12, 0, dead)
    assert dead.intersection(BinomialGraph(12).neighbors(0)) <= set(diff.removed)
    assert not dead.intersection(diff.added)


def test_link_diff_takes_the_dead_in_any_order_and_more_than_once() -> None:
    assert link_diff(50, 7, iter([9, 3, 9, 20])) == link_diff(50, 7, {3, 9, 20})


def test_link_diff_without_deaths_is_empty() -> None:
    assert link_diff(2**31, 5, []) == LinkDiff((), ())


def test_link_diff_of_a_last_survivor_removes_every_link() -> None:
    assert link_diff(4, 2, [0, 1, 3]) == ((), (0, 1, 3))


@pytest.mark.parametrize(
    ("size", "node", "dead"),
    [
        (10, 3, [3]),
        (10, 10, []),
        (10, -1, []),
        (10, 0, [10]),
        (10, 0, [-1]),
        (0, 0, []),
        (2**31 + 1, 0, []),
    ],
)
def test_link_diff_refuses_the_dead_and_what_is_out_of_range(
    size: int, node: int, dead: list[int]
) -> None:
    with pytest.raises(GraphError):
        link_diff(size, node, dead)


# --- what waiting costs ---------------------------------------------------------------------------


def ways_by_definition(size: int, dead: set[int]) -> tuple[float, float]:
    """Average and longest way between survivors, by searching from each."""
    graph, total, longest, pairs = BinomialGraph(size), 0, 0, 0
    for source in set(range(size)) - dead:
        hops: dict[int, int] = {source: 0}
        frontier: list[int] = [source]
        while frontier:
            onward: list[int] = []
            for rank in frontier:
                for neighbor in graph.neighbors(rank):
                    if neighbor not in hops and neighbor not in dead:
                        hops[neighbor] = hops[rank] + 1
                        onward.append(neighbor)
            frontier = onward
        if len(hops) < size - len(dead):
            return inf, inf
        total += sum(hops.values())
        longest = max(longest, *hops.values())
        pairs += len(hops) - 1
    return total / pairs, longest


@pytest.mark.parametrize("seed", range(40))
def test_hop_overhead_is_what_searches_find(seed: int) -> None:
    random = Random(seed)
    size = random.choice([2, 3, 4, 5, 8, 9, 12, 16, 31, 64, 70])
    dead = set(random.sample(range(size), random.randint(0, max(0, size - 2))))
    overhead = hop_overhead(size, dead)
    assert (overhead.average, overhead.longest) == ways_by_definition(size, dead)
    healed = BinomialGraph(size - len(dead))
    assert overhead.optimal_average == pytest.approx(healed.average_distance)
    assert overhead.optimal_longest == healed.diameter
    if overhead.average < inf:
        expected = 100 * (overhead.average / healed.average_distance - 1)
        assert overhead.percent == pytest.approx(expected)
        assert overhead.hops == overhead.longest - healed.diameter


def test_hop_overhead_without_dead_is_nothing() -> None:
    for size in (1, 2, 7, 64, 100):
        assert (hop_overhead(size, ()).percent, hop_overhead(size, ()).hops) == (0, 0)


def test_hop_overhead_of_survivors_that_fell_apart_is_infinite() -> None:
    overhead = hop_overhead(16, BinomialGraph(16).neighbors(3))
    assert overhead.percent == overhead.hops == inf


def test_hop_overhead_of_large_graphs_is_measured_from_some_survivors() -> None:
    random = Random(4)
    dead = random.sample(range(3000), 600)
    overhead = hop_overhead(3000, dead)
    assert overhead.optimal_average == pytest.approx(BinomialGraph(2400).average_distance)
    assert 0 < overhead.percent < 100
    assert overhead.hops >= 0


@pytest.mark.parametrize("dead", [[-1], [10], [3, 11]])
def test_hop_overhead_refuses_ranks_that_are_none(dead: list[int]) -> None:
    with pytest.raises(GraphError):
        hop_overhead(10, dead)
