"""Connections between simulated hosts: how they begin, what they say, how they end.

What one end does reaches the other by `ways.py`, which keeps the order, and loses what a broken
connection loses. Once a hello is over the link belongs to the host's link layer, the daemon's own, and
`pipes.py` carries its bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from bmgd.core.effects import AskContact, Dial, Grant, Refuse
from bmgd.core.events import Event, Granted, LinkDown, LinkUp
from bmgd.core.settings import Settings
from bmgd.errors import InvariantError
from bmgd.linkevents import LinkEvents
from bmgd.linklayer import LinkEngine, LinkLayer, contract
from bmgd.linklayer.outbox import BULK_BYTES_MAX
from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.framebytes import kind_of_put
from bmgd.sim.hellobytes import HelloBytes
from bmgd.sim.host import End, Host, Waiting
from bmgd.sim.joining import common_key, event_of_failure, event_of_hello, everything_of
from bmgd.sim.malformed_frames import MalformedFrames
from bmgd.sim.pipes import Pipes
from bmgd.sim.timeline import Timeline
from bmgd.sim.ways import Ways
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.features import SPOKEN
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Goodbye, Notice
from bmgd.wire.messages import Message

CLOSING_NS: Final = 1_000_000_000
_ERRNO_OF: Final = {
    Evidence.EOF: 0,
    Evidence.RESET: errno.ECONNRESET,
    Evidence.TIMED_OUT: errno.ETIMEDOUT,
}
_ANYBODY: Final = NodeId(-1)


class Wires:
    """All connections.

    Args:
        timeline: virtual time.
        random: for delays and losses.
        conditions: what the network is like.
        blockade: who does not hear whom.
        emit_all: tells a host's core events, then what its links have to tell; writes at last.
        malformed: what members gone wrong have said.

    Attributes:
        make_layer: makes a host's link layer.
        hello_bytes: the same hellos byte by byte, told of each; None where nobody looks.
        listeners: the host at every address.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        blockade: Blockade,
        emit_all: Callable[[Host, Iterable[Event]], None],
        malformed: MalformedFrames,
    ) -> None:
        self.make_layer: Callable[[Host], LinkEngine] = self._plain_layer
        self.hello_bytes: HelloBytes | None = None
        self.listeners: dict[str, Host] = {}
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._blockade = blockade
        self._emit_all = emit_all
        self._ways = Ways(timeline, random, conditions, blockade, self._on_given_up)
        self._carry = self._ways.carry
        self._pipes = Pipes(
            timeline, random, conditions, self._ways, self._turn, self._close_other, malformed
        )
        self._link_count = 0

    def _emit(self, host: Host, event: Event) -> None:
        self._emit_all(host, (event,))

    def _turn(self, host: Host) -> None:
        """Let a host look at what its links have to tell."""
        self._emit_all(host, ())

    def equip(self, host: Host) -> None:
        """A process begins at a host: it has no links."""
        host.layer = self.make_layer(host)
        host.layer.publish(host.snapshot)
        host.link_events = LinkEvents(
            host.layer,
            lambda link: self._on_link_gone(host, link),
            lambda link: self._on_link_written(host, link),
            self._pipes.decode,
            self._pipes.encode,
        )

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

    def _greet(self, end: End, hello: Event) -> None:
        if end.open:
            self._emit(end.host, hello)

    def _time_out(self, end: End) -> None:
        if end.open and not end.up and end.dial is not None:
            self._forget(end)
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
        self._forget(end)
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
        self._forget(end)
        records, retired = everything_of(host)
        told = Granted(grant.id, settings.founding_size, settings.peers, records, retired)
        if self.hello_bytes is not None:
            self.hello_bytes.granted(end, told)
        self._carry(end, 0, self._end_hello, end.other, told)
        # It has asked for all of it, and said goodbye.
        self._emit(host, LinkDown(grant.link, Evidence.GOODBYE))

    def _end_hello(self, end: End, outcome: Event) -> None:
        if end.open:
            self._forget(end)
            self._emit(end.host, outcome)

    # --- ending -------------------------------------------------------------------------------

    def _forget(self, end: End) -> None:
        end.open = False
        end.host.ends.pop(end.link, None)

    def close(self, host: Host, link: LinkId, reason: str) -> None:
        """Say goodbye; what is underway from the other end is still read."""
        end = host.ends.get(link)
        if end is None:
            return
        self._forget(end)
        if not end.up:
            self._carry(end, 0, self._close_other, end, Evidence.EOF)
            return
        host.layer.shut(link, self._pipes.encode(Goodbye(reason)))
        end.closing = True
        host.closing[link] = end
        at_ns = self._timeline.now_ns + CLOSING_NS
        self._timeline.plan(at_ns, self._ways.tell, host, self._stop_closing, end)

    def _stop_closing(self, end: End) -> None:
        if end.closing and end.host.link_events is not None:
            self._emit_all(end.host, end.host.link_events.end(end.link))

    def _on_link_gone(self, host: Host, link: LinkId) -> None:
        """The process has closed its socket."""
        end = host.ends.pop(link, None) or host.closing.pop(link, None)
        if end is None:
            return
        end.open = end.closing = False
        if not end.over:
            self._carry(end, 0, self._close_other, end, Evidence.EOF)

    def _on_link_written(self, host: Host, link: LinkId) -> None:
        """Its goodbye is out: the other end reads that nothing follows."""
        # Told in the poll that follows the flush that wrote it: nothing has ended the link in between.
        end = host.closing[link]
        self._carry(end, 0, self._finish, end, Evidence.EOF)

    def _finish(self, sender: End, evidence: Evidence) -> None:
        """The other end has read that nothing follows."""
        end = sender.other
        assert end is not None
        end.host.layer.finish(end.link, _ERRNO_OF[evidence])
        self._turn(end.host)

    def end_all(self, host: Host, *, abruptly: bool) -> None:
        """A process ended: its kernel closes its connections.

        Args:
            host: whose process it was.
            abruptly: killed; else it had time to write what it wanted to.
        """
        for target in self.listeners.values():
            if target.backlog:
                target.backlog = [waiting for waiting in target.backlog if waiting[0] is not host]
        for end in (*host.closing.values(), *host.ends.values()):
            if end.up and not abruptly:
                self._pipes.write_all(end)
        for end in list(host.closing.values()):
            end.closing = False
            self._break(end, abruptly)
        host.closing.clear()
        for end in list(host.ends.values()):
            self._forget(end)
            self._break(end, abruptly)

    def _break(self, end: End, abruptly: bool) -> None:
        """The other end learns of it after what is underway, of which a suffix may be lost."""
        evidence = Evidence.EOF
        if abruptly and self._conditions.loses_suffix and self._random.random() < 0.5:
            evidence = Evidence.RESET
            self._ways.lose_suffix(end)
        if end.other is not None:
            self._ways.carry_past_loss(end, self._close_other, end, evidence)

    def break_link(self, end: End) -> None:
        """Reset a connection at both ends; each may miss a suffix of what was sent to it."""
        other = end.other
        if other is None:
            return
        for one in (end, other):
            self._ways.lose_suffix(one)
        for one in (end, other):
            self._ways.carry_past_loss(one, self._close_other, one, Evidence.RESET)

    def _close_other(self, sender: End, evidence: Evidence) -> None:
        """The other end learns that the connection is over."""
        end = sender.other
        assert end is not None
        if not (end.open or end.closing):
            return
        end.over = True
        if end.up:
            self._finish(sender, evidence)
        else:
            self._forget(end)
            self._say_broken(end, evidence)

    def _on_given_up(self, end: End) -> None:
        end.over = True
        if end.up:
            assert end.other is not None
            self._ways.tell(end.host, self._finish, end.other, Evidence.TIMED_OUT)
            return
        self._forget(end)
        self._ways.tell(end.host, self._say_broken, end, Evidence.TIMED_OUT)

    def release(self, ends: list[End]) -> None:
        """What was held for these ends, in a fixed order, is sent again where nothing holds it."""
        self._ways.release(ends)

    def _say_broken(self, end: End, evidence: Evidence) -> None:
        if end.dial is not None and not end.up:
            self._emit(end.host, event_of_failure(end.dial, evidence))
        else:
            self._emit(end.host, LinkDown(end.link, evidence))

    # --- bytes --------------------------------------------------------------------------------

    def send(self, host: Host, link: LinkId, message: Message) -> None:
        """Put a message onto a link; it is written at the end of the host's turn."""
        end = host.ends.get(link)
        if end is None or not end.up:
            return
        assert host.link_events is not None
        host.sent_messages += 1
        events = host.link_events.send(link, message)
        if events or not host.stepping:
            self._emit_all(host, events)

    def say(self, host: Host, link: LinkId, frame: bytes) -> bool:
        """Put a frame onto a link that is up, though no core has ordered it; whether it has room."""
        has_room = host.layer.put(link, frame, kind_of_put(frame)) == contract.PUT
        self._turn(host)
        return has_room

    def happened(self, host: Host) -> list[Event]:
        """The core's events for what a host's links have to tell."""
        if host.link_events is None:
            return []
        happened = host.layer.poll(host.local_ns(self._timeline.now_ns))
        if not happened:
            return []
        for link, what, detail in happened:
            if what == contract.MALFORMED:
                raise InvariantError(f"link {link} of node {host.id} brought no frames: {detail!r}")
        return host.link_events.of(happened)

    def absorbed(self, host: Host) -> list[Event]:
        """What a core has to be told before any other event: the heartbeats that it did not see."""
        return [] if host.link_events is None else host.link_events.absorbed()

    def absorb_heartbeats(self, host: Host, digest: int, links: tuple[LinkId, ...]) -> None:
        """Heartbeats with this digest on these links of a host are absorbed from now on."""
        if host.link_events is not None:
            host.link_events.absorb_heartbeats(digest, links)

    def overlook(self, host: Host, notice: Notice) -> None:
        """A core has not looked at a notice: from another link it still counts."""
        events = [] if host.link_events is None else host.link_events.overlook(notice)
        if events:
            self._emit_all(host, events)

    def flush(self, host: Host, links_max: int | None = None) -> bool:
        """Write what waits on the links of a host whose core has nothing to do; whether they have news.

        Args:
            host: whose links.
            links_max: of so many links at most, for a process that dies in the midst of it.
        """
        if host.link_events is not None:
            host.link_events.end_turn()
        for link in host.layer.waiting()[:links_max]:
            end = host.ends.get(LinkId(link)) or host.closing.get(LinkId(link))
            if end is not None:
                self._pipes.write(end)
        return host.layer.flush()

    def heard(self, host: Host) -> list[Event]:
        """Of which links the core has not heard, though bytes came."""
        return [] if host.link_events is None else host.link_events.heard()

    def _plain_layer(self, _: Host) -> LinkEngine:
        return LinkLayer(self._conditions.bulk_bytes_max or BULK_BYTES_MAX)

    def watch_frames(
        self, written: Callable[[Message, bytes], None], read: Callable[[bytes, Message], None]
    ) -> None:
        """Be told of each frame that a host makes of a message, and of new ones that hosts read."""
        self._pipes.on_written, self._pipes.on_read = written, read

    @property
    def on_chunk(self) -> Callable[[Host, Host, bytes], None] | None:
        """Called with each chunk's sender, receiver and bytes (for a trace); None for nobody."""
        return self._pipes.on_chunk

    @on_chunk.setter
    def on_chunk(self, on_chunk: Callable[[Host, Host, bytes], None] | None) -> None:
        self._pipes.on_chunk = on_chunk


def ends_between(a: Host, b_id: NodeId) -> list[End]:
    """The ends at one host of its connections with another, oldest first."""
    return [
        end for end in a.ends.values() if end.other is not None and end.other.host.where == b_id
    ]
