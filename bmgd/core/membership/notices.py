"""Telling everybody: changed records are flooded. What a flood misses, `comparison.py` finds.

Theory of operation. A record that changes this node's membership is passed on, once, over all links
but the one it came on; what changes within one step goes out as one `Notice`. The first goes at once;
what follows within `GATHER_NS` of the last one goes together, so that many deaths at once cost few
notices. A link takes part from the moment it is up.
"""

from __future__ import annotations

from bmgd.core.context import AccusedSelf, Context, FirstRecord, Link, RecordMoved
from bmgd.core.effects import RecordChanged
from bmgd.core.links import Links
from bmgd.core.timers import TimerKey
from bmgd.types import LinkId, NodeId, Record, Status
from bmgd.wire.bounds import RECORDS_PER_NOTICE_MAX
from bmgd.wire.link_messages import Notice

GATHER_NS = 5_000_000
NOTICES_TIMER = "notices"


class Notices:
    """The flood."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links
        self._pending: dict[NodeId, tuple[Record, LinkId | None]] = {}
        self._flushed_ns = -GATHER_NS

    def publish(
        self, node_id: NodeId, record: Record, link: LinkId | None = None, *, passes_on: bool = True
    ) -> bool:
        """Join a record; if it changed anything, pass it on over all links but the given one.

        Args:
            passes_on: whether others are told; if not, they find it by its digest, or when they are told
                of this id anyway.
        """
        membership = self._context.membership
        before = membership.get(node_id)
        if not membership.join(node_id, record):
            return False
        self._tell(node_id, before, record, link, membership.revision, passes_on=passes_on)
        return True

    def _tell(
        self,
        node_id: NodeId,
        before: Record | None,
        after: Record,
        link: LinkId | None,
        revision: int,
        *,
        passes_on: bool,
    ) -> None:
        # Of what is about to be told only the latest is still believed.
        if passes_on or node_id in self._pending:
            self._pending[node_id] = (after, link)
        self._context.emit(RecordChanged(node_id, after, revision))
        self._context.tell(RecordMoved(node_id, before, after, link))

    def on_notice(self, link: Link | None, notice: Notice) -> None:
        """Records came over a link."""
        came_on = None if link is None else link.id
        for node_id, record in notice.records:
            self.take(node_id, record, came_on)

    def take(
        self, node_id: NodeId, record: Record, link: LinkId | None, *, passes_on: bool = True
    ) -> None:
        """A record came over a link; see `publish`."""
        if node_id == self._context.id:
            came_on = None if link is None else self._links.get(link)
            self._on_own(record, None if came_on is None else came_on.peer)
        else:
            self.publish(node_id, record, link, passes_on=passes_on)

    def take_run(
        self, first: NodeId, last: NodeId, link: LinkId | None, *, passes_on: bool = True
    ) -> NodeId | None:
        """A run of retired ids came over a link.

        Returns:
            The last of them that was taken over; None if none was.
        """
        context, membership = self._context, self._context.membership
        if max(first, membership.founding_size) <= context.id <= last:
            # Everybody else has forgotten it: nothing that this node could say is above that.
            context.lose_id(f"the id {context.id} was given up while this node was away")
            return last
        moved, done = membership.retire_run(first, last)
        revision = membership.revision - len(moved)
        for node_id, before in moved:
            revision += 1
            after = before._replace(status=Status.LEFT)
            self._tell(node_id, before, after, link, revision, passes_on=passes_on)
        return done

    def _on_own(self, record: Record, told_by: NodeId | None) -> None:
        if record > self._context.own_record():
            self._context.tell(AccusedSelf(record, told_by))
            return
        # Somebody has a record of this node, of this life or less: from now on it is one here too.
        is_first = self.publish(self._context.id, self._context.own_record())
        if is_first and not self._context.followed:
            self._context.tell(FirstRecord())

    def settle(self) -> None:
        """At the end of a step: send what changed, or gather it if something was just sent."""
        context, key = self._context, (NOTICES_TIMER, 0, 0)
        if not self._pending:
            return
        if context.now_ns - self._flushed_ns >= GATHER_NS:
            self.flush()
        elif key not in context.timers:
            context.timers.set(key, self._flushed_ns + GATHER_NS)

    def on_timer(self, key: TimerKey) -> None:
        """Enough has been gathered."""
        self.flush()

    def flush(self) -> None:
        """Send what changed since the last call."""
        if not self._pending:
            return
        self._flushed_ns = self._context.now_ns
        pending, self._pending = self._pending, {}
        rows = sorted(pending.items())
        sources = {came_on for _, (_, came_on) in rows}
        to_all: list[Notice] | None = None
        for link_id in self._links.table:
            if link_id in sources:
                chosen = _in_notices([(i, r) for i, (r, came_on) in rows if came_on != link_id])
            else:
                to_all = to_all or _in_notices([(i, r) for i, (r, _) in rows])
                chosen = to_all
            for notice in chosen:
                self._context.send(link_id, notice)


def _in_notices(rows: list[tuple[NodeId, Record]]) -> list[Notice]:
    return [
        Notice(tuple(rows[at : at + RECORDS_PER_NOTICE_MAX]))
        for at in range(0, len(rows), RECORDS_PER_NOTICE_MAX)
    ]
