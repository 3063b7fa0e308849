"""The k-ary sibling tree: a k-ary tree whose levels are rings."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node
from bmgd.topology.ring import ring_steps


class SiblingTree:
    """The k-ary tree in which the nodes of each level also form a ring.

    A node knows its parent, its children and the ones to its left and right: at most k + 3. The tree
    is filled level by level, so it has any size; the ring of the last level closes where the level
    ends.

    Args:
        arity: k, the children of a node, from 2.
        size: the number of nodes, from 1.

    Raises:
        GraphError: an argument is out of its range.

    Source: Angskun, Fagg, Bosilca, Pješivac-Grbović and Dongarra, *Scalable fault tolerant protocol
    for parallel runtime environments* (2006), as ISPA07 §1 names it; ISPA07 itself takes it for the
    same as the Hypertree, from which it differs in the rings (see `Hypertree`). The paper of 2006 was
    not at hand: this is the graph that its name and its successors describe.
    """

    def __init__(self, arity: int, size: int) -> None:
        self._arity = checked_at_least(2, arity, "arity")
        self._size = checked_at_least(1, size, "size")

    def __repr__(self) -> str:
        return f"SiblingTree({self._arity}, {self._size})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._size

    @property
    def symmetric(self) -> bool:
        """True for one or two nodes only."""
        return self._size <= 2

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The parent, the children, the left and the right of a node, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        Nodes are numbered level by level from the root.
        """
        at, k = checked_node(self, node), self._arity
        first, width = 0, 1
        while at >= first + width:
            first, width = first + width, width * k
        width = min(width, self._size - first)
        found = {child for child in range(at * k + 1, at * k + k + 1) if child < self._size}
        found.update(first + step for step in ring_steps(width, at - first))
        if at:
            found.add((at - 1) // k)
        return tuple(sorted(found))
