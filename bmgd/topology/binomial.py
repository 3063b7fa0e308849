"""The binomial graph (BMG): n ranks on a ring, each linked to those a power of two away."""

from __future__ import annotations

from operator import index

from bmgd.errors import GraphError
from bmgd.topology import distance
from bmgd.topology.diameter import diameter
from bmgd.topology.levels import ranks_per_level
from bmgd.types import Rank


class BinomialGraph:
    """The binomial graph of a size: who is linked to whom, and the shortest ways between them.

    The papers number nodes from 1 (ISPA07) or 0 (Routing, Healing); ranks here start at 0. Their
    jumps are "powers of two less than or equal to n"; the power equal to n is a jump to oneself,
    so it is left out.

    Args:
        size: the number of ranks n, 1..2**31.

    Raises:
        GraphError: the size is out of its range.

    Source: ISPA07 §2.
    """

    def __init__(self, size: int) -> None:
        self._size = distance.checked_size(size)

    def __repr__(self) -> str:
        return f"BinomialGraph({self._size})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinomialGraph) and other._size == self._size

    def __hash__(self) -> int:
        return hash((BinomialGraph, self._size))

    @property
    def size(self) -> int:
        """The number of ranks n."""
        return self._size

    @property
    def jumps(self) -> tuple[int, ...]:
        """The powers of two below n, ascending. O(log n)."""
        return tuple(1 << i for i in range((self._size - 1).bit_length()))

    @property
    def degree(self) -> int:
        """The number of neighbors δ of every rank, 0 at size 1. O(1). Source: equation (1)."""
        n = self._size
        if n == 1:
            return 0
        log2_rounded_up = (n - 1).bit_length()
        if n.bit_count() == 1:
            return 2 * log2_rounded_up - 1
        if n.bit_count() == 2:
            return 2 * log2_rounded_up - 2
        return 2 * log2_rounded_up

    @property
    def symmetric(self) -> bool:
        """True: a rotation takes any rank to any other."""
        return True

    @property
    def diameter(self) -> int:
        """The most hops between any two ranks, exact.

        It takes milliseconds at sizes to 10**5, and up to half a minute near 2**31; see
        `bmgd.topology.diameter_bound` for a bound at once. Source: ISPA07 §3.2.
        """
        return diameter(self._size)

    @property
    def average_distance(self) -> float:
        """The mean number of hops from a rank to every other, 0.0 at size 1.

        Raises:
            GraphError: n is above 2**24.

        O(n * log(n)**2 / 64). Source: ISPA07 §3.3, equation (3).
        """
        if self._size == 1:
            return 0.0
        counts = ranks_per_level(self._size)
        return sum(hops * count for hops, count in enumerate(counts)) / (self._size - 1)

    def neighbors(self, rank: int) -> tuple[Rank, ...]:
        """The ranks that `rank` is linked to, ascending; `degree` of them.

        Raises:
            GraphError: the rank is not within 0..n-1.

        O(log n log log n).
        """
        at, n = self._checked(rank), self._size
        around = {(at + jump) % n for jump in self.jumps}
        around.update((at - jump) % n for jump in self.jumps)
        return tuple(Rank(r) for r in sorted(around))

    def hops(self, a: int, b: int) -> int:
        """The number of hops on a shortest path between two ranks, 0 where they are equal.

        Raises:
            GraphError: a rank is not within 0..n-1.

        O(log n). Source: Routing §3.3.
        """
        return distance.hop_count(self._size, self._checked(b) - self._checked(a))

    def next_hop(self, a: int, b: int) -> Rank:
        """The neighbor of `a` that is next on one shortest path to `b`.

        Raises:
            GraphError: a rank is not within 0..n-1, or the two are equal.

        O(log n). Source: Routing §3.3.
        """
        at, to = self._checked(a), self._checked(b)
        return Rank((at + distance.first_hop(self._size, to - at)) % self._size)

    def next_hops(self, a: int, b: int) -> tuple[Rank, ...]:
        """Every neighbor of `a` that is on a shortest path to `b`, ascending.

        Raises:
            GraphError: a rank is not within 0..n-1, or the two are equal.

        O(log n log log n). Source: Routing §3.3.
        """
        at, to = self._checked(a), self._checked(b)
        jumps = distance.first_hops(self._size, to - at)
        return tuple(Rank(r) for r in sorted((at + jump) % self._size for jump in jumps))

    def path(self, a: int, b: int) -> tuple[Rank, ...]:
        """The ranks on one shortest path from `a` to `b`, both included; `(a,)` if they are equal.

        Every step is the `next_hop` of the one before.

        Raises:
            GraphError: a rank is not within 0..n-1.

        O(log(n)**2).
        """
        at, to = self._checked(a), self._checked(b)
        path = [at]
        while at != to:
            at = self.next_hop(at, to)
            path.append(at)
        return tuple(path)

    def _checked(self, rank: int) -> Rank:
        r = index(rank)
        if not 0 <= r < self._size:
            raise GraphError(f"rank {r} is not within 0..{self._size - 1}")
        return Rank(r)
