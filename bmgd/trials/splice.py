"""One connection through the fault proxy: two sockets, two directions, and whose they are.

Theory of operation. Who dialled is not known by the address on loopback, but the dialer speaks
first, and its hello says its id (it is read, and passed on unaltered):

    GREETING --hello read, and no cut between the two--> CONNECTING --> OPEN --both ended--> CLOSED
       |                                                     |            |
       +--the dialer hangs up ---------------------------> CLOSED <-------+--reset: RST to both ends
                                          refused: gate shut --^          '--go_dark--> DARK

Each direction is a `Flow` (`flow.py`). In DARK, the half-open connection, what either end sends vanishes,
and neither is told when the other closes.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from enum import Enum
from typing import Final, Protocol

from bmgd.errors import ProtocolError
from bmgd.trials.flow import READ_BYTES, Flow
from bmgd.trials.gate import Gate
from bmgd.trials.impairments import Impairments, Pair
from bmgd.types import NO_ID
from bmgd.wire.hello import HELLO_BYTES_MAX, MAGIC, RECORD, HelloKind, decode_hello

STRANGER: Final = -1
"""The id of a dialer that says no hello: nothing that is ordered of links concerns it."""

_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Owner(Protocol):
    """What a splice asks of the proxy."""

    impairments: Impairments

    def on_identified(self, gate: Gate, node_id: int) -> None:
        """Somebody dialled this node at the gate."""

    def on_end_closed(self, node_id: int) -> None:
        """One end's socket ended: its process may have."""

    def on_refused(self, gate: Gate) -> None:
        """Nobody listens behind the gate."""

    def on_closed(self, splice: Splice) -> None:
        """The splice is over."""


class Phase(Enum):
    """How far a splice is."""

    GREETING = "greeting"
    CONNECTING = "connecting"
    OPEN = "open"
    DARK = "dark"
    CLOSED = "closed"


def ends_of(data: bytes) -> Pair | None:
    """Who dials and whom, by a dialer's first bytes; None while too few came.

    Who says no hello is a `STRANGER`, and so is a joiner without an id, which dials anybody.
    """
    if not MAGIC.startswith(data[: len(MAGIC)]):
        return STRANGER, STRANGER
    if len(data) < RECORD.size:
        return None
    _, kind, length = RECORD.unpack_from(data)
    if kind != HelloKind.HELLO or length > HELLO_BYTES_MAX:
        return STRANGER, STRANGER
    if len(data) < RECORD.size + length:
        return None
    try:
        hello = decode_hello(data[RECORD.size : RECORD.size + length])
    except ProtocolError:
        return STRANGER, STRANGER
    if hello.is_joiner:
        return (STRANGER if hello.id == NO_ID else hello.id), STRANGER
    return hello.id, hello.expected


class Splice:
    """One dialled connection.

    Args:
        owner: see `Owner`.
        gate: where it was accepted.
        near: the dialer's socket, non-blocking.

    Attributes:
        dialer: the id that dialled; `STRANGER` until its hello was read.
        destination: the id that was dialled.
    """

    def __init__(self, owner: Owner, gate: Gate, near: socket.socket) -> None:
        self._owner = owner
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._near = near
        self._far: socket.socket | None = None
        self._flows: tuple[Flow, ...] = ()
        self._first = b""
        self._identified = False
        self._dark_ends: set[int] = set()
        self.phase = Phase.GREETING
        self.dialer = STRANGER
        self.destination = STRANGER if gate.node_id is None else gate.node_id
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(near.fileno(), self._on_greeting)

    def joins(self, a: int, b: int) -> bool:
        """Whether it is between these two, whoever dialled."""
        return (self.dialer, self.destination) in ((a, b), (b, a))

    # --- beginning ----------------------------------------------------------------------------

    def _on_greeting(self) -> None:
        try:
            data = self._near.recv(HELLO_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # It hangs up before anybody behind the gate knows of it: nobody is told.
            self.close()
            return
        self._first += data
        if not self._identified:
            ends = ends_of(self._first)
            if ends is None:
                return
            self._identified = True
            self.dialer, expected = ends
            if self._gate.node_id is None and expected != STRANGER:
                self.destination = expected
                self._owner.on_identified(self._gate, expected)
        if len(self._first) >= READ_BYTES:
            self.reset()
            return
        self.update()

    def _connect(self) -> None:
        self.phase = Phase.CONNECTING
        self._loop.remove_reader(self._near.fileno())
        try:
            self._far = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:
            # No descriptor is free: who dialled tries again.
            self.reset()
            return
        self._far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._far.connect_ex(self._gate.inside)
        if code == errno.EINPROGRESS:
            self._loop.add_writer(self._far.fileno(), self._on_connected)
        else:
            self._on_connect_ended(code)

    def _on_connected(self) -> None:
        assert self._far is not None
        self._loop.remove_writer(self._far.fileno())
        self._on_connect_ended(self._far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _on_connect_ended(self, code: int) -> None:
        assert self._far is not None
        if code:
            if code == errno.ECONNREFUSED:
                self._owner.on_refused(self._gate)
            self.reset()
            return
        self.phase = Phase.OPEN
        there = self._make_flow(self._near, self._far, self.dialer)
        back = self._make_flow(self._far, self._near, self.destination)
        self._flows = (there, back)
        self._apply_rules()
        there.start(self._first)
        self._first = b""
        back.start()
        there.pump()

    def _make_flow(self, source: socket.socket, target: socket.socket, end: int) -> Flow:
        return Flow(
            self._loop,
            source,
            target,
            on_read_end=lambda: self._owner.on_end_closed(end),
            on_ended=self._on_flow_ended,
            on_broken=self.reset,
        )

    # --- rules --------------------------------------------------------------------------------

    def update(self) -> None:
        """Follow the owner's impairments as they are now."""
        if self.phase is Phase.OPEN:
            self._apply_rules()
        elif self.phase is Phase.GREETING and self._identified:
            severed = self._owner.impairments.severs(self.dialer, self.destination)
            if not severed:
                self._connect()

    def _apply_rules(self) -> None:
        impairments = self._owner.impairments
        ends = ((self.dialer, self.destination), (self.destination, self.dialer))
        for flow, (source, target) in zip(self._flows, ends, strict=True):
            slow = impairments.slowness(source, target)
            flow.allow(
                held=impairments.holds(source, target),
                delay_s=slow.delay_s if slow else 0.0,
                bytes_per_second=slow.bytes_per_second if slow else 0.0,
            )
            if self.phase is not Phase.OPEN:
                return

    def go_dark(self) -> None:
        """Become half-open: whatever comes vanishes, and neither end is told anything."""
        if self.phase is not Phase.OPEN or self._far is None:
            return
        self.phase = Phase.DARK
        for flow in self._flows:
            flow.stop()
        for end in (self._near, self._far):
            self._loop.add_reader(end.fileno(), self._swallow, end)

    def _swallow(self, end: socket.socket) -> None:
        try:
            data = end.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(end.fileno())
            self._dark_ends.add(end.fileno())
            if len(self._dark_ends) == 2:
                self.close()

    # --- ending -------------------------------------------------------------------------------

    def _on_flow_ended(self) -> None:
        if all(flow.ended for flow in self._flows):
            self.close()

    def reset(self) -> None:
        """End it with RST to both ends; what was underway is lost."""
        for end in (self._near, self._far):
            if end is not None and self.phase is not Phase.CLOSED:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.close()

    def close(self) -> None:
        """Close both sockets."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        for flow in self._flows:
            flow.stop()
        for end in (self._near, self._far):
            if end is not None:
                self._loop.remove_reader(end.fileno())
                self._loop.remove_writer(end.fileno())
                end.close()
        self._owner.on_closed(self)
