"""From node ids to ranks and back: a layout is an id space without the ids outside it.

`outside` is always a sorted sequence of different ids, all of them below the id space.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import index

from bmgd.errors import GraphError
from bmgd.topology import SIZE_MAX, BinomialGraph
from bmgd.types import NodeId, Rank


def rank_of(node_id: int, outside: Sequence[int]) -> Rank:
    """The rank of an id in the layout.

    Args:
        node_id: 0..2**31-1. Whether it is below the id space is the caller's to know.
        outside: the ids outside the layout, sorted.

    Raises:
        GraphError: the id is out of its range or outside the layout.

    O(log(len(outside))).
    """
    of = _checked_number(node_id, "id")
    before = bisect_left(outside, of)
    if before < len(outside) and outside[before] == of:
        raise GraphError(f"id {of} is outside the layout")
    return Rank(of - before)


def is_outside(node_id: int, outside: Sequence[int]) -> bool:
    """Whether an id is among those outside the layout, sorted. O(log(len(outside)))."""
    at = bisect_left(outside, node_id)
    return at < len(outside) and outside[at] == node_id


def id_of(rank: int, outside: Sequence[int]) -> NodeId:
    """The id that has a rank in the layout.

    Args:
        rank: 0..2**31-1. Whether it is below the layout's size is the caller's to know.
        outside: the ids outside the layout, sorted.

    Raises:
        GraphError: the rank is out of its range.

    O(log(len(outside))).
    """
    of = _checked_number(rank, "rank")
    low, high = 0, len(outside)
    while low < high:
        middle = (low + high) // 2
        if outside[middle] - middle <= of:
            low = middle + 1
        else:
            high = middle
    return NodeId(of + low)


def neighbor_ids(self_id: int, id_space: int, outside: Sequence[int]) -> tuple[NodeId, ...]:
    """The ids that the binomial graph of the layout links an id to, ascending.

    Args:
        self_id: 0..id_space-1, inside the layout.
        id_space: 1 + the highest id, 1..2**31.
        outside: the ids outside the layout, sorted.

    Raises:
        GraphError: an argument is out of its range, or the id is outside the layout.

    O(log(id_space) * log(len(outside))).
    """
    space = checked_id_space(id_space)
    own = checked_id(self_id, space)
    if len(outside) > space:
        raise GraphError(f"{len(outside)} ids are outside a space of {space}")
    rank = rank_of(own, outside)
    graph = BinomialGraph(space - len(outside))
    return tuple(id_of(neighbor, outside) for neighbor in graph.neighbors(rank))


def link_changes(
    id_space: int, self_id: int, outside: Sequence[int]
) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
    """What changes at one id when ids leave a layout that had no id outside.

    Args:
        id_space: the size of the full layout, 1..2**31.
        self_id: 0..id_space-1, still inside.
        outside: the ids that left, sorted.

    Returns:
        (added, removed): the ids to link and those to unlink, ascending.

    Raises:
        GraphError: an argument is out of its range, or `self_id` left.

    O(log(id_space) * log(len(outside))). Source: Healing §3.1, Algorithm 1.
    """
    before = neighbor_ids(self_id, id_space, ())
    after = neighbor_ids(self_id, id_space, outside)
    added = tuple(sorted(set(after).difference(before)))
    return added, tuple(sorted(set(before).difference(after)))


def checked_id_space(id_space: int) -> int:
    """Return `id_space` as an int, or raise GraphError where it is not within 1..2**31."""
    space = index(id_space)
    if not 1 <= space <= SIZE_MAX:
        raise GraphError(f"id space {space} is not within 1..{SIZE_MAX}")
    return space


def checked_id(node_id: int, id_space: int) -> NodeId:
    """Return `node_id` as an int, or raise GraphError where it is not within the id space."""
    own = index(node_id)
    if not 0 <= own < id_space:
        raise GraphError(f"id {own} is not within 0..{id_space - 1}")
    return NodeId(own)


def _checked_number(value: int, what: str) -> int:
    number = index(value)
    if not 0 <= number < SIZE_MAX:
        raise GraphError(f"{what} {number} is not within 0..{SIZE_MAX - 1}")
    return number
