"""The papers' algorithms, in Python and in C, against each other and against what they must do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

from bmgd import _fastroute, _labroutes
from bmgd.errors import GraphError
from bmgd.routing import backend
from bmgd.routing.papers import (
    basic,
    bit_counting,
    bit_elimination,
    breadth_first,
    equivalence_class,
    survey,
    undirected_chord,
    variant,
)
from bmgd.routing.papers.breadth_first import RoutingTable
from bmgd.routing.papers.forms import Form, top_of
from bmgd.topology import BinomialGraph
from bmgd.topology.distance import SIZE_MAX
from bmgd.topology.distance import hop_count as optimal

if TYPE_CHECKING:
    from bmgd._labroutes import Algorithm

Function = Callable[[int, int], int]
LARGEST = 2**24


def by_states(n: int, distance: int) -> Form:
    """`bit_elimination.form` by the state machine."""
    one = bit_elimination.transformed(distance, top_of(n))
    other = bit_elimination.transformed(n - distance, top_of(n), -1)
    return other if other.weight < one.weight else one


REFERENCES: list[tuple[Algorithm, int, Function, Function]] = [
    ("basic", 0, basic.hop_count, basic.first_hop),
    *[
        (
            "variant",
            levels,
            lambda n, d, levels=levels: variant.hop_count(n, d, levels),
            lambda n, d, levels=levels: variant.first_hop(n, d, levels),
        )
        for levels in (0, 1, 2)
    ],
    ("bits-table", 0, bit_counting.hop_count, bit_counting.first_hop),
    ("bits-parallel", 0, bit_counting.hop_count, bit_counting.first_hop),
    ("elimination", 0, bit_elimination.hop_count, bit_elimination.first_hop),
    (
        "elimination-states",
        0,
        lambda n, d: by_states(n, d).weight,
        lambda n, d: by_states(n, d).jumps[-1],
    ),
    *[
        (
            "equivalence",
            loops,
            lambda n, d, loops=loops: equivalence_class.hop_count(n, d, loops),
            lambda n, d, loops=loops: equivalence_class.first_hop(n, d, loops),
        )
        for loops in (0, 1, 4, 9)
    ],
    ("undirected-chord", 0, undirected_chord.hop_count, undirected_chord.first_hop),
]
IDS = [f"{method}-{depth}" for method, depth, _, _ in REFERENCES]
FORMS: list[tuple[str, Callable[[int, int], Form]]] = [
    ("bit counting", bit_counting.form),
    ("elimination", bit_elimination.form),
    ("states", by_states),
    ("equivalence", equivalence_class.form),
    ("undirected chord", undirected_chord.form),
]


def samples(seed: int, count: int) -> list[tuple[int, int]]:
    """Sizes and distances of every magnitude, the ends of their ranges among them."""
    random = Random(seed)
    found = [(2, 1), (3, 1), (3, 2), (SIZE_MAX, 1), (SIZE_MAX, SIZE_MAX - 1), (SIZE_MAX, 2**30)]
    found += [(SIZE_MAX - 1, 2**30), (SIZE_MAX - 1, SIZE_MAX // 3), (2**30 + 1, 2**30)]
    while len(found) < count:
        n = min(SIZE_MAX, max(2, (1 << random.randint(1, 31)) + random.randint(-3, 2**12)))
        if random.random() < 0.5:
            n = random.randint(2, 1 << random.randint(2, 31))
        found.append((n, random.randint(1, n - 1)))
    return found


@pytest.mark.parametrize(("method", "depth", "hop_count", "first_hop"), REFERENCES, ids=IDS)
def test_algorithm_in_c_is_the_reference_at_every_small_size(
    method: Algorithm, depth: int, hop_count: Function, first_hop: Function
) -> None:
    for n in range(2, 24 if method == "variant" and depth > 1 else 48):
        for d in range(1, n):
            found = _labroutes.paper_hop_count(n, d, method, depth)
            assert found == hop_count(n, d), (n, d)
            assert _labroutes.paper_first_hop(n, d, method, depth) == first_hop(n, d), (n, d)
        assert _labroutes.paper_hop_count(n, 0, method, depth) == 0
        assert _labroutes.paper_hop_count(n, -1, method, depth) == hop_count(n, n - 1)


@pytest.mark.parametrize(("method", "depth", "hop_count", "first_hop"), REFERENCES, ids=IDS)
def test_algorithm_in_c_is_the_reference_on_samples_to_the_largest_size(
    method: Algorithm, depth: int, hop_count: Function, first_hop: Function
) -> None:
    count = {("variant", 2): 12, ("variant", 1): 60}.get((method, depth), 400)
    for n, d in samples(1, count):
        found = _labroutes.paper_hop_count(n, d, method, depth)
        assert found == hop_count(n, d), (n, d)
        assert _labroutes.paper_first_hop(n, d, method, depth) == first_hop(n, d), (n, d)


def test_breadth_first_search_in_both_languages_is_optimal() -> None:
    for n in range(2, 70):
        for d in range(1, n):
            jump = breadth_first.first_hop(n, d)
            assert jump == _labroutes.paper_first_hop(n, d, "bfs")
            assert optimal(n, d - jump) == optimal(n, d) - 1
            assert jump in BinomialGraph(n).neighbors(0)
        for d in range(0, n, 7):
            assert breadth_first.hop_count(n, d) == optimal(n, d)
            assert _labroutes.paper_hop_count(n, d, "bfs") == optimal(n, d)


def test_table_and_exact_in_c_give_the_exact_first_hop() -> None:
    for n, d in samples(2, 100):
        jump = _fastroute.first_hop(n, d)
        assert _labroutes.paper_first_hop(n, d, "exact") == jump
        assert _labroutes.paper_hop_count(n, d, "exact") == optimal(n, d)
        if n < 2**16:
            assert _labroutes.paper_first_hop(n, d, "table") == jump


def test_routing_table_holds_every_neighbor_the_shortest_path_first() -> None:
    for n, rank in ((2, 0), (12, 9), (23, 1), (64, 63), (100, 50)):
        graph, table = BinomialGraph(n), RoutingTable(n, rank)
        for destination in set(range(n)) - {rank}:
            row = table.next_hops(destination)
            assert sorted(row) == list(graph.neighbors(rank))
            through = [graph.hops(neighbor, destination) for neighbor in row]
            assert through == sorted(through)
            best = graph.next_hops(rank, destination)
            assert row[: len(best)] == best
        with pytest.raises(KeyError):
            table.next_hops(rank)


def test_variant_with_enough_levels_is_optimal_and_without_any_is_basic() -> None:
    for n in (12, 23, 35, 64):
        levels = BinomialGraph(n).diameter - 1
        for d in range(1, n):
            assert variant.hop_count(n, d, levels) == optimal(n, d)
            assert variant.first_hop(n, d, 0) == basic.first_hop(n, d)


def test_bits_are_counted_alike_by_table_and_in_parallel() -> None:
    random = Random(3)
    numbers = [0, 1, 63, 64, 2**31 - 1, 2**31, 2**32 - 1, 0x5555_5555, 0xAAAA_AAAA]
    numbers += [random.getrandbits(random.randint(1, 32)) for _ in range(3000)]
    for x in numbers:
        assert bit_counting.lookup8(x) == bit_counting.hakmem169(x) == x.bit_count()


def test_elimination_by_loop_and_by_states_gives_the_same_bits() -> None:
    random = Random(4)
    cases = [(length, top) for top in range(10) for length in range(4 << top)]
    for _ in range(2000):
        top = random.randint(1, 31)
        cases.append((random.getrandbits(top + 3), top))
    for length, top in cases:
        loop = bit_elimination.eliminated(length, top)
        assert loop == bit_elimination.transformed(length, top)
        assert loop.ahead - loop.behind == length


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_form_makes_the_distance_of_jumps_that_exist(
    name: str, form: Callable[[int, int], Form]
) -> None:
    for n, d in samples(5, 500):
        found = form(n, d)
        assert (found.sign * (found.ahead - found.behind) - d) % n == 0, (name, n, d)
        tops = max(0, (found.ahead >> found.top) - 1)
        assert len(found.jumps) + tops == found.weight >= optimal(n, d)
        for jump in found.jumps:
            assert abs(jump).bit_count() == 1
            assert abs(jump) <= n


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_form_with_the_longest_jump_first_is_never_longer_than_it_weighs(
    name: str, form: Callable[[int, int], Form]
) -> None:
    for n in range(2, 257):
        forms = [form(n, d) for d in range(1, n)]
        hops = {0: 0}
        for d in range(1, n):
            way = [d]
            while way[-1] not in hops:
                assert len(way) <= 64, (name, n, d)
                way.append((way[-1] - forms[way[-1] - 1].jumps[-1]) % n)
            for before, after in zip(reversed(way[:-1]), reversed(way), strict=False):
                hops[before] = hops[after] + 1
            assert hops[d] <= forms[d - 1].weight, (name, n, d)


def test_form_with_the_shortest_jump_first_can_be_longer_than_it_weighs() -> None:
    assert bit_elimination.hop_count(235, 224) == 3
    left, hops = 224, 0
    while left:
        left = (left - bit_elimination.form(235, left).jumps[0]) % 235
        hops += 1
    assert hops == 4


def test_equivalence_class_without_loops_is_the_elimination() -> None:
    for n, d in samples(6, 300):
        assert equivalence_class.form(n, d, 0) == bit_elimination.form(n, d)


def test_loops_needed_are_the_same_in_c_and_enough() -> None:
    for n in (2, 3, 35, 64, 269, 300):
        every = [equivalence_class.loops_needed(n, d) for d in range(1, n)]
        assert _labroutes.paper_loops(n, 1, n - 1) == (max(every), every.index(max(every)) + 1)
    for n, d in samples(7, 200):
        loops = equivalence_class.loops_needed(n, d)
        assert _labroutes.paper_loops(n, d, d) == (loops, d)
        assert equivalence_class.hop_count(n, d, loops) == optimal(n, d)
        assert loops == 0 or equivalence_class.hop_count(n, d, loops - 1) > optimal(n, d)


@pytest.mark.parametrize("algorithm", survey.ALGORITHMS)
def test_survey_counts_in_c_as_in_python(algorithm: survey.SurveyedAlgorithm) -> None:
    depth = {"variant": 1, "equivalence": 2}.get(algorithm, 0)
    for n in (2, 3, 12, 23, 64, 97):
        counts = survey.counted(n, algorithm, depth)
        assert counts == _labroutes.paper_hop_counts(n, algorithm, depth)
        assert counts == survey.hop_counts(n, algorithm, depth)
        assert sum(counts) == n


def test_survey_without_the_extension_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_extension = (survey.hop_counts(35, "equivalence", 1), survey.loops_needed(35, 1, 34))
    monkeypatch.setattr(backend, "BACKEND", "python")
    assert (survey.hop_counts(35, "equivalence", 1), survey.loops_needed(35, 1, 34)) == (
        with_extension
    )
    with pytest.raises(GraphError, match=r"distances 3\.\.35 are not within 1\.\.34"):
        survey.loops_needed(35, 3, 35)


def test_survey_refuses_sizes_that_it_cannot_hold() -> None:
    for n in (1, LARGEST + 1):
        with pytest.raises(GraphError, match=r"is not within 2\.\.16777216"):
            survey.hop_counts(n, "basic")
        with pytest.raises(GraphError, match=r"is not within 2\.\.16777216"):
            _labroutes.paper_hop_counts(n, "basic")


def test_algorithm_in_c_refuses_what_is_out_of_range() -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("size 1 is not", lambda: _labroutes.paper_hop_count(1, 0, "basic")),
        ("size 2147483649", lambda: _labroutes.paper_first_hop(2**31 + 1, 1, "basic")),
        ("size 16777217", lambda: _labroutes.paper_first_hop(LARGEST + 1, 1, "bfs")),
        ("distance 9 is", lambda: _labroutes.paper_hop_count(9, 9, "elimination")),
        ("distance 0 has", lambda: _labroutes.paper_first_hop(9, 0, "elimination")),
        ("depth 4 is", lambda: _labroutes.paper_first_hop(9, 1, "variant", 4)),
        ("depth 1 is", lambda: _labroutes.paper_hop_counts(9, "basic", 1)),
        ("depth -1 is", lambda: _labroutes.paper_hop_counts(9, "equivalence", -1)),
        ("distance 0 is", lambda: _labroutes.paper_loops(9, 0, 1)),
        ("distance 2 is", lambda: _labroutes.paper_loops(9, 3, 2)),
        ("count 0 is", lambda: _labroutes.bench_next_hop(9, 0, 0, "exact")),
        ("size 1 is", lambda: _labroutes.bench_next_hop(1, 1, 0, "all")),
    ]
    for message, call in calls:
        with pytest.raises(GraphError, match=message):
            call()
    with pytest.raises(ValueError, match="no method 'widest'"):
        _labroutes.paper_hop_count(9, 1, "widest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no method 3"):
        _labroutes.bench_next_hop(9, 1, 1, 3)  # type: ignore[arg-type]


def test_algorithm_in_python_refuses_what_is_out_of_range() -> None:
    modules = (basic, variant, bit_counting, bit_elimination, equivalence_class, undirected_chord)
    for module in (*modules, breadth_first):
        with pytest.raises(GraphError, match="distance 0 has no first hop"):
            module.first_hop(9, 0)
        with pytest.raises(GraphError, match="distance 9 is not between -9 and 9"):
            module.hop_count(9, 9)
        with pytest.raises(GraphError, match="size 0 is not"):
            module.hop_count(0, 0)
        assert module.hop_count(9, 0) == 0
        assert module.hop_count(9, -2) == module.hop_count(9, 7)


def test_benchmark_times_every_method() -> None:
    methods: list[Algorithm] = [method for method, _, _, _ in REFERENCES]
    others: list[Algorithm | Literal["all"]] = ["exact", "all", "table", "bfs"]
    for method in methods + others:
        assert _labroutes.bench_next_hop(100, 100, 1, method) > 0
    assert _labroutes.bench_next_hop(n=100, count=100, seed=1, method="equivalence", depth=4) > 0
