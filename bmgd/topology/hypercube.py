"""The binary hypercube: nodes whose numbers differ in one bit are linked."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node


class Hypercube:
    """The binary n-cube.

    Args:
        dimension: the number of bits of a node's number, from 0.

    Raises:
        GraphError: the dimension is below 0.

    Source: Saad and Schultz, *Topological properties of hypercubes* (1988), as ISPA07 §1 and HDN
    figure 2(c) have it.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = checked_at_least(0, dimension, "dimension")

    def __repr__(self) -> str:
        return f"Hypercube({self._dimension})"

    @property
    def size(self) -> int:
        """The number of nodes: two to the dimension."""
        return 1 << self._dimension

    @property
    def symmetric(self) -> bool:
        """True: exclusive-or with a constant takes any node to any other."""
        return True

    @property
    def degree(self) -> int:
        """The dimension."""
        return self._dimension

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The nodes whose numbers differ in one bit, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        at = checked_node(self, node)
        return tuple(sorted(at ^ 1 << bit for bit in range(self._dimension)))
