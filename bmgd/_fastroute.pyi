"""The routing of bmgd in C; see `bmgd.routing.reference` for the same in Python."""

from collections.abc import Sequence
from typing import Literal, final

from bmgd.types import NodeId, Rank

LENGTH_BYTES: int
BODY_PREFIX_BYTES: int
HEADER_BYTES: int
BODY_BYTES_MIN: int
FRAME_BYTES_MAX: int
ARRAY_FIRST: int
ARRAY_LAST: int
BIN_8: int
KIND_AT: int
FLAGS_AT: int
PRIORITY_AT: int
HOP_BUDGET_AT: int
DESTINATION_AT: int
SOURCE_AT: int
LINK_LOCAL_FIRST: int
LINK_LOCAL_LAST: int
ROUTED_FIRST: int
ROUTED_LAST: int
FLAG_CAREFUL: int
FLAG_RECORD: int
BAD_LENGTH: str
BAD_HEADER: str
BAD_KIND: str

def hop_count(n: int, distance: int) -> int: ...
def first_hop(n: int, distance: int) -> int: ...
def first_hops(n: int, distance: int) -> tuple[int, ...]: ...
def rank_of(node_id: int, outside: Sequence[int]) -> Rank: ...
def id_of(rank: int, outside: Sequence[int]) -> NodeId: ...
def neighbor_ids(self_id: int, id_space: int, outside: Sequence[int]) -> tuple[NodeId, ...]: ...
def link_changes(
    id_space: int, self_id: int, outside: Sequence[int]
) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]: ...

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

@final
class Snapshot:
    def __new__(
        cls,
        generation: int,
        self_id: int,
        id_space: int,
        outside: Sequence[int],
        links: Sequence[tuple[int, int]],
    ) -> Snapshot: ...
    @property
    def generation(self) -> int: ...
    @property
    def self_id(self) -> int: ...
    @property
    def id_space(self) -> int: ...
    @property
    def layout_size(self) -> int: ...
    @property
    def rank(self) -> int: ...
    def next_hop(self, destination: int, came_from: int = -1, flow: int = 0) -> int: ...
    def split(
        self, buffer: bytearray, end: int, came_from: int
    ) -> tuple[int, list[tuple[int, bytes]], list[bytes], str | None]: ...
