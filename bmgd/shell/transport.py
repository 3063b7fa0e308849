"""All sockets of one daemon to other daemons: the listener, the dials, the links.

It turns what sockets do into the core's events, and carries out the core's orders about links. The
data plane runs here: runs of relayed frames go from one connection's bytes to another's outbox
without the core.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from bmgd.core.effects import Dial, Grant, Refuse, Welcome
from bmgd.core.events import (
    Backlog,
    DialFailed,
    Event,
    Greeted,
    Heard,
    JoinAsked,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.errors import ConfigError, ProtocolError
from bmgd.peers import split_address
from bmgd.routing import Snapshot
from bmgd.routing.header import BODY_PREFIX_BYTES, KIND_AT, LENGTH_BYTES, PRIORITY_AT, ROUTED_FIRST
from bmgd.shell.accepting import Accepting
from bmgd.shell.addresses import numeric_family
from bmgd.shell.connection import CHUNK_BYTES_MIN, Connection, Phase, set_options
from bmgd.shell.outbox import frames_in
from bmgd.shell.resolver import Resolver
from bmgd.types import NO_ID, Evidence, Incarnation, LinkId
from bmgd.wire.applicant import records_in_frames
from bmgd.wire.codec import decode, encode
from bmgd.wire.handshake import Acceptor, Dialer, HelloState
from bmgd.wire.hello import NONCE_BYTES, OWN_NONCE_BYTES, Hello, Identity, Refusal
from bmgd.wire.messages import Goodbye, LinkMessage, Message, Notice

WAITING_HELLOS_MAX = 128
USER_TIMEOUT_MIN_MS = 5000
SETTLE_POLL_S = 0.005
KNOWN_NOTICES_MAX = 64
URGENCY_OFFSET = LENGTH_BYTES + BODY_PREFIX_BYTES + PRIORITY_AT
KIND_OFFSET = BODY_PREFIX_BYTES + KIND_AT

Emit = Callable[[Event], None]
Note = Callable[[str, str], None]
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Transport:
    """The daemon's links.

    Args:
        identity: what hellos say.
        peers_text: the peer list, for joiners.
        listener: from `bind_listener`.
        timeout_ms: the detection timeout, from which TCP_USER_TIMEOUT follows.
        emit: takes events for the core; must not re-enter.
        spawn: runs a coroutine in the daemon's task group (names are resolved so).
        note: writes a line of log: an event and a text.
        incarnation: the life that hellos speak of.

    Attributes:
        snapshot: what relayed messages follow.
        relayed_runs, dropped_frames: counters.
    """

    def __init__(
        self,
        identity: Identity,
        peers_text: str,
        listener: socket.socket,
        timeout_ms: int,
        emit: Emit,
        spawn: Spawn,
        note: Note,
        incarnation: Incarnation,
    ) -> None:
        ids = max(identity.founding_size, identity.id + 1)
        self.snapshot = Snapshot(0, identity.id, ids, (), ())
        self.receive_buffer = bytearray(CHUNK_BYTES_MIN)
        self.relayed_runs = 0
        self.dropped_frames = 0
        self.incarnation = incarnation
        self._identity = identity
        self._peers_text = peers_text
        self._user_timeout_ms = max(USER_TIMEOUT_MIN_MS, 2 * timeout_ms)
        self._emit = emit
        self._spawn = spawn
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._accepting = Accepting(self._loop, listener, self._accept, note)
        set_options(listener, self._user_timeout_ms)
        self._resolver = Resolver(self._loop)
        self._own_nonce = os.urandom(OWN_NONCE_BYTES)
        self._connections: dict[LinkId, Connection] = {}
        self._waiting: set[LinkId] = set()
        self._dials: dict[LinkId, Dial] = {}
        self._unflushed: dict[LinkId, Connection] = {}
        self._closing: list[Connection] = []
        self._link_count = 0
        self._known_notices: dict[bytes, None] = {}
        self._encoded: tuple[Message | None, bytes] = (None, b"")

    def start(self) -> None:
        """Begin to accept."""
        self._accepting.start()

    def stop(self) -> None:
        """Close every connection at once; the listener is no longer looked at."""
        self._accepting.stop()
        for connection in (*self._connections.values(), *self._closing):
            connection.abort()
        self._connections.clear()

    # --- accepting ----------------------------------------------------------------------------

    def _accept(self, sock: socket.socket, address: tuple[object, ...]) -> None:
        if len(self._waiting) >= WAITING_HELLOS_MAX:
            sock.close()
            return
        acceptor = Acceptor(self._identity, self.incarnation, self._nonce())
        connection = Connection(self, self._loop, sock, self._new_link(), acceptor)
        self._connections[connection.link] = connection
        self._waiting.add(connection.link)
        connection.accept(address)

    def _nonce(self) -> bytes:
        return self._own_nonce + os.urandom(NONCE_BYTES - OWN_NONCE_BYTES)

    def _new_link(self) -> LinkId:
        self._link_count += 1
        return LinkId(self._link_count)

    # --- dialling -----------------------------------------------------------------------------

    def dial(self, dial: Dial) -> None:
        """Connect as ordered; `LinkUp` or `DialFailed` follows."""
        try:
            host, port = split_address(dial.address)
        except ConfigError:
            self._emit(DialFailed(dial.peer, Evidence.NO_ANSWER))
            return
        family = numeric_family(host)
        if family is not None:
            self._connect(dial, family, (host, port))
        else:
            self._spawn(self._resolve_and_connect(dial, host, port))

    async def _resolve_and_connect(self, dial: Dial, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(dial.timeout_ns / 1e9):
                family, target = await self._resolver.resolve(host, port)
        except (OSError, TimeoutError):
            self._emit(DialFailed(dial.peer, Evidence.NO_ANSWER))
            return
        self._connect(dial, family, target)

    def _connect(self, dial: Dial, family: int, target: tuple[object, ...]) -> None:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            self._emit(DialFailed(dial.peer, Evidence.NO_ANSWER))
            return
        set_options(sock, self._user_timeout_ms)
        dialer = Dialer(
            self._identity,
            self.incarnation,
            dial.peer,
            dial.known,
            dial.dial_number,
            self._nonce(),
        )
        timeout_s = dial.timeout_ns / 1e9
        connection = Connection(self, self._loop, sock, self._new_link(), dialer, timeout_s)
        self._connections[connection.link] = connection
        self._dials[connection.link] = dial
        connection.connect(target)

    # --- what connections tell ----------------------------------------------------------------

    def on_hello_progress(self, connection: Connection) -> None:
        """A hello was answered, refused, or waits for the core."""
        hello = connection.hello
        if isinstance(hello, Dialer):
            self._on_dial_progress(connection, hello)
        elif hello.state is HelloState.REFUSED and hello.refusal is not None:
            why = f"{hello.refusal.text} {hello.detail}".strip()
            self._note("refused", f"a hello {connection.where()}: {why}")
            self._drop(connection)
        elif hello.state is HelloState.GREETED and hello.peer is not None:
            self._emit(self._hello_event(connection, hello.peer))

    def _hello_event(self, connection: Connection, hello: Hello) -> Event:
        if hello.is_joiner:
            claimed = None if hello.id == NO_ID else hello.id
            return JoinAsked(connection.link, claimed, hello.incarnation, hello.address)
        connection.peer = hello.id
        link, known, number = connection.link, hello.known, hello.dial_number
        return Greeted(link, hello.id, hello.incarnation, hello.address, known, number)

    def _on_dial_progress(self, connection: Connection, hello: Dialer) -> None:
        dial = self._dials.pop(connection.link)
        if hello.state is HelloState.UP and hello.peer is not None:
            connection.peer = hello.peer.id
            # Up before the core hears of it: what it sends at once would be dropped otherwise.
            connection.up()
            self._emit(
                LinkUp(
                    connection.link,
                    dial.peer,
                    hello.peer.incarnation,
                    hello.peer.address,
                    hello.known_of_me,
                    dial.dial_number,
                )
            )
            connection.read_rest()
        else:
            self._drop(connection)
            self._emit(DialFailed(dial.peer, Evidence.REJECTED, hello.refusal, hello.known_of_me))

    def on_frames(
        self, connection: Connection, runs: list[tuple[int, bytes]], bodies: list[bytes]
    ) -> None:
        """Pass the runs on; hand the rest to the core."""
        if runs:
            connection.relayed = True
            self._relay(connection, runs)
        for body in bodies:
            if body in self._known_notices:
                connection.relayed = True
                continue
            message = self._decode(connection, body)
            if message is None:
                continue
            if isinstance(message, Goodbye) and connection.phase is Phase.UP:
                self._lose(connection, Evidence.GOODBYE, message.reason)
                return
            if isinstance(message, Notice):
                self._know_notice(body)
            self._emit(Received(connection.link, message))

    def _decode(self, connection: Connection, body: bytes) -> Message | None:
        """Read a frame; None when it is malformed.

        What only the neighbor can have written costs it the link. A routed frame may come from afar:
        it is dropped and counted, and the relay that passed it on is not to blame.
        """
        try:
            return decode(body)
        except ProtocolError as error:
            if body[KIND_OFFSET] >= ROUTED_FIRST:
                self.dropped_frames += 1
            elif connection.phase is not Phase.CLOSED:
                self._lose(connection, Evidence.PROTOCOL_ERROR, str(error))
            return None

    def _know_notice(self, body: bytes) -> None:
        """Remember a notice: in a flood it comes again over every link, and joins are idempotent."""
        if len(self._known_notices) >= KNOWN_NOTICES_MAX:
            del self._known_notices[next(iter(self._known_notices))]
        self._known_notices[body] = None

    def _relay(self, connection: Connection, runs: list[tuple[int, bytes]]) -> None:
        for link, run in runs:
            self.relayed_runs += 1
            out = self._connections.get(LinkId(link))
            if out is None or out.phase is not Phase.UP:
                for body in frames_in(run):
                    message = self._decode(connection, body)
                    if message is not None:
                        self._emit(Received(connection.link, message))
            else:
                # A run is of one urgency throughout, so that of its first frame says it.
                self._pass_on(out, run, is_urgent=run[URGENCY_OFFSET] == 0)
        # No event may follow that would flush.
        self.flush()

    def _pass_on(self, out: Connection, run: bytes, *, is_urgent: bool) -> None:
        """Add frames to an outbox, or drop them at its bound; the core hears of either turn."""
        outbox = out.outbox
        if outbox.offer_control(run) if is_urgent else outbox.put_bulk(run):
            self._unflushed[out.link] = out
            return
        self.dropped_frames += len(frames_in(run))
        if not out.backlogged:
            out.backlogged = True
            self._emit(Backlog(out.link, outbox.backlog_bytes))

    def on_writable(self, connection: Connection) -> None:
        """An outbox that was full has been written."""
        connection.backlogged = False
        self._emit(Backlog(connection.link, connection.outbox.backlog_bytes))

    def on_gone(self, connection: Connection, evidence: Evidence, detail: str) -> None:
        """A connection ended by itself."""
        self._forget(connection)
        if connection.hello.state is HelloState.PROVING:
            self._note("refused", f"a hello {connection.where()}: it hung up instead of proving")
        dial = self._dials.pop(connection.link, None)
        if dial is not None:
            self._emit(DialFailed(dial.peer, evidence))
        elif connection.peer is not None:
            self._emit(LinkDown(connection.link, evidence))
            self._return_unsent(connection)
        elif connection.hello.state is HelloState.GREETED:
            # A joiner that waited for its answer.
            self._emit(LinkDown(connection.link, evidence))

    def _lose(self, connection: Connection, evidence: Evidence, detail: str) -> None:
        connection.abort()
        self.on_gone(connection, evidence, detail)

    def _return_unsent(self, connection: Connection) -> None:
        """Routed messages that a lost link did not take find another way."""
        for body in connection.outbox.take_unsent():
            message = self._decode(connection, body)
            if message is not None and not isinstance(message, LinkMessage):
                self._emit(Received(connection.link, message))

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection.link, None)
        self._waiting.discard(connection.link)
        self._unflushed.pop(connection.link, None)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.abort()

    # --- what the core orders -----------------------------------------------------------------

    def send(self, link: LinkId, message: Message) -> None:
        """Put a message into a link's outbox; `flush` writes it."""
        connection = self._connections.get(link)
        if connection is None or connection.phase is not Phase.UP:
            return
        # One notice goes to many links: the same object is encoded once.
        if self._encoded[0] is not message:
            self._encoded = (message, encode(message))
        frame = self._encoded[1]
        if isinstance(message, LinkMessage):
            self._put_control(connection, frame)
        else:
            self._pass_on(connection, frame, is_urgent=message.route.priority == 0)

    def _put_control(self, out: Connection, run: bytes) -> None:
        """Add urgent frames; a link that lets them pile up over the bound is lost."""
        if out.outbox.put_control(run):
            self._unflushed[out.link] = out
        else:
            self._lose(out, Evidence.TIMED_OUT, "its control backlog is over the bound")

    def welcome(self, welcome: Welcome) -> None:
        """Accept the hello that waits on a link."""
        connection = self._connections.get(welcome.link)
        if connection is None or not isinstance(connection.hello, Acceptor):
            # It went away meanwhile: the core must not take the link for one that is up.
            self._emit(LinkDown(welcome.link, Evidence.EOF))
            return
        if connection.hello.incarnation != self.incarnation:
            # This side began a new life while the hello waited; it speaks for the former one.
            self._refuse(welcome.link, Refusal.RENEWED, welcome.known)
            self._emit(LinkDown(welcome.link, Evidence.GOODBYE))
            return
        self._waiting.discard(welcome.link)
        connection.hello.welcome(welcome.known)
        # Written together with the link's first frames: one wake-up of the other end.
        connection.put_hello()
        self._unflushed[welcome.link] = connection
        connection.up()
        connection.read_rest()

    def grant(self, grant: Grant) -> None:
        """Tell a joiner that waits on a link all that a member must know, and close it."""
        connection = self._connections.get(grant.link)
        if connection is None or not isinstance(connection.hello, Acceptor):
            return
        self._waiting.discard(grant.link)
        connection.hello.grant(grant.id, self._peers_text)
        answer = connection.hello.take_output() + records_in_frames(grant.records)
        connection.up()
        if connection.outbox.put_control(answer):
            self.close(grant.link, "granted")
        else:
            self._note("joiner", f"{connection.where()}: what it must know is too long for a link")
            self._drop(connection)

    def refuse(self, refuse: Refuse) -> None:
        """Refuse the hello that waits on a link."""
        self._refuse(refuse.link, refuse.refusal, refuse.known)

    def _refuse(self, link: LinkId, refusal: Refusal, known: Incarnation) -> None:
        connection = self._connections.get(link)
        if connection is not None and isinstance(connection.hello, Acceptor):
            connection.peer = None
            connection.hello.refuse(refusal, known)
            connection.send_hello()
            self._drop(connection)

    def close(self, link: LinkId, reason: str) -> None:
        """Say goodbye on a link and close it."""
        connection = self._connections.pop(link, None)
        if connection is not None:
            self._unflushed.pop(link, None)
            connection.close(reason)
            self._closing = [c for c in self._closing if c.phase is Phase.CLOSING]
            self._closing.append(connection)

    def flush(self) -> None:
        """Write what the last events have put into outboxes."""
        while self._unflushed:
            self._unflushed.popitem()[1].flush()

    def drain(self) -> None:
        """Read everything that waits in the kernel; tell the core whom it has not heard of."""
        for connection in list(self._connections.values()):
            connection.drain()
        heard = tuple(c.link for c in self._connections.values() if c.relayed)
        if heard:
            for link in heard:
                self._connections[link].relayed = False
            self._emit(Heard(heard))

    def backlog_bytes(self) -> int:
        """What waits to be written, on all links."""
        return sum(c.outbox.backlog_bytes for c in self._connections.values())

    async def settle(self, limit_s: float) -> bool:
        """Wait, not longer than `limit_s`, until all is written and the other ends have closed too.

        Closing earlier, with bytes unread, would reset the connection, and the goodbye in it be lost.
        """
        for _ in range(max(1, int(limit_s / SETTLE_POLL_S))):
            self._closing = [c for c in self._closing if c.phase is not Phase.CLOSED]
            if not self._closing and not self.backlog_bytes():
                return True
            await asyncio.sleep(SETTLE_POLL_S)
        return False
