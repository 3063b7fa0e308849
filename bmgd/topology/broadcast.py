"""The binomial tree over which a message of one rank reaches all others.

Positions are ranks counted from the source: position p is rank (source + p) mod n, the source is 0.
A child is a power of two after its parent, so every branch of the tree is a link of the binomial
graph, whatever the size. The two trees of ISPA07 figure 7 differ in which end of a position's
binary form names the parent:

    closest first   parent: without the highest one bit.   children of p: p + 2**i above p's bits
    closest last    parent: without the lowest one bit.    children of p: p + 2**i below p's bits

In the first the closest child of the source, 1, has the largest subtree (all odd positions), so it
is served first. In the second the farthest one has it, and every subtree is an interval, so a relay
can be told what to cover by its end alone.

A node sends to one child per step. The *cost* of a child is how many steps it and its subtree take
once it has the message; the costliest is served first. A subtree of m positions is a tree of the same
kind over m, and its cost is ceil(log2 m): the whole children cost 0, 1, 2, ... steps, so that each is
done when the next cheaper one is, and the one cut short by the ring's end fits in between. So the
order and the cost of children are known without building the tree.

A subtree's shape does not depend on the source either: as seen from its root, it is a part of the tree
whose source that root is. So a relay that is told which ranks to cover needs to know no source: the
child through which it reaches a rank is the same in its own tree (`routing/branches.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Literal

from bmgd.errors import GraphError
from bmgd.topology.distance import checked_size
from bmgd.types import Rank

Order = Literal["closest-first", "closest-last"]


@dataclass(frozen=True, slots=True)
class BroadcastTree:
    """The binomial tree of one source over all ranks; nothing is stored, every answer is computed.

    Args:
        size: the number of ranks n, 1..2**31.
        source: the rank that broadcasts, 0..n-1.
        order: which of the two trees.

    Raises:
        GraphError: the size or the source is out of its range, or there is no such order.

    Source: ISPA07 §5.3, figure 7.
    """

    size: int
    source: int
    order: Order = "closest-last"

    def __post_init__(self) -> None:
        self._checked(checked_size(self.size), self.source)
        if self.order not in ("closest-first", "closest-last"):
            raise GraphError(f"order {self.order!r} is not closest-first or closest-last")

    @property
    def steps(self) -> int:
        """The steps until every rank has the message, ceil(log2 n). O(1). Source: ISPA07 §3.3."""
        return (self.size - 1).bit_length()

    def parent(self, rank: int) -> Rank | None:
        """Who sends to a rank; None for the source.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(1).
        """
        position = self._position(rank)
        if position == 0:
            return None
        bit = _highest(position) if self.order == "closest-first" else position & -position
        return self._rank(position - bit)

    def children(self, rank: int) -> tuple[Rank, ...]:
        """Whom a rank sends to, in this order: the costliest first.

        Of equally costly children the closest is first in the closest-first tree, and last in the
        closest-last tree.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(log n log log n).
        """
        position = self._position(rank)
        closest_first = self.order == "closest-first"
        found = sorted(
            self._children(position),
            key=lambda child: (-self._cost(child), child if closest_first else -child),
        )
        return tuple(self._rank(child) for child in found)

    def covered(self, rank: int) -> int:
        """How many ranks get the message from or through a rank, itself included: its subtree.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(1).
        """
        return self._covered(self._position(rank))

    def subtree(self, rank: int) -> range:
        """The positions of a rank's subtree, its own first: how far after the source each lies.

        An interval in the closest-last tree, every 2**i-th position in the closest-first tree.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(1).
        """
        position = self._position(rank)
        step = 1 << position.bit_length() if self.order == "closest-first" else 1
        return range(position, position + step * self._covered(position), step)

    def cost(self, rank: int) -> int:
        """The steps from when a rank has the message until its whole subtree has it.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(1).
        """
        return self._cost(self._position(rank))

    def depth(self, rank: int) -> int:
        """The hops from the source to a rank, at most log2(n) rounded up.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(1).
        """
        return self._position(rank).bit_count()

    def _children(self, position: int) -> list[int]:
        n = self.size
        if self.order == "closest-first":
            lowest, end = position.bit_length(), (n - 1).bit_length()
        else:
            lowest, end = 0, _trailing_zeros(position) if position else (n - 1).bit_length()
        return [position + (1 << i) for i in range(lowest, end) if position + (1 << i) < n]

    def _covered(self, position: int) -> int:
        if self.order == "closest-first":
            # Those that end in the same bits: every 2**i-th from here on.
            return ((self.size - 1 - position) >> position.bit_length()) + 1
        if position == 0:
            return self.size
        return min(position & -position, self.size - position)

    def _cost(self, position: int) -> int:
        return (self._covered(position) - 1).bit_length()

    def _position(self, rank: int) -> int:
        return (self._checked(self.size, rank) - self.source) % self.size

    def _rank(self, position: int) -> Rank:
        return Rank((self.source + position) % self.size)

    @staticmethod
    def _checked(n: int, rank: int) -> int:
        r = index(rank)
        if not 0 <= r < n:
            raise GraphError(f"rank {r} is not within 0..{n - 1}")
        return r


def _highest(x: int) -> int:
    return 1 << (x.bit_length() - 1)


def _trailing_zeros(x: int) -> int:
    return (x & -x).bit_length() - 1
