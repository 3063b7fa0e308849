"""The complete graph: every node linked to every other."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node


class CompleteGraph:
    """The fully connected topology.

    Args:
        size: the number of nodes, from 1.

    Raises:
        GraphError: the size is below 1.

    Source: ISPA07 §3.5.
    """

    def __init__(self, size: int) -> None:
        self._size = checked_at_least(1, size, "size")

    def __repr__(self) -> str:
        return f"CompleteGraph({self._size})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._size

    @property
    def symmetric(self) -> bool:
        """True: any permutation of the nodes leaves the graph as it is."""
        return True

    @property
    def degree(self) -> int:
        """One less than the size."""
        return self._size - 1

    def neighbors(self, node: int) -> tuple[int, ...]:
        """All other nodes, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        at = checked_node(self, node)
        return (*range(at), *range(at + 1, self._size))
