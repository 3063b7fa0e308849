"""Routing and broadcast in the hierarchical dual-net: whole small networks, samples of large ones."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Final

import pytest

from bmgd.errors import GraphError
from bmgd.topology import HierarchicalDualNet
from bmgd.topology.hdn_bounds import hops_bound, steps_bound
from bmgd.topology.hdn_broadcast import broadcast
from bmgd.topology.hdn_routing import route, route_as_printed
from bmgd.topology.measures.broadcasts import check_schedule
from bmgd.topology.measures.distances import links_of

SMALL: Final = (
    HierarchicalDualNet((2, 3), ()),
    HierarchicalDualNet((2, 2), ((),)),
    HierarchicalDualNet((2, 3, 2), ((0, 2),)),
    HierarchicalDualNet((5,), ((0,),)),
    HierarchicalDualNet((5,), ((0,), (0,))),
    HierarchicalDualNet((2, 2), ((0, 1), (1,))),
    HierarchicalDualNet((3,), ((0,), ())),
    HierarchicalDualNet((2,), ((), (0,))),
)

LARGE: Final = (
    HierarchicalDualNet((2, 2), ((0,), (0, 1))),
    HierarchicalDualNet((5,), ((), (0,))),
    HierarchicalDualNet((2, 5), ((0,), (1,))),
    HierarchicalDualNet((2, 3, 5), ((0, 1), (1, 2))),
    HierarchicalDualNet((4, 5), ((0,), (0, 1))),
    HierarchicalDualNet((2, 2), ((0,), (0,), (0,))),
    HierarchicalDualNet((3,), ((0,), (), (0,))),
)


def check_path(net: HierarchicalDualNet, path: tuple[int, ...], source: int, target: int) -> None:
    assert (path[0], path[-1]) == (source, target)
    assert all(there in net.neighbors(here) for here, there in pairwise(path))


@pytest.mark.parametrize("net", SMALL, ids=repr)
def test_paths_of_every_pair_go_over_links_within_the_bound(net: HierarchicalDualNet) -> None:
    links = [set(net.neighbors(node)) for node in range(net.size)]
    for source in range(net.size):
        for target in range(net.size):
            path = route(net, source, target)
            assert (path[0], path[-1]) == (source, target)
            assert all(there in links[here] for here, there in pairwise(path))
            assert len(path) - 1 <= hops_bound(net)


@pytest.mark.parametrize("net", LARGE, ids=repr)
def test_paths_of_samples_go_over_links_within_the_bound(net: HierarchicalDualNet) -> None:
    random = Random(5)
    for _ in range(500):
        source, target = random.randrange(net.size), random.randrange(net.size)
        path = route(net, source, target)
        check_path(net, path, source, target)
        assert len(path) - 1 <= hops_bound(net)
        check_path(net, route_as_printed(net, source, target), source, target)


@pytest.mark.parametrize("net", [net for net in SMALL if net.symmetric], ids=repr)
def test_paths_as_printed_are_within_the_bound_where_super_nodes_are_nested(
    net: HierarchicalDualNet,
) -> None:
    for source in range(net.size):
        for target in range(0, net.size, 3):
            path = route_as_printed(net, source, target)
            check_path(net, path, source, target)
            assert len(path) - 1 <= hops_bound(net)


def test_a_path_to_oneself_has_one_node() -> None:
    assert route(LARGE[3], 77, 77) == route_as_printed(LARGE[3], 77, 77) == (77,)


@pytest.mark.parametrize("net", [*SMALL, *LARGE[:4]], ids=repr)
def test_broadcasts_reach_all_within_the_bound(net: HierarchicalDualNet) -> None:
    links = links_of(net)
    for source in Random(2).sample(range(net.size), min(3, net.size)):
        steps = broadcast(net, source)
        assert check_schedule(links, source, steps) <= steps_bound(net)


def test_nodes_out_of_range_are_refused() -> None:
    net = SMALL[1]
    for node in (-1, net.size):
        with pytest.raises(GraphError):
            broadcast(net, node)
        for method in (route, route_as_printed):
            with pytest.raises(GraphError):
                method(net, node, 0)
            with pytest.raises(GraphError):
                method(net, 0, node)
