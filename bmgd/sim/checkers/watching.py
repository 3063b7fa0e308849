"""Which links are watched, and since when: in a large cluster that changes with the layout.

In a layout above a bound a node watches the links to the ranks a power of two away, for some exponents
from the least to the greatest, each the nearest to its even share. It watches all where fewer than four
that could watch it live, and beside its own those of its neighbors for which that is so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from bmgd.core.neighbors import watched_links
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.memberships import binomial_neighbors
from bmgd.types import NodeId

Watched = frozenset[NodeId] | None
"""The peers whose links a node watches; None for all."""
_WATCHERS_MIN: Final = 4


def watched_by(layout: Sequence[NodeId], dead: AbstractSet[NodeId], me: NodeId) -> Watched:
    """Whom a node watches.

    Args:
        layout: the ids in the graph, ascending.
        dead: those of them that are held dead.
        me: the node.
    """
    if len(layout) <= watched_links.WATCH_ALL_MAX:
        return None
    chosen = _near(layout, me)
    if not dead:
        return chosen
    if len(chosen - dead) < _WATCHERS_MIN:
        return None
    neighbors = map(NodeId, binomial_neighbors(layout, me))
    return chosen.union(n for n in neighbors if len(_near(layout, n) - dead) < _WATCHERS_MIN)


def _near(layout: Sequence[NodeId], node_id: NodeId) -> frozenset[NodeId]:
    """The ids at the watched distances from one, to both sides."""
    if node_id not in layout:
        return frozenset()
    size, rank, greatest = len(layout), layout.index(node_id), 0
    while 2 << greatest < size:
        greatest += 1
    last = watched_links.EXPONENTS - 1
    shares = [greatest * i / last for i in range(last + 1)] if greatest > last else []
    exponents = [int(share + 1 / 2) for share in shares] or range(greatest + 1)
    steps = [step for e in exponents for step in (2**e, -(2**e))]
    return frozenset(layout[(rank + step) % size] for step in steps) - {node_id}


class Watching:
    """Follows which links the nodes watch."""

    def __init__(self) -> None:
        self._before: dict[NodeId, Watched] = {}
        self._revisions: dict[NodeId, int] = {}
        self._since_ns: dict[NodeId, dict[NodeId, int]] = {}

    def on_boot(self, journal: Journal) -> None:
        """A process began: it has no links yet."""
        self._before[journal.place] = None
        self._revisions[journal.place] = -1
        self._since_ns[journal.place] = {}

    def look(self, journal: Journal) -> tuple[Watched, Mapping[NodeId, int]]:
        """Whom a node watches, and since when those with whom that has changed: silence begins anew.

        To be called at each deadline.
        """
        membership = journal.inside.membership
        before, since_ns = self._before[journal.place], self._since_ns[journal.place]
        if membership.revision == self._revisions[journal.place]:
            return before, since_ns
        self._revisions[journal.place] = membership.revision
        layout = [i for i in membership.known_ids() if membership.in_layout(i)]
        dead = {i for i in layout if membership.is_gone(i)}
        watched = watched_by(layout, dead, journal.host.id)
        if watched != before:
            self._before[journal.place] = watched
            for link in journal.links.values():
                was_watched = before is None or link.peer in before
                if was_watched != (watched is None or link.peer in watched):
                    since_ns[link.peer] = journal.now_ns
        return watched, since_ns
