"""Broadcast trees, against trees built rank by rank and schedules played step by step."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.errors import GraphError
from bmgd.topology import BinomialGraph
from bmgd.topology.broadcast import BroadcastTree, Order

ORDERS: tuple[Order, ...] = ("closest-first", "closest-last")


def played(tree: BroadcastTree) -> dict[int, int]:
    """The step at which each rank gets the message, when everybody serves a child per step."""
    arrival = {tree.source: 0}
    queue = [tree.source]
    for rank in queue:
        for place, child in enumerate(tree.children(rank), start=1):
            assert child not in arrival
            arrival[child] = arrival[rank] + place
            queue.append(child)
    return arrival


def subtree(tree: BroadcastTree, rank: int) -> list[int]:
    found = [rank]
    for each in found:
        found.extend(tree.children(each))
    return found


def steps_of(tree: BroadcastTree, rank: int) -> int:
    """The cost by definition: the best that a node can do is serve its costliest child first."""
    costs = sorted((steps_of(tree, child) for child in tree.children(rank)), reverse=True)
    return max((place + cost for place, cost in enumerate(costs, start=1)), default=0)


@pytest.mark.parametrize("order", ORDERS)
def test_broadcast_reaches_everybody_once_over_links_in_log2_n_steps(order: Order) -> None:
    for n in range(1, 130):
        tree = BroadcastTree(n, n // 3, order)
        arrival = played(tree)
        assert sorted(arrival) == list(range(n))
        assert max(arrival.values()) == tree.steps == (n - 1).bit_length()
        graph = BinomialGraph(n)
        for rank in range(n):
            assert set(tree.children(rank)) <= set(graph.neighbors(rank))


@pytest.mark.parametrize("order", ORDERS)
def test_broadcast_parent_is_who_has_the_child(order: Order) -> None:
    for n in (1, 2, 3, 12, 31, 32, 33, 100):
        tree = BroadcastTree(n, n - 1, order)
        assert tree.parent(n - 1) is None
        for rank in range(n):
            for child in tree.children(rank):
                assert tree.parent(child) == rank
                assert tree.depth(child) == tree.depth(rank) + 1


@pytest.mark.parametrize("order", ORDERS)
def test_broadcast_cost_and_cover_are_those_of_the_subtree(order: Order) -> None:
    for n in range(1, 80):
        tree = BroadcastTree(n, 0, order)
        for rank in range(n):
            assert tree.covered(rank) == len(subtree(tree, rank))
            assert tree.cost(rank) == steps_of(tree, rank)


@pytest.mark.parametrize("order", ORDERS)
def test_broadcast_serves_the_costliest_child_first(order: Order) -> None:
    for n in (2, 12, 23, 64, 1000):
        tree = BroadcastTree(n, 1, order)
        for rank in range(n):
            costs = [tree.cost(child) for child in tree.children(rank)]
            assert costs == sorted(costs, reverse=True)


def test_broadcast_orders_differ_in_which_end_of_the_ring_comes_first() -> None:
    assert BroadcastTree(16, 3, "closest-first").children(3) == (4, 5, 7, 11)
    assert BroadcastTree(16, 3, "closest-last").children(3) == (11, 7, 5, 4)
    assert BroadcastTree(12, 0, "closest-first").children(1) == (3, 5, 9)
    assert BroadcastTree(12, 0, "closest-last").children(8) == (10, 9)


def test_broadcast_subtrees_of_the_closest_last_tree_are_intervals() -> None:
    for n in (12, 37, 64, 100):
        tree = BroadcastTree(n, 0, "closest-last")
        for rank in range(n):
            assert sorted(subtree(tree, rank)) == list(range(rank, rank + tree.covered(rank)))


def test_broadcast_is_the_same_from_every_source() -> None:
    random = Random(5)
    for order in ORDERS:
        for _ in range(50):
            n = random.randint(1, 2**31)
            source, position = random.randrange(n), random.randrange(n)
            here = BroadcastTree(n, source, order)
            there = BroadcastTree(n, 0, order)
            rank = (source + position) % n
            turned = tuple((source + child) % n for child in there.children(position))
            assert here.children(rank) == turned
            assert here.cost(rank) == there.cost(position)


def test_broadcast_refuses_what_is_no_rank_size_or_order() -> None:
    with pytest.raises(GraphError, match=r"rank 12 is not within 0\.\.11"):
        BroadcastTree(12, 12)
    with pytest.raises(GraphError, match="size 0"):
        BroadcastTree(0, 0)
    with pytest.raises(GraphError, match="order 'widest' is not"):
        BroadcastTree(12, 0, "widest")  # type: ignore[arg-type]
    for call in ("parent", "children", "covered", "cost", "depth"):
        with pytest.raises(GraphError, match=r"rank -1 is not within 0\.\.11"):
            getattr(BroadcastTree(12, 0), call)(-1)
