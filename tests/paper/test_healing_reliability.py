"""The claims of Healing §2 and §3.2, as far as they hold, and what random failures do instead."""

from __future__ import annotations

from math import comb, factorial

import pytest

from bmgd.lab.experiments.healing_faults import DEGREE, SIZES, transmissions
from bmgd.lab.experiments.reliability_directed import most_failed_neighbors, pair_neighbors
from bmgd.lab.faults import all_fault_sets, fault_orders
from bmgd.topology import BinomialGraph
from bmgd.topology.faults import component_sizes

SMALL = [size for size in SIZES if size <= 18]


def test_section_2_2_the_eight_graphs_have_degree_8() -> None:
    assert {BinomialGraph(size).degree for size in SIZES} == {DEGREE}


def test_section_2_1_the_number_of_cases_is_the_papers() -> None:
    for size in SIZES:
        for failed in range(size - 1):
            theirs = factorial(size - 1) // (factorial(size - failed - 2) * factorial(failed))
            assert transmissions(size, failed) == theirs


@pytest.mark.parametrize("size", SIZES)
def test_figure_2a_nothing_is_unreachable_until_as_many_failed_as_a_node_has_neighbors(
    size: int,
) -> None:
    for failed in range(DEGREE):
        counts = all_fault_sets(size, failed, False)
        assert (counts.disconnected, counts.unreachable) == (0, 0)
    assert all_fault_sets(size, DEGREE, False).disconnected >= size


@pytest.mark.parametrize("size", SMALL)
def test_figure_2b_up_to_half_failed_less_than_a_quarter_percent_is_unreachable(size: int) -> None:
    for failed in range(size // 2 + 1):
        unreachable = all_fault_sets(size, failed, False).unreachable
        assert unreachable < 0.0025 * size * transmissions(size, failed)


@pytest.mark.parametrize("size", SMALL)
def test_figure_3_two_survivors_are_one_hop_apart(size: int) -> None:
    counts = all_fault_sets(size, size - 2, True)
    neighbors = size * DEGREE // 2
    apart = comb(size, 2) - neighbors
    assert (counts.disconnected, counts.unreachable) == (apart, 2 * apart)
    assert counts.measured == neighbors
    assert (counts.hops, counts.diameters, counts.most) == (2 * neighbors, neighbors, 1)


def test_figure_3b_at_11_nodes_the_mean_diameter_never_rises() -> None:
    means = [
        counts.diameters / counts.measured
        for failed in range(10)
        for counts in [all_fault_sets(11, failed, True)]
    ]
    assert max(means) == means[0] == 2


def test_section_3_2_a_node_with_all_neighbors_failed_is_cut_off_at_any_size() -> None:
    for size in [*range(11, 400), 1000, 4096, 10_000, 100_000]:
        assert component_sizes(size, BinomialGraph(size).neighbors(0))[1:] == (1,), size


def test_section_3_2_survivors_can_part_before_any_has_all_neighbors_failed() -> None:
    for size in (24, 64, 100, 1000, 4096):
        failed = pair_neighbors(size)
        assert component_sizes(size, failed)[1:] == (2,)
        assert most_failed_neighbors(size, failed) < BinomialGraph(size).degree


def test_section_5_random_failures_part_large_graphs_late() -> None:
    """Sampling, the paper's future work: the earliest of 50 orders needs half of 4096 nodes."""
    orders = fault_orders(4096, 50, 1)
    assert min(orders.first) > 2048
    assert 0.68 < sorted(orders.first)[25] / 4096 < 0.76
