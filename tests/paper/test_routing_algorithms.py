"""The claims of "Optimal Routing in Binomial Graph Networks" (Routing) on the papers' algorithms."""

from __future__ import annotations

from functools import cache

import pytest

from bmgd import _labroutes
from bmgd.routing.papers import basic, bit_counting, bit_elimination, breadth_first, variant
from bmgd.routing.papers.bit_elimination import check_11, eliminated, transformed
from bmgd.routing.papers.forms import Form
from bmgd.routing.papers.survey import Overhead, SurveyedAlgorithm, hop_counts, overhead
from bmgd.topology import BinomialGraph
from bmgd.topology.levels import ranks_per_level

SIZES = range(16, 4097)


@cache
def overheads(algorithm: SurveyedAlgorithm, depth: int = 0) -> tuple[Overhead, ...]:
    return tuple(overhead(n, algorithm, depth) for n in SIZES)


def six_digits(number: float) -> str:
    return f"{number:.6g}"


TABLE_1: list[tuple[SurveyedAlgorithm, int, str, str]] = [
    ("basic", 0, "5.55514", "11.3849"),
    ("variant", 1, "4.69238", "10.5893"),
    ("bits-table", 0, "25.1307", "36.2324"),
    ("elimination", 0, "1.28199", "4.43152"),
]
TABLE_2: list[tuple[SurveyedAlgorithm, int, str, int]] = [
    ("basic", 0, "0.454055", 2),
    ("variant", 1, "0.449155", 2),
    ("bits-table", 0, "2.23254", 5),
    ("elimination", 0, "0.351139", 2),
]


@pytest.mark.parametrize(("algorithm", "depth", "average", "maximum"), TABLE_1)
def test_table_1_average_distance_overhead_to_every_printed_digit(
    algorithm: SurveyedAlgorithm, depth: int, average: str, maximum: str
) -> None:
    """The maxima are those of average distances that were rounded to six digits before."""
    found = overheads(algorithm, depth)
    assert six_digits(sum(each.average for each in found) / len(found)) == average
    assert six_digits(max(each.printed_average for each in found)) == maximum
    assert max(each.average for each in found) == pytest.approx(float(maximum), rel=2e-5)


@pytest.mark.parametrize(("algorithm", "depth", "average", "maximum"), TABLE_2)
def test_table_2_diameter_overhead_to_every_printed_digit(
    algorithm: SurveyedAlgorithm, depth: int, average: str, maximum: int
) -> None:
    found = overheads(algorithm, depth)
    assert six_digits(sum(each.diameter for each in found) / len(found)) == average
    assert max(each.diameter for each in found) == maximum


def test_figure_3_undirected_chord_is_optimal_at_powers_of_two_and_their_middle_points() -> None:
    optimal = {
        n for n, each in zip(SIZES, overheads("undirected-chord"), strict=True) if each[0] == 0
    }
    claimed = {1 << i for i in range(4, 13)} | {3 << i for i in range(3, 11)}
    assert claimed <= optimal


def test_figure_3_undirected_chord_is_optimal_at_some_more_sizes_all_sums_of_two_powers() -> None:
    """The paper names only the middle points, which are sums of two powers of two as well."""
    optimal = [
        n for n, each in zip(SIZES, overheads("undirected-chord"), strict=True) if each[0] == 0
    ]
    assert len(optimal) == 41
    assert all(n.bit_count() <= 2 for n in optimal)


def test_figure_4_variant_is_nowhere_worse_than_basic() -> None:
    for n, plain, better in zip(SIZES, overheads("basic"), overheads("variant", 1), strict=True):
        assert better.average <= plain.average, n
        assert better.diameter <= plain.diameter, n


def literally_basic(n: int, source: int, destination: int) -> int:
    """The hops of Algorithm 2 with |destID - neighborID| taken as it is written."""
    at, hops = source, 0
    while at != destination:
        at = min(BinomialGraph(n).neighbors(at), key=lambda each: abs(destination - each))
        hops += 1
    return hops


def test_section_2_2_the_distance_of_algorithm_2_is_meant_around_the_ring() -> None:
    """Literally the hops depend on the source."""
    assert literally_basic(16, 0, 11) == basic.hop_count(16, 11) == 2
    assert literally_basic(16, 4, 15) == 3
    literal = sum(literally_basic(16, a, b) for a in range(16) for b in range(16))
    assert literal == 4 + 16 * sum(basic.hop_count(16, d) for d in range(16))


def test_section_2_1_breadth_first_search_is_optimal() -> None:
    for n in (16, 23, 64, 100):
        graph = BinomialGraph(n)
        assert [breadth_first.hop_count(n, d) for d in range(n)] == [
            graph.hops(0, d) for d in range(n)
        ]


def test_section_3_1_distance_9_is_two_bits_and_either_may_be_first() -> None:
    form = bit_counting.form(64, 9)
    assert form.weight == 2
    assert form.jumps == (1, 8)


def test_section_3_2_distance_110_becomes_128_ahead_and_18_back_in_two_steps() -> None:
    assert check_11(110) == 2
    assert check_11(110 + 2) == 16
    assert check_11(110 + 2 + 16) == 0
    form = eliminated(110, top=9)
    assert (form.ahead, form.behind, form.weight) == (128, 18, 3)
    assert transformed(110, top=9) == form


@pytest.mark.parametrize(("makes_last_step", "printed"), [(False, "3.83"), (True, "1.56")])
def test_section_3_2_the_elimination_does_not_stop_by_the_whole_distance(
    makes_last_step: bool, printed: str
) -> None:
    """Table 1 has 1.28199 %; so "the result after adding" is not the distance that is walked."""
    overheads_percent = []
    for top in range(4, 13):
        weights = [_stopped_by_distance(each, top, makes_last_step) for each in range(2 << top)]
        for n in range(1 << top, min(2 << top, SIZES.stop)):
            hops = sum(map(min, weights[1:n], weights[n - 1 : 0 : -1]))
            optimal = sum(hops * count for hops, count in enumerate(ranks_per_level(n)))
            overheads_percent.append(100 * (hops / optimal - 1))
    assert len(overheads_percent) == len(SIZES)
    assert f"{sum(overheads_percent) / len(SIZES):.2f}" == printed


def _stopped_by_distance(length: int, top: int, makes_last_step: bool) -> int:
    """The jumps of a walk if the elimination ends when the distance would exceed the longest jump."""
    ahead, behind = length, 0
    while (low := check_11(ahead)) and (makes_last_step or ahead + low <= 1 << top):
        ahead += low
        behind += low
        if ahead > 1 << top:
            break
    return Form(ahead, behind, top, 1).weight


def test_section_3_2_the_order_of_the_jumps_matters_once_every_relay_works_out_its_own() -> None:
    """The paper: "it does not matter the order in which these jumps are undertaken"."""

    def hops(which: int) -> int:
        left, count = 224, 0
        while left:
            left = (left - bit_elimination.form(235, left).jumps[which]) % 235
            count += 1
        return count

    assert bit_elimination.hop_count(235, 224) == 3
    assert hops(-1) == 3
    assert hops(0) == 4


def test_section_3_3_without_a_loop_the_equivalence_class_is_the_elimination() -> None:
    for n in range(2, 600):
        assert hop_counts(n, "equivalence", 0) == hop_counts(n, "elimination")


def test_section_3_3_three_loops_suffice_for_every_size_to_16728_and_not_for_16729() -> None:
    """The paper takes four, for sizes below 4096."""
    needed = [_labroutes.paper_loops(n, 1, max(1, n // 2))[0] for n in range(2, 16730)]
    assert max(needed[:-1]) == 3
    assert needed[-1] == 4


def test_figure_10_fewer_than_three_loops_do_not_suffice_to_size_4096() -> None:
    first = {1: 35, 2: 269, 3: 2073}
    for loops, size in first.items():
        assert hop_counts(size, "equivalence", loops) == ranks_per_level(size)
        assert hop_counts(size, "equivalence", loops - 1) != ranks_per_level(size)


def test_ispa07_section_5_1_variant_goes_from_1_to_12_of_23_over_5() -> None:
    n, source, destination = 23, 1 - 1, 12 - 1
    distance = destination - source
    assert source + variant.first_hop(n, distance) == 5 - 1
    assert variant.hop_count(n, distance) == 2
    assert source + basic.first_hop(n, distance) == 9 - 1
    assert basic.hop_count(n, distance) == 3
