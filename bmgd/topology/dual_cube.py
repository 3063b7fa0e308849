"""The dual-cube: two classes of hypercubes, each node linked to one of the other class."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node


class DualCube:
    """The dual-cube of 2**(2n-1) nodes and degree n.

    A node's number has a class bit on top, and two fields of n - 1 bits. The lower one is the node's
    place in its (n-1)-cube if its class is 0, the upper one if it is 1; the other field names the
    cube. Each node is also linked to the one that differs in the class bit alone.

    Args:
        dimension: n, the degree, from 1.

    Raises:
        GraphError: the dimension is below 1.

    Source: Li, Peng and Chu, *Efficient collective communications in dual-cube* (2004), as HDN §3
    has it.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = checked_at_least(1, dimension, "dimension")

    def __repr__(self) -> str:
        return f"DualCube({self._dimension})"

    @property
    def size(self) -> int:
        """The number of nodes: 2**(2n-1)."""
        return 1 << 2 * self._dimension - 1

    @property
    def symmetric(self) -> bool:
        """True: exclusive-or within the fields and the exchange of the classes reach every node."""
        return True

    @property
    def degree(self) -> int:
        """n."""
        return self._dimension

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The nodes of its cube that differ in one bit, and the one of the other class, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        at, field = checked_node(self, node), self._dimension - 1
        class_bit = 1 << 2 * field
        lowest = field if at & class_bit else 0
        found = [at ^ 1 << bit for bit in range(lowest, lowest + field)]
        found.append(at ^ class_bit)
        return tuple(sorted(found))
