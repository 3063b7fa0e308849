"""All sockets of one daemon to other daemons: those who connect, the dials, the links.

It joins three modules, and passes the core's orders to them. `hellos.py` has incoming connections until
the core has answered, `dials.py` has the outgoing ones, and `links.py` has the links that are up, with
the engine under it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from bmgd.core.events import Event
from bmgd.linklayer import LinkEngine
from bmgd.shell.accepting import Accepting
from bmgd.shell.dials import Dials, Spawn
from bmgd.shell.hellos import Hellos
from bmgd.shell.links import EmitAll, Links
from bmgd.shell.own_side import OwnSide
from bmgd.shell.sockets import set_options
from bmgd.shell.tls import TlsSide
from bmgd.types import Incarnation, LinkId
from bmgd.wire.hello import Identity

USER_TIMEOUT_MIN_MS = 5000


class Transport:
    """The daemon's sockets to other daemons.

    Args:
        identity: what hellos say.
        peers_text: the peer list, for joiners.
        listener: from `bind_listener`.
        timeout_ms: the detection timeout, from which TCP_USER_TIMEOUT follows.
        emit_all: takes events for the core, in order; must not re-enter.
        spawn: runs a coroutine in the daemon's task group (names are resolved so).
        note: writes a line of log: an event and a text.
        incarnation: the life that hellos speak of.
        engine: the engine of links.
        tls: the certificate, or None for links without TLS.

    Attributes:
        own: what hellos say; its incarnation can change.
        hellos, dials, links: take the core's orders.
    """

    def __init__(
        self,
        identity: Identity,
        peers_text: str,
        listener: socket.socket,
        timeout_ms: int,
        emit_all: EmitAll,
        spawn: Spawn,
        note: Callable[[str, str], None],
        incarnation: Incarnation,
        engine: LinkEngine,
        tls: TlsSide | None = None,
    ) -> None:
        user_timeout_ms = max(USER_TIMEOUT_MIN_MS, 2 * timeout_ms)
        set_options(listener, user_timeout_ms)

        def emit(event: Event) -> None:
            emit_all((event,))

        self.own = OwnSide(identity, incarnation, tls)
        self.links = Links(engine, emit_all)
        self.dials = Dials(self.own, self.links, emit, spawn, note, user_timeout_ms)
        self.hellos = Hellos(self.own, peers_text, self.links, emit, note)
        loop = asyncio.get_running_loop()
        self._accepting = Accepting(loop, listener, self.hellos.accept, note)

    def start(self) -> None:
        """Begin to accept, and to look at the links."""
        self.links.start()
        self._accepting.start()

    def stop(self) -> None:
        """Close every connection at once; the listener is no longer looked at."""
        self._accepting.stop()
        self.hellos.stop()
        self.dials.stop()
        self.links.stop()

    def close(self, link: LinkId, reason: str) -> None:
        """Say goodbye on a link and close it, or close a hello that waits."""
        if not self.hellos.drop(link):
            self.links.close(link, reason)

    def drain(self) -> None:
        """Read everything that waits in the kernel; tell the core whom it has not heard of."""
        self.hellos.drain()
        self.dials.drain()
        self.links.drain()
