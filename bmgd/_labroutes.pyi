"""What only the laboratory computes, in C; `bmgd.routing.papers` and `bmgd.topology.faults` in Python."""

from typing import Literal

Algorithm = Literal[
    "exact",
    "table",
    "bfs",
    "basic",
    "variant",
    "bits-table",
    "bits-parallel",
    "elimination",
    "elimination-states",
    "equivalence",
    "undirected-chord",
]

def paper_hop_count(n: int, distance: int, method: Algorithm, depth: int = 0) -> int:
    """The number of hops that an algorithm of the papers takes, see `bmgd.routing.papers`.

    Args:
        n: the size of the graph; 2..2**31, for `table` and `bfs` to 2**24.
        distance: above -n and below n.
        method: the algorithm.
        depth: the levels of `variant`, 0..3, or the loops of `equivalence`, 0..64.

    Raises:
        GraphError: a number is out of its range.
        ValueError: there is no such method.
    """

def paper_first_hop(n: int, distance: int, method: Algorithm, depth: int = 0) -> int:
    """The jump, modulo n, that an algorithm takes first; as `paper_hop_count`, distance not 0."""

def paper_hop_counts(n: int, method: Algorithm, depth: int = 0) -> tuple[int, ...]:
    """How many of the distances 0..n-1 take 0, 1, 2, ... hops; as `paper_hop_count`, n to 2**24."""

def paper_loops(n: int, first: int, last: int) -> tuple[int, int]:
    """How many loops the lightest walks of the distances first..last need, and the first such one.

    Raises:
        GraphError: a number is out of its range; distances are 1..n-1.

    O((last - first) * log n).
    """

def fault_sets(
    n: int, failed: int, first: int, count: int, distances: bool
) -> tuple[int, int, int, int, int, int]: ...
def fault_orders(
    n: int, samples: int, seed: int
) -> tuple[list[int], list[int], list[int], list[float]]: ...
def bench_next_hop(
    n: int,
    count: int,
    seed: int,
    method: Algorithm | Literal["all"],
    depth: int = 0,
) -> float:
    """The nanoseconds that one next hop takes by a method.

    Args:
        n: the size of the graph; 2..2**31, for `table` and `bfs` to 2**24.
        count: how many next hops to time, over 65536 random distances in turn.
        seed: chooses the distances, 0..2**63-1.
        method: an algorithm, or `all` (every first hop, as the relay takes them).
        depth: as `paper_hop_count`.

    Raises:
        GraphError: a number is out of its range.
        ValueError: there is no such method.
    """
