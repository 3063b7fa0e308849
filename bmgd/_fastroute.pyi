"""The routing of bmgd in C; see `bmgd.routing.reference` for the same in Python."""

from collections.abc import Sequence
from typing import final

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

@final
class Snapshot:
    def __new__(
        cls,
        generation: int,
        self_id: int,
        id_space: int,
        outside: Sequence[int | tuple[int, int]],
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
