"""Algorithm 1 of Healing as a function."""

from __future__ import annotations

from random import Random

import pytest

from bmgd import _fastroute
from bmgd.errors import GraphError
from bmgd.healing import LinkDiff, link_diff
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
