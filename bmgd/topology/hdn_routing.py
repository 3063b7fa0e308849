"""Point-to-point routing in the hierarchical dual-net: Algorithm 1 of HDN, with its re-indexing.

Two clusters of different classes are joined by one pair of super-nodes. The message goes to the one in
its own cluster, over a cross-edge into the other, and on to its destination, each time as the
algorithm routes within a cluster. Between two clusters of one class it takes the cross-edge that it is
at first.

At which place of the super-node it crosses is free. Algorithm 1 as printed keeps the place u_3 that the
message is at, so that the way back to it may cost what was saved: where the super-nodes of two levels
are not nested, its paths exceed the bound of theorem 2. `route` takes the place as it comes. Let R_k(F)
be the most hops if the coordinates F of the destination do not matter; D is additive over rings, so

    R_0(F) = D(B) - D(F)        R_k(F) = R_(k-1)(S_k) + R_(k-1)(F) + 2

and R_k({}) unfolds to the bound of theorem 2, for any super-nodes.
"""

from __future__ import annotations

from collections.abc import Collection

from bmgd.topology.hierarchical_dual_net import HierarchicalDualNet
from bmgd.topology.protocol import checked_node


def route(net: HierarchicalDualNet, source: int, target: int) -> tuple[int, ...]:
    """The path of Algorithm 1, crossing at the place of a super-node that is reached first.

    Args:
        net: the network.
        source: a node.
        target: a node.

    Returns:
        The nodes on the path, both ends included; `(source,)` if they are equal. It has at most
        `hdn_bounds.hops_bound` hops, and need not be a shortest path.

    Raises:
        GraphError: a node is not within 0..size-1.

    Source: HDN §4, Algorithm 1 and theorem 2.
    """
    address = net.address(checked_node(net, target))
    return tuple(_towards(net, checked_node(net, source), address, ()))


def route_as_printed(net: HierarchicalDualNet, source: int, target: int) -> tuple[int, ...]:
    """The path of Algorithm 1 as HDN prints it: it crosses at the place that the source is at.

    Arguments, result and errors are those of `route`; the bound holds where the super-nodes are
    nested (each level's within that of the level below).

    Source: HDN §4, Algorithm 1.
    """
    u, v = checked_node(net, source), checked_node(net, target)
    if not net.levels:
        return tuple(_along_rings(net, u, net.address(v), ()))
    from_label, to_label = net.label(u), net.label(v)
    if from_label[:2] == to_label[:2]:
        return tuple(_within_cluster(net, u, v))
    path = [u]
    if from_label.class_id == to_label.class_id:
        path.append(net.cross_neighbor(u))
        from_label = net.label(path[-1])
    u_door = net.node_at(from_label._replace(super_node=to_label.cluster))
    v_door = net.node_at(to_label._replace(super_node=from_label.cluster))
    path += _within_cluster(net, path[-1], u_door)[1:]
    path.append(net.cross_neighbor(u_door))
    path += _along_rings(net, path[-1], net.address(v_door), ())[1:]
    path += _within_cluster(net, v, v_door)[-2::-1]
    return tuple(path)


def _towards(
    net: HierarchicalDualNet, source: int, address: tuple[int, ...], free: Collection[int]
) -> list[int]:
    """The path to a node with this address, but for the coordinates of the rings in `free`."""
    if not net.levels:
        return _along_rings(net, source, address, free)
    path = [source]
    if net.label(source)[:2] != address[:2]:
        if net.label(source).class_id == address[0]:
            path.append(net.cross_neighbor(source))
        door = net.cluster.address(net.cluster_node(address[1], 0))
        path += _inside(net, path[-1], door, net.super_nodes[-1])[1:]
        path.append(net.cross_neighbor(path[-1]))
    return path + _inside(net, path[-1], address[2:], free)[1:]


def _inside(
    net: HierarchicalDualNet, source: int, address: tuple[int, ...], free: Collection[int]
) -> list[int]:
    """`_towards` in the cluster that `source` is in; `address` is one of the cluster's network."""
    class_id, cluster, super_node, place = net.label(source)
    inner = _towards(net.cluster, net.cluster_node(super_node, place), address, free)
    return [net.node_at((class_id, cluster, *net.reindexed(node))) for node in inner]


def _within_cluster(net: HierarchicalDualNet, source: int, target: int) -> list[int]:
    """The path as printed between two nodes of one cluster."""
    class_id, cluster, super_node, place = net.label(source)
    inner = route_as_printed(
        net.cluster,
        net.cluster_node(super_node, place),
        net.cluster_node(*net.label(target)[2:]),
    )
    return [net.node_at((class_id, cluster, *net.reindexed(node))) for node in inner]


def _along_rings(
    net: HierarchicalDualNet, source: int, address: tuple[int, ...], free: Collection[int]
) -> list[int]:
    """The path within one copy of the base network, ring after ring but for those in `free`.

    Of two ways around that are equally long it takes the one upwards.
    """
    at = list(net.address(source))
    first = len(at) - len(net.base)
    path = [source]
    for ring, size in enumerate(net.base):
        place = first + ring
        up = 0 if ring in free else (address[place] - at[place]) % size
        step = 1 if up <= size - up else -1
        for _ in range(min(up, size - up)):
            at[place] = (at[place] + step) % size
            path.append(net.node_with(at))
    return path
