"""This node's own life: starting, being ready, beginning a new life, refuting, leaving.

    STARTING --first deadline--> JOINING --each wanted link was up, or its id is dead, broken or past
    the start deadline--> READY --Leave--> LEAVING --drained--> exit

A node begins a *new life*, with a counter above, when it learns of another life of its id of no lower
counter (a peer's hello knows one), or of a higher one that is dead. A higher one that is alive ends
the process. What is said of the life it leads, it answers: a false death with a higher version,
`left` (an eviction) by ending. A joiner's id is not its own to keep: where another life has it, the
node gives `Displaced`, and its process becomes a new node under a new id (`joining/joiner.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import chain, islice
from random import Random

from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.context import AccusedSelf, Context
from bmgd.core.draining import Draining
from bmgd.core.effects import Displaced, Exit, Renewed, Reply
from bmgd.core.links import Links
from bmgd.core.membership.notices import Notices
from bmgd.core.neighbors.detector import Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.redialling import Redialling
from bmgd.core.neighbors.relayout import Relayout
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.timers import TimerKey
from bmgd.types import (
    COUNTER_MAX,
    UNKNOWN_INCARNATION,
    Incarnation,
    NodeId,
    NodeState,
    Record,
    Status,
    counter_of,
    outranks,
)

START_TIMER = "start"
START_DEADLINE_TIMER = "start deadline"
LEAVE_TIMER = "leave"
LEAVE_POLL_NS = 10_000_000
CONTACTS_MAX = 16
LIVES_MAX = 4
LIVES_NS = 3_600_000_000_000
_LAST = Incarnation(2**64 - 1)
_VERSION_MAX = 2**32 - 1


@dataclass(slots=True)
class Lifecycle:
    """The states of one node, and what moves it from one to the next."""

    context: Context
    links: Links
    notices: Notices
    detector: Detector
    dialling: Dialling
    redialling: Redialling
    relayout: Relayout
    outbound: Outbound
    inbound: Inbound
    to_many: ToMany
    draining: Draining
    leave_by_ns: int = 0
    _leave_requests: list[int] = field(default_factory=list)
    _begun_ns: deque[int] = field(default_factory=deque)

    # --- starting -----------------------------------------------------------------------------

    def on_start_timer(self, key: TimerKey) -> None:
        """The first deadline: begin to join."""
        context = self.context
        context.state = NodeState.JOINING
        if context.id in context.membership.retired:
            # A joiner was so long on its way that its id was given up: it is in nobody's layout.
            context.lose_id(f"the id {context.id} was given up before this node began")
            return
        baseline = context.membership.get(context.id)
        record = context.membership.exceptions().get(context.id)
        if record is not None and record > context.own_record():
            # A joiner that was long on its way finds itself held dead.
            context.tell(AccusedSelf(record))
        elif record or baseline is None or baseline.address != context.settings.address:
            self.notices.publish(context.id, context.own_record())
        deadline_ns = context.now_ns + context.settings.start_ns
        context.timers.set((START_DEADLINE_TIMER, 0, 0), deadline_ns)
        self.detector.start()
        self.redialling.start()
        self.redialling.start_searching()
        self.relayout.follow()

    def check_ready(self) -> None:
        """Become ready once each wanted link has been up, or its id is dead or broken."""
        if self.context.state is not NodeState.JOINING:
            return
        for peer in self.dialling.wanted:
            peering = self.dialling.peering(peer)
            if not (peering.linked or peering.broken or self.context.membership.is_gone(peer)):
                return
        self._become_ready()

    def on_start_deadline_timer(self, key: TimerKey) -> None:
        """Founders that have not come by now are not waited for."""
        if self.context.state is NodeState.JOINING:
            self.dialling.may_suspect_never_linked = True
            if not self.dialling.give_up_if_misconfigured():
                self._become_ready()

    def _become_ready(self) -> None:
        self.context.state, self.context.has_been_ready = NodeState.READY, True
        self.dialling.may_suspect_never_linked = True
        self.relayout.unsettled = True
        self.context.timers.cancel((START_DEADLINE_TIMER, 0, 0))
        self.context.observe("ready", detail=f"{len(self.links.by_peer)} links")

    # --- other lives of this id ---------------------------------------------------------------

    def know_former_life(self, former: Incarnation) -> None:
        """A peer knows another life of this id."""
        context = self.context
        if outranks(former, context.incarnation):
            context.begin_above(former, "told over a link")
            return
        context.followed = True
        self.notices.publish(context.id, context.own_record())

    def on_accused_self(self, record: Record) -> None:
        """A record says more of this id than this node says of itself."""
        context = self.context
        if record.incarnation > context.incarnation:
            # Not gone, it would be a claim: `joining/claims.py`.
            context.begin_above(record.incarnation, "said to be gone")
        elif record.status is Status.LEFT:
            self._on_left(record)
        elif record.status >= Status.DEAD and not context.settings.refutes:
            context.emit(Exit(1, "this node was declared dead, and --on-declared-dead is exit"))
        elif record.version >= _VERSION_MAX:
            # No version is left to refute with; a new life has all of them.
            context.begin_above(record.incarnation, "without a version left")
        else:
            context.version = record.version
            # Equal but for the status or the address: one version more outranks either.
            context.version += context.own_record() < record
            context.observe("refuted", context.id, context.incarnation, record.status.name.lower())
            self.notices.publish(context.id, context.own_record())
            self.to_many.resync()

    def _on_left(self, record: Record) -> None:
        """Somebody wrote that this life has left: an eviction, or it was away for long."""
        context = self.context
        if context.state is NodeState.LEAVING:
            return
        if record.version >= _VERSION_MAX or context.id < context.membership.founding_size:
            context.emit(Exit(1, "this node was evicted from the cluster"))
        else:
            context.lose_id(f"the id {context.id} was given up while this node was away")

    def renew_if_asked(self) -> None:
        """Begin a new life if something of this step asks for it.

        Claims of greater lives, by a defect or on purpose, could go on for ever: after `LIVES_MAX` in an
        hour the id is lost.
        """
        context = self.context
        if context.renew_above == UNKNOWN_INCARNATION:
            return
        while self._begun_ns and self._begun_ns[0] <= context.now_ns - LIVES_NS:
            self._begun_ns.popleft()
        if len(self._begun_ns) >= LIVES_MAX:
            context.lose_id(
                f"the id {context.id} is claimed again and again:"
                f" by a life {context.renew_above:#x}, {context.renew_why}"
            )
            context.renew_above = UNKNOWN_INCARNATION
            return
        self._begun_ns.append(context.now_ns)
        above = life_above(context.renew_above, context.random)
        context.renew_above = UNKNOWN_INCARNATION
        if above is None and not context.settings.takes_new_id and context.incarnation != _LAST:
            # There is nothing above it, and nobody leads it: it becomes this node's. Versions go on.
            above = _LAST
        if above is None:
            context.lose_id(
                f"no incarnation of the id {context.id} is left above the highest known"
            )
            return
        for link in list(self.links.table.values()):
            self.links.close(link, "a new life begins")
        former, context.incarnation = context.incarnation, above
        context.version = 0
        context.followed = True
        self.dialling.on_new_life()
        context.emit(Renewed(context.incarnation))
        context.observe("new life", context.id, context.incarnation)
        self.notices.publish(context.id, context.own_record())
        self.outbound.answers.on_own_new_life()
        self.inbound.on_own_new_life()
        self.to_many.on_own_new_life(former)
        self.dialling.reconcile()

    def displace(self, why: str, told_by: NodeId | None = None) -> None:
        """Another life has this id: end the links and what waits on them, and ask for a new id.

        Args:
            told_by: who refused this node for it, or None.
        """
        context = self.context
        context.observe("displaced", context.id, context.incarnation, why)
        context.state = NodeState.LEAVING
        contacts = self._contacts(told_by)
        for link in list(self.links.table.values()):
            self.links.close(link, "another life has this id")
        self.to_many.abandon("another life took this node's id before everybody confirmed it")
        self.outbound.answers.on_own_new_life()
        self.inbound.on_own_new_life()
        context.emit(Displaced(contacts))

    def _contacts(self, told_by: NodeId | None) -> tuple[str, ...]:
        """Addresses of those who could give an id: linked, wanted, held to live, then the others.

        Before them all who has just answered, though this node may hold it dead.
        """
        membership, me = self.context.membership, self.context.id
        others = chain(membership.living(), map(NodeId, membership.gone))
        first = () if told_by is None else (told_by,)
        peers = chain(first, self.links.by_peer, self.dialling.wanted, others)
        records = (membership.get(peer) for peer in peers if peer != me)
        addresses = (record.address for record in records if record is not None)
        return tuple(islice(dict.fromkeys(addresses), CONTACTS_MAX))

    # --- leaving ------------------------------------------------------------------------------

    def leave(self, request: int, timeout_ns: int | None = None) -> None:
        """Take nothing more, drain, tell everybody, end; the request is answered when all are told.

        It goes on relaying meanwhile; of what it relays last, the sources hear nothing, and send it again
        as soon as they know that it has left. Asked again, the shorter time counts.
        """
        context = self.context
        self._leave_requests.append(request)
        by_ns = context.now_ns + (context.settings.leave_ns if timeout_ns is None else timeout_ns)
        if context.state is NodeState.LEAVING:
            self.leave_by_ns = min(self.leave_by_ns, by_ns)
            return
        context.state = NodeState.LEAVING
        context.observe("leaving")
        self.leave_by_ns = by_ns
        context.timers.set((LEAVE_TIMER, 0, 0), context.now_ns)

    def on_leave_timer(self, key: TimerKey) -> None:
        """Look whether all is drained, or the time for it is over."""
        context = self.context
        if not self.draining.is_drained and context.now_ns < self.leave_by_ns:
            context.timers.set((LEAVE_TIMER, 0, 0), context.now_ns + LEAVE_POLL_NS)
            return
        left_over = self.draining.describe()
        self.draining.abandon()
        self.notices.publish(context.id, context.own_record(Status.LEFT))
        self.notices.flush()
        for link in list(self.links.table.values()):
            self.links.close(link, "leaving")
        for request in self._leave_requests:
            context.emit(Reply(request, left_over))
        context.emit(Exit(0, "left the cluster"))


def life_above(known: Incarnation, random: Random) -> Incarnation | None:
    """A life of a higher counter than `known`; behind the last counter one of higher lower bits.

    Those are drawn from the lower half of what is left above, so that there are many more. None only
    above the very last incarnation.
    """
    counter = counter_of(known) + 1
    if counter <= COUNTER_MAX:
        return Incarnation(counter << 32 | random.getrandbits(32))
    left = _LAST - known
    return Incarnation(known + 1 + random.randrange((left + 1) // 2)) if left else None
