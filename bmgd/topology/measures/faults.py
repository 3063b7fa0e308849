"""The fault diameter: the longest way that failed nodes can force on two others.

Two nodes are at least d hops apart after some b failures if b nodes can hit every path shorter than d.
Whether they can is decided by branching: of a shortest path one of its inner nodes must fail. It
cannot be done where more node-disjoint short paths are left than failures.
"""

from __future__ import annotations

from bmgd.errors import GraphError
from bmgd.topology.measures.connectivity import node_connectivity
from bmgd.topology.measures.distances import links_of
from bmgd.topology.measures.flow import bits_of, masks_of
from bmgd.topology.protocol import Topology


def fault_diameter(graph: Topology, faults: int | None = None) -> int:
    """The largest diameter of what remains when nodes fail, exact.

    Args:
        graph: any; pairs with node 0 only are tried where it is symmetric.
        faults: how many fail, below κ; κ - 1 if None.

    Raises:
        GraphError: as many failures can disconnect the graph.

    Exponential in `faults` at worst: for graphs of up to some dozens of nodes. Source: ISPA07 §4.2.
    """
    kappa = node_connectivity(graph)
    budget = kappa - 1 if faults is None else faults
    if budget >= kappa:
        raise GraphError(f"{budget} failures can disconnect {graph}, whose connectivity is {kappa}")
    masks = masks_of(links_of(graph))
    most = 0 if graph.size == 1 else 1
    for source in range(1 if graph.symmetric else graph.size):
        for sink in range(source + 1, graph.size):
            if masks[source] >> sink & 1:
                continue
            while _can_stretch(masks, source, sink, most + 1, budget):
                most += 1
    return most


def _can_stretch(masks: list[int], source: int, sink: int, hops: int, budget: int) -> bool:
    """Whether `budget` failures can leave no path from source to sink shorter than `hops`."""
    # (nodes that failed, nodes that shall not, failures left)
    pending = [(0, 1 << source | 1 << sink, budget)]
    while pending:
        failed, kept, left = pending.pop()
        path = _short_path(masks, source, sink, hops, failed)
        if path is None:
            return True
        used, disjoint = failed, path
        for _ in range(left):
            for node in disjoint:
                used |= 1 << node
            following = _short_path(masks, source, sink, hops, used)
            if following is None:
                break
            disjoint = following
        else:
            continue
        for node in path:
            if not kept >> node & 1:
                pending.append((failed | 1 << node, kept, left - 1))
                kept |= 1 << node
    return False


def _short_path(
    masks: list[int], source: int, sink: int, hops: int, failed: int
) -> list[int] | None:
    """The inner nodes of a shortest path, if it is shorter than `hops`."""
    seen = failed | 1 << source
    levels = [1 << source]
    reached = masks[source]
    while not reached >> sink & 1:
        levels.append(reached & ~seen)
        if len(levels) >= hops or not levels[-1]:
            return None
        seen |= levels[-1]
        reached = _around(masks, levels[-1])
    if len(levels) >= hops:
        return None
    path, at = [], sink
    for level in reversed(levels[1:]):
        at = next(bits_of(level & masks[at]))
        path.append(at)
    return path


def _around(masks: list[int], nodes: int) -> int:
    """All neighbors of a set of nodes."""
    union = 0
    for node in bits_of(nodes):
        union |= masks[node]
    return union
