"""Self-healing by the adaptive method: which links change when nodes die.

Only the links that differ between the graph over all nodes and the graph over the survivors are
touched. When to heal is the membership's matter, see docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import NamedTuple

from bmgd.errors import GraphError
from bmgd.routing import link_changes
from bmgd.topology.distance import checked_size
from bmgd.types import NodeId


class LinkDiff(NamedTuple):
    """The links of one node that healing changes, as ids of the other ends, ascending.

    `removed` contains the dead neighbors, whose links are gone already.
    """

    added: tuple[NodeId, ...]
    removed: tuple[NodeId, ...]


def link_diff(size: int, node_id: int, dead: Iterable[int]) -> LinkDiff:
    """What the death of some nodes changes at one survivor.

    Args:
        size: the size N of the original graph, 1..2**31. Ids are its ranks, from 0; they stay.
        node_id: the survivor, 0..N-1.
        dead: the ids of all dead nodes, in any order.

    Returns:
        The links to add and to remove.

    Raises:
        GraphError: an argument is out of its range, or `node_id` is dead.

    O(D log D + log(N) log(D)) for D dead nodes. Source: Healing §3.1, Algorithm 1.
    """
    n = checked_size(size)
    gone = sorted({index(d) for d in dead})
    if gone and not 0 <= gone[0] <= gone[-1] < n:
        raise GraphError(f"a dead id is not within 0..{n - 1}: {gone[0]}, {gone[-1]}")
    return LinkDiff(*link_changes(n, node_id, gone))
