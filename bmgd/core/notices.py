"""Telling everybody: changed records are flooded, and digests find what a flood has missed.

Theory of operation. A record that changes this node's membership is passed on, once, over all links
but the one it came on; what changes within one step goes out as one `Notice`. The first goes at once;
what follows within `GATHER_NS` of the last one goes together, so that many deaths at once cost few
notices. A link takes part from the moment it is up. Because a flood can miss a node (a link that broke
with the notice in it), every heartbeat carries the membership's digest: unequal on two of them in a row,
the 64 bucket digests are exchanged, then the records of the buckets that differ.
"""

from __future__ import annotations

from bmgd.core.context import AccusedSelf, Context, Link, RecordMoved
from bmgd.core.effects import RecordChanged
from bmgd.core.links import Links
from bmgd.core.timers import TimerKey
from bmgd.types import LinkId, NodeId, Record
from bmgd.wire.messages import BUCKETS, RECORDS_PER_NOTICE_MAX, Buckets, Notice

MISMATCHES_TO_COMPARE = 2
GATHER_NS = 5_000_000
NOTICES_TIMER = "notices"


class Notices:
    """The flood, and the comparison of memberships."""

    def __init__(self, context: Context, links: Links) -> None:
        self._context = context
        self._links = links
        self._pending: dict[NodeId, tuple[Record, LinkId | None]] = {}
        self._flushed_ns = -GATHER_NS

    def publish(self, node_id: NodeId, record: Record, link: LinkId | None = None) -> bool:
        """Join a record; if it changed anything, pass it on over all links but the given one."""
        membership = self._context.membership
        before = membership.get(node_id)
        if not membership.join(node_id, record):
            return False
        self._pending[node_id] = (record, link)
        self._context.emit(RecordChanged(node_id, record, membership.revision))
        self._context.tell(RecordMoved(node_id, before, record, link))
        return True

    def on_notice(self, link: Link | None, notice: Notice) -> None:
        """Records came over a link."""
        came_on = None if link is None else link.id
        for node_id, record in notice.records:
            if node_id == self._context.id:
                self._on_own(record)
            else:
                self.publish(node_id, record, came_on)

    def _on_own(self, record: Record) -> None:
        if record > self._context.own_record():
            self._context.tell(AccusedSelf(record))
        else:
            # Somebody has a record of this node, of this life or less: from now on it is one here too.
            self.publish(self._context.id, self._context.own_record())

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

    def on_digest(self, link: Link, digest: int) -> bool:
        """A heartbeat's digest; returns whether it differed, for the first time on this link."""
        if digest == self._context.membership.digest:
            link.mismatches = 0
            link.agreed = True
            return False
        link.mismatches += 1
        if link.mismatches >= MISMATCHES_TO_COMPARE:
            link.mismatches = 0
            buckets = tuple(self._context.membership.buckets)
            self._context.send(link.id, Buckets(buckets, answer=True))
            return False
        return True

    def on_buckets(self, link: Link, theirs: Buckets) -> None:
        """Send back the records of the buckets that differ, and the own buckets if asked to."""
        ours = self._context.membership.buckets
        if theirs.answer:
            self._context.send(link.id, Buckets(tuple(ours), answer=False))
        differing = {i for i in range(BUCKETS) if ours[i] != theirs.digests[i]}
        records = self._context.membership.exceptions()
        rows = [(i, records[i]) for i in sorted(records) if i % BUCKETS in differing]
        for notice in _in_notices(rows):
            self._context.send(link.id, notice)


def _in_notices(rows: list[tuple[NodeId, Record]]) -> list[Notice]:
    return [
        Notice(tuple(rows[at : at + RECORDS_PER_NOTICE_MAX]))
        for at in range(0, len(rows), RECORDS_PER_NOTICE_MAX)
    ]
