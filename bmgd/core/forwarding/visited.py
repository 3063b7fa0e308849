"""The ids that a search has been to: a bitmap, or runs where the id space is too large for one.

A bitmap has a bit for every id that ever was. Where joiners have come and gone for long, only a few of
these live, so the ids visited are kept as runs (first, last), ascending, which cost what was visited.
A bitmap must leave room for the stack, and for covers: it has half of a search's bytes at most.
"""

from __future__ import annotations

from bisect import bisect_right

from bmgd.routing.id_sets import ids_in
from bmgd.routing.runs import Runs
from bmgd.types import NodeId
from bmgd.wire.bounds import SEARCH_BYTES_MAX
from bmgd.wire.routes import VISITED_RUN_BYTES, Visited

BITMAP_SPACE_MAX = 8 * SEARCH_BYTES_MAX // 2


def nothing_visited(id_space: int) -> Visited:
    """The set in which no id is, for ids below a number."""
    return bytes((id_space + 7) // 8) if id_space <= BITMAP_SPACE_MAX else ()


def is_visited(visited: Visited, node_id: NodeId) -> bool:
    """Whether an id is in the set."""
    if isinstance(visited, tuple):
        at = bisect_right(visited, node_id, key=lambda run: run[0]) - 1
        return at >= 0 and node_id <= visited[at][1]
    at = node_id >> 3
    return at < len(visited) and bool(visited[at] & (1 << (node_id & 7)))


def with_visited(visited: Visited, node_id: NodeId) -> Visited:
    """The set with one id more."""
    if isinstance(visited, bytes) and node_id >= max(BITMAP_SPACE_MAX, 8 * len(visited)):
        # The search began where the highest ids were not known yet.
        ids = ids_in(int.from_bytes(visited, "little"))
        visited = _as_runs(Runs((number, number) for number in ids))
    if isinstance(visited, tuple):
        runs = Runs(visited)
        runs.add(node_id, node_id)
        return _as_runs(runs)
    at = node_id >> 3
    marked = bytearray(visited)
    if at >= len(marked):
        marked.extend(bytes(at + 1 - len(marked)))
    marked[at] |= 1 << (node_id & 7)
    return bytes(marked)


def visited_bytes(visited: Visited) -> int:
    """What the set counts towards `SEARCH_BYTES_MAX`."""
    return len(visited) * (VISITED_RUN_BYTES if isinstance(visited, tuple) else 1)


def _as_runs(runs: Runs) -> tuple[tuple[NodeId, NodeId], ...]:
    return tuple((NodeId(first), NodeId(last)) for first, last in runs.pairs)
