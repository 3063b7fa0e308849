"""Ids to ranks and back."""

from __future__ import annotations

from array import array
from random import Random
from types import ModuleType

import pytest

from bmgd import _fastroute
from bmgd.errors import GraphError
from bmgd.routing import ranks
from bmgd.topology import BinomialGraph

both_backends = pytest.mark.parametrize(
    "backend", [pytest.param(_fastroute, id="c"), pytest.param(ranks, id="python")]
)


@both_backends
def test_ranks_number_the_ids_inside_the_layout_in_order(backend: ModuleType) -> None:
    random = Random(1)
    for _ in range(200):
        space = random.randint(1, 120)
        outside = sorted(random.sample(range(space), random.randint(0, space)))
        inside = [each for each in range(space) if each not in outside]
        for as_sequence in (outside, tuple(outside), array("I", outside)):
            assert [backend.rank_of(each, as_sequence) for each in inside] == list(
                range(len(inside))
            )
            assert [backend.id_of(rank, as_sequence) for rank in range(len(inside))] == inside


@both_backends
def test_an_id_outside_the_layout_has_no_rank(backend: ModuleType) -> None:
    for node in (2, 5, 9):
        with pytest.raises(GraphError, match=f"id {node} is outside"):
            backend.rank_of(node, (2, 5, 9))


@both_backends
def test_ids_and_ranks_out_of_range_are_refused(backend: ModuleType) -> None:
    for number in (-1, 2**31, 2**80):
        with pytest.raises(GraphError, match="id"):
            backend.rank_of(number, ())
        with pytest.raises(GraphError, match="rank"):
            backend.id_of(number, ())


@both_backends
def test_neighbor_ids_are_those_of_the_graph_over_the_ranks(backend: ModuleType) -> None:
    random = Random(2)
    for _ in range(100):
        space = random.randint(1, 300)
        outside = sorted(random.sample(range(space), random.randint(0, space - 1)))
        inside = [each for each in range(space) if each not in outside]
        rank = random.randrange(len(inside))
        expected = tuple(inside[r] for r in BinomialGraph(len(inside)).neighbors(rank))
        assert backend.neighbor_ids(inside[rank], space, outside) == expected


@both_backends
@pytest.mark.parametrize(
    ("own", "space", "outside"),
    [(3, 10, (3,)), (10, 10, ()), (-1, 10, ()), (0, 0, ()), (0, 2**31 + 1, ()), (0, 2, (1, 2, 3))],
)
def test_neighbor_ids_refuses_ids_outside_and_out_of_range(
    backend: ModuleType, own: int, space: int, outside: tuple[int, ...]
) -> None:
    with pytest.raises(GraphError):
        backend.neighbor_ids(own, space, outside)


@both_backends
def test_ranks_want_integers_and_sequences(backend: ModuleType) -> None:
    with pytest.raises(TypeError):
        backend.rank_of("1", ())
    with pytest.raises(TypeError):
        backend.rank_of(1, 5)
    with pytest.raises(TypeError):
        backend.rank_of(1, ("a",))
