"""Hierarchical cliques, HiC(k, h): k-ary trees whose corresponding nodes form cliques."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node


class HierarchicalCliques:
    """HiC(k, h): levels 1..h of cliques of k nodes, each clique the parent of k others.

    Node j of a clique is linked to node j of each of its k child cliques, so the graph is k complete
    k-ary trees, laid over each other, whose corresponding nodes form cliques. A node between has
    degree 2k (k-1 in its clique, one parent, k children), a leaf k.

    ISPA07 does not define it. This is the reading in which what it says is true: figure 4(c) finds
    BMG of the same degree twice as robust, which fits κ = λ = k beside degree 2k. A plain tree whose
    siblings form cliques would be cut by one node, and could not be called strongly resilient.

    Args:
        arity: k, the nodes of a clique and the children of a node, from 1.
        height: h, the number of levels, from 1.

    Raises:
        GraphError: an argument is out of its range.

    Source: Campbell, Kumar and Olariu, *The hierarchical cliques interconnection network* (2004),
    as ISPA07 §1 and §3 name it.
    """

    def __init__(self, arity: int, height: int) -> None:
        self._arity = checked_at_least(1, arity, "arity")
        self._height = checked_at_least(1, height, "height")
        self._cliques: int = sum(self._arity**level for level in range(self._height))

    def __repr__(self) -> str:
        return f"HierarchicalCliques({self._arity}, {self._height})"

    @property
    def size(self) -> int:
        """The number of nodes: k + k**2 + ... + k**h."""
        return self._arity * self._cliques

    @property
    def symmetric(self) -> bool:
        """True for the single clique only."""
        return self._height == 1

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The rest of the clique, the parent and the children of a node, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        Cliques are numbered level by level from the root; node j of clique c is c*k + j.
        """
        at, k = checked_node(self, node), self._arity
        clique, place = divmod(at, k)
        found = [clique * k + other for other in range(k) if other != place]
        if clique:
            found.append((clique - 1) // k * k + place)
        children = (clique * k + 1 + child for child in range(k))
        found.extend(child * k + place for child in children if child < self._cliques)
        return tuple(sorted(found))
