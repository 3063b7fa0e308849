"""One socket between two daemons until its hello is over.

Theory of operation. A `HelloSocket` owns a non-blocking socket and registers itself with the loop. It
carries the bytes of a hello; what they mean is decided by its `HelloOwner`, which gets one call for
each thing that happens. When the link is up, the owner takes the socket out and gives it to the
engine of links (`links.py`), with what was not written yet and what came behind the hello.

    CONNECTING --connected--> HELLO --hand_over()--> OVER
         |                      |
         +--error, timeout------+--EOF, error, timeout, no hello, abort()--> OVER
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from enum import Enum
from typing import Protocol

from bmgd.errors import ProtocolError
from bmgd.linkevents import evidence_of
from bmgd.shell.links import Links
from bmgd.shell.tls import TlsRefused, TlsSession
from bmgd.shell.tls_carrier import TlsCarrier
from bmgd.types import Evidence, LinkId
from bmgd.wire.handshake import Acceptor, Dialer

HELLO_TIMEOUT_S = 3.0
_READ_BYTES = 1024


class Phase(Enum):
    """How far a socket is."""

    CONNECTING = "connecting"
    HELLO = "hello"
    OVER = "over"


class HelloOwner(Protocol):
    """What a socket tells the one that made it."""

    def on_hello_progress(self, greeting: HelloSocket) -> None:
        """The hello's state changed."""

    def on_hello_gone(self, greeting: HelloSocket, evidence: Evidence, detail: str) -> None:
        """The socket is closed, and not by `abort()`."""


class HelloSocket:
    """A socket, and this side of its hello.

    Args:
        owner: see `HelloOwner`.
        loop: the running loop.
        sock: non-blocking.
        link: the link id that it has, whatever becomes of it.
        hello: this side of the hello.
        tls: this connection's way through TLS, or None.
        timeout_s: until then the hello must have ended.
    """

    __slots__ = (
        "_fd",
        "_loop",
        "_owner",
        "_phase",
        "_sock",
        "_timeout",
        "_tls",
        "_unwritten",
        "_where",
        "hello",
        "link",
    )

    def __init__(
        self,
        owner: HelloOwner,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        link: LinkId,
        hello: Dialer | Acceptor,
        tls: TlsSession | None = None,
        timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._fd = sock.fileno()
        self._sock = sock
        self._tls = tls
        self._unwritten = b""
        self._timeout = loop.call_later(timeout_s, self._on_timeout)
        self._where = ""
        self._phase = Phase.HELLO
        self.link = link
        self.hello: Dialer | Acceptor = hello

    def where(self) -> str:
        """Where the other end is, for a line of log."""
        return self._where

    # --- beginning ----------------------------------------------------------------------------

    def accept(self, address: tuple[object, ...]) -> None:
        """Begin as the side that listened, to one that connected from this address."""
        self._where = f"from {address[0]}:{address[1]}"
        self._loop.add_reader(self._fd, self._on_readable)

    def connect(self, address: tuple[object, ...]) -> None:
        """Begin as the side that dials; an immediate refusal is told before this returns."""
        self._phase = Phase.CONNECTING
        code = self._sock.connect_ex(address)
        if code == 0:
            self._on_connected()
        elif code == errno.EINPROGRESS:
            self._loop.add_writer(self._fd, self._on_writable)
        else:
            self._fail(evidence_of(code), errno.errorcode.get(code, str(code)))

    def _on_connected(self) -> None:
        self._phase = Phase.HELLO
        self._loop.add_reader(self._fd, self._on_readable)
        self.say()

    # --- the hello ----------------------------------------------------------------------------

    def say(self) -> None:
        """Write what the hello has to say, and wait for the socket if it does not take all."""
        self._unwritten += self._output()
        if not self._unwritten:
            return
        try:
            written = self._sock.send(self._unwritten)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._fail(evidence_of(error.errno), str(error))
            return
        self._unwritten = self._unwritten[written:]
        if self._unwritten:
            self._loop.add_writer(self._fd, self._on_writable)

    def drain(self) -> None:
        """Read what waits in the kernel, so that nobody is judged unread."""
        if self._phase is Phase.HELLO:
            self._on_readable()

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(evidence_of(error.errno), str(error))
            return
        if not data:
            self._fail(Evidence.EOF, "before the hello was answered")
            return
        before = self.hello.state
        try:
            plain = data if self._tls is None else self._decrypt(self._tls, data)
            if plain:
                self.hello.receive(plain)
        except TlsRefused as refused:
            self._say_refused(refused)
        except (ProtocolError, ssl.SSLError) as error:
            self._fail(Evidence.PROTOCOL_ERROR, str(error))
            return
        self.say()
        # Once for each state: what comes while the core still holds the hello is no new one.
        if self.hello.state is not before and self._phase is Phase.HELLO:
            self._owner.on_hello_progress(self)

    def _decrypt(self, tls: TlsSession, data: bytes) -> bytes:
        was_open = tls.channel is not None
        plain = tls.receive(data)
        if tls.channel is not None and not was_open:
            self.hello.bind(tls.channel)
        return plain

    def _say_refused(self, refused: TlsRefused) -> None:
        """There is no channel: tell the other end in the way that it can read."""
        assert self._tls is not None
        self._unwritten += self._tls.take()
        self._tls = None
        if isinstance(self.hello, Acceptor) and not self._unwritten:
            self.hello.refuse(refused.refusal)
        self.hello.give_up(refused.refusal, refused.detail)

    def _output(self) -> bytes:
        output = self.hello.take_output()
        if self._tls is None:
            return output
        self._tls.put(output)
        return self._tls.take()

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._fd)
        if self._phase is not Phase.CONNECTING:
            self.say()
            return
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._fail(evidence_of(code), errno.errorcode.get(code, str(code)))
        else:
            self._on_connected()

    # --- ending -------------------------------------------------------------------------------

    def hand_over(self, links: Links, peer: int, behind: bytes = b"") -> bool:
        """The hello is over: the socket is a link now.

        Args:
            links: take it.
            peer: see `Links.adopt`.
            behind: what is to be written behind the hello.

        Returns:
            See `Links.adopt`.
        """
        self._end()
        if self._tls is None:
            first = self._unwritten + self.hello.take_output() + behind
            return links.adopt(self.link, peer, self._sock, first)
        carrier = TlsCarrier(links, self.link, self._sock, self._tls, self._unwritten)
        first = self.hello.take_output() + behind
        is_up = links.adopt_fed(self.link, peer, carrier, first)
        if is_up:
            carrier.start()
        return is_up

    def abort(self) -> None:
        """Close now, and tell nobody."""
        if self._phase is not Phase.OVER:
            self._end()
            self._sock.close()

    def _end(self) -> None:
        self._phase = Phase.OVER
        self._timeout.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)

    def _fail(self, evidence: Evidence, detail: str) -> None:
        if self._phase is not Phase.OVER:
            self.abort()
            self._owner.on_hello_gone(self, evidence, detail)

    def _on_timeout(self) -> None:
        self._fail(Evidence.NO_ANSWER, "the hello was not finished in time")
