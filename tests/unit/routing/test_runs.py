"""Sets of ids as runs, against plain sets."""

from __future__ import annotations

from random import Random

import pytest

from bmgd import _fastroute
from bmgd.errors import GraphError
from bmgd.routing import id_of, neighbor_ids, rank_of, reference
from bmgd.routing.runs import Runs

BACKENDS = [_fastroute.Snapshot, reference.Snapshot]


def pairs_of(ids: set[int]) -> list[tuple[int, int]]:
    """The runs of a set, one id at a time."""
    pairs: list[tuple[int, int]] = []
    for item in sorted(ids):
        if pairs and pairs[-1][1] == item - 1:
            pairs[-1] = pairs[-1][0], item
        else:
            pairs.append((item, item))
    return pairs


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_set_that_was_entered(seed: int) -> None:
    random = Random(seed)
    runs, ids = Runs(), set[int]()
    for _ in range(120):
        first = random.randrange(60)
        last = first + random.randrange(8)
        if random.random() < 0.5:
            runs.add(first, last)
            ids.update(range(first, last + 1))
        else:
            runs.discard(first)
            ids.discard(first)
        assert runs.pairs == pairs_of(ids)
        assert list(runs) == sorted(ids) == [runs[i] for i in range(len(runs))]
        assert all((item in runs) == (item in ids) for item in range(-1, 70))
        low, high = sorted(random.sample(range(70), 2))
        between = set(range(low, high + 1))
        assert runs.within(low, high) == pairs_of(ids & between)
        assert runs.missing(low, high) == pairs_of(between - ids)
    assert runs == Runs(reversed(pairs_of(ids)))
    assert runs == sorted(ids)
    assert runs != sorted({*ids, 99})


def test_runs_of_a_million_ids_are_one() -> None:
    runs = Runs()
    for first in range(0, 1_000_000, 1000):
        runs.add(first, first + 999)
    assert (runs.run_count, len(runs)) == (1, 1_000_000)


def test_runs_have_no_id_beyond_the_last() -> None:
    with pytest.raises(IndexError):
        Runs([(3, 5)])[3]


@pytest.mark.parametrize("seed", range(10))
def test_runs_serve_as_the_ids_outside_a_layout(seed: int) -> None:
    random = Random(seed)
    outside = sorted(random.sample(range(300), random.randrange(1, 250)))
    runs = Runs(pairs_of(set(outside)))
    inside = [item for item in range(300) if item not in set(outside)]
    for rank, item in enumerate(inside):
        assert rank_of(item, runs) == rank
        assert id_of(rank, runs) == item
    assert neighbor_ids(inside[0], 300, runs) == neighbor_ids(inside[0], 300, outside)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("make", BACKENDS)
def test_snapshot_of_runs_is_that_of_their_ids(make: type[reference.Snapshot], seed: int) -> None:
    random = Random(seed)
    outside = sorted(random.sample(range(200), random.randrange(1, 150)))
    inside = sorted(set(range(200)) - set(outside))
    own = random.choice(inside)
    links = [(p, 1 + p) for p in neighbor_ids(own, 200, outside)]
    by_ids = make(1, own, 200, outside, links)
    by_runs = make(1, own, 200, pairs_of(set(outside)), links)
    mixed = make(1, own, 200, [a if a == b else (a, b) for a, b in pairs_of(set(outside))], links)
    for other in (by_runs, mixed):
        assert (other.rank, other.layout_size) == (by_ids.rank, by_ids.layout_size)
        for to in range(210):
            assert other.next_hop(to, -1, 7) == by_ids.next_hop(to, -1, 7)


@pytest.mark.parametrize("make", BACKENDS)
def test_snapshot_above_a_million_left_ids_knows_its_rank(make: type[reference.Snapshot]) -> None:
    snapshot = make(1, 1_000_001, 1_000_002, [(8, 1_000_000)], [(0, 1)])
    assert (snapshot.rank, snapshot.layout_size) == (8, 9)
    assert snapshot.next_hop(0) == 1
    assert snapshot.next_hop(500_000) == -1


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize(
    "outside", [[(5, 4)], [(3, 10)], [(-1, 2)], [(1, 2, 3)], [(1,)], [(2, 3), 3], [4, (2, 3)]]
)
def test_snapshot_refuses_runs_that_are_none(
    make: type[reference.Snapshot], outside: list[tuple[int, int]]
) -> None:
    with pytest.raises(GraphError):
        make(1, 0, 10, outside, ())
