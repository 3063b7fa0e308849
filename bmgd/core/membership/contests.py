"""Contests: routed messages name two lives of one node, and nothing vouches for the later one.

Theory of operation. A founder in its first life has no record, so who is not linked to it knows its life
from its messages alone, and any member can forge one of those. The first life that is named is assumed.
A message of another life is not taken. If no record has come a while later that settles it, this node
asks for one: it publishes the baseline's record with a higher version. A node that finds a record of
itself that is not its own always answers with its own, and from then on that vouches for its life.

    another life is named --a record says which--------> nothing to do
                          --none after `CONTEST_NS`----> publish one; the node answers with its own
"""

from __future__ import annotations

from bmgd.core.context import Context
from bmgd.core.membership.notices import Notices
from bmgd.core.timers import TimerKey
from bmgd.types import UNKNOWN_INCARNATION, NodeId, Status

CONTEST_TIMER = "contested life"
CONTEST_NS = 1_000_000_000
"""A new life's first messages can be faster than its record; by so much it has come."""
CONTESTS_MAX = 64
"""Asked for in one `CONTEST_NS`; of others the next message tells again."""


class Contests:
    """Has nodes say themselves which life they lead, where others' messages differ."""

    def __init__(self, context: Context, notices: Notices) -> None:
        self._context = context
        self._notices = notices
        self._open = 0

    def on_contested(self, node_id: NodeId) -> None:
        """A routed message named a life of a node that nothing vouches for."""
        timers, key = self._context.timers, (CONTEST_TIMER, node_id, 0)
        if key in timers or self._open >= CONTESTS_MAX or not self._is_unsettled(node_id):
            return
        self._open += 1
        timers.set(key, self._context.now_ns + CONTEST_NS)

    def _is_unsettled(self, node_id: NodeId) -> bool:
        """Whether no record says which life the node leads, and none has asked for that."""
        record = self._context.membership.get(node_id)
        return (
            record is not None
            and record.incarnation == UNKNOWN_INCARNATION
            and record.status is Status.EXPECTED
            and record.version == 0
        )

    def on_timer(self, key: TimerKey) -> None:
        """Ask for a record where none has come."""
        self._open -= 1
        node_id, membership = NodeId(key[1]), self._context.membership
        record = membership.get(node_id)
        if record is None or not self._is_unsettled(node_id):
            return
        believed = membership.incarnation(node_id)
        self._context.observe("contested", node_id, believed, "messages name another life of it")
        self._notices.publish(node_id, record._replace(version=1))
