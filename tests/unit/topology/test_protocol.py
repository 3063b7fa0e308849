"""What holds for every topology."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bmgd.topology
from bmgd.errors import GraphError
from bmgd.topology import RegularTopology, Topology
from tests.unit.topology.graphs import ALL, REGULAR


@pytest.mark.parametrize("graph", ALL, ids=repr)
def test_neighbors_are_mutual_ascending_and_never_oneself(graph: Topology) -> None:
    links = [graph.neighbors(node) for node in range(graph.size)]
    for node, neighbors in enumerate(links):
        assert list(neighbors) == sorted(set(neighbors) - {node})
        assert all(node in links[other] for other in neighbors)


@pytest.mark.parametrize("graph", ALL, ids=repr)
def test_every_node_is_reached(graph: Topology) -> None:
    reached = [0]
    seen = {0}
    for node in reached:
        new = set(graph.neighbors(node)) - seen
        seen |= new
        reached.extend(new)
    assert seen == set(range(graph.size))


@pytest.mark.parametrize("graph", REGULAR, ids=repr)
def test_a_regular_graph_has_its_degree_everywhere(graph: RegularTopology) -> None:
    assert {len(graph.neighbors(node)) for node in range(graph.size)} == {graph.degree}


@pytest.mark.parametrize("graph", ALL, ids=repr)
def test_nodes_out_of_range_are_refused(graph: Topology) -> None:
    for node in (-1, graph.size, 2**40):
        with pytest.raises(GraphError, match="not within"):
            graph.neighbors(node)


def _distances(graph: Topology, source: int) -> tuple[int, ...]:
    """How many nodes are at each distance, and how many links lie within each level."""
    level = [source]
    seen = {source}
    counts: list[int] = []
    while level:
        here = set(level)
        counts += [len(level), sum(len(here & set(graph.neighbors(node))) for node in level)]
        level = sorted({other for node in level for other in graph.neighbors(node)} - seen)
        seen.update(level)
    return tuple(counts)


def _views(graph: Topology) -> set[tuple[int, ...]]:
    """What the graph looks like from each of its nodes, or from a hundred of them."""
    return {_distances(graph, node) for node in range(0, graph.size, 1 + graph.size // 100)}


@pytest.mark.parametrize("graph", [graph for graph in ALL if graph.symmetric], ids=repr)
def test_a_graph_that_says_it_is_symmetric_looks_the_same_from_every_node(graph: Topology) -> None:
    assert len(_views(graph)) == 1


@pytest.mark.parametrize(
    "graph", [graph for graph in ALL if not graph.symmetric and graph.size > 3], ids=repr
)
def test_a_graph_that_does_not_say_so_differs_between_nodes(graph: Topology) -> None:
    assert len(_views(graph)) > 1


def test_every_name_of_the_room_is_there_and_no_other() -> None:
    for name in bmgd.topology.__all__:
        assert getattr(bmgd.topology, name) is not None
    with pytest.raises(AttributeError, match="Moebius"):
        _ = bmgd.topology.Moebius  # type: ignore[attr-defined]


def test_the_other_graphs_are_not_imported_with_the_binomial_one() -> None:
    script = (
        "import sys, bmgd.topology as t; t.BinomialGraph(5); "
        "early = [m for m in sys.modules if m.startswith('bmgd.topology.')]; t.Torus; "
        "print(*early, 'bmgd.topology.torus' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    *early, late = done.stdout.split()
    assert late == "True"
    assert {name.removeprefix("bmgd.topology.") for name in early} == {
        "binomial",
        "diameter",
        "distance",
        "levels",
    }
