"""Since when links are watched: which ones are changes with the layout of a large cluster."""

from __future__ import annotations

from collections.abc import Mapping

from bmgd.core.neighbors.watched_links import watched_peers
from bmgd.sim.checkers.journal import Journal
from bmgd.types import NodeId

Watched = frozenset[NodeId] | None
"""The peers whose links a node watches; None for all."""


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
        watched = watched_peers(membership, journal.host.id)
        if watched != before:
            self._before[journal.place] = watched
            for link in journal.links.values():
                was_watched = before is None or link.peer in before
                if was_watched != (watched is None or link.peer in watched):
                    since_ns[link.peer] = journal.now_ns
        return watched, since_ns
