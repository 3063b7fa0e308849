"""Chord with its fingers taken as links that carry both ways."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from bmgd.errors import GraphError
from bmgd.topology.protocol import checked_at_least, checked_node


class UndirectedChord:
    """The graph of Chord's fingers, undirected.

    Identifiers lie on a circle of 2**bits. The node with identifier x has the fingers
    successor(x + 2**i) for i = 0..bits-1, the first node at or after that identifier. ISPA07 names
    Chord and defines nothing; that the fingers are used both ways is the reading of Ganesan and
    Manku, *Optimal routing in Chord* (2004). On a full circle, which is the default, the graph is
    the binomial graph of 2**bits nodes, so nothing can be better than Chord there: ISPA07's curve
    must be that of the directed one.

    Args:
        bits: the length of an identifier, 0..20.
        identifiers: those that nodes have, in any order; the default is all 2**bits of them. Node i
            has the i-th smallest.

    Raises:
        GraphError: an argument is out of its range, or there is no identifier, or one twice.

    Source: Stoica and others, *Chord* (2001), §4, as ISPA07 §1 names it.
    """

    BITS_MAX = 20

    def __init__(self, bits: int, identifiers: Iterable[int] | None = None) -> None:
        self._bits = checked_at_least(0, bits, "bits")
        if self._bits > self.BITS_MAX:
            raise GraphError(f"bits {self._bits} is above {self.BITS_MAX}")
        circle = 1 << self._bits
        ids = sorted(range(circle) if identifiers is None else identifiers)
        if not ids or ids[0] < 0 or ids[-1] >= circle or len(set(ids)) < len(ids):
            raise GraphError(
                f"identifiers are distinct numbers within 0..{circle - 1}, at least one"
            )
        self._ids = tuple(ids)
        links: list[set[int]] = [set() for _ in ids]
        for node, start in enumerate(ids):
            for i in range(self._bits):
                finger = bisect_left(ids, (start + (1 << i)) % circle) % len(ids)
                if finger != node:
                    links[node].add(finger)
                    links[finger].add(node)
        self._links = tuple(tuple(sorted(of_node)) for of_node in links)

    def __repr__(self) -> str:
        return f"UndirectedChord({self._bits}, {self.size} nodes)"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._ids)

    @property
    def identifiers(self) -> tuple[int, ...]:
        """The nodes' identifiers, ascending."""
        return self._ids

    @property
    def symmetric(self) -> bool:
        """True on a full circle, where a rotation takes any node to any other."""
        return self.size == 1 << self._bits

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The fingers of a node and the nodes that it is a finger of, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        return self._links[checked_node(self, node)]
