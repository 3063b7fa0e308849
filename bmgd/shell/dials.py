"""The dials of one daemon: from an address to a link that is up, or to the meaning of the failure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from bmgd.core.effects import Dial
from bmgd.core.events import DialFailed, Event, LinkUp
from bmgd.errors import ConfigError
from bmgd.linkevents import evidence_of
from bmgd.peers import split_address
from bmgd.shell.addresses import numeric_family
from bmgd.shell.hello_socket import HelloSocket
from bmgd.shell.links import Links
from bmgd.shell.own_side import OwnSide
from bmgd.shell.resolver import Resolver, lookup_failure
from bmgd.shell.sockets import set_options
from bmgd.types import Evidence, LinkId
from bmgd.wire.handshake import Dialer, HelloState

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Dials:
    """Every dial that is underway.

    Args:
        own: this daemon, as hellos show it.
        links: takes the links that are up.
        emit: takes events for the core; must not re-enter.
        spawn: runs a coroutine in the daemon's task group (names are resolved so).
        note: writes a line of log: an event and a text.
        user_timeout_ms: TCP_USER_TIMEOUT of the sockets.
    """

    def __init__(
        self,
        own: OwnSide,
        links: Links,
        emit: Callable[[Event], None],
        spawn: Spawn,
        note: Callable[[str, str], None],
        user_timeout_ms: int,
    ) -> None:
        self._own = own
        self._links = links
        self._emit = emit
        self._spawn = spawn
        self._note = note
        self._user_timeout_ms = user_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._resolver = Resolver(self._loop)
        self._dials: dict[LinkId, tuple[Dial, HelloSocket]] = {}
        self._stopped = False

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
        except (OSError, TimeoutError) as error:
            if not self._stopped:
                text = lookup_failure(dial.address, error)
                self._note("not linked", f"node {dial.peer} at {text}")
                self._emit(DialFailed(dial.peer, _evidence_of_lookup(error)))
            return
        if not self._stopped:
            self._connect(dial, family, target)

    def _connect(self, dial: Dial, family: int, target: tuple[object, ...]) -> None:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            self._emit(DialFailed(dial.peer, evidence_of(error.errno)))
            return
        set_options(sock, self._user_timeout_ms)
        dialer = Dialer(
            self._own.identity,
            self._own.incarnation,
            dial.peer,
            dial.known,
            dial.dial_number,
            self._own.nonce(),
            renews=dial.renews,
        )
        timeout_s = dial.timeout_ns / 1e9
        link, tls = self._own.new_link(), self._own.dialing_session(dial.peer)
        greeting = HelloSocket(self, self._loop, sock, link, dialer, tls, timeout_s)
        self._dials[greeting.link] = dial, greeting
        greeting.connect(target)

    def on_hello_progress(self, greeting: HelloSocket) -> None:
        """A dial was answered."""
        dial, _ = self._dials.pop(greeting.link)
        hello = greeting.hello
        assert isinstance(hello, Dialer)
        if hello.state is not HelloState.UP or hello.peer is None:
            greeting.abort()
            if hello.refusal is not None and hello.detail:
                text = f"{hello.refusal.text} {hello.detail}"
                self._note("not linked", f"node {dial.peer} at {dial.address}: {text}")
            self._emit(
                DialFailed(
                    dial.peer,
                    Evidence.REJECTED,
                    hello.refusal,
                    hello.known_of_me,
                    hello.is_proven,
                )
            )
            return
        # Up before the core hears of it: what it sends at once would be dropped otherwise.
        if not greeting.hand_over(self._links, hello.peer.id):
            self._emit(DialFailed(dial.peer, Evidence.OWN_LACK))
            return
        self._emit(
            LinkUp(
                greeting.link,
                dial.peer,
                hello.peer.incarnation,
                hello.peer.address,
                hello.known_of_me,
                dial.dial_number,
                hello.key,
                dial.renews,
                hello.peer.features,
            )
        )
        self._links.feed(greeting.link, hello.take_rest())

    def on_hello_gone(self, greeting: HelloSocket, evidence: Evidence, detail: str) -> None:
        """A dial came to nothing."""
        dial, _ = self._dials.pop(greeting.link)
        self._emit(DialFailed(dial.peer, evidence))

    def drain(self) -> None:
        """Read everything that waits in the kernel."""
        for _, greeting in list(self._dials.values()):
            greeting.drain()

    def stop(self) -> None:
        """Give up all dials; nothing is told of them any more."""
        self._stopped = True
        for _, greeting in self._dials.values():
            greeting.abort()
        self._dials.clear()


def _evidence_of_lookup(error: OSError) -> Evidence:
    """A name that nobody knows, or that is not answered in time, is silence; a lack here is none."""
    if isinstance(error, socket.gaierror):
        is_lack = error.errno in (socket.EAI_MEMORY, socket.EAI_SYSTEM)
        return Evidence.OWN_LACK if is_lack else Evidence.NO_ANSWER
    return evidence_of(error.errno)
