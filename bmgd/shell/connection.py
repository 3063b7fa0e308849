"""One TCP connection between two daemons: the hello first, then frames, and at last a goodbye.

Theory of operation. A `Connection` owns a non-blocking socket and registers itself with the loop. It
knows bytes, hellos and frames; what they mean is decided by its `Owner` (the transport), which gets
one call for each thing that happens:

    CONNECTING --connected--> HELLO --welcome--> UP --close()--> CLOSING --the other end's EOF--> CLOSED
         |                      |                 |                  |
         +--error, timeout------+--error, refusal-+--EOF, error------+--a second passed--> CLOSED

In CLOSING the goodbye goes out, and what was underway from the other end is still read.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from enum import Enum
from typing import Protocol

from bmgd.errors import ProtocolError
from bmgd.routing import Snapshot
from bmgd.shell.outbox import Outbox
from bmgd.types import Evidence, LinkId, NodeId
from bmgd.wire.codec import encode
from bmgd.wire.handshake import Acceptor, Dialer
from bmgd.wire.messages import Goodbye

HELLO_TIMEOUT_S = 3.0
CLOSING_TIMEOUT_S = 1.0
NOTSENT_LOWAT_BYTES = 128 * 1024
CHUNK_BYTES_MIN = 16 * 1024
CHUNK_BYTES_MAX = 256 * 1024
"""The one receive buffer of a daemon begins small and doubles while it is filled at once."""
DRAIN_ROUNDS_MAX = 64


class Phase(Enum):
    """How far a connection is."""

    CONNECTING = "connecting"
    HELLO = "hello"
    UP = "up"
    CLOSING = "closing"
    CLOSED = "closed"


class Owner(Protocol):
    """What a connection tells, and asks of, the transport that made it."""

    receive_buffer: bytearray
    snapshot: Snapshot

    def on_hello_progress(self, connection: Connection) -> None:
        """The hello's state changed."""

    def on_frames(
        self, connection: Connection, runs: list[tuple[int, bytes]], bodies: list[bytes]
    ) -> None:
        """Bytes came: runs to pass on, and bodies for the core."""

    def on_writable(self, connection: Connection) -> None:
        """The outbox is empty again after it was `backlogged`."""

    def on_gone(self, connection: Connection, evidence: Evidence, detail: str) -> None:
        """The connection is closed, and not by `close()`."""


def evidence_of(error: OSError) -> Evidence:
    """The class of evidence that a socket's error is."""
    match error.errno:
        case errno.ECONNREFUSED:
            return Evidence.REFUSED
        case errno.ECONNRESET | errno.EPIPE | errno.ECONNABORTED:
            return Evidence.RESET
        case errno.ETIMEDOUT:
            return Evidence.TIMED_OUT
        case _:
            return Evidence.NO_ANSWER


def set_options(sock: socket.socket, user_timeout_ms: int) -> None:
    """Set what every link's socket has: no delay, a short unsent backlog, an end to retries.

    Sockets that a listener accepts inherit its options.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)


class Connection:
    """One socket.

    Args:
        owner: see `Owner`.
        loop: the running loop.
        sock: non-blocking.
        link: the link id that it has, whatever becomes of it.
        hello: this side of the hello.
        timeout_s: until then the hello must have ended.

    Attributes:
        peer: the other end's id, once its hello is known.
        backlogged: its outbox was full, and has not been empty since.
        relayed: bytes were passed on that the core has not heard of.
    """

    __slots__ = (
        "_fd",
        "_loop",
        "_owner",
        "_rest",
        "_timeout",
        "_where",
        "_writing",
        "backlogged",
        "hello",
        "link",
        "outbox",
        "peer",
        "phase",
        "relayed",
        "sock",
    )

    def __init__(
        self,
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        link: LinkId,
        hello: Dialer | Acceptor,
        timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._fd = sock.fileno()
        self._rest = b""
        self._writing = False
        self._timeout = loop.call_later(timeout_s, self._on_timeout)
        self.sock = sock
        self._where = ""
        self.link = link
        self.hello: Dialer | Acceptor = hello
        self.outbox = Outbox()
        self.peer: NodeId | None = None
        self.phase = Phase.HELLO
        self.relayed = False
        self.backlogged = False

    # --- beginning ----------------------------------------------------------------------------

    def where(self) -> str:
        """Where the other end is, for a line of log."""
        return self._where

    def accept(self, address: tuple[object, ...]) -> None:
        """Begin as the side that listened, to one that connected from this address."""
        self._where = f"from {address[0]}:{address[1]}"
        self._loop.add_reader(self._fd, self._on_readable)

    def connect(self, address: tuple[object, ...]) -> None:
        """Begin as the side that dials; an immediate refusal is told before this returns."""
        self.phase = Phase.CONNECTING
        code = self.sock.connect_ex(address)
        if code == 0:
            self._on_connected()
        elif code == errno.EINPROGRESS:
            self._watch_writable()
        else:
            self._fail(evidence_of(OSError(code, "connect")), errno.errorcode.get(code, str(code)))

    def _on_connected(self) -> None:
        self.phase = Phase.HELLO
        self._loop.add_reader(self._fd, self._on_readable)
        self.send_hello()

    def put_hello(self) -> None:
        """Put what the hello has to say into the outbox."""
        output = self.hello.take_output()
        if output:
            self.outbox.put_control(output)

    def send_hello(self) -> None:
        """Write what the hello has to say."""
        self.put_hello()
        self.flush()

    def up(self) -> None:
        """The hello is over: frames from now on."""
        self.phase = Phase.UP
        self._timeout.cancel()

    def read_rest(self) -> None:
        """Take the frames that came with the end of the hello, once the core knows the link."""
        rest = self.hello.take_rest()
        if rest and self.phase is Phase.UP:
            self._rest = rest
            self._split(b"")

    # --- reading ------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._read()

    def drain(self) -> None:
        """Read everything that waits in the kernel, so that nobody is judged unread."""
        for _ in range(DRAIN_ROUNDS_MAX):
            if self.phase not in (Phase.UP, Phase.HELLO) or not self._read():
                return

    def _read(self) -> bool:
        """Read once; False when nothing was there or the connection is over."""
        if self.phase is Phase.HELLO:
            return self._read_hello()
        buffer, kept = self._owner.receive_buffer, len(self._rest)
        room = len(buffer) - kept
        if room < CHUNK_BYTES_MIN:
            buffer.extend(bytes(CHUNK_BYTES_MIN))
            room += CHUNK_BYTES_MIN
        try:
            with memoryview(buffer) as view:
                count = self.sock.recv_into(view[kept:])
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(evidence_of(error), str(error))
            return False
        if count == 0:
            self._fail(Evidence.EOF, "")
            return False
        if kept:
            buffer[:kept] = self._rest
        self._split_buffer(kept + count)
        if count == room and len(buffer) < CHUNK_BYTES_MAX:
            buffer.extend(bytes(len(buffer)))
        return self.phase is Phase.UP

    def _read_hello(self) -> bool:
        try:
            data = self.sock.recv(1024)
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(evidence_of(error), str(error))
            return False
        if not data:
            self._fail(Evidence.EOF, "before the hello was answered")
            return False
        before = self.hello.state
        try:
            self.hello.receive(data)
        except ProtocolError as error:
            self._fail(Evidence.PROTOCOL_ERROR, str(error))
            return False
        self.send_hello()
        # Once for each state: what comes while the core still holds the hello is no new one.
        if self.hello.state is not before and self.phase is Phase.HELLO:
            self._owner.on_hello_progress(self)
        return self.phase in (Phase.HELLO, Phase.UP)

    def _split(self, data: bytes) -> None:
        whole = self._rest + data
        self._owner.receive_buffer[: len(whole)] = whole
        self._split_buffer(len(whole))

    def _split_buffer(self, end: int) -> None:
        buffer = self._owner.receive_buffer
        came_from = -1 if self.peer is None else self.peer
        consumed, runs, bodies, error = self._owner.snapshot.split(buffer, end, came_from)
        self._rest = bytes(buffer[consumed:end]) if consumed < end else b""
        if runs or bodies:
            self._owner.on_frames(self, runs, bodies)
        if error is not None and self.phase is not Phase.CLOSED:
            self._fail(Evidence.PROTOCOL_ERROR, error)

    # --- writing ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what waits, and wait for the socket if it does not take all."""
        if self._writing or self.phase in (Phase.CONNECTING, Phase.CLOSED):
            return
        try:
            self.outbox.write_to(self.sock)
        except BlockingIOError:
            self._watch_writable()
            return
        except OSError as error:
            self._fail(evidence_of(error), str(error))
            return
        if self.phase is Phase.CLOSING:
            self._shut_down()
        elif self.backlogged:
            self._owner.on_writable(self)

    def _watch_writable(self) -> None:
        self._writing = True
        self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._fd)
        self._writing = False
        if self.phase is not Phase.CONNECTING:
            self.flush()
            return
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(evidence_of(OSError(code, "connect")), errno.errorcode.get(code, str(code)))
        else:
            self._on_connected()

    # --- ending -------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Say goodbye, then close once it is out and the other end has closed too."""
        if self.phase is not Phase.UP:
            self.abort()
            return
        self.outbox.put_control(encode(Goodbye(reason)))
        self.phase = Phase.CLOSING
        self._timeout = self._loop.call_later(CLOSING_TIMEOUT_S, self.abort)
        self.flush()

    def _shut_down(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()

    def abort(self) -> None:
        """Close now, and tell nobody."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self._timeout.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self.sock.close()

    def _fail(self, evidence: Evidence, detail: str) -> None:
        was = self.phase
        if was is Phase.CLOSED:
            return
        if was in (Phase.CONNECTING, Phase.HELLO, Phase.UP):
            self.abort()
            self._owner.on_gone(self, evidence, detail)
        else:
            self.abort()

    def _on_timeout(self) -> None:
        self._fail(Evidence.NO_ANSWER, "the hello was not finished in time")
