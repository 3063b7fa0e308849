"""Eviction: an operator takes an id out of the cluster, whatever its daemon thinks of that.

Theory of operation. An eviction is the record ``left`` of the life that leads the id, with the highest
version, so that nothing outranks it but a new life. A record of life 0 would not bind a founder that
nobody here has met, so its life is asked for first; then the record is told like any other, and the
target ends when it reads it:

    Evict --life known--> told --its address refuses, or it was gone before--> ended
    Evict --life unknown--> asked --it answers, or `ASK_NS` pass--> told --the deadline--> not confirmed

The record holds from the moment that it is told; what is still open then is only whether the daemon
has ended, which the one who evicts finds out by dialling its address.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.commands import Evict
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.events import DialFailed
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.membership.notices import Notices
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.timers import TimerKey
from bmgd.errors import RequestError
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, NodeId, Record, Status
from bmgd.wire.ask_messages import Ask

EVICT_TIMER = "evict"
EVICTIONS_MAX = 64
ASK_NS = 500_000_000
ASK_AGAIN_NS = 100_000_000
CONFIRM_NS = 50_000_000
VERSION_MAX = 2**32 - 1


@dataclass(slots=True)
class _Underway:
    request: int
    former: Status
    ask_until_ns: int
    deadline_ns: int
    told: bool = False
    life: Incarnation = UNKNOWN_INCARNATION


@dataclass(slots=True)
class Eviction:
    """The evictions that programs of this node asked for, at most `EVICTIONS_MAX` at a time."""

    context: Context
    notices: Notices
    forwarding: Forwarding
    dialling: Dialling
    _underway: dict[NodeId, _Underway] = field(default_factory=dict)

    def start(self, request: int, command: Evict) -> None:
        """Begin an eviction; one `Reply` follows, at the latest at its deadline."""
        target, context = command.id, self.context
        status = context.membership.status_of(target)
        error = self._refusal(target, status)
        if error is not None or status is None:
            context.emit(Reply(request, error=error))
            return
        if status is Status.LEFT:
            context.emit(Reply(request, _outcome(target, status, ended=True)))
            return
        now_ns = context.now_ns
        deadline_ns = now_ns + command.timeout_ns
        ask_until_ns = min(now_ns + ASK_NS, deadline_ns)
        self._underway[target] = _Underway(request, status, ask_until_ns, deadline_ns)
        self._ask_or_tell(target)

    def _refusal(self, target: NodeId, status: Status | None) -> RequestError | None:
        if status is None:
            return RequestError(f"no node has the id {target}")
        if target == self.context.id:
            return RequestError("a node is evicted by another one; let this one leave")
        if target in self._underway:
            return RequestError(f"node {target} is being evicted already")
        if len(self._underway) >= EVICTIONS_MAX:
            return RequestError("too many evictions underway")
        return None

    # --- asking and telling -------------------------------------------------------------------

    def _ask_or_tell(self, target: NodeId) -> None:
        context, underway = self.context, self._underway[target]
        membership = context.membership
        is_known = membership.incarnation(target) != UNKNOWN_INCARNATION
        if is_known or membership.is_gone(target) or context.now_ns >= underway.ask_until_ns:
            self._tell(target, underway)
            return
        # Who is asked about itself always answers, and says which life it leads.
        self.forwarding.originate(
            Ask(self.forwarding.route_to(target), target, UNKNOWN_INCARNATION)
        )
        at_ns = min(context.now_ns + ASK_AGAIN_NS, underway.ask_until_ns)
        context.timers.set((EVICT_TIMER, target, 0), at_ns)

    def _tell(self, target: NodeId, underway: _Underway) -> None:
        context, membership = self.context, self.context.membership
        record = membership.get(target)
        assert record is not None
        underway.told = True
        life = underway.life = membership.incarnation(target)
        context.observe("evicted", target, life)
        self.notices.publish(target, Record(life, VERSION_MAX, Status.LEFT, record.address))
        if underway.former >= Status.DEAD:
            self._end(target, ended=True)
        else:
            self._wait(target, underway)

    def _wait(self, target: NodeId, underway: _Underway) -> None:
        at_ns = min(self.context.now_ns + CONFIRM_NS, underway.deadline_ns)
        self.context.timers.set((EVICT_TIMER, target, 0), at_ns)

    def on_timer(self, key: TimerKey) -> None:
        """Ask again, look again whether the target has ended, or give up."""
        target = NodeId(key[1])
        underway = self._underway[target]
        if not underway.told:
            self._ask_or_tell(target)
        elif self.context.now_ns >= underway.deadline_ns:
            self._end(target, ended=False)
        elif self.context.membership.status_of(target) is not Status.LEFT:
            self._on_later_life(target, underway)
        else:
            self.dialling.dial(target)
            self._wait(target, underway)

    def _on_later_life(self, target: NodeId, underway: _Underway) -> None:
        """The id has a later life than the one that was told to have left."""
        if underway.life == UNKNOWN_INCARNATION:
            # It had that one all the time, and could not be asked.
            self._tell(target, underway)
        else:
            # Somebody started the daemon again: what was evicted has ended.
            self._end(target, ended=True)

    def on_life_learned(self, target: NodeId) -> None:
        """The life that leads an id has answered."""
        underway = self._underway.get(target)
        if underway is not None and not underway.told:
            self._ask_or_tell(target)

    def on_dial_failed(self, failed: DialFailed) -> None:
        """Only "refused" says that nobody is there any more."""
        underway = self._underway.get(failed.peer)
        if underway is not None and underway.told and failed.evidence is Evidence.REFUSED:
            self._end(failed.peer, ended=True)

    def abandon(self, why: str) -> None:
        """Give up all evictions underway."""
        for target, underway in self._underway.items():
            self.context.timers.cancel((EVICT_TIMER, target, 0))
            self.context.emit(Reply(underway.request, error=RequestError(why)))
        self._underway.clear()

    def _end(self, target: NodeId, *, ended: bool) -> None:
        underway = self._underway.pop(target)
        self.context.timers.cancel((EVICT_TIMER, target, 0))
        outcome = _outcome(target, underway.former, ended=ended)
        self.context.emit(Reply(underway.request, outcome))


def _outcome(target: NodeId, former: Status, *, ended: bool) -> dict[str, object]:
    return {"id": target, "was": former.name.lower(), "ended": ended}
