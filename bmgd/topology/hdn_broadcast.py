"""Broadcast in the hierarchical dual-net: Algorithm 2 of HDN, in the one-port model.

A cluster that holds the message sends it over all its cross-edges, which informs one super-node in
every cluster of the other class. These inform their clusters, and send it over all cross-edges again.
Within a cluster the same happens one level below, down to the base network, where the message goes
around one ring after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from bmgd.topology.hierarchical_dual_net import HierarchicalDualNet
from bmgd.topology.protocol import checked_node

Step = list[tuple[int, int]]
"""The transfers of one step, (sender, receiver) each; no node takes part in two."""


def broadcast(net: HierarchicalDualNet, source: int) -> list[Step]:
    """The schedule of Algorithm 2 from one node.

    The paper first informs the source's super-node, and below level 1 wants a whole super-node of
    the next level down informed before it goes on, which it does in the first cluster and forgets in
    the others. Here rings that are informed already are left out, wherever they are: then nothing is
    sent twice, and theorem 3's bound holds for all super-nodes (done literally, with super-nodes that
    are not nested, the rings of SN_k outside of SN_(k-1) would be gone around twice).

    Args:
        net: the network.
        source: a node.

    Returns:
        The steps in order.

    Raises:
        GraphError: the node is not within 0..size-1.

    O(size * (k + rings)). Source: HDN §5, Algorithm 2.
    """
    steps: list[Step] = []
    _spread(net, net.levels, [checked_node(net, source)], (), steps)
    return steps


def _spread(
    net: HierarchicalDualNet,
    level: int,
    informed: Sequence[int],
    rings: tuple[int, ...],
    steps: list[Step],
) -> list[int]:
    """Inform the copies of the network of a level that hold informed nodes.

    In each copy the informed nodes are those that differ in the coordinates `rings` from one of
    them. The steps are appended to `steps`.

    Returns:
        All nodes of these copies.
    """
    if level == 0:
        everyone = list(informed)
        for ring in range(len(net.base)):
            if ring not in rings:
                everyone = _around(net, ring, everyone, steps)
        return everyone
    first = _spread(net, level - 1, informed, rings, steps)
    across = [_cross(net, level, node) for node in first]
    steps.append(list(zip(first, across, strict=True)))
    others = _spread(net, level - 1, across, net.super_nodes[level - 1], steps)
    known = set(first)
    back = [(node, _cross(net, level, node)) for node in others]
    back = [(node, other) for node, other in back if other not in known]
    steps.append(back)
    return first + others + [other for _, other in back]


def _around(
    net: HierarchicalDualNet, ring: int, informed: Sequence[int], steps: list[Step]
) -> list[int]:
    """Send along one ring from every informed node, upwards first, then both ways at once."""
    size = net.base[ring]
    place = ring - len(net.base)
    everyone = [list(informed)]
    for _ in range(1, size):
        everyone.append([_next(net, place, node) for node in everyone[-1]])
    below = 0
    above = 1
    steps.append(list(zip(everyone[0], everyone[1], strict=True)))
    while above - below + 1 < size:
        step = list(zip(everyone[below], everyone[below - 1], strict=True))
        below -= 1
        if above - below + 1 < size:
            step += zip(everyone[above], everyone[above + 1], strict=True)
            above += 1
        steps.append(step)
    return [node for nodes in everyone for node in nodes]


def _next(net: HierarchicalDualNet, place: int, node: int) -> int:
    address = list(net.address(node))
    address[place] = (address[place] + 1) % net.base[place]
    return net.node_with(address)


def _cross(net: HierarchicalDualNet, level: int, node: int) -> int:
    """The other end of the cross-edge of a level, 1..k."""
    if level == net.levels:
        return net.cross_neighbor(node)
    class_id, cluster, super_node, place = net.label(node)
    inner = _cross(net.cluster, level, net.cluster_node(super_node, place))
    return net.node_at((class_id, cluster, *net.reindexed(inner)))
