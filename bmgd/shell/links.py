"""The links that are up: what the engine tells becomes the core's events, what the core orders its work.

Theory of operation. The loop watches the engine as one descriptor. When it is ready, one `poll` gives
a list of what happened on all links; the core is stepped for all of it, and then outboxes are written
once. Frames are decoded here: what only the neighbor can have written and is malformed costs it the
link; a routed frame may come from afar, so it is dropped and counted, and the relay that passed it on
is not to blame (ADR 24).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from bmgd.core.events import Backlog, Event, Heard, LinkDown, Received
from bmgd.errors import ProtocolError
from bmgd.linklayer import LinkEngine, contract
from bmgd.linklayer.contract import Happening
from bmgd.linklayer.frames import is_routed
from bmgd.routing import Snapshot
from bmgd.shell.sockets import evidence_of
from bmgd.types import Evidence, LinkId
from bmgd.wire.codec import decode, encode
from bmgd.wire.messages import Goodbye, LinkMessage, Message, Notice

CLOSING_TIMEOUT_S = 1.0
DRAIN_ROUNDS_MAX = 64
SETTLE_POLL_S = 0.005

EmitAll = Callable[[Iterable[Event]], None]


class Carrier(Protocol):
    """What carries the bytes of a link that is no descriptor of the engine, such as TLS."""

    def on_waiting(self) -> None:
        """Something waits: `Links.take` has it."""

    def end_writing(self) -> None:
        """All is taken, the goodbye too: tell the other end that nothing follows."""

    def close(self) -> None:
        """The link is gone."""


class Links:
    """Every link of one daemon that is up, or says goodbye.

    Args:
        engine: owns the sockets.
        emit_all: takes events for the core, in order; must not re-enter.
    """

    def __init__(self, engine: LinkEngine, emit_all: EmitAll) -> None:
        self._engine = engine
        self._emit_all = emit_all
        self._loop = asyncio.get_running_loop()
        self._links: set[LinkId] = set()
        self._closing: dict[LinkId, asyncio.TimerHandle] = {}
        self._carriers: dict[LinkId, Carrier] = {}
        self._heard_again: dict[LinkId, None] = {}
        self._poll_soon: asyncio.Handle | None = None
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        self._malformed_frames = 0

    def start(self) -> None:
        """Begin to look at the engine."""
        self._loop.add_reader(self._engine.fileno(), self._turn)

    def stop(self) -> None:
        """Close every link at once, and tell nobody."""
        self._loop.remove_reader(self._engine.fileno())
        if self._poll_soon is not None:
            self._poll_soon.cancel()
        for link in sorted(self._links):
            self._engine.close(link)
            self._forget(link)

    # --- beginning ----------------------------------------------------------------------------

    def adopt(self, link: LinkId, peer: int, sock: socket.socket, first: bytes) -> bool:
        """A hello is over: its socket is a link now.

        Args:
            link: its id.
            peer: the id at the other end; -1 for one that is told its id, and then closed.
            sock: no longer watched by anybody.
            first: what is to be written before all frames.

        Returns:
            False when the engine could not take it; the socket is closed then.
        """
        fd = sock.detach()
        try:
            self._engine.adopt(fd, link, peer)
        except OSError:
            socket.close(fd)
            return False
        self._links.add(link)
        return self._put_first(link, first)

    def adopt_fed(self, link: LinkId, peer: int, carrier: Carrier, first: bytes) -> bool:
        """As `adopt`, for a link whose bytes a carrier takes and feeds."""
        self._engine.adopt(-1, link, peer)
        self._links.add(link)
        self._carriers[link] = carrier
        return self._put_first(link, first)

    def _put_first(self, link: LinkId, first: bytes) -> bool:
        if first and self._engine.put(link, first, contract.RAW) != contract.PUT:
            self._engine.close(link)
            self._forget(link)
            return False
        return True

    def _forget(self, link: LinkId) -> None:
        self._links.discard(link)
        closing = self._closing.pop(link, None)
        if closing is not None:
            closing.cancel()
        carrier = self._carriers.pop(link, None)
        if carrier is not None:
            carrier.close()

    # --- bytes of links without descriptor, and what was read behind a hello --------------------

    def feed(self, link: LinkId, data: bytes) -> None:
        """Bytes came; what they say follows in a turn of its own."""
        if data:
            self._engine.feed(link, data)
            self._look_soon()

    def finish(self, link: LinkId, errno: int) -> None:
        """The bytes of a fed link are over: 0 for their end, else the error's number."""
        self._engine.finish(link, errno)
        self._look_soon()

    def take(self, link: LinkId, limit: int) -> bytes:
        """The next bytes of a fed link."""
        taken = self._engine.take(link, limit)
        self._look_soon()
        return taken

    # --- what happened ------------------------------------------------------------------------

    def _turn(self) -> None:
        """One turn: read, step the core for all of it, write."""
        self._emit_all(self._events_of(self._engine.poll()))

    def _look_soon(self) -> None:
        if self._poll_soon is None:
            self._poll_soon = self._loop.call_soon(self._turn_soon)

    def _turn_soon(self) -> None:
        self._poll_soon = None
        self._turn()

    def _events_of(self, happened: list[Happening]) -> list[Event]:
        """The core's events for what one poll told, in order."""
        events: list[Event] = []
        lost: set[LinkId] = set()
        told: set[bytes] = set()
        for number, what, detail in happened:
            link = LinkId(number)
            match what:
                case contract.FRAME:
                    assert isinstance(detail, bytes)
                    if detail in told:
                        self._heard_again[link] = None
                    elif link not in lost:
                        self._take_frame(link, detail, events, lost, told)
                case contract.RETURNED:
                    assert isinstance(detail, bytes)
                    events += self._received(link, [detail])
                case contract.GOODBYE:
                    self._forget(link)
                    events.append(LinkDown(link, Evidence.GOODBYE))
                case contract.MALFORMED:
                    self._forget(link)
                    events.append(LinkDown(link, Evidence.PROTOCOL_ERROR))
                case contract.END:
                    assert isinstance(detail, int)
                    self._forget(link)
                    events.append(LinkDown(link, evidence_of(detail)))
                case contract.BACKLOGGED | contract.WRITABLE:
                    assert isinstance(detail, int)
                    events.append(Backlog(link, detail))
                case contract.WRITTEN:
                    self._carriers[link].end_writing()
                case contract.CLOSED:
                    self._forget(link)
        return events

    def _take_frame(
        self,
        link: LinkId,
        body: bytes,
        events: list[Event],
        lost: set[LinkId],
        told: set[bytes],
    ) -> None:
        try:
            message = decode(body)
        except ProtocolError:
            if is_routed(body):
                self._malformed_frames += 1
            else:
                lost.add(link)
                events += self._lose(link, Evidence.PROTOCOL_ERROR)
            return
        if isinstance(message, Notice):
            self._engine.know(body)
            told.add(body)
        events.append(Received(link, message))

    def _received(self, link: LinkId, bodies: Iterable[bytes]) -> list[Event]:
        """Routed frames that could not be passed on, for the core to find another way."""
        events: list[Event] = []
        for body in bodies:
            try:
                events.append(Received(link, decode(body)))
            except ProtocolError:
                self._malformed_frames += 1
        return events

    def _lose(self, link: LinkId, evidence: Evidence) -> list[Event]:
        """Close a link that its owner gives up: first the core hears of it, then its rest comes."""
        unsent = self._engine.close(link)
        self._forget(link)
        return [LinkDown(link, evidence), *self._received(link, unsent)]

    # --- what the core orders -----------------------------------------------------------------

    def publish(self, snapshot: Snapshot) -> None:
        """Relay by this snapshot from now on."""
        self._engine.publish(snapshot)

    def send(self, link: LinkId, message: Message) -> None:
        """Put a message into a link's outbox; `flush` writes it."""
        # One notice goes to many links: the same object is encoded once.
        if self._encoded[0] is not message:
            self._encoded = (message, encode(message))
        if isinstance(message, LinkMessage):
            kind = contract.CONTROL
        else:
            kind = contract.BULK if message.route.priority else contract.URGENT
        if self._engine.put(link, self._encoded[1], kind) == contract.OVER_BOUND:
            self._emit_all(self._lose(link, Evidence.TIMED_OUT))

    def close(self, link: LinkId, reason: str) -> None:
        """Say goodbye on a link, and close it once the other end has heard it, or a second later."""
        if link in self._links and link not in self._closing:
            self._engine.shut(link, encode(Goodbye(reason)))
            self._closing[link] = self._loop.call_later(CLOSING_TIMEOUT_S, self._give_up, link)

    def _give_up(self, link: LinkId) -> None:
        unsent = self._engine.close(link)
        self._forget(link)
        self._emit_all(self._received(link, unsent))

    def flush(self) -> None:
        """Write what the last events have put into outboxes."""
        if self._engine.flush():
            self._look_soon()
        for link in self._engine.waiting() if self._carriers else ():
            self._carriers[LinkId(link)].on_waiting()

    def drain(self) -> None:
        """Read everything that waits in the kernel; tell the core whom it has not heard of."""
        for _ in range(DRAIN_ROUNDS_MAX):
            before = self._engine.totals()["received_bytes"]
            self._turn()
            if self._engine.totals()["received_bytes"] == before:
                break
        heard = dict.fromkeys((*map(LinkId, self._engine.heard()), *self._heard_again))
        self._heard_again.clear()
        if heard:
            self._emit_all([Heard(tuple(heard))])

    async def settle(self, limit_s: float) -> bool:
        """Wait, not longer than `limit_s`, until all is written and the other ends have closed too.

        Closing earlier, with bytes unread, would reset the connection, and the goodbye in it be lost.
        """
        for _ in range(max(1, int(limit_s / SETTLE_POLL_S))):
            if not self._closing and not self._engine.totals()["backlog_bytes"]:
                return True
            await asyncio.sleep(SETTLE_POLL_S)
        return False

    # --- what others see ----------------------------------------------------------------------

    def totals(self) -> dict[str, int]:
        """The engine's counters (see `LinkEngine.totals`) and `malformed_frames`, dropped and routed."""
        return self._engine.totals() | {"malformed_frames": self._malformed_frames}
