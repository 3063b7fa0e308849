"""The k-ary Hypertree: a complete tree whose levels have the links of one cube dimension each."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node
from bmgd.topology.ring import ring_steps


class Hypertree:
    """The complete k-ary tree, with a ring of k in every level along the first branch.

    A node on level l is named by the l branches, of k each, that lead to it. Beside the links of the
    tree it has those that change the first of these branches by one, modulo k: a ring of k nodes
    that lie k**(l-1) apart on their level. A node between has degree k + 3, or 4 where k is 2.

    Goodman and Séquin add to the binary tree, on each level, the links of one dimension of the
    n-cube, and compare rules by which the dimension is chosen. ISPA07 says "4-ary Hypertree" and
    defines neither the rule nor what four branches make of it. Here the dimension is always the first
    branch, as graph theory after them has it (labels of one level are linked if they differ by half
    its width), and a dimension of k branches is a ring, as in the k-ary n-cube.

    Args:
        arity: k, the children of a node, from 2.
        depth: the number of levels below the root, from 0.

    Raises:
        GraphError: an argument is out of its range.

    Source: Goodman and Séquin, *Hypertree: a multiprocessor interconnection topology* (1981), as
    ISPA07 §1 and §3 name it.
    """

    def __init__(self, arity: int, depth: int) -> None:
        self._arity = checked_at_least(2, arity, "arity")
        self._depth = checked_at_least(0, depth, "depth")
        self._size: int = sum(self._arity**level for level in range(self._depth + 1))

    def __repr__(self) -> str:
        return f"Hypertree({self._arity}, {self._depth})"

    @property
    def size(self) -> int:
        """The number of nodes: 1 + k + ... + k**depth."""
        return self._size

    @property
    def symmetric(self) -> bool:
        """True for the single node only: the root has no parent."""
        return self._depth == 0

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The parent, the children and the neighbors on the level of a node, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        Nodes are numbered level by level from the root, within a level by their branches.
        """
        at, k = checked_node(self, node), self._arity
        first, width = 0, 1
        while at >= first + width:
            first, width = first + width, width * k
        found = [child for child in range(at * k + 1, at * k + k + 1) if child < self._size]
        if at:
            found.append((at - 1) // k)
            branch, rest = divmod(at - first, width // k)
            found.extend(first + step * (width // k) + rest for step in ring_steps(k, branch))
        return tuple(sorted(found))
