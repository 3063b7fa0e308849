"""Ring, complete graph, torus, hypercube, Chord, cycles and cubes, and the trees."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from bmgd.errors import GraphError
from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    CubeConnectedCycles,
    DualCube,
    HierarchicalCliques,
    Hypercube,
    Hypertree,
    RecursiveDualNet,
    Ring,
    SiblingTree,
    Topology,
    Torus,
    UndirectedChord,
)


def degrees(graph: Topology) -> dict[int, int]:
    """How many nodes have each degree."""
    return dict(Counter(len(graph.neighbors(node)) for node in range(graph.size)))


def test_ring_of_two_has_one_link() -> None:
    assert Ring(2).neighbors(0) == (1,)
    assert Ring(5).neighbors(0) == (1, 4)


def test_complete_graph_links_all() -> None:
    assert CompleteGraph(4).neighbors(2) == (0, 1, 3)


def test_torus_neighbors_differ_by_one_step_on_one_ring() -> None:
    torus = Torus((2, 3, 5))
    assert torus.size == 30
    for node in range(torus.size):
        at = torus.coordinates(node)
        assert torus.node_at(at) == node
        expected = set()
        for other in product(range(2), range(3), range(5)):
            steps = [
                min((a - b) % n, (b - a) % n) for a, b, n in zip(at, other, (2, 3, 5), strict=True)
            ]
            if sum(steps) == 1:
                expected.add(torus.node_at(other))
        assert set(torus.neighbors(node)) == expected


def test_torus_of_twos_is_the_hypercube() -> None:
    for node in range(16):
        assert Torus((2,) * 4).neighbors(node) == Hypercube(4).neighbors(node)


def test_chord_on_a_full_circle_is_the_binomial_graph() -> None:
    for bits in range(8):
        chord, binomial = UndirectedChord(bits), BinomialGraph(1 << bits)
        for node in range(1 << bits):
            assert chord.neighbors(node) == tuple(binomial.neighbors(node))


def test_chord_finger_is_the_first_node_at_or_after_its_start() -> None:
    # The example of the Chord paper, figure 3(b): nodes 0, 1 and 3 on a circle of 8. The fingers of
    # 0 are 1, 3, 0; of 1 they are 3, 3, 0; of 3 they are 0, 0, 0.
    chord = UndirectedChord(3, (3, 0, 1))
    assert chord.identifiers == (0, 1, 3)
    assert [chord.neighbors(node) for node in range(3)] == [(1, 2), (0, 2), (0, 1)]
    sparse = UndirectedChord(6, (0, 1, 2, 32))
    # 2 + 32 = 34 is followed by 0, and 2 + 16 by 32; from 32 all fingers wrap to 0.
    assert sparse.neighbors(3) == (0, 1, 2)


@pytest.mark.parametrize("identifiers", [(), (1, 1), (8,), (-1, 2)])
def test_chord_refuses_identifiers_that_are_none(identifiers: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="identifiers"):
        UndirectedChord(3, identifiers)


def test_cube_connected_cycles_have_the_ring_and_one_cube_link() -> None:
    cycles = CubeConnectedCycles(4)
    assert (cycles.size, cycles.degree) == (64, 3)
    # Corner 5, place 2: the ring's places 1 and 3, and corner 5 ^ 4 = 1.
    assert cycles.neighbors(5 * 4 + 2) == (1 * 4 + 2, 5 * 4 + 1, 5 * 4 + 3)


def test_dual_cube_is_the_recursive_dual_net_over_a_cube() -> None:
    for n in range(1, 5):
        dual, net = DualCube(n), RecursiveDualNet(Hypercube(n - 1), 1)
        side = 1 << n - 1

        def in_net(node: int, side: int = side) -> int:
            rest, low = divmod(node, side)
            node_class, high = divmod(rest, side)
            own, cluster = (high, low) if node_class else (low, high)
            return (node_class * side + cluster) * side + own

        assert dual.size == net.size == 2 ** (2 * n - 1)
        for node in range(dual.size):
            expected = sorted(in_net(other) for other in dual.neighbors(node))
            assert list(net.neighbors(in_net(node))) == expected


def test_recursive_dual_net_has_the_size_of_its_formula() -> None:
    for m, k in ((1, 3), (2, 2), (3, 2), (5, 1)):
        assert RecursiveDualNet(Ring(m), k).size == (2 * m) ** 2**k // 2


def test_hierarchical_cliques_have_degree_k_at_the_leaves_and_2k_between() -> None:
    graph = HierarchicalCliques(4, 4)
    assert graph.size == 4 + 16 + 64 + 256
    assert degrees(graph) == {7: 4, 8: 16 + 64, 4: 256}


def test_hierarchical_cliques_are_trees_laid_over_each_other() -> None:
    graph = HierarchicalCliques(3, 3)
    assert graph.neighbors(0) == (1, 2, 3, 6, 9)
    assert graph.neighbors(4) == (1, 3, 5, 13, 16, 19)


def test_hypertree_has_the_rings_of_the_first_branch() -> None:
    graph = Hypertree(4, 3)
    assert graph.size == 1 + 4 + 16 + 64
    assert degrees(graph) == {4: 1, 7: 4 + 16, 3: 64}
    # Level 2 begins at 5; branches (2, 1) have 1 and 3 in the first branch beside them.
    assert graph.neighbors(5 + 9) == (3, 5 + 5, 5 + 13, 57, 58, 59, 60)


def test_hypertree_of_two_links_labels_that_differ_by_half_a_level() -> None:
    graph = Hypertree(2, 4)
    for level in range(1, 5):
        for label in range(2**level, 2 ** (level + 1)):
            expected = {label ^ 2 ** (level - 1), label // 2}
            expected |= {2 * label, 2 * label + 1} if level < 4 else set()
            assert {n + 1 for n in graph.neighbors(label - 1)} == expected


def test_sibling_tree_knows_at_most_k_plus_3() -> None:
    graph = SiblingTree(4, 1 + 4 + 16 + 7)
    assert graph.neighbors(0) == (1, 2, 3, 4)
    assert graph.neighbors(6) == (1, 5, 7, 25, 26, 27)
    assert graph.neighbors(5) == (1, 6, 20, 21, 22, 23, 24)
    # The last level has seven nodes, and its ring closes there.
    assert graph.neighbors(27) == (6, 21, 26)
    assert max(degrees(graph)) == 7


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ring(0), "ring size"),
        (lambda: CompleteGraph(0), "size"),
        (lambda: Torus(()), "at least one side"),
        (lambda: Torus((3, 0)), "side"),
        (lambda: Hypercube(-1), "dimension"),
        (lambda: UndirectedChord(21), "bits"),
        (lambda: HierarchicalCliques(0, 1), "arity"),
        (lambda: HierarchicalCliques(4, 0), "height"),
        (lambda: Hypertree(1, 3), "arity"),
        (lambda: SiblingTree(2, 0), "size"),
        (lambda: CubeConnectedCycles(0), "dimension"),
        (lambda: DualCube(0), "dimension"),
        (lambda: RecursiveDualNet(Ring(3), -1), "levels"),
    ],
)
def test_graphs_refuse_what_they_cannot_be(build: type[object], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build()
