"""The bounds of a broadcast's steps."""

from __future__ import annotations

from collections import deque

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
from bmgd.topology.measures.broadcasts import (
    broadcast_steps,
    check_schedule,
    forward_schedule,
    greedy_schedule,
    tree_costs,
)
from bmgd.topology.measures.distances import hops_from, links_of
from tests.unit.topology.graphs import ALL


def searched_steps(graph: Topology, source: int) -> int:
    """The least number of steps, by searching the sets of informed nodes."""
    everyone = (1 << graph.size) - 1
    queue = deque([(1 << source, 0)])
    seen = {1 << source}
    while queue:
        informed, steps = queue.popleft()
        if informed == everyone:
            return steps
        reachable = {informed}
        for node in range(graph.size):
            if informed >> node & 1:
                reachable |= {
                    after | 1 << other
                    for after in reachable
                    for other in graph.neighbors(node)
                    if not after >> other & 1
                }
        for after in reachable - seen:
            seen.add(after)
            queue.append((after, steps + 1))
    raise AssertionError("not connected")


@pytest.mark.parametrize("graph", [graph for graph in ALL if graph.size <= 9], ids=repr)
def test_bounds_hold_the_least_number_of_steps(graph: Topology) -> None:
    links = links_of(graph)
    for source in range(graph.size):
        bounds = broadcast_steps(links, source)
        assert bounds.least <= searched_steps(graph, source) <= bounds.most


def test_bounds_meet_where_the_answer_is_known() -> None:
    known: tuple[tuple[Topology, int], ...] = (
        (Hypercube(7), 7),
        *((BinomialGraph(size), (size - 1).bit_length()) for size in range(2, 130)),
        (CompleteGraph(21), 5),
        (Ring(10), 5),
        (Torus((6, 6)), 6),
    )
    for graph, steps in known:
        bounds = broadcast_steps(links_of(graph), 0)
        assert (bounds.least, bounds.most) == (steps, steps), graph


@pytest.mark.parametrize("graph", [graph for graph in ALL if graph.size <= 130], ids=repr)
def test_schedules_that_are_found_are_broadcasts(graph: Topology) -> None:
    links = links_of(graph)
    for source in (0, graph.size // 2):
        costs = tree_costs(links, hops_from(links, source))
        for steps in (greedy_schedule(links, source, costs), forward_schedule(links, source)):
            assert check_schedule(links, source, steps) == len(steps)


def test_tree_costs_serve_the_costliest_child_first() -> None:
    # A root with a path of two below its first child and a leaf: 2 steps down the path after the first.
    links = [(1, 2), (0, 3), (0,), (1, 4), (3,)]
    assert tree_costs(links, hops_from(links, 0)) == [3, 2, 0, 1, 0]


def test_schedules_that_cheat_are_refused() -> None:
    links = links_of(Ring(4))
    good = [[(0, 1)], [(0, 3), (1, 2)]]
    assert check_schedule(links, 0, good) == 2
    for steps, message in (
        ([[(1, 2)]], "cannot send"),
        ([[(0, 2)]], "cannot send"),
        ([[(0, 1), (0, 3)]], "twice"),
        ([[(0, 1)], [(0, 3)]], "left without"),
        ([[(0, 1), (1, 2)]], "cannot send"),
    ):
        with pytest.raises(GraphError, match=message):
            check_schedule(links, 0, steps)


def test_a_graph_in_parts_has_no_broadcast() -> None:
    with pytest.raises(GraphError, match="not connected"):
        broadcast_steps([(1,), (0,), ()], 0)
    assert broadcast_steps(links_of(SiblingTree(4, 1)), 0).most == 0
