"""Cube-connected cycles: a hypercube with a ring in the place of every node."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node
from bmgd.topology.ring import ring_steps


class CubeConnectedCycles:
    """CCC(n): every node of an n-cube replaced by a ring of n nodes, one per dimension.

    Args:
        dimension: n, from 1.

    Raises:
        GraphError: the dimension is below 1.

    Source: Preparata and Vuillemin, *The cube-connected cycles* (1981), as HDN §3 has it.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = checked_at_least(1, dimension, "dimension")

    def __repr__(self) -> str:
        return f"CubeConnectedCycles({self._dimension})"

    @property
    def size(self) -> int:
        """The number of nodes: n * 2**n."""
        return self._dimension << self._dimension

    @property
    def symmetric(self) -> bool:
        """True: rotating all rings, and exclusive-or of the cube's nodes, reach every node."""
        return True

    @property
    def degree(self) -> int:
        """3; 2 at n = 2 and 1 at n = 1, where the ring has one link or none."""
        return min(3, self._dimension)

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The two on the ring and the one over the cube, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.

        Place p on the ring of the cube's node c is c*n + p; it has the cube's dimension p.
        """
        at, n = checked_node(self, node), self._dimension
        corner, place = divmod(at, n)
        found = [corner * n + step for step in ring_steps(n, place)]
        found.append((corner ^ 1 << place) * n + place)
        return tuple(sorted(found))
