"""The claims of "Self-Healing in Binomial Graph Networks" (Healing)."""

from __future__ import annotations

from math import inf

from bmgd.healing import hop_overhead, link_diff
from bmgd.topology import BinomialGraph


def test_figure_4_ten_nodes_heal_around_node_3() -> None:
    changes = {node: link_diff(10, node, [3]) for node in range(10) if node != 3}
    assert {node: diff.added for node, diff in changes.items()} == {
        0: (5,),
        1: (4, 6),
        2: (5, 7),
        4: (1, 9),
        5: (0, 2),
        6: (1,),
        7: (2,),
        8: (),
        9: (4,),
    }
    assert {node: diff.removed for node, diff in changes.items()} == {
        0: (4,),
        1: (3, 5),
        2: (3, 6),
        4: (0, 3),
        5: (1, 3),
        6: (2,),
        7: (3,),
        8: (),
        9: (3,),
    }


def test_figure_4_the_survivors_form_the_graph_of_nine() -> None:
    survivors = [node for node in range(10) if node != 3]
    for rank, node in enumerate(survivors):
        diff = link_diff(10, node, [3])
        links = set(BinomialGraph(10).neighbors(node)).difference(diff.removed).union(diff.added)
        assert links == {survivors[r] for r in BinomialGraph(9).neighbors(rank)}


def test_section_3_1_one_death_changes_at_most_30_percent_of_the_links_of_the_naive_method() -> (
    None
):
    for size in (16, 33, 64, 128, 500, 512, 1024):
        dead = size // 3
        diffs = [link_diff(size, node, [dead]) for node in range(size) if node != dead]
        adaptive = sum(len(diff.added) + len(diff.removed) for diff in diffs)
        before, after = BinomialGraph(size), BinomialGraph(size - 1)
        assert adaptive / (before.degree * size + after.degree * (size - 1)) < 0.3, size


def _naive(size: int, dead: list[int]) -> tuple[int, int]:
    """Links that the naive method removes and adds, from the two graphs."""
    before, after = BinomialGraph(size), BinomialGraph(size - len(dead))
    alive = set(range(size)).difference(dead)
    kept = sum(len(alive.intersection(before.neighbors(node))) for node in alive) // 2
    return kept, after.degree * after.size // 2


def test_section_3_1_links_of_the_naive_method_are_those_of_its_formulas() -> None:
    size, degree = 100, BinomialGraph(100).degree
    for dead in ([5], [5, 50, 91], [0, 30, 60, 90]):
        assert all(b not in BinomialGraph(size).neighbors(a) for a in dead for b in dead)
        removed, added = _naive(size, dead)
        assert removed == degree * size // 2 - degree * len(dead)
        rest = size - len(dead)
        assert added == BinomialGraph(rest).degree * rest // 2


def test_section_3_2_the_overhead_in_hops_grows_until_the_graph_falls_apart() -> None:
    neighbors = list(BinomialGraph(64).neighbors(0))
    costs = [hop_overhead(64, neighbors[:dead]) for dead in range(len(neighbors) + 1)]
    assert costs[0].percent == 0
    assert all(cost.percent < inf for cost in costs[:-1])
    assert costs[-1].percent == inf
    assert costs[-2].percent > costs[1].percent > 0
