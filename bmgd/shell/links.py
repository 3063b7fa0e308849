"""The links that are up: the engine's news become events of the core, the core's orders go to the engine.

Theory of operation. The loop watches the engine as one descriptor. When it is ready, one `poll` gives
a list of what happened on all links; the core is stepped for all of it, and then outboxes are written
once. What the list means for the core is in `bmgd.linkevents`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from bmgd.core.events import Event
from bmgd.linkevents import LinkEvents
from bmgd.linklayer import LinkEngine, contract
from bmgd.routing import Snapshot
from bmgd.types import LinkId
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Goodbye, Notice
from bmgd.wire.messages import Message

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

    def read(self) -> bool:
        """Read what waits in the kernel, once; whether anything came."""

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
        self._events = LinkEvents(engine, self._forget, self._end_writing)
        self._loop = asyncio.get_running_loop()
        # By link: its descriptor, -1 without one. Only to ask the kernel what it has counted.
        self._links: dict[LinkId, int] = {}
        self._closing: dict[LinkId, asyncio.TimerHandle] = {}
        self._carriers: dict[LinkId, Carrier] = {}
        self._poll_soon: asyncio.Handle | None = None

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
        self._links[link] = fd
        return self._put_first(link, first)

    def adopt_fed(self, link: LinkId, peer: int, carrier: Carrier, first: bytes) -> bool:
        """As `adopt`, for a link whose bytes a carrier takes and feeds."""
        self._engine.adopt(-1, link, peer)
        self._links[link] = -1
        self._carriers[link] = carrier
        return self._put_first(link, first)

    def _put_first(self, link: LinkId, first: bytes) -> bool:
        if first and self._engine.put(link, first, contract.RAW) != contract.PUT:
            self._engine.close(link)
            self._forget(link)
            return False
        return True

    def _forget(self, link: LinkId) -> None:
        self._links.pop(link, None)
        closing = self._closing.pop(link, None)
        if closing is not None:
            closing.cancel()
        carrier = self._carriers.pop(link, None)
        if carrier is not None:
            carrier.close()

    def _end_writing(self, link: LinkId) -> None:
        # It may be gone: all was out before its last frames, or its time was over, in the same turn.
        carrier = self._carriers.get(link)
        if carrier is not None:
            carrier.end_writing()

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
        happened = self._engine.poll(time.monotonic_ns())
        if happened:
            for events in self._events.in_parts(happened):
                self._emit_all(events)
        else:
            # What was only passed on is no matter of the core's.
            self.flush()

    def _look_soon(self) -> None:
        if self._poll_soon is None:
            self._poll_soon = self._loop.call_soon(self._turn_soon)

    def _turn_soon(self) -> None:
        self._poll_soon = None
        self._turn()

    def absorbed(self) -> list[Event]:
        """What the core has to be told before any other event: the heartbeats that it did not see."""
        return self._events.absorbed()

    # --- what the core orders -----------------------------------------------------------------

    def publish(self, snapshot: Snapshot) -> None:
        """Relay by this snapshot from now on."""
        self._engine.publish(snapshot)

    def absorb_heartbeats(self, digest: int, links: tuple[LinkId, ...]) -> None:
        """Heartbeats with this digest on these links are absorbed from now on."""
        self._events.absorb_heartbeats(digest, links)

    def overlook(self, notice: Notice) -> None:
        """The core has not looked at a notice: from another link it still counts."""
        events = self._events.overlook(notice)
        if events:
            self._emit_all(events)

    def send(self, link: LinkId, message: Message) -> None:
        """Put a message into a link's outbox; `flush` writes it."""
        events = self._events.send(link, message)
        if events:
            self._emit_all(events)

    def close(self, link: LinkId, reason: str) -> None:
        """Say goodbye on a link, and close it once the other end has heard it, or a second later."""
        if link in self._links and link not in self._closing:
            self._engine.shut(link, encode(Goodbye(reason)))
            self._closing[link] = self._loop.call_later(CLOSING_TIMEOUT_S, self._give_up, link)

    def _give_up(self, link: LinkId) -> None:
        self._emit_all(self._events.end(link))

    def flush(self) -> None:
        """Write what the last events have put into outboxes; the core has taken all of them."""
        self._events.end_turn()
        if self._engine.flush():
            self._look_soon()
        for link in self._engine.waiting() if self._carriers else ():
            self._carriers[LinkId(link)].on_waiting()

    def drain(self) -> None:
        """Read everything that waits in the kernel; tell the core whom it has not heard of."""
        for carrier in list(self._carriers.values()):
            for _ in range(DRAIN_ROUNDS_MAX):
                if not carrier.read():
                    break
        before = self._engine.totals()["received_bytes"]
        for _ in range(DRAIN_ROUNDS_MAX):
            self._turn()
            after = self._engine.totals()["received_bytes"]
            if after == before:
                break
            before = after
        heard = self._events.heard()
        if heard:
            self._emit_all(heard)

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

    def descriptors(self) -> list[tuple[LinkId, int, int]]:
        """Of every link: its id, its descriptor (-1 without one), and the bytes in its outbox."""
        return [(link, fd, self._engine.backlog(link)) for link, fd in self._links.items()]

    def totals(self) -> dict[str, int]:
        """The engine's counters (see `LinkEngine.totals`), and those of `LinkEvents`."""
        return self._engine.totals() | {
            "malformed_frames": self._events.malformed_frames,
            "oversized_frames": self._events.oversized_frames,
            "unreturned_frames": self._events.unreturned_frames,
        }
