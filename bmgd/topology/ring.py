"""The ring: each node linked to the one before and the one after."""

from __future__ import annotations

from bmgd.topology.protocol import checked_at_least, checked_node


def ring_steps(size: int, at: int) -> tuple[int, ...]:
    """The places next to `at` on a ring: two, one on a ring of two, none on a ring of one."""
    return tuple(sorted({(at - 1) % size, (at + 1) % size} - {at}))


class Ring:
    """The bidirectional ring.

    A ring of two has one link: the graph is simple, and two ends cannot be linked twice.

    Args:
        size: the number of nodes, from 1.

    Raises:
        GraphError: the size is below 1.

    Source: ISPA07 §3.5.
    """

    def __init__(self, size: int) -> None:
        self._size = checked_at_least(1, size, "ring size")

    def __repr__(self) -> str:
        return f"Ring({self._size})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._size

    @property
    def symmetric(self) -> bool:
        """True: a rotation takes any node to any other."""
        return True

    @property
    def degree(self) -> int:
        """2; 1 at size 2, 0 at size 1."""
        return min(2, self._size - 1)

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The nodes before and after `node`, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        return ring_steps(self._size, checked_node(self, node))
