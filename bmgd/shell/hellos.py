"""The hellos of incoming connections: read to their end, shown to the core, answered as it orders."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from bmgd.core.effects import Grant, Refuse, Welcome
from bmgd.core.events import Event, Greeted, JoinAsked, LinkDown
from bmgd.shell.hello_socket import HelloSocket
from bmgd.shell.links import Links
from bmgd.shell.own_side import OwnSide
from bmgd.shell.slots import Slots
from bmgd.types import NO_ID, Evidence, Incarnation, LinkId
from bmgd.wire.handshake import Acceptor, HelloState
from bmgd.wire.hello import Hello, Refusal


class Hellos:
    """Every hello that waits for its end or for the core.

    Args:
        own: this daemon, as hellos show it.
        peers_text: the peer list, for joiners.
        links: takes the links that are up.
        emit: takes events for the core; must not re-enter.
        note: writes a line of log: an event and a text.
    """

    def __init__(
        self,
        own: OwnSide,
        peers_text: str,
        links: Links,
        emit: Callable[[Event], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._own = own
        self._peers_text = peers_text
        self._links = links
        self._emit = emit
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._slots = Slots[LinkId]()
        self._waiting: dict[LinkId, tuple[Acceptor, HelloSocket]] = {}

    def accept(self, sock: socket.socket, address: tuple[object, ...]) -> None:
        """Begin with one that connected."""
        acceptor = Acceptor(self._own.identity, self._own.incarnation, self._own.nonce())
        tls = self._own.accepting_session()
        greeting = HelloSocket(self, self._loop, sock, self._own.new_link(), acceptor, tls)
        self._waiting[greeting.link] = acceptor, greeting
        given_way = self._slots.enter(greeting.link, str(address[0]))
        if given_way is not None:
            self.drop(given_way)
        greeting.accept(address)

    # --- what sockets tell --------------------------------------------------------------------

    def on_hello_progress(self, greeting: HelloSocket) -> None:
        """A hello was refused, or waits for the core."""
        hello, _ = self._waiting[greeting.link]
        if hello.state is HelloState.REFUSED and hello.refusal is not None:
            why = f"{hello.refusal.text} {hello.detail}".strip()
            self._note("refused", f"a hello {greeting.where()}: {why}")
            self.drop(greeting.link)
        elif hello.state is HelloState.PROVING:
            self._slots.speaks(greeting.link)
        elif hello.state is HelloState.GREETED and hello.peer is not None:
            self._slots.leave(greeting.link)
            self._emit(_event_of(greeting.link, hello.peer, hello.key))

    def on_hello_gone(self, greeting: HelloSocket, evidence: Evidence, detail: str) -> None:
        """One that waited went away."""
        waiting = self._take(greeting.link)
        if waiting is None:
            return
        hello = waiting[0]
        if hello.state is HelloState.PROVING:
            self._note("refused", f"a hello {greeting.where()}: it hung up instead of proving")
        elif hello.state is HelloState.GREETED:
            self._emit(LinkDown(greeting.link, evidence))

    # --- what the core orders -----------------------------------------------------------------

    def welcome(self, welcome: Welcome) -> None:
        """Accept the hello that waits on a link."""
        link = welcome.link
        waiting = self._waiting.get(link)
        if waiting is None or waiting[0].peer is None:
            # It went away meanwhile: the core must not take the link for one that is up.
            self._emit(LinkDown(link, Evidence.EOF))
            return
        hello, greeting = waiting
        peer = waiting[0].peer.id
        if hello.incarnation != self._own.incarnation:
            # This side began a new life while the hello waited; it speaks for the former one.
            self._refuse(link, Refusal.RENEWED, welcome.known)
            self._emit(LinkDown(link, Evidence.GOODBYE))
            return
        del self._waiting[link]
        hello.welcome(welcome.known)
        # Written together with the link's first frames: one wake-up of the other end.
        if greeting.hand_over(self._links, peer):
            self._links.feed(link, hello.take_rest())
        else:
            self._emit(LinkDown(link, Evidence.NO_ANSWER))

    def grant(self, grant: Grant) -> None:
        """Tell a joiner that waits on a link its id and the founders; it asks the core for the rest."""
        waiting = self._waiting.pop(grant.link, None)
        if waiting is None:
            return
        hello, greeting = waiting
        hello.grant(grant.id, self._peers_text)
        if not greeting.hand_over(self._links, -1, b""):
            self._emit(LinkDown(grant.link, Evidence.NO_ANSWER))
            self._note("joiner", f"{greeting.where()}: what it must know is too long for a link")

    def refuse(self, refuse: Refuse) -> None:
        """Refuse the hello that waits on a link."""
        self._refuse(refuse.link, refuse.refusal, refuse.known)

    def _refuse(self, link: LinkId, refusal: Refusal, known: Incarnation) -> None:
        waiting = self._take(link)
        if waiting is not None:
            hello, greeting = waiting
            hello.refuse(refusal, known)
            greeting.say()
            greeting.abort()

    def drop(self, link: LinkId) -> bool:
        """Close a hello that waits; False if there is none on that link."""
        waiting = self._take(link)
        if waiting is None:
            return False
        waiting[1].abort()
        return True

    def _take(self, link: LinkId) -> tuple[Acceptor, HelloSocket] | None:
        self._slots.leave(link)
        return self._waiting.pop(link, None)

    def drain(self) -> None:
        """Read everything that waits in the kernel."""
        for _, greeting in list(self._waiting.values()):
            greeting.drain()

    def stop(self) -> None:
        """Close all that wait."""
        for _, greeting in self._waiting.values():
            greeting.abort()
        self._waiting.clear()


def _event_of(link: LinkId, hello: Hello, key: str) -> Event:
    if hello.is_joiner:
        claimed = None if hello.id == NO_ID else hello.id
        return JoinAsked(link, claimed, hello.incarnation, hello.address)
    return Greeted(
        link,
        hello.id,
        hello.incarnation,
        hello.address,
        hello.known,
        hello.dial_number,
        key,
        hello.renews,
        hello.features,
    )
