"""Splitting covers: over one layout it is the broadcast tree, over several each id still comes once."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from bmgd.errors import GraphError
from bmgd.routing import id_of, neighbor_ids, rank_of
from bmgd.routing.branches import Branch, Splitter, branch_cost, shared_next_hops
from bmgd.routing.id_sets import (
    ID_SET_SPACE,
    MANY,
    id_set,
    ids_between,
    ids_in,
    runs_in,
    without,
)
from bmgd.routing.runs import Runs
from bmgd.topology.broadcast import BroadcastTree, Order
from bmgd.types import NodeId

ORDERS: tuple[Order, ...] = ("closest-first", "closest-last")


def layout(random: Random, space: int, holes: int) -> tuple[NodeId, list[int], list[int]]:
    outside = sorted(random.sample(range(space), holes))
    inside = [each for each in range(space) if each not in outside]
    return NodeId(random.choice(inside)), outside, inside


def played(splitter: Splitter, source: NodeId, cover: int) -> dict[NodeId, NodeId]:
    """Who gets it from whom when everybody splits what it is told."""
    parent: dict[NodeId, NodeId] = {}
    queue = [Branch(source, cover)]
    for branch in queue:
        for below in splitter.split(branch.head, branch.cover)[0]:
            assert below.head not in parent
            parent[below.head] = branch.head
            queue.append(below)
    return parent


@pytest.mark.parametrize("order", ORDERS)
def test_splitting_everything_is_the_tree_of_the_source(order: Order) -> None:
    random = Random(3)
    for space in (1, 2, 3, 5, 12, 16, 17, 64, 100):
        for holes in range(min(space, 4)):
            source, outside, inside = layout(random, space, holes)
            splitter = Splitter(space, outside, order)
            parent = played(splitter, source, id_set(inside))
            tree = BroadcastTree(len(inside), rank_of(source, outside), order)
            for each in inside:
                above = tree.parent(rank_of(each, outside))
                wanted = None if above is None else id_of(above, outside)
                assert parent.get(NodeId(each)) == wanted


@pytest.mark.parametrize("order", ORDERS)
def test_splitting_any_cover_reaches_each_id_once_over_links(order: Order) -> None:
    random = Random(4)
    for _ in range(300):
        space = random.randrange(2, 90)
        source, outside, inside = layout(random, space, random.randrange(space // 2 + 1))
        cover = random.sample(inside, random.randrange(len(inside) + 1))
        splitter = Splitter(space, outside, order)
        parent = played(splitter, source, id_set(cover))
        assert set(cover) <= {*parent, source}
        for child, above in parent.items():
            assert child in neighbor_ids(above, space, outside)


def test_splitting_gives_ids_of_other_layouts_to_exactly_one_branch() -> None:
    random = Random(5)
    for order in ORDERS:
        for _ in range(300):
            space = random.randrange(2, 60)
            source, outside, _ = layout(random, space, random.randrange(space // 2 + 1))
            cover = id_set(random.sample(range(space + 20), random.randrange(1, space)))
            branches, together = Splitter(space, outside, order).split(source, cover)
            for branch in branches:
                assert branch.cover
                assert not together & branch.cover
                together |= branch.cover
            assert together == cover & ~(1 << source)


def test_branches_of_a_whole_layout_are_served_costliest_first() -> None:
    for order in ORDERS:
        branches, _ = Splitter(100, (3, 50), order).split(NodeId(7), ids_between(0, 100))
        costs = [branch_cost(branch) for branch in branches]
        assert costs == sorted(costs, reverse=True)
        assert costs[0] == 6


def test_splitting_around_a_dead_head_goes_to_its_children() -> None:
    splitter = Splitter(16, ())
    (eight, *_), _ = splitter.split(NodeId(0), ids_between(0, 16))
    assert eight == Branch(NodeId(8), ids_between(8, 16))
    assert splitter.split(eight.head, eight.cover)[0] == [
        Branch(NodeId(12), ids_between(12, 16)),
        Branch(NodeId(10), ids_between(10, 12)),
        Branch(NodeId(9), ids_between(9, 10)),
    ]


def test_splitter_refuses_a_head_outside_its_layout() -> None:
    with pytest.raises(GraphError, match="id 3 is outside"):
        Splitter(16, (3,)).split(NodeId(3), 1)


def test_next_hop_that_most_branches_share_is_chosen() -> None:
    a, b, c = (Branch(NodeId(each), 1 << each) for each in (10, 20, 30))
    assert shared_next_hops([(a, (1, 2)), (b, (2, 3)), (c, (4,))]) == [(2, [a, b]), (4, [c])]
    assert shared_next_hops([(a, ())]) == []


def test_id_sets_tell_their_members_and_runs() -> None:
    random = Random(6)
    for _ in range(200):
        ids = sorted(random.sample(range(300), random.randrange(1, 250)))
        members = id_set(ids)
        assert ids_in(members) == ids
        runs = runs_in(members)
        assert [each for a, b in runs for each in range(a, b + 1)] == ids
        assert all(a[1] + 1 < b[0] for a, b in pairwise(runs))
    for ids in ([ID_SET_SPACE - 1], [*range(MANY - 2), ID_SET_SPACE - 1], list(range(MANY))):
        assert ids_in(id_set(ids)) == ids
    assert ids_in(id_set(range(0, ID_SET_SPACE, 3))) == list(range(0, ID_SET_SPACE, 3))
    assert ids_in(0) == []
    assert runs_in(0) == []
    assert ids_in(ids_between(5, 5)) == ids_in(ids_between(6, 5)) == []


@pytest.mark.parametrize("order", ORDERS)
def test_splitting_is_the_same_over_runs_of_ids_outside(order: Order) -> None:
    random = Random(6)
    for _ in range(100):
        space = random.randrange(2, 90)
        source, outside, inside = layout(random, space, random.randrange(space // 2 + 1))
        runs = Runs((each, each) for each in outside)
        cover = id_set(random.sample(inside, random.randrange(len(inside) + 1)))
        listed = Splitter(space, outside, order).split(source, cover)
        assert Splitter(space, runs.copy(), order).split(source, cover) == listed


def test_set_without_an_id_however_high() -> None:
    assert without(0b1011, 1) == 0b1001
    assert without(0b1011, 2) == 0b1011
    assert without(0b1011, 2**31 - 1) == 0b1011
