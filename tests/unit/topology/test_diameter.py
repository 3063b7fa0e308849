"""The diameter and its bound, against breadth-first search."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.errors import GraphError
from bmgd.topology import diameter_bound
from bmgd.topology.diameter import diameter
from bmgd.topology.distance import hop_count, naf_weight
from bmgd.topology.levels import levels


def test_diameter_is_exact_for_every_size_to_4096_and_never_above_its_bound() -> None:
    for n in range(1, 4097):
        assert diameter(n) == len(levels(n)) - 1 <= diameter_bound(n), n


def test_diameter_is_exact_for_large_sizes() -> None:
    random = Random(1)
    for n in (65_535, 65_537, 98_304, *(random.randint(5_000, 200_000) for _ in range(20)), 10**6):
        assert diameter(n) == len(levels(n)) - 1 <= diameter_bound(n), n


def test_diameter_is_its_bound_at_powers_of_two() -> None:
    for exponent in range(32):
        assert diameter(1 << exponent) == diameter_bound(1 << exponent) == (exponent + 1) // 2


def test_diameter_of_a_size_near_2_to_the_31_is_reached_and_not_passed() -> None:
    n = 2**31 - 1
    found = diameter(n)
    assert found == 15
    pattern = sum(1 << i for i in range(0, 30, 2))
    assert found == max(hop_count(n, pattern + shift) for shift in range(-40, 40))
    random = Random(2)
    assert max(hop_count(n, random.randrange(n)) for _ in range(50_000)) <= found


def test_weights_of_two_numbers_that_sum_to_a_power_of_two_sum_to_one_more_than_its_exponent() -> (
    None
):
    """The inequality that the search for the diameter rests on; it is tight."""
    for i in range(1, 15):
        assert max(naf_weight(x) + naf_weight((1 << i) - x) for x in range(1, 1 << i)) == i + 1


def test_diameters_refuse_sizes_out_of_range() -> None:
    for n in (0, -5, 2**31 + 1):
        for function in (diameter, diameter_bound):
            with pytest.raises(GraphError, match="size"):
                function(n)
