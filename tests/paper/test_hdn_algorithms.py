"""The claims of "Hierarchical Dual-Net" (HDN), §4 and §5: re-indexing, routing, broadcast."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from random import Random

import pytest

from bmgd.lab.experiments.hdn_algorithms import PRINTED_FROM_DOOR, PRINTED_TO_DOOR
from bmgd.lab.experiments.hdn_labels import TABLE_4
from bmgd.topology import HierarchicalDualNet, Torus
from bmgd.topology.hdn_bounds import hops_bound, steps_bound
from bmgd.topology.hdn_broadcast import broadcast
from bmgd.topology.hdn_routing import route, route_as_printed
from bmgd.topology.measures.broadcasts import check_schedule
from bmgd.topology.measures.distances import hops_from, links_of

EXAMPLE = HierarchicalDualNet((2, 3, 5), ((0, 1), (1, 2)))
SOURCE = EXAMPLE.node_at((0, 0, 0, 0))
TARGET = EXAMPLE.node_at((1, 19, 19, 14))


def test_section_4_re_indexing_has_20_super_nodes_of_15() -> None:
    assert (EXAMPLE.clusters_per_class, EXAMPLE.super_node_size) == (20, 15)
    assert (EXAMPLE.cluster.clusters_per_class, EXAMPLE.cluster.super_node_size) == (5, 6)


def test_table_4_serial_numbers_are_those_of_the_printed_labels() -> None:
    for label, serial, (super_node, place) in TABLE_4:
        assert EXAMPLE.cluster.node_at(label) == serial == super_node * 15 + place


def test_table_4_the_second_and_third_row_are_not_what_the_text_says() -> None:
    """Against the table: the text moves the indices of the rings 2 and 5."""
    right = [EXAMPLE.cluster.label(EXAMPLE.cluster_node(*index)) for _, _, index in TABLE_4]
    assert [each == label for each, (label, _, _) in zip(right, TABLE_4, strict=True)] == [
        True,
        False,
        False,
        True,
    ]
    assert right[1] == (1, 4, 0, 3)
    assert right[2] == (0, 0, 4, 2)


def test_table_4_by_serial_number_a_super_node_would_be_no_torus() -> None:
    """Against the table: nodes 0..14 do not form the torus of 3 x 5 that a super-node is."""
    by_text = [EXAMPLE.cluster_node(0, place) for place in range(15)]
    assert _links_inside(by_text) == {Torus((3, 5)).degree}
    assert _links_inside(list(range(15))) == {3, 4, 5}


def _links_inside(nodes: list[int]) -> set[int]:
    """How many links to others of them the nodes of a cluster have."""
    return {len(set(EXAMPLE.cluster.neighbors(node)).intersection(nodes)) for node in nodes}


def test_example_the_printed_path_takes_steps_that_are_no_links() -> None:
    inner = EXAMPLE.cluster
    wrong = [
        (here, there)
        for path in (PRINTED_TO_DOOR, PRINTED_FROM_DOOR)
        for here, there in pairwise(path)
        if inner.node_at(there) not in inner.neighbors(inner.node_at(here))
    ]
    assert wrong == [((1, 4, 2, 2), (1, 4, 2, 3)), ((0, 0, 2, 5), (0, 0, 2, 0))]


def test_example_17_hops_are_above_the_bound_of_15_and_9_suffice() -> None:
    assert len(PRINTED_TO_DOOR) - 1 + len(PRINTED_FROM_DOOR) - 1 + 1 + 2 == 17
    assert hops_bound(EXAMPLE) == 15
    path = route(EXAMPLE, SOURCE, TARGET)
    assert all(there in EXAMPLE.neighbors(here) for here, there in pairwise(path))
    assert len(path) - 1 == 9 == hops_from(links_of(EXAMPLE), SOURCE)[TARGET]


def test_theorem_2_does_not_hold_for_algorithm_1_as_printed() -> None:
    """Against the paper: in the network of its example some paths have 17 hops."""
    random = Random(1)
    most = most_printed = 0
    for _ in range(700):
        source, target = random.randrange(EXAMPLE.size), random.randrange(EXAMPLE.size)
        most = max(most, len(route(EXAMPLE, source, target)) - 1)
        most_printed = max(most_printed, len(route_as_printed(EXAMPLE, source, target)) - 1)
    assert most <= hops_bound(EXAMPLE) < most_printed


@pytest.mark.parametrize(
    ("base", "super_nodes"),
    [((2, 3), ((0,),)), ((3,), ((0,), (0,))), ((2, 2), ((0, 1), (0,))), ((2,), ((), (0,)))],
)
def test_theorem_2_holds_for_every_pair(
    base: tuple[int, ...], super_nodes: tuple[tuple[int, ...], ...]
) -> None:
    net = HierarchicalDualNet(base, super_nodes)
    for source in range(net.size):
        for target in range(net.size):
            assert len(route(net, source, target)) - 1 <= hops_bound(net)


@pytest.mark.parametrize(
    ("base", "super_nodes"),
    [
        ((2, 3, 5), ((0, 1),)),
        ((2, 2), ((0,), (0, 1))),
        ((3, 3), ((0, 1), (0,))),
        ((2,), ((), (), (0,))),
        ((5,), ((), (0,))),
    ],
)
def test_theorem_3_gives_the_steps_of_algorithm_2(
    base: tuple[int, ...], super_nodes: tuple[tuple[int, ...], ...]
) -> None:
    net = HierarchicalDualNet(base, super_nodes)
    links = links_of(net)
    for source in (0, net.size // 3, net.size - 1):
        assert check_schedule(links, source, broadcast(net, source)) == steps_bound(net)


def test_section_5_steps_of_a_product_are_the_sum_of_those_of_its_rings() -> None:
    """Against the paper, which prints T(B_1) x ... x T(B_q)."""
    base = HierarchicalDualNet((2, 3, 5), ())
    rings = [1, 2, 3]
    assert check_schedule(links_of(base), 7, broadcast(base, 7)) == sum(rings)
    longer = HierarchicalDualNet((3, 5, 7), ())
    steps = check_schedule(links_of(longer), 0, broadcast(longer, 0))
    assert steps == 2 + 3 + 4 < prod((2, 3, 4))
