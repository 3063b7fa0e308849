"""The claims of Healing §3.1 and §4 on links, as far as they hold."""

from __future__ import annotations

import pytest

from bmgd.healing import link_diff
from bmgd.lab.experiments.healing_connections import naive_diff
from bmgd.lab.experiments.healing_formula import links_among
from bmgd.lab.experiments.healing_links import link_counts
from bmgd.topology import BinomialGraph


def test_figure_5_the_counts_are_those_of_both_graphs_written_out() -> None:
    for size in range(3, 80):
        for dead in (0, size // 3, size - 1):
            alive = [node for node in range(size) if node != dead]
            before = {
                frozenset((node, other))
                for node in alive
                for other in BinomialGraph(size).neighbors(node)
                if other != dead
            }
            after = {
                frozenset((alive[rank], alive[other]))
                for rank in range(size - 1)
                for other in BinomialGraph(size - 1).neighbors(rank)
            }
            counts = (len(before), len(after), len(before - after), len(after - before))
            assert link_counts(size) == counts, (size, dead)


def test_figure_5b_the_adaptive_method_touches_10_to_30_percent_below_256_nodes_and_less_beyond() -> (
    None
):
    ratios = {}
    for size in [*range(16, 256), 1024, 4096]:
        naive_closed, naive_opened, closed, opened = link_counts(size)
        ratios[size] = (closed + opened) / (naive_closed + naive_opened)
    assert all(0.1 <= ratios[size] <= 0.3 for size in range(16, 256))
    assert max(ratios, key=ratios.__getitem__) == 38
    assert ratios[4096] < 0.065 < ratios[1024] < 0.08


def test_figure_5a_the_adaptive_method_may_open_ten_times_what_it_closes_or_close_four_times() -> (
    None
):
    assert link_counts(24)[2:] == (3, 30)
    assert link_counts(25)[2:] == (25, 6)


def test_figure_5a_the_adaptive_method_is_even_just_where_the_degree_stays() -> None:
    for size in [*range(16, 300), *range(509, 518), *range(765, 772)]:
        _, _, closed, opened = link_counts(size)
        is_even = max(closed, opened) < 1.5 * min(closed, opened)
        keeps_degree = BinomialGraph(size).degree == BinomialGraph(size - 1).degree
        assert is_even == keeps_degree, size


def test_section_3_1_the_range_of_closed_links_is_met_by_few_deaths_only() -> None:
    for size in (11, 14, 16):
        fewest, most = links_among(size)
        pairs = [failed * (failed - 1) // 2 for failed in range(size + 1)]
        assert fewest[:3] == [0, 0, 0]
        assert most[:4] == pairs[:4]
        assert all(fewest[f] > 0 and most[f] < pairs[f] for f in range(size // 2 + 1, size))


@pytest.mark.parametrize("size", [16, 31, 64, 100])
def test_figure_6_the_naive_method_is_even_where_both_ends_count(size: int) -> None:
    dead = [size // 3]
    survivors = [node for node in range(size) if node != dead[0]]
    naive = [naive_diff(size, node, dead) for node in survivors]
    assert {len(diff.added) for diff in naive} == {BinomialGraph(size - 1).degree}
    assert {len(diff.removed) for diff in naive} == {BinomialGraph(size).degree}
    adaptive = [link_diff(size, node, dead) for node in survivors]
    assert len({len(diff.added) for diff in adaptive}) > 1
    for one, other in zip(naive, adaptive, strict=True):
        assert set(other.added) == set(one.added) - set(one.removed)
        assert set(other.removed) == set(one.removed) - set(one.added)
