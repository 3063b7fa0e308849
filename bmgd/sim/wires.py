"""Connections between simulated hosts: how they begin, what they say, how they end.

What one end does reaches the other by `ways.py`, which keeps the order, and loses what a broken
connection loses. Bytes are read by the real splitter and codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from bmgd.core.effects import AskContact, Dial, Grant, Refuse
from bmgd.core.events import Event, Granted, LinkDown, LinkUp, Received
from bmgd.core.settings import Settings
from bmgd.errors import InvariantError
from bmgd.sim.blockade import Blockade
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import End, Host, Waiting
from bmgd.sim.joining import common_key, event_of_failure, event_of_hello, everything_of
from bmgd.sim.timeline import Timeline
from bmgd.sim.ways import Ways
from bmgd.types import Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.hello import Refusal
from bmgd.wire.messages import Goodbye, Message, Notice

CLOSING_NS: Final = 1_000_000_000
KNOWN_NOTICES_MAX: Final = 64
DECODED_MAX: Final = 4096
_MILLION: Final = 1_000_000
_ANYBODY: Final = NodeId(-1)


class Wires:
    """All connections.

    Args:
        timeline: virtual time.
        random: for delays and losses.
        conditions: what the network is like.
        blockade: who does not hear whom.
        emit: tells a host's core an event.

    Attributes:
        listeners: the host at every address.
        on_chunk: called with each chunk's sender, receiver and bytes (for a trace); None for nobody.
    """

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        conditions: Conditions,
        blockade: Blockade,
        emit: Callable[[Host, Event], None],
    ) -> None:
        self.listeners: dict[str, Host] = {}
        self.on_chunk: Callable[[Host, Host, bytes], None] | None = None
        self._timeline = timeline
        self._random = random
        self._conditions = conditions
        self._blockade = blockade
        self._emit = emit
        self._ways = Ways(timeline, random, conditions, blockade, self._on_given_up)
        self._carry = self._ways.carry
        self._link_count = 0
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        self._decoded: dict[bytes, Message] = {}

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
            self._fail(host, dial, delay_ns, Evidence.REJECTED, Refusal.WRONG_CLUSTER)
        elif target.squatter:
            self._fail(host, dial, dial.timeout_ns, Evidence.NO_ANSWER)
        elif not target.alive:
            self._fail(host, dial, delay_ns, self._answer_of_dead(target))
        elif target is host:
            self._fail(host, dial, delay_ns, Evidence.REJECTED, Refusal.OWN_ADDRESS)
        elif target.joiner is not None:
            # It listens, and answers nobody before it is a member: its backlog keeps the dial.
            waiting = host, dial, self._timeline.now_ns + dial.timeout_ns
            target.backlog.append(waiting)
            self._timeline.plan(waiting[2], self._leave_backlog, target, waiting)
        elif expected not in (_ANYBODY, target.id):
            self._fail(host, dial, delay_ns, Evidence.REJECTED, Refusal.WRONG_ID)
        elif common_key(host, target) is None:
            self._fail(host, dial, delay_ns, Evidence.REJECTED, Refusal.WRONG_SECRET)
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
    ) -> None:
        failed = event_of_failure(dial, evidence, refusal)
        at_ns = self._timeline.now_ns + delay_ns
        self._timeline.plan(at_ns, self._ways.tell, host, self._emit, host, failed)

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
        end.up = True
        self._carry(end, 0, self._welcomed, end.other, end.life, known)

    def _welcomed(self, end: End, incarnation: Incarnation, known: Incarnation) -> None:
        dial = end.dial
        if not end.open or not isinstance(dial, Dial):
            return
        end.up = True
        address = dial.address if end.other is None else end.other.host.address
        link, peer, number = end.link, dial.peer, dial.dial_number
        up = LinkUp(link, peer, incarnation, address, known, number, end.key, dial.renews)
        self._emit(end.host, up)

    def refuse(self, host: Host, refuse: Refuse) -> None:
        """The hello that waits on a link is refused."""
        end = host.ends.get(refuse.link)
        if end is None or end.other is None or end.other.dial is None:
            return
        self._forget(end)
        dial = end.other.dial
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
        self._put(end, encode(Goodbye(reason)))
        end.closing = True
        host.closing[link] = end
        at_ns = self._timeline.now_ns + CLOSING_NS
        self._timeline.plan(at_ns, self._stop_closing, end)

    def _stop_closing(self, end: End) -> None:
        if end.closing:
            end.closing = False
            end.host.closing.pop(end.link, None)
            self._carry(end, 0, self._close_other, end, Evidence.EOF)

    def end_all(self, host: Host, *, abruptly: bool) -> None:
        """A process ended: its kernel closes its connections.

        Args:
            host: whose process it was.
            abruptly: killed; else it had time to write what it wanted to.
        """
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
        if end.closing:
            end.closing = False
            end.host.closing.pop(end.link, None)
        elif end.open:
            self._forget(end)
            self._say_broken(end, evidence)

    def _on_given_up(self, end: End) -> None:
        self._forget(end)
        if end.host.alive:
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
        """Put a message onto a link; the same object is encoded once."""
        end = host.ends.get(link)
        if end is None or not end.up:
            return
        if self._encoded[0] is not message:
            self._encoded = (message, encode(message))
        self._put(end, self._encoded[1])

    def _put(self, end: End, data: bytes) -> None:
        other = end.other
        assert other is not None
        end.host.messages += 1
        end.host.bytes += len(data)
        torn = self._conditions.torn
        if torn and len(data) > 1 and self._random.random() * _MILLION < torn:
            at = self._random.randrange(1, len(data))
            self._carry(end, at, self._read, end, data[:at])
            data = data[at:]
        self._carry(end, len(data), self._read, end, data)

    def _read(self, sender: End, data: bytes) -> None:
        """Bytes came: the data plane of the host looks at them first."""
        end = sender.other
        assert end is not None
        host = end.host
        if not (end.open or end.closing):
            self._reset(sender, end)
            return
        if self.on_chunk is not None:
            self.on_chunk(sender.host, host, data)
        buffer = bytearray(end.rest + data) if end.rest else bytearray(data)
        consumed, runs, bodies, error = host.snapshot.split(
            buffer, len(buffer), max(sender.host.id, -1)
        )
        if error is not None:
            raise InvariantError(f"node {sender.host.id} sent what is no frame: {error}")
        end.rest = bytes(buffer[consumed:]) if consumed < len(buffer) else b""
        if runs:
            host.heard[end.link] = None
            for out, run in runs:
                self._relay(host, end, LinkId(out), run)
        for body in bodies:
            if body in host.known_notices:
                host.heard[end.link] = None
                continue
            message = self._decode(body)
            if type(message) is Goodbye:
                if end.open:
                    self._forget(end)
                    self._carry(end, 0, self._close_other, end, Evidence.EOF)
                    self._emit(host, LinkDown(end.link, Evidence.GOODBYE))
                return
            if type(message) is Notice:
                if len(host.known_notices) >= KNOWN_NOTICES_MAX:
                    del host.known_notices[next(iter(host.known_notices))]
                host.known_notices[body] = None
            self._emit(host, Received(end.link, message))

    def _relay(self, host: Host, end: End, link: LinkId, run: bytes) -> None:
        out = host.ends.get(link)
        if out is not None and out.up:
            self._put(out, run)
            return
        at = 0
        while at < len(run):
            upto = at + LENGTH_BYTES + int.from_bytes(run[at : at + LENGTH_BYTES], "big")
            message = self._decode(run[at + LENGTH_BYTES : upto])
            self._emit(host, Received(end.link, message))
            at = upto

    def _decode(self, body: bytes) -> Message:
        """Read a frame; many hosts get the same one, so the last ones are remembered."""
        message = self._decoded.get(body)
        if message is None:
            if len(self._decoded) >= DECODED_MAX:
                self._decoded.clear()
            message = self._decoded[body] = decode(body)
        return message

    def _reset(self, sender: End, end: End) -> None:
        """Bytes came to an end that is closed: its kernel says so."""
        if sender.open:
            self._ways.carry_past_loss(end, self._close_other, end, Evidence.RESET)


def ends_between(a: Host, b_id: NodeId) -> list[End]:
    """The ends at one host of its connections with another, oldest first."""
    return [
        end for end in a.ends.values() if end.other is not None and end.other.host.where == b_id
    ]
