"""The torus in any number of dimensions: a product of rings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from bmgd.errors import GraphError
from bmgd.topology.protocol import checked_at_least, checked_node
from bmgd.topology.ring import ring_steps


def digits_of(number: int, radices: Sequence[int]) -> tuple[int, ...]:
    """The digits of a number of mixed radix, the most significant first."""
    digits = []
    for radix in reversed(radices):
        number, digit = divmod(number, radix)
        digits.append(digit)
    return tuple(reversed(digits))


def number_of(digits: Iterable[int], radices: Iterable[int]) -> int:
    """The number of mixed radix that has these digits, the most significant first."""
    number = 0
    for digit, radix in zip(digits, radices, strict=True):
        number = number * radix + digit
    return number


class Torus:
    """The product of rings: two sides make the 2D torus, three the 3D torus.

    A node is linked to those whose coordinates differ by one step on one ring. A side of two is
    one link, not two: the graph is simple (HDN counts the double link, see `HierarchicalDualNet`).

    Args:
        sides: the sizes of the rings, each from 1, at least one.

    Raises:
        GraphError: a side is below 1, or there is none.

    Source: ISPA07 §1 (the Manhattan Street Network, without the directions of its streets); HDN §2,
    figure 2(b).
    """

    def __init__(self, sides: Iterable[int]) -> None:
        self._sides = tuple(checked_at_least(1, side, "side") for side in sides)
        if not self._sides:
            raise GraphError("a torus has at least one side")
        self._size = prod(self._sides)

    def __repr__(self) -> str:
        return f"Torus({self._sides})"

    @property
    def size(self) -> int:
        """The number of nodes: the product of the sides."""
        return self._size

    @property
    def sides(self) -> tuple[int, ...]:
        """The sizes of the rings."""
        return self._sides

    @property
    def symmetric(self) -> bool:
        """True: translations take any node to any other."""
        return True

    @property
    def degree(self) -> int:
        """Two per side, one per side of two, none per side of one."""
        return sum(min(2, side - 1) for side in self._sides)

    def coordinates(self, node: int) -> tuple[int, ...]:
        """The place of a node on each ring; the last coordinate counts fastest.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        return digits_of(checked_node(self, node), self._sides)

    def node_at(self, coordinates: Iterable[int]) -> int:
        """The node at these coordinates: the inverse of `coordinates`."""
        return number_of(coordinates, self._sides)

    def neighbors(self, node: int) -> tuple[int, ...]:
        """The nodes one step away on one of the rings, ascending.

        Raises:
            GraphError: the node is not within 0..size-1.
        """
        at = checked_node(self, node)
        found: list[int] = []
        stride = 1
        for side in reversed(self._sides):
            place = at // stride % side
            found.extend(at + (step - place) * stride for step in ring_steps(side, place))
            stride *= side
        return tuple(sorted(found))
