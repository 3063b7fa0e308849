"""What the experiments on routing are made of."""

from __future__ import annotations

import pytest

from bmgd.lab.experiment import Run
from bmgd.lab.experiments.ispa07_trees import (
    arrivals,
    serves_costliest_first,
    uses_links_only,
)
from bmgd.lab.experiments.routing_loops import by_chosen, chosen_distances, sample_sizes
from bmgd.lab.experiments.routing_spread import (
    always_first,
    best_link,
    path_of,
    spread_by_flow,
)
from bmgd.lab.experiments.routing_tables import EXPERIMENTS, to_digits
from bmgd.lab.surveyed import EVERY_SIZE, overheads, sizes_of
from bmgd.routing.papers.survey import loops_needed, overhead
from bmgd.topology import BinomialGraph
from bmgd.topology.broadcast import BroadcastTree
from bmgd.types import Rank


def test_surveyed_sizes_are_all_or_a_part_with_every_turning_point() -> None:
    assert sizes_of(Run(quick=False)) == EVERY_SIZE == tuple(range(16, 4097))
    part = sizes_of(Run(quick=True))
    assert list(part) == sorted(set(part))
    assert set(part) < set(EVERY_SIZE)
    assert len(part) < 500
    assert {16, 24, 127, 2048, 2049, 3072, 4095, 4096} <= set(part)


def test_surveyed_overheads_are_those_of_each_size_and_kept() -> None:
    kept: dict[str, object] = {}
    run = Run(quick=True, keep=kept.__setitem__)
    sizes = tuple(range(16, 400))
    found = list(overheads(run, sizes, "basic"))
    assert [n for n, _ in found] == list(sizes)
    assert found[100] == (116, overhead(116, "basic"))
    assert len(kept) == 2
    again = Run(quick=True, kept=kept)
    assert list(overheads(again, sizes, "basic")) == found


def test_table_check_sees_one_wrong_digit() -> None:
    check = EXPERIMENTS[0].checks[0]
    rows = [{"measured": 1.0 + i, "published": 1.0 + i} for i in range(8)]
    assert check.holds(rows)
    assert not check.holds(rows[:7])
    rows[3]["measured"] = to_digits(4.00001)
    assert not check.holds(rows)
    assert to_digits(1.281985424) == 1.28199


def test_chosen_distances_are_within_the_graph_and_find_what_all_distances_need() -> None:
    for n in (20_000, 34_631, 2**20 + 12_345):
        found = list(chosen_distances(n, 500))
        assert found == list(chosen_distances(n, 500))
        assert all(0 < distance < n for distance in found)
    loops, distance = by_chosen(34_631, 20_000)
    assert loops == loops_needed(34_631, 1, 34_631 // 2)[0] == 5
    assert loops_needed(34_631, distance, distance) == (5, distance)


def test_sample_sizes_ascend_to_the_largest() -> None:
    sizes = sample_sizes()
    assert sizes == sorted(set(sizes))
    assert sizes[0] > 4096
    assert sizes[-1] == 2**31


def test_every_choice_of_next_hops_takes_a_shortest_path() -> None:
    n = 100
    graph = BinomialGraph(n)
    choices = [always_first(n), spread_by_flow(n), best_link(n, lambda a, b: (a + b) % 3 == 0)]
    for choose in choices:
        for source, destination in ((0, 57), (3, 99), (42, 41), (99, 0)):
            path = path_of(source, destination, choose)
            assert (path[0], path[-1]) == (source, destination)
            assert len(path) - 1 == graph.hops(source, destination)


def test_best_link_avoids_a_slow_link_where_another_candidate_is_left() -> None:
    n = 64
    candidates = BinomialGraph(n).next_hops(0, 9)
    assert len(candidates) > 1
    for slow in candidates:
        choose = best_link(n, lambda a, b, slow=slow: b == slow)  # type: ignore[misc]
        assert choose(0, 9, -1, 0) in set(candidates) - {slow}
    assert best_link(n, lambda a, b: True)(0, 9, -1, 0) in candidates


class _Twice(BroadcastTree):
    def children(self, rank: int) -> tuple[Rank, ...]:
        return (Rank(1), Rank(2)) if rank == 0 else (Rank(2),) if rank == 1 else ()


class _Backwards(BroadcastTree):
    def children(self, rank: int) -> tuple[Rank, ...]:
        return tuple(reversed(super().children(rank)))


class _Far(BroadcastTree):
    def children(self, rank: int) -> tuple[Rank, ...]:
        return (Rank(6),) if rank == 0 else ()


def test_tree_facts_see_a_tree_that_is_wrong() -> None:
    with pytest.raises(ValueError, match="rank 2 gets the message twice"):
        arrivals(_Twice(12, 0))
    assert max(arrivals(_Backwards(16, 0)).values()) > BroadcastTree(16, 0).steps
    assert not serves_costliest_first(_Backwards(16, 0))
    assert not uses_links_only(_Far(12, 0))
    assert uses_links_only(BroadcastTree(12, 0))
    assert serves_costliest_first(BroadcastTree(12, 0))
