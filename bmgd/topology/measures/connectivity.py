"""Node connectivity κ and link connectivity λ, by maximum flow (Menger's theorem)."""

from __future__ import annotations

from bmgd.topology.measures.distances import links_of
from bmgd.topology.measures.flow import LinkFlow, NodeFlow, masks_of
from bmgd.topology.protocol import Topology


def node_connectivity(graph: Topology) -> int:
    """κ: the fewest nodes whose removal disconnects the graph; size - 1 where none do.

    The sources are node 0 alone in a symmetric graph, else one more than κ (one of them is outside
    of a smallest set, and apart from a node on the other side).

    O(size * degree) flows at worst, each O(degree * links). Source: ISPA07 §4.1.
    """
    masks = masks_of(links_of(graph))
    size = graph.size
    fewest = min(mask.bit_count() for mask in masks)
    if all(mask.bit_count() == size - 1 for mask in masks):
        return size - 1
    source = 0
    while source <= (0 if graph.symmetric else fewest):
        for sink in range(size):
            if sink != source and not masks[source] >> sink & 1:
                fewest = NodeFlow(masks, source, sink).run(fewest)
        source += 1
    return fewest


def link_connectivity(graph: Topology) -> int:
    """λ: the fewest links whose removal disconnects the graph, 0 in a graph of one.

    Some such set lies between node 0 and another node, so one source suffices in any graph.

    O(size) flows, each O(degree * links). Source: ISPA07 §4.1.
    """
    masks = masks_of(links_of(graph))
    fewest = min(mask.bit_count() for mask in masks)
    for sink in range(1, graph.size):
        fewest = LinkFlow(masks, 0, sink).run(fewest)
    return fewest
