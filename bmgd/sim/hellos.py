"""Hellos between simulated hosts: from the dial until the link is up, refused, or granted an id.

What one end does reaches the other by `ways.py`. A dial that finds nobody, or somebody else, ends before
any core hears of it. The others are told to the core that is dialled, which orders the answer:

    dial --> greeted --welcome--> up at both ends (`wires.py` goes on)
                     --refuse---> the dial has failed
                     --grant----> a joiner has its id, and the connection is over
    no answer within the dial's timeout --> it has failed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from bmgd.core.effects import AskContact, Dial, Grant, Refuse
from bmgd.core.events import Event, Granted, LinkDown, LinkUp
from bmgd.core.settings import Settings
from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.hellobytes import HelloBytes
from bmgd.sim.host import End, Host, Waiting
from bmgd.sim.joining import common_key, event_of_failure, event_of_hello, everything_of
from bmgd.sim.timeline import Timeline
from bmgd.sim.ways import Ways
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.features import SPOKEN
from bmgd.wire.hello import Refusal

_ANYBODY: Final = NodeId(-1)


def forget(end: End) -> None:
    """An end takes no part in its connection any more."""
    end.open = False
    end.host.ends.pop(end.link, None)


class Hellos:
    """All connections that are no links yet.

    Args:
        timeline: virtual time.
        random: for the answers of the dead.
        conditions: what the network is like.
        blockade: who does not hear whom.
        ways: carry what one end does to the other.
        emit: tells a host's core an event.
        close_other: the other end of a connection learns that it is over, and how.

    Attributes:
        hello_bytes: the same hellos byte by byte, told of each; None where nobody looks.
        listeners: the host at every address.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        blockade: Blockade,
        ways: Ways,
        emit: Callable[[Host, Event], None],
        close_other: Callable[[End, Evidence], None],
    ) -> None:
        self.hello_bytes: HelloBytes | None = None
        self.listeners: dict[str, Host] = {}
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._blockade = blockade
        self._ways = ways
        self._carry = ways.carry
        self._emit = emit
        self._close_other = close_other
        self._link_count = 0

    # --- dialling -----------------------------------------------------------------------------

    def dial(self, host: Host, dial: Dial | AskContact) -> None:
        """Connect as ordered; the core is told what comes of it."""
        target = self.listeners.get(dial.address)
        expected = dial.peer if isinstance(dial, Dial) else _ANYBODY
        peer = expected if target is None else target.where
        blockade = self._blockade
        delay_ns = self._ways.delay_ns() + blockade.delay_of(host.where, peer, 0)
        if blockade.blocks(host.where, peer) or blockade.blocks(peer, host.where):
            self._fail(host, dial, dial.timeout_ns, Evidence.NO_ANSWER)
        elif target is None:
            self._fail(host, dial, delay_ns, Evidence.REFUSED)
        elif target.squatter == "cluster":
            self._reject(host, target, dial, delay_ns, Refusal.WRONG_CLUSTER)
        elif target.squatter:
            self._fail(host, dial, dial.timeout_ns, Evidence.NO_ANSWER)
        elif not target.alive:
            self._fail(host, dial, delay_ns, self._answer_of_dead(target))
        elif target is host:
            self._reject(host, target, dial, delay_ns, Refusal.OWN_ADDRESS)
        elif target.joiner is not None:
            # It listens, and answers nobody before it is a member: its backlog keeps the dial.
            waiting = host, dial, self._timeline.now_ns + dial.timeout_ns
            target.backlog.append(waiting)
            self._timeline.plan(waiting[2], self._leave_backlog, target, waiting)
        elif expected not in (_ANYBODY, target.id):
            self._reject(host, target, dial, delay_ns, Refusal.WRONG_ID)
        elif expected == host.id and expected != _ANYBODY:
            life = target.node.incarnation
            self._reject(host, target, dial, delay_ns, Refusal.DUPLICATE, life)
        elif common_key(host, target) is None:
            self._reject(host, target, dial, delay_ns, Refusal.WRONG_SECRET)
        else:
            self._connect(host, target, dial)

    def _leave_backlog(self, target: Host, waiting: Waiting) -> None:
        if waiting in target.backlog:
            target.backlog.remove(waiting)
            self._fail(waiting[0], waiting[1], 0, Evidence.NO_ANSWER)

    def answer_backlog(self, target: Host) -> None:
        """A joiner has become a member: those who dialled it meanwhile meet it now."""
        backlog, target.backlog = target.backlog, []
        for host, dial, until_ns in backlog:
            if host.alive:
                self.dial(host, replace(dial, timeout_ns=until_ns - self._timeline.now_ns))

    def _answer_of_dead(self, target: Host) -> Evidence:
        if target.proxied or self._timeline.now_ns < target.accepts_until_ns:
            return Evidence.EOF if self._random.random() < 0.5 else Evidence.RESET
        return Evidence.REFUSED

    def _connect(self, host: Host, target: Host, dial: Dial | AskContact) -> None:
        key = common_key(host, target) or ""
        mine = End(host, self._new_link(), dial=dial, key=key)
        theirs = End(target, self._new_link(), other=mine, life=target.node.incarnation)
        mine.other = theirs
        host.ends[mine.link] = mine
        target.ends[theirs.link] = theirs
        hello = event_of_hello(host, dial, theirs.link, key)
        now_ns = self._timeline.now_ns
        mine.last_ns = now_ns + sum(
            self._ways.delay_ns() for _ in range(self._conditions.hello_trips - 1)
        )
        self._carry(mine, 0, self._greet, theirs, hello)
        if self.hello_bytes is not None:
            self.hello_bytes.dialled(host, theirs, dial, hello)
        self._timeline.plan(now_ns + dial.timeout_ns, self._ways.tell, host, self._time_out, mine)

    def _new_link(self) -> LinkId:
        self._link_count += 1
        return LinkId(self._link_count)

    def _fail(
        self,
        host: Host,
        dial: Dial | AskContact,
        delay_ns: int,
        evidence: Evidence,
        refusal: Refusal | None = None,
        known: Incarnation = UNKNOWN_INCARNATION,
        *,
        proven: bool = True,
    ) -> None:
        failed = event_of_failure(dial, evidence, refusal, known, proven=proven)
        at_ns = self._timeline.now_ns + delay_ns
        self._timeline.plan(at_ns, self._ways.tell, host, self._emit, host, failed)

    def _reject(
        self,
        host: Host,
        target: Host,
        dial: Dial | AskContact,
        delay_ns: int,
        refusal: Refusal,
        known: Incarnation = UNKNOWN_INCARNATION,
    ) -> None:
        """A dial ends with the hello, before any core hears of it."""
        # Who has one's own id says so when both have proven themselves; all else is said before.
        proven = not host.keys or refusal is Refusal.DUPLICATE
        if self.hello_bytes is not None:
            self.hello_bytes.rejected(host, target, dial, refusal, proven=proven)
        self._fail(host, dial, delay_ns, Evidence.REJECTED, refusal, known, proven=proven)

    # --- answers ------------------------------------------------------------------------------

    def _greet(self, end: End, hello: Event) -> None:
        if end.open:
            self._emit(end.host, hello)

    def _time_out(self, end: End) -> None:
        if end.open and not end.up and end.dial is not None:
            forget(end)
            self._carry(end, 0, self._close_other, end, Evidence.EOF)
            self._emit(end.host, event_of_failure(end.dial, Evidence.NO_ANSWER))

    def welcome(self, host: Host, link: LinkId, known: Incarnation) -> None:
        """The hello that waits on a link is answered; the link is up."""
        end = host.ends.get(link)
        if end is None or end.other is None or end.dial is not None:
            # It went away meanwhile: the core must not take the link for one that is up.
            self._emit(host, LinkDown(link, Evidence.EOF))
            return
        if end.life != host.node.incarnation:
            # This side began a new life while the hello waited; it speaks for the former one.
            self.refuse(host, Refuse(link, Refusal.RENEWED, known))
            self._emit(host, LinkDown(link, Evidence.GOODBYE))
            return
        assert end.other.dial is not None
        if self.hello_bytes is not None:
            self.hello_bytes.welcomed(end, known)
        self._adopt(end, end.other.host.id)
        self._carry(end, 0, self._welcomed, end.other, end.life, known)

    def _adopt(self, end: End, peer: NodeId) -> None:
        end.up = True
        end.host.layer.adopt(-1, end.link, peer)

    def _welcomed(self, end: End, incarnation: Incarnation, known: Incarnation) -> None:
        dial = end.dial
        if not end.open or not isinstance(dial, Dial):
            return
        self._adopt(end, dial.peer)
        address = dial.address if end.other is None else end.other.host.address
        link, peer, number = end.link, dial.peer, dial.dial_number
        features = SPOKEN if end.other is None else end.other.host.features
        up = LinkUp(link, peer, incarnation, address, known, number, end.key, dial.renews, features)
        if self.hello_bytes is not None:
            self.hello_bytes.linked(end, up)
        self._emit(end.host, up)

    def refuse(self, host: Host, refuse: Refuse) -> None:
        """The hello that waits on a link is refused."""
        end = host.ends.get(refuse.link)
        if end is None or end.other is None or end.other.dial is None:
            return
        forget(end)
        dial = end.other.dial
        if self.hello_bytes is not None:
            self.hello_bytes.refused(end, refuse.refusal, refuse.known)
        failed = event_of_failure(dial, Evidence.REJECTED, refuse.refusal, refuse.known)
        self._carry(end, 0, self._end_hello, end.other, failed)

    def grant(self, host: Host, grant: Grant, settings: Settings) -> None:
        """The joiner that waits on a link is told all that a member must know."""
        end = host.ends.get(grant.link)
        if end is None or end.other is None:
            return
        forget(end)
        records, retired = everything_of(host)
        told = Granted(grant.id, settings.founding_size, settings.peers, records, retired)
        if self.hello_bytes is not None:
            self.hello_bytes.granted(end, told)
        self._carry(end, 0, self._end_hello, end.other, told)
        # It has asked for all of it, and said goodbye.
        self._emit(host, LinkDown(grant.link, Evidence.GOODBYE))

    def _end_hello(self, end: End, outcome: Event) -> None:
        if end.open:
            forget(end)
            self._emit(end.host, outcome)

    def leave_all(self, host: Host) -> None:
        """A process ended: its dials wait in no backlog any more."""
        for target in self.listeners.values():
            if target.backlog:
                target.backlog = [waiting for waiting in target.backlog if waiting[0] is not host]
