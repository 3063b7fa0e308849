"""The recursive dual-net: a base network doubled and squared, level by level."""

from __future__ import annotations

from bmgd.topology.protocol import RegularTopology, checked_at_least, checked_node


class RecursiveDualNet:
    """RDN(B, k): k dual-constructions upon a base network.

    One dual-construction takes 2n copies (clusters) of a graph of n nodes, n of class 0 and n of
    class 1, and links node i of cluster j of class 0 to node j of cluster i of class 1. With m nodes
    in the base, k of them make (2m)**(2**k) / 2.

    Args:
        base: the base network; symmetric, for the result to be so.
        levels: k, from 0.

    Raises:
        GraphError: the number of levels is below 0.

    Source: Li, Peng and Chu, *Recursive dual-net* (2009), as HDN §2 restates it.
    """

    def __init__(self, base: RegularTopology, levels: int) -> None:
        self._base = base
        self._levels = checked_at_least(0, levels, "levels")
        sizes = [base.size]
        for _ in range(self._levels):
            sizes.append(2 * sizes[-1] ** 2)
        self._sizes = tuple(sizes)

    def __repr__(self) -> str:
        return f"RecursiveDualNet({self._base!r}, {self._levels})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._sizes[-1]

    @property
    def symmetric(self) -> bool:
        """True over a symmetric base.

        Let f and g be automorphisms of a cluster. Acting by f on the nodes of class 0 and on the
        cluster numbers of class 1, and by g the other way around, respects all links; so does the
        exchange of the classes. Together they take any node to any other.
        """
        return self._base.symmetric

    @property
    def degree(self) -> int:
        """That of the base, and one more for every level."""
        return self._base.degree + self._levels

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The neighbors in the base network and over the cross-edge of each level, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        Node i of cluster j of class c, in clusters of n nodes, has the number (c*n + j)*n + i.
        """
        at = checked_node(self, node)
        found, start = [], 0
        for cluster_size in reversed(self._sizes[:-1]):
            cluster, inside = divmod(at, cluster_size)
            node_class, own = divmod(cluster, cluster_size)
            across = ((1 - node_class) * cluster_size + inside) * cluster_size + own
            found.append(start + across)
            start += cluster * cluster_size
            at = inside
        found.extend(start + other for other in self._base.neighbors(at))
        return tuple(sorted(found))
