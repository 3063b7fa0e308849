"""What programs are told of their reliable broadcasts: who confirmed, who did not, and why.

Theory of operation. A program waits for one `Reply` for each broadcast. It comes when nobody is missing
who is held alive, and at the latest at the deadline. It names everybody of the audience: confirmed, or
failed with an error of its own. What was sent stays on its way after the deadline; what waited for room
is withdrawn. What this node broadcasts of its own has no program, and no report.
"""

from __future__ import annotations

from bmgd.core.broadcast.window import BroadcastWindow, OwnBroadcast
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.streams.gathering import failure_of
from bmgd.core.timers import TimerKey
from bmgd.errors import BmgdError, DeadError, DeliveryError, NewLifeError, UnreachableError
from bmgd.routing.id_sets import ids_in
from bmgd.types import NodeId, Status

REPORT_TIMER = "broadcast report"


class BroadcastReports:
    """The reports that programs wait for.

    Attributes:
        awaited: broadcasts that are not answered, by request.
    """

    def __init__(self, context: Context, window: BroadcastWindow) -> None:
        self._context = context
        self._window = window
        self.awaited: dict[int, OwnBroadcast] = {}

    def expect(self, sent: OwnBroadcast) -> None:
        """A program waits for a report, until the deadline."""
        self.awaited[sent.request] = sent
        self._context.timers.set((REPORT_TIMER, sent.request, 0), sent.deadline_ns)

    def on_timer(self, key: TimerKey) -> None:
        """The program waits no longer; what was sent stays on its way."""
        sent = self.awaited.get(key[1])
        if sent is None:
            return
        if not sent.sequence:
            self._window.withdraw(sent)
            sent.missing = self._window.living()
        self.answer(sent)

    def answer(self, sent: OwnBroadcast) -> None:
        """Tell who confirmed and who did not, unless it was told."""
        if sent.answered:
            return
        self._close(sent)
        audience = ((1 << sent.id_space) - 1) & ~sent.exceptions
        unconfirmed = sent.missing | sent.restarted | sent.left
        confirmed = audience & ~unconfirmed
        failed = [
            failure_of(NodeId(each), self._why(sent, NodeId(each)), sent=bool(sent.sequence))
            for each in ids_in(unconfirmed)
        ]
        self._context.emit(
            Reply(sent.request, {"confirmed": list(ids_in(confirmed)), "failed": failed})
        )

    def refuse(self, sent: OwnBroadcast, error: BmgdError) -> None:
        """It was not sent, and never will be."""
        if sent.answered:
            return
        self._close(sent)
        self._context.emit(Reply(sent.request, error=error))

    def abandon(self, why: str) -> None:
        """Give up everything that is not confirmed; programs are told, and whether it was sent."""
        for sent in list(self.awaited.values()):
            self._close(sent)
            error = UnreachableError(self._context.id, why, sent=bool(sent.sequence))
            self._context.emit(Reply(sent.request, error=error))

    def _close(self, sent: OwnBroadcast) -> None:
        sent.answered = True
        del self.awaited[sent.request]
        self._context.timers.cancel((REPORT_TIMER, sent.request, 0))

    def _why(self, sent: OwnBroadcast, node_id: NodeId) -> DeliveryError:
        status = self._context.membership.status_of(node_id)
        if sent.restarted >> node_id & 1:
            return NewLifeError(node_id, "it began a new life before it confirmed")
        if status is not None and status >= Status.DEAD:
            return DeadError(node_id, f"it is {status.name.lower()}")
        if sent.left >> node_id & 1:
            return DeadError(node_id, "it was known to have left before it confirmed")
        if not sent.sequence:
            return UnreachableError(node_id, "no room in the window before the deadline")
        return UnreachableError(node_id, "sent, not confirmed before the deadline")
