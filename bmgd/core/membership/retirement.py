"""When a joiner's id goes for good: some time after it has left, or an hour after its death.

Theory of operation. Nobody forgets a founder. Of a joiner's id that has left, the record is forgotten
`LEFT_NS` later, by each node for itself: its digest stays equal (`membership.py`). Until then a daemon
that was only started again has its id back; afterwards it takes a new one. An id that is dead or excluded
for `GONE_NS` is written as *left* by the lowest living node, which tells everybody, if that is a founder:
a side without one forgets nobody, since it would have nobody to meet the other side by.

    alive --death--> gone --an hour--> left --ten minutes--> retired
      |                ^---a new life, a refutation---|
      +--------------------leaves-------^
"""

from __future__ import annotations

from itertools import islice

from bmgd.core.context import Context, RecordMoved
from bmgd.core.membership.notices import Notices
from bmgd.core.timers import TimerKey
from bmgd.types import NodeId, Status

RETIRE_TIMER = "retire"
LEFT_NS = 600_000_000_000
GONE_NS = 3_600_000_000_000
LOOK_AGAIN_NS = 60_000_000_000
"""Who may not write that an id has left looks again after so long whether it may."""
LEFT_MAX = 4096
"""Records of joiners that have left; of one more the oldest is forgotten at once."""
GONE_MAX = 65_536
"""Joiners that are gone and have not left; of one more the oldest has left at once."""
AT_ONCE_MAX = 256
"""Ids that are forgotten, and as many that are written as left, in one turn."""
TURN_NS = 50_000_000
"""From one turn to the next. Deadlines that are due at once share a step, so the next one never is."""


class Retirement:
    """The joiners' ids that have left, and those that are gone, since when."""

    def __init__(self, context: Context, notices: Notices) -> None:
        self._context = context
        self._notices = notices
        self._left: dict[NodeId, int] = {}
        self._gone: dict[NodeId, int] = {}
        self._next_turn_ns = 0
        for number in context.membership.gone:
            status = context.membership.status_of(NodeId(number))
            assert status is not None
            self._note(NodeId(number), status)

    def on_record_moved(self, moved: RecordMoved) -> None:
        """Begin or end to count the time of an id."""
        self._note(moved.id, moved.after.status)

    def _note(self, node_id: NodeId, status: Status) -> None:
        context = self._context
        if node_id < context.membership.founding_size:
            return
        if status is not Status.LEFT:
            self._left.pop(node_id, None)
        if status not in (Status.DEAD, Status.EXCLUDED):
            self._gone.pop(node_id, None)
        if status is Status.LEFT:
            self._left.setdefault(node_id, context.now_ns)
        elif status >= Status.DEAD:
            self._gone.setdefault(node_id, context.now_ns)
        while len(self._left) > LEFT_MAX:
            self._retire(next(iter(self._left)))
        self._plan(context.now_ns)

    def _plan(self, earliest_ns: int) -> None:
        due = [since_ns + LEFT_NS for since_ns in islice(self._left.values(), 1)]
        for since_ns in islice(self._gone.values(), 1):
            is_crowded = len(self._gone) > GONE_MAX
            due.append(self._context.now_ns if is_crowded else since_ns + GONE_NS)
        key = (RETIRE_TIMER, 0, 0)
        if due:
            self._context.timers.set(key, max(min(due), earliest_ns, self._next_turn_ns))
        else:
            self._context.timers.cancel(key)

    def on_timer(self, key: TimerKey) -> None:
        """Forget who left long ago, a bounded number; write down who is gone for long."""
        now_ns = self._context.now_ns
        self._next_turn_ns = now_ns + TURN_NS
        for node_id in list(islice(self._left, AT_ONCE_MAX)):
            if self._left[node_id] + LEFT_NS <= now_ns:
                self._retire(node_id)
        over = max(0, len(self._gone) - GONE_MAX)
        oldest = enumerate(islice(self._gone.items(), AT_ONCE_MAX))
        gone = [i for at, (i, since_ns) in oldest if at < over or since_ns + GONE_NS <= now_ns]
        if gone and not self._may_write():
            self._plan(now_ns + LOOK_AGAIN_NS)
            return
        for node_id in gone:
            self._write_left(node_id)
        self._plan(now_ns)

    def _may_write(self) -> bool:
        context = self._context
        if not context.has_quorum or context.id >= context.membership.founding_size:
            return False
        return next(context.membership.living(), None) == context.id

    def _write_left(self, node_id: NodeId) -> None:
        del self._gone[node_id]
        record = self._context.membership.get(node_id)
        if record is not None and record.status in (Status.DEAD, Status.EXCLUDED):
            self._context.observe("given up", node_id, record.incarnation)
            self._notices.publish(node_id, record._replace(status=Status.LEFT))

    def _retire(self, node_id: NodeId) -> None:
        del self._left[node_id]
        self._context.membership.retire(node_id)
        self._context.moved_ns.pop(node_id, None)
