"""What the algorithms share: checked distances, the jumps of a graph, and following a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index
from typing import Final

from bmgd.errors import GraphError
from bmgd.topology.distance import checked_size

HOPS_MAX: Final = 64
"""More hops than any of the algorithms takes at any size."""


def checked_distance(n: int, distance: int) -> int:
    """A distance modulo n.

    Raises:
        GraphError: n is not within 1..2**31, or the distance not above -n and below n.
    """
    size, d = checked_size(n), index(distance)
    if not -size < d < size:
        raise GraphError(f"distance {d} is not between -{size} and {size}")
    return d % size


def checked_way(n: int, distance: int) -> int:
    """A distance modulo n that is not 0; the errors are those of `checked_distance`."""
    d = checked_distance(n, distance)
    if d == 0:
        raise GraphError("distance 0 has no first hop")
    return d


def signed_jumps(n: int) -> Iterator[int]:
    """Every jump to a neighbor, shortest first, clockwise before its counterpart."""
    jump = 1
    while jump < n:
        yield jump
        yield -jump
        jump *= 2


def around(n: int, distance: int) -> int:
    """How far a rank is on the ring, the shorter way around."""
    d = distance % n
    return min(d, n - d)


def hops_of(n: int, distance: int, first_hop: Callable[[int, int], int]) -> int:
    """The hops of a message that every node on its way sends on by `first_hop`.

    Raises:
        GraphError: a number is out of its range, or the message goes in circles.
    """
    left, hops = checked_distance(n, distance), 0
    while left:
        if hops == HOPS_MAX:
            raise GraphError(f"a message over {distance} of {n} goes in circles")
        left = (left - first_hop(n, left)) % n
        hops += 1
    return hops
