"""Maximum flow of node-disjoint and of link-disjoint paths, with a node per bit of an integer.

Every augmenting path is found by breadth-first search in the residual graph (Edmonds and Karp). For
node-disjoint paths each node v is split into an entry (bit v) and an exit (bit size+v) with one unit
between them; links carry any number of units, so that minimum cuts are of nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from bmgd.topology.measures.distances import Links


def bits_of(mask: int) -> Iterator[int]:
    """The places of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def masks_of(links: Links) -> list[int]:
    """The neighbors of every node as an integer each, one bit per node."""
    return [sum(1 << other for other in neighbors) for neighbors in links]


class NodeFlow:
    """Node-disjoint paths between two nodes that are not linked; after `run`, the residual graph.

    Args:
        masks: see `masks_of`.
        source: a node.
        sink: another, not linked to it.
    """

    def __init__(self, masks: list[int], source: int, sink: int) -> None:
        size = len(masks)
        self.size = size
        self.source = size + source
        self.sink = sink
        # residual[x] is where x can still send to: an entry to its exit, an exit to other entries.
        self.residual = [1 << size + node for node in range(size)] + masks
        self._flow = 0

    def run(self, at_most: int) -> int:
        """The number of node-disjoint paths, or `at_most` if there are that many or more."""
        while self._flow < at_most:
            path = augmenting_path(self.residual.__getitem__, self.source, self.sink)
            if path is None:
                break
            self._send(path)
            self._flow += 1
        return self._flow

    def _send(self, path: list[int]) -> None:
        residual, size = self.residual, self.size
        for a, b in pairwise(path):
            residual[b] |= 1 << a
            if a < size or b >= size:
                # Not a link forwards: the unit through a node is used, or one on a link is undone.
                residual[a] &= ~(1 << b)


class LinkFlow:
    """Link-disjoint paths between two nodes.

    Args:
        masks: see `masks_of`.
        source: a node.
        sink: another.
    """

    def __init__(self, masks: list[int], source: int, sink: int) -> None:
        self._masks = masks
        self._source = source
        self._sink = sink
        self._carried = [0] * len(masks)

    def run(self, at_most: int) -> int:
        """The number of link-disjoint paths, or `at_most` if there are that many or more."""
        carried, flow = self._carried, 0
        while flow < at_most:
            path = augmenting_path(self._open, self._source, self._sink)
            if path is None:
                break
            for a, b in pairwise(path):
                if carried[b] >> a & 1:
                    carried[b] ^= 1 << a
                else:
                    carried[a] |= 1 << b
            flow += 1
        return flow

    def _open(self, node: int) -> int:
        return self._masks[node] & ~self._carried[node]


def augmenting_path(heads: Callable[[int], int], source: int, sink: int) -> list[int] | None:
    """A shortest path from source to sink, both included, over the arcs that `heads` gives."""
    seen = 1 << source
    goal = 1 << sink
    parent = {source: source}
    queue = [source]
    for at in queue:
        new = heads(at) & ~seen
        if not new:
            continue
        seen |= new
        if new & goal:
            path = [sink, at]
            while at != source:
                at = parent[at]
                path.append(at)
            path.reverse()
            return path
        for to in bits_of(new):
            parent[to] = at
            queue.append(to)
    return None
