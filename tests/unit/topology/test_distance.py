"""Hop counts and first hops, against breadth-first search and against their own recurrence."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bmgd import _fastroute
from bmgd.errors import GraphError
from bmgd.topology import distance
from bmgd.topology.distance import lightest_digits, naf_weight
from bmgd.topology.levels import levels

BACKENDS = [
    pytest.param(_fastroute.hop_count, _fastroute.first_hop, _fastroute.first_hops, id="c"),
    pytest.param(distance.hop_count, distance.first_hop, distance.first_hops, id="python"),
]
HopCount = Callable[[int, int], int]
FirstHops = Callable[[int, int], tuple[int, ...]]


def signed_jumps(n: int) -> list[int]:
    return [sign << i for i in range((n - 1).bit_length()) for sign in (1, -1)]


def searched(n: int) -> list[int]:
    """The hop count of every distance, by breadth-first search one rank at a time."""
    hops, queue = {0: 0}, [0]
    for rank in queue:
        for jump in signed_jumps(n):
            to = (rank + jump) % n
            if to not in hops:
                hops[to] = hops[rank] + 1
                queue.append(to)
    return [hops[d] for d in range(n)]


def differing_level(n: int, hop_count: HopCount) -> int | None:
    """The first number of hops at which hop_count and the search by levels differ, or None."""
    counts = bytes([hop_count(n, d) for d in range(n)])
    found = levels(n)
    for hops in range(max(len(found), max(counts) + 1)):
        only = bytes(ord("1") if each == hops else ord("0") for each in range(256))
        claimed = int(counts.translate(only)[::-1], 2)
        if hops >= len(found) or claimed != found[hops]:
            return hops
    return None


def random_sizes(seed: int, count: int) -> list[int]:
    """Sizes to 2**31 of every kind: any, powers of two, sums of two of them, and next to these."""
    random = Random(seed)
    sizes = []
    for _ in range(count):
        power = 1 << random.randint(1, 30)
        size = random.choice(
            (random.randint(2, 2**31), power, power + (power >> random.randint(0, 5)))
        )
        sizes.append(min(2**31, max(2, size + random.choice((0, 0, -1, 1, 2)))))
    return sizes


def test_levels_agree_with_a_search_rank_by_rank() -> None:
    for n in range(1, 200):
        by_rank = searched(n)
        by_level = levels(n)
        assert len(by_level) == max(by_rank) + 1
        for rank, hops in enumerate(by_rank):
            assert by_level[hops] >> rank & 1


def test_hop_count_in_c_is_exact_for_every_distance_of_every_size_to_4096() -> None:
    wrong = [n for n in range(1, 4097) if differing_level(n, _fastroute.hop_count) is not None]
    assert wrong == []


def test_hop_count_in_python_is_exact_for_every_distance_of_every_size_to_512() -> None:
    wrong = [n for n in range(1, 513) if differing_level(n, distance.hop_count) is not None]
    assert wrong == []


@pytest.mark.parametrize(
    "n", [2**15 + 1, 2**15 + 2**14 - 1, 43691, 65535, 65537, 99_999, 174_763, 699_051, 10**6]
)
def test_hop_count_in_c_is_exact_for_every_distance_of_large_sizes(n: int) -> None:
    assert differing_level(n, _fastroute.hop_count) is None


@pytest.mark.parametrize(("hop_count", "first_hop", "first_hops"), BACKENDS)
def test_hop_count_is_one_more_than_the_least_of_the_neighbors_to_size_2_to_the_31(
    hop_count: HopCount, first_hop: HopCount, first_hops: FirstHops
) -> None:
    random = Random(6)
    for n in random_sizes(7, 600):
        for _ in range(3):
            d = random.randint(1, n - 1)
            hops = hop_count(n, d)
            after = {jump: hop_count(n, (d - jump) % n) for jump in signed_jumps(n)}
            assert hops == 1 + min(after.values()), (n, d)
            shortest = {jump % n for jump, left in after.items() if left == hops - 1}
            found = first_hops(n, d)
            assert {jump % n for jump in found} == shortest, (n, d)
            assert len(found) == len(shortest)
            assert list(found) == sorted(found)
            assert first_hop(n, d) in found


@pytest.mark.parametrize(("hop_count", "first_hop", "first_hops"), BACKENDS)
def test_first_hops_are_all_that_shorten_the_way_for_every_distance_to_size_300(
    hop_count: HopCount, first_hop: HopCount, first_hops: FirstHops
) -> None:
    for n in range(2, 301):
        hops = searched(n)
        for d in range(1, n):
            shortest = {j % n for j in signed_jumps(n) if hops[(d - j) % n] == hops[d] - 1}
            found = first_hops(n, d)
            assert {jump % n for jump in found} == shortest, (n, d)
            assert len(found) == len(shortest)
            assert first_hop(n, d) in found
            assert hop_count(n, -d) == hops[d]
            assert first_hops(n, d - n) == found


def test_hop_functions_answer_alike_in_both_backends() -> None:
    random = Random(8)
    for n in random_sizes(9, 20_000):
        d = random.randint(1, n - 1) * random.choice((1, -1))
        assert _fastroute.hop_count(n, d) == distance.hop_count(n, d), (n, d)
        assert _fastroute.first_hop(n, d) == distance.first_hop(n, d), (n, d)
        assert _fastroute.first_hops(n, d) == distance.first_hops(n, d), (n, d)


@pytest.mark.parametrize(("hop_count", "first_hop", "first_hops"), BACKENDS)
@pytest.mark.parametrize(
    ("n", "d"), [(0, 0), (-1, 0), (2**31 + 1, 1), (10, 10), (10, -10), (2**70, 1), (10, 2**70)]
)
def test_hop_functions_refuse_what_is_out_of_range(
    hop_count: HopCount, first_hop: HopCount, first_hops: FirstHops, n: int, d: int
) -> None:
    for function in (hop_count, first_hop, first_hops):
        with pytest.raises(GraphError, match="is not"):
            function(n, d)


@pytest.mark.parametrize(("hop_count", "first_hop", "first_hops"), BACKENDS)
def test_distance_0_is_0_hops_and_has_no_first_hop(
    hop_count: HopCount, first_hop: HopCount, first_hops: FirstHops
) -> None:
    for n in (1, 2, 10, 2**31):
        assert hop_count(n, 0) == 0
        for function in (first_hop, first_hops):
            with pytest.raises(GraphError, match="distance 0"):
                function(n, 0)


@pytest.mark.parametrize(("hop_count", "first_hop", "first_hops"), BACKENDS)
def test_hop_functions_want_integers(
    hop_count: HopCount, first_hop: HopCount, first_hops: FirstHops
) -> None:
    for function in (hop_count, first_hop, first_hops):
        with pytest.raises(TypeError):
            function(10, 2.0)  # type: ignore[arg-type]


def test_lightest_digits_are_those_whose_removal_leaves_a_lighter_form() -> None:
    for x in range(1, 1 << 12):
        plus, minus = lightest_digits(x)
        for i in range(14):
            lighter = naf_weight(x) - 1
            assert plus >> i & 1 == (naf_weight(abs(x - (1 << i))) == lighter)
            assert minus >> i & 1 == (naf_weight(x + (1 << i)) == lighter)
