"""The hierarchical dual-net: labels, addresses, cross-edges."""

from __future__ import annotations

import pytest

from bmgd.errors import GraphError
from bmgd.topology import HierarchicalDualNet, RecursiveDualNet, Torus
from bmgd.topology.hierarchical_dual_net import Label

PAPER = HierarchicalDualNet(base=(2, 3, 5), super_nodes=((0, 1), (1, 2)))


def test_the_papers_example_has_its_sizes() -> None:
    assert PAPER.size == 12_000
    assert (PAPER.clusters_per_class, PAPER.super_node_size) == (20, 15)
    assert PAPER.cluster.size == 300
    assert (PAPER.cluster.clusters_per_class, PAPER.cluster.super_node_size) == (5, 6)
    assert PAPER.cluster.cluster.size == 30


def test_numbers_and_labels_are_each_others_inverse() -> None:
    for node in range(0, PAPER.size, 7):
        label = PAPER.label(node)
        assert PAPER.node_at(label) == node
        assert PAPER.node_with(PAPER.address(node)) == node
    assert PAPER.node_at((1, 19, 19, 14)) == PAPER.size - 1


def test_every_inner_node_has_one_place_in_one_super_node() -> None:
    pairs = [PAPER.reindexed(node) for node in range(300)]
    assert sorted(pairs) == [(s, n) for s in range(20) for n in range(15)]
    assert all(PAPER.cluster_node(*pair) == node for node, pair in enumerate(pairs))


def test_a_super_node_is_the_product_of_its_rings() -> None:
    torus = Torus((3, 5))
    for super_node in range(20):
        nodes = [PAPER.cluster_node(super_node, place) for place in range(15)]
        for place, node in enumerate(nodes):
            inside = {nodes.index(m) for m in PAPER.cluster.neighbors(node) if m in nodes}
            assert set(torus.neighbors(place)) <= inside


def test_a_cross_edge_exchanges_cluster_and_super_node() -> None:
    for node in range(0, PAPER.size, 11):
        class_id, cluster, super_node, place = PAPER.label(node)
        across = PAPER.cross_neighbor(node)
        assert PAPER.label(across) == (1 - class_id, super_node, cluster, place)
        assert across in PAPER.neighbors(node)


def test_neighbors_are_those_of_the_cluster_and_one_across() -> None:
    for node in range(0, PAPER.size, 37):
        class_id, cluster, super_node, place = PAPER.label(node)
        inner = PAPER.cluster_node(super_node, place)
        expected = {
            PAPER.node_at((class_id, cluster, *PAPER.reindexed(other)))
            for other in PAPER.cluster.neighbors(inner)
        }
        assert set(PAPER.neighbors(node)) == expected | {PAPER.cross_neighbor(node)}


def test_clusters_too_large_for_a_table_have_the_same_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmgd.topology.hierarchical_dual_net._TABLE_SIZE_MAX", 0)
    fresh = HierarchicalDualNet(PAPER.base, PAPER.super_nodes)
    for node in range(0, PAPER.size, 501):
        assert fresh.neighbors(node) == PAPER.neighbors(node)


def test_without_super_nodes_it_is_the_recursive_dual_net() -> None:
    for base, levels in (((2, 2), 1), ((3,), 2), ((2,), 2)):
        hdn = HierarchicalDualNet(base, ((),) * levels)
        rdn = RecursiveDualNet(Torus(base), levels)
        assert hdn.size == rdn.size
        for node in range(hdn.size):
            assert hdn.neighbors(node) == rdn.neighbors(node)


def test_the_base_network_alone_is_the_torus_and_has_no_labels() -> None:
    base = HierarchicalDualNet((2, 3), ())
    assert (base.size, base.degree, base.levels) == (6, 3, 0)
    assert base.neighbors(4) == Torus((2, 3)).neighbors(4)
    assert base.address(5) == (1, 2)
    for method in (base.label, base.reindexed, base.cross_neighbor):
        with pytest.raises(GraphError, match="base network"):
            method(0)
    for name in ("cluster", "clusters_per_class", "super_node_size"):
        with pytest.raises(GraphError, match="base network"):
            getattr(base, name)


@pytest.mark.parametrize("super_nodes", [((0, 0),), ((2,),), ((-1,),), ((), (3,))])
def test_super_nodes_of_rings_that_are_not_there_are_refused(
    super_nodes: tuple[tuple[int, ...], ...],
) -> None:
    with pytest.raises(GraphError, match="distinct rings"):
        HierarchicalDualNet((2, 3), super_nodes)


def test_rings_of_one_are_refused() -> None:
    with pytest.raises(GraphError, match="below 2"):
        HierarchicalDualNet((3, 1), ())


def test_labels_and_addresses_out_of_range_are_refused() -> None:
    for label in (Label(2, 0, 0, 0), Label(0, 20, 0, 0), Label(0, 0, 0, 15), (0, 0, 0)):
        with pytest.raises(GraphError, match="label"):
            PAPER.node_at(label)
    for address in ((0,) * 6, (0, 20, 0, 0, 0, 0, 0)):
        with pytest.raises(GraphError, match="address"):
            PAPER.node_with(address)
    for place in ((20, 0), (0, 15), (-1, 0)):
        with pytest.raises(GraphError, match="super-node"):
            PAPER.cluster_node(*place)
