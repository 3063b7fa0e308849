"""The claims of "Optimal Routing in Binomial Graph Networks" (Routing)."""

from __future__ import annotations

from math import ceil, log2

import pytest

from bmgd import _fastroute
from bmgd.topology import BinomialGraph, diameter_bound
from bmgd.topology.distance import hop_count, naf_weight
from bmgd.topology.levels import levels


def hops_within_loops(n: int, distance: int, loops: int) -> int:
    """Routing §3.3: the lightest of the distance and d +- l*n in both directions, l <= loops."""
    top = n.bit_length() - 1
    lengths = {abs(d + l * n) for d in (distance, n - distance) for l in range(-loops, loops + 1)}  # noqa: E741
    return min((x >> top) + naf_weight(x % (1 << top)) for x in lengths)


def test_section_1_average_distance_is_about_a_third_of_log2_n() -> None:
    for n in [1000, 1024, 3000, 4096, 5461, 30_000, 65_536, 300_000, 2**20, 2**21 + 2**19]:
        assert BinomialGraph(n).average_distance == pytest.approx(log2(n) / 3, rel=0.1), n


def test_section_1_diameter_is_at_most_half_of_log2_n_rounded_up_twice() -> None:
    for n in range(2, 4097):
        assert len(levels(n)) - 1 <= ceil(ceil(log2(n)) / 2), n
    for n in (2**31, 2**31 - 1, 2**30 + 1, 3 * 2**29):
        assert diameter_bound(n) <= ceil(ceil(log2(n)) / 2), n


def test_section_3_1_distance_9_takes_the_two_jumps_8_and_1() -> None:
    assert hop_count(64, 9) == 2
    assert {1, 8} <= set(_fastroute.first_hops(64, 9))


def test_section_3_2_distance_7_takes_two_hops_not_three() -> None:
    assert (7).bit_count() == 3
    assert hop_count(64, 7) == 2


def test_section_3_2_distance_110_takes_128_forward_and_2_and_16_back() -> None:
    n = 1024
    assert hop_count(n, 110) == 3
    assert {128, -2, -16} <= set(_fastroute.first_hops(n, 110))


@pytest.mark.parametrize(
    ("least", "most"), [(2, 1024), pytest.param(1025, 4096, marks=pytest.mark.long)]
)
def test_section_3_3_four_loops_suffice_for_every_distance_to_size_4096(
    least: int, most: int
) -> None:
    for n in range(least, most + 1):
        for d in range(1, n // 2 + 1):
            hops = _fastroute.hop_count(n, d)
            # A fifth loop alone costs five jumps, so it cannot help a shorter way.
            if hops >= 5:
                assert hops_within_loops(n, d, 4) == hops, (n, d)


def test_section_3_3_four_loops_do_not_suffice_for_size_34631() -> None:
    n, d = 34631, 23453
    assert levels(n)[6] >> d & 1
    assert hop_count(n, d) == 6
    assert hops_within_loops(n, d, 4) == 7
    assert hops_within_loops(n, d, 5) == 6
