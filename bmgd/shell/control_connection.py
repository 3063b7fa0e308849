"""The connection of one program: frames in, frames out, and what waits when it does not read."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, cast

from bmgd.errors import ProtocolError, RequestError
from bmgd.shell.access import Level, Peer, peer_of
from bmgd.shell.turns import Turns
from bmgd.transports import write_parts
from bmgd.wire import control
from bmgd.wire.control import Frame
from bmgd.wire.control_errors import failure_of
from bmgd.wire.control_reader import FrameReader, ReadBuffer

PAUSE_BYTES: Final = 256 * 1024
LINGER_S: Final = 5.0
LINGERING_MAX: Final = 64


class Server(Protocol):
    """What a connection tells of.

    Attributes:
        read_buffer: of all connections.
        turns: of all connections.
        lingering: connections that are finished, until their programs close, and those whose
            programs say no more, until these have read what waits.
    """

    read_buffer: ReadBuffer
    turns: Turns
    lingering: set[ProgramConnection]

    def admit(self, program: ProgramConnection, peer: Peer) -> Level:
        """A program has connected; raises RequestError where it may not."""

    def on_frame(self, program: ProgramConnection, frame: Frame) -> None:
        """A frame came."""

    def forget(self, program: ProgramConnection) -> None:
        """The program is gone, or is not listened to any more; told once or twice."""


class Call:
    """One request of a program, until it is answered or its stream ends."""

    __slots__ = (
        "forgotten",
        "number",
        "opened",
        "program",
        "revision",
        "sequence",
        "unread",
        "unread_broadcasts",
        "unread_pieces",
        "value",
        "verb",
    )

    def __init__(self, program: ProgramConnection, sequence: int, verb: str, number: int) -> None:
        self.program = program
        self.sequence = sequence
        self.verb = verb
        self.number = number
        self.opened = False
        self.forgotten = False
        self.unread = 0
        self.unread_broadcasts = 0
        self.unread_pieces = 0
        self.revision = 0
        self.value: Any = None
        """What it was answered, of one that goes on."""


class ProgramConnection(asyncio.BufferedProtocol):
    """The connection of one program."""

    def __init__(self, server: Server) -> None:
        self.calls: dict[int, Call] = {}
        self.peer = Peer(0, 0, frozenset())
        self.level = Level.NOTHING
        self.has_asked = False
        self._server = server
        self._reader = FrameReader(control.REQUEST_BYTES_MAX, server.read_buffer)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._waits = False
        self._finished = False

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the program has not read and the kernel does not hold."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def held_bytes(self) -> int:
        """Those, and what was read of the program and is not done."""
        return self.backlog_bytes + self._reader.waiting_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PAUSE_BYTES)
        self.peer = peer_of(transport.get_extra_info("socket"))
        try:
            self.level = self._server.admit(self, self.peer)
        except RequestError as error:
            self.write(failure_of(0, error))
            self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.lingering.discard(self)
        self._server.forget(self)

    def eof_received(self) -> None:
        """The program says no more: what it has not read yet goes out, or is dropped after `LINGER_S`.

        The transport closes itself when this returns.
        """
        if self._transport is None or self._finished or not self.backlog_bytes:
            return
        if len(self._server.lingering) < LINGERING_MAX:
            # Else it keeps its place among the programs until then.
            self._server.lingering.add(self)
            self._server.forget(self)
        asyncio.get_running_loop().call_later(LINGER_S, self.cut)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._finished:
            return
        self._reader.filled(nbytes)
        self._read_frames()
        # The buffer is another's now.
        self._reader.settle()

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def serve(self) -> None:
        """Its turn has come."""
        self._waits = False
        self._go_on()

    def _go_on(self) -> None:
        """Read again, and do first what has come already."""
        if self._transport is not None and self._is_heard():
            self._transport.resume_reading()
            self._read_frames()

    def write(self, frame: Frame) -> None:
        """Send a frame; an answer too long for one becomes an error that says so."""
        if self._transport is None or self._finished or self._transport.is_closing():
            return
        try:
            parts = control.encode_parts(frame)
        except ProtocolError as error:
            detail = RequestError(f"the answer cannot be sent: {error}")
            parts = control.encode_parts(failure_of(frame.sequence, detail))
        write_parts(self._transport, parts)

    def finish(self) -> None:
        """Say no more, and close when the program does, or after `LINGER_S`.

        Its streams end now. What the program still says is dropped. If this side closed at once,
        a program that is writing would get a broken pipe, and not read what it was told. Where
        `LINGERING_MAX` linger already, this side closes at once.
        """
        transport = self._transport
        if transport is None or self._finished or transport.is_closing():
            return
        if len(self._server.lingering) >= LINGERING_MAX:
            self.close()
            return
        self._finished = True
        self._server.lingering.add(self)
        self._server.forget(self)
        if self._paused or self._waits:
            transport.resume_reading()
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.cut)

    def close(self) -> None:
        """Close once what was written has gone out, or after `LINGER_S`."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self.cut)

    def cut(self) -> None:
        """Close at once; what waits is dropped."""
        # A transport of asyncio's cannot be aborted once it has closed by itself.
        if self._transport is not None:
            self._transport.abort()

    def _is_heard(self) -> bool:
        transport = self._transport
        stays = transport is not None and not self._finished and not transport.is_closing()
        return stays and not self._paused and not self._waits

    def _read_frames(self) -> None:
        try:
            while self._is_heard():
                if self._server.turns.is_over():
                    self._wait()
                    return
                frame = self._reader.next_frame()
                if frame is None:
                    return
                self._server.on_frame(self, frame)
        except ProtocolError as error:
            self.write(failure_of(0, error))
            self.finish()

    def _wait(self) -> None:
        """What has come waits for the next turn, and nothing more is read before."""
        assert self._transport is not None
        self._waits = True
        self._transport.pause_reading()
        self._reader.settle()
        self._server.turns.wait(self)
