"""All smallest sets of nodes that disconnect a symmetric graph: counted, without trying them all.

After a maximum flow of node-disjoint paths between two nodes, the smallest sets that separate the two
are exactly the borders of the sets of split nodes that hold the source, not the sink, and are closed
in the residual graph (Picard and Queyranne). Closed sets are enumerated by choosing a node and
either taking all that it reaches, or leaving out all that reach it.
"""

from __future__ import annotations

from math import comb

from bmgd.errors import GraphError
from bmgd.topology.measures.connectivity import node_connectivity
from bmgd.topology.measures.distances import links_of
from bmgd.topology.measures.flow import NodeFlow, bits_of, masks_of
from bmgd.topology.protocol import Topology


def smallest_separators(graph: Topology) -> int:
    """The number of sets of κ nodes whose removal disconnects a symmetric graph, 0 if complete.

    Those that leave node 0 are found: they separate it from some other. Each of the S sets leaves
    size - κ nodes, so node 0 is left by S * (size - κ) / size of them.

    Raises:
        GraphError: the graph is not symmetric.

    One flow for each node not linked to node 0, and O(size) closures for each set that is found.
    """
    if not graph.symmetric:
        raise GraphError(f"{graph} is not symmetric")
    masks, size = masks_of(links_of(graph)), graph.size
    kappa = node_connectivity(graph)
    found: set[int] = set()
    for sink in range(1, size):
        if not masks[0] >> sink & 1:
            flow = NodeFlow(masks, 0, sink)
            if flow.run(kappa + 1) == kappa:
                found.update(_borders(flow))
    sets, rest = divmod(len(found) * size, size - kappa)
    assert rest == 0, "every node is left by as many separators"
    return sets


def disconnecting_share(graph: Topology, faults: int) -> float:
    """The share of fault sets of κ nodes that disconnect a symmetric graph, 0..1.

    Args:
        graph: a symmetric graph.
        faults: the number of nodes of a set; κ of the graph.

    Source: ISPA07 §4.1, figure 4(b), where κ is δ.
    """
    return smallest_separators(graph) / comb(graph.size, faults)


def _borders(flow: NodeFlow) -> set[int]:
    """The smallest separators that a maximum flow shows, as sets of nodes in an integer each."""
    nodes = 2 * flow.size
    reaches = _closures(flow.residual)
    reached_by = [0] * nodes
    for x in range(nodes):
        for y in bits_of(reaches[x]):
            reached_by[y] |= 1 << x
    entries = (1 << flow.size) - 1
    found: set[int] = set()
    pending = [(reaches[flow.source], reached_by[flow.sink])]
    while pending:
        inside, outside = pending.pop()
        if inside & outside:
            continue
        undecided = ~(inside | outside) & (1 << nodes) - 1
        if not undecided:
            found.add(inside & entries & ~(inside >> flow.size))
            continue
        x = (undecided & -undecided).bit_length() - 1
        pending.append((inside | reaches[x], outside))
        pending.append((inside, outside | reached_by[x]))
    return found


def _closures(heads: list[int]) -> list[int]:
    """For each node the set of all that it reaches, itself included."""
    reaches: list[int] = []
    for x in range(len(heads)):
        seen = 1 << x
        frontier = seen
        while frontier:
            y = (frontier & -frontier).bit_length() - 1
            new = (reaches[y] if y < x else heads[y]) & ~seen
            seen |= new
            frontier = frontier & ~(1 << y) | new & (-1 if y >= x else 0)
        reaches.append(seen)
    return reaches
