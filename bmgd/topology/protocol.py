"""What every topology answers: how many nodes it has and who is linked to whom."""

from __future__ import annotations

from operator import index
from typing import Protocol

from bmgd.errors import GraphError


class Topology(Protocol):
    """An undirected graph without loops and double links, its nodes numbered 0..size-1."""

    @property
    def size(self) -> int:
        """The number of nodes."""

    @property
    def symmetric(self) -> bool:
        """Whether the graph looks the same from every node, so that one stands for all.

        True is a proof (the class says which); False claims nothing.
        """

    def neighbors(self, node: int, /) -> tuple[int, ...]:
        """The nodes that `node` is linked to, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """


class RegularTopology(Topology, Protocol):
    """A topology in which every node has the same number of links."""

    @property
    def degree(self) -> int:
        """The number of neighbors of every node."""


def checked_node(graph: Topology, node: int) -> int:
    """Return `node` as an int, if the graph has it.

    Raises:
        GraphError: it is not within 0..size-1.
    """
    number = index(node)
    if not 0 <= number < graph.size:
        raise GraphError(f"node {number} is not within 0..{graph.size - 1}")
    return number


def checked_at_least(least: int, value: int, what: str) -> int:
    """Return `value` as an int, if it is not below `least`.

    Raises:
        GraphError: it is; the message names `what`.
    """
    number = index(value)
    if number < least:
        raise GraphError(f"{what} {number} is below {least}")
    return number
