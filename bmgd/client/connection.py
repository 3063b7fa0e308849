"""One program's connection to its daemon: requests that wait for their answer, and streams.

Nothing here makes a task: the event loop's callbacks hand each frame to the request or the stream
that it belongs to. What is bounded, and what happens there:

    a stream's items in this program   its `bound`        the stream ends with SubscriptionError
    segments on their way to the daemon  `CROWDED_BYTES`  streams wait until it has read some
    bytes on their way to the daemon   `WRITE_BYTES_MAX`  further requests wait; those that open a
                                                          stream of messages raise RequestError
    waiting for that, and an answer    `within_s`         SilentDaemonError
    what it has not read at the end    `CLOSE_S`          dropped, and the socket is closed
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar, cast

from bmgd.client.items import Opened, Reading, Sink, Stream, check_loop
from bmgd.errors import (
    BmgdError,
    ControlError,
    NoDaemonError,
    ProtocolError,
    RequestError,
    SilentDaemonError,
    SubscriptionError,
)
from bmgd.wire import control
from bmgd.wire.control import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, Frame, Parts
from bmgd.wire.control_errors import error_of
from bmgd.wire.control_reader import FrameReader

ANSWER_S: Final = 10.0
"""How long a daemon may take for what it needs no other node for."""
GRACE_S: Final = 5.0
"""How much longer than the timeout of what it was asked for a daemon may take to tell of it."""

WRITE_BYTES_MAX: Final = 2**20
CROWDED_BYTES: Final = 128 * 1024
"""So many bytes wait beside what the kernel holds, before streams put no further segment."""
UNCROWDED_BYTES: Final = 32 * 1024

CLOSE_S: Final = 1.0
"""How long a daemon may take to read what waits for it when the connection is closed."""

_CONNECT_S = 5.0
_END_S = 2.0

T = TypeVar("T")


class Sender(Protocol):
    """What puts segments."""

    def on_writable(self) -> None:
        """The daemon has read some of what was written."""


class Connection(asyncio.BufferedProtocol):
    """One connection to a daemon; made by `open_connection`."""

    def __init__(self) -> None:
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._streams: dict[int, Sink] = {}
        self._waiting: dict[Sender, None] = {}
        """Who has segments to put, and waits until it may."""
        self._uncrowded = asyncio.Event()
        """Set while more may be written: the daemon has read enough, or is gone."""
        self._uncrowded.set()
        self._has_ended = asyncio.Event()
        """Set while there is no socket."""
        self._has_ended.set()
        self._last_sequence = 0
        self._lost: BmgdError | None = None
        self.features: frozenset[str] = frozenset()
        """What the daemon has told that it can do beyond version 1's verbs."""

    lasts = False
    """Whether it is opened again when its daemon is."""

    async def until_sendable(self, destination: int, timeout: float) -> float:  # noqa: ASYNC109
        """Wait until something can be sent; returns how many seconds are left.

        Raises:
            NoDaemonError: the daemon is gone for good.
            UnreachableError: it is not there in time, and may come back.
        """
        if self._lost is not None:
            raise self._lost
        return timeout

    async def greet(self) -> None:
        """Agree on a version and features; a daemon that knows no `hello` serves version 1.

        Raises:
            VersionError: there is no common version.
            SilentDaemonError, NoDaemonError: as `ask`.
        """
        params = {"versions": sorted(control.VERSIONS), "features": sorted(control.FEATURES)}
        try:
            match await self.ask("hello", params):
                case {"features": list(features)}:
                    self.features = frozenset(map(str, features))
                case _:
                    raise ProtocolError("not an answer to hello")
        except RequestError:
            if self._lost is not None:
                # It was not the request that it refused, but the connection.
                raise
            self.features = frozenset()

    async def ask(self, verb: str, params: Mapping[str, Any], within_s: float = ANSWER_S) -> Any:
        """Ask for something and wait for the answer.

        Args:
            verb, params: see docs/control-protocol.md.
            within_s: how long to wait, in seconds.

        Raises:
            SilentDaemonError: no answer came in time.
            RequestError: the request cannot be sent.
            BmgdError: what the daemon answered, or `NoDaemonError`.
        """
        within_s = await self._until_read(verb, within_s)
        sequence = self._request(verb, params)
        return await self._answer(sequence, verb, within_s)

    @asynccontextmanager
    async def stream(
        self,
        verb: str,
        params: Mapping[str, Any],
        read: Callable[[Any], list[T]],
        bound: int,
    ) -> AsyncIterator[Stream[T]]:
        """A stream of items: open on entry, over at the daemon's side on exit.

        Args:
            verb, params: see docs/control-protocol.md.
            read: turns the value of a frame into items; raises ProtocolError.
            bound: how many items may wait here.

        Raises: as `ask`.
        """
        within_s = await self._until_read(verb, ANSWER_S)
        sequence = self._request(verb, params)
        stream: Stream[T] = Stream(bound)
        stream.sequence = sequence
        stream.loop = self._loop
        self._streams[sequence] = Opened(stream, read)
        try:
            await self._answer(sequence, verb, within_s)
            yield stream
        finally:
            await self._end_stream(sequence, stream)

    @asynccontextmanager
    async def reading(
        self, verb: str, params: Mapping[str, Any], stream: Reading
    ) -> AsyncIterator[None]:
        """As `stream`, for one that reads its items itself.

        Raises: as `ask`.
        """
        within_s = await self._until_read(verb, ANSWER_S)
        sequence = self._request(verb, params)
        self._streams[sequence] = stream
        stream.sequence = sequence
        stream.items.loop = self._loop
        try:
            await self._answer(sequence, verb, within_s)
            yield
        finally:
            stream.finish_taken()
            await self._end_stream(sequence, stream.items)

    def open(
        self, verb: str, params: Mapping[str, Any], sink: Sink
    ) -> tuple[int, asyncio.Future[Any]]:
        """Ask for something that goes on: its number, and its answer.

        Args:
            sink: takes what follows the answer; forgotten by `forget`.

        Raises: as `ask`.
        """
        sequence = self._request(verb, params)
        self._streams[sequence] = sink
        return sequence, self._answers[sequence]

    def forget(self, sequence: int) -> None:
        """What comes of an open request is of no interest any more."""
        self._streams.pop(sequence, None)

    @property
    def lost(self) -> BmgdError | None:
        """Why the connection is over; None while it is not."""
        return self._lost

    @property
    def unwritten_bytes(self) -> int:
        """What the daemon has not read, and the kernel does not hold."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def check_loop(self) -> None:
        """Refuse what is done in another event loop.

        Raises:
            RequestError: it is not that of the connection.
        """
        check_loop(self._loop)

    def may_write(self, sender: Sender) -> bool:
        """Whether a segment may be written now; else `on_writable` tells when."""
        if not self._uncrowded.is_set():
            self._waiting[sender] = None
            return False
        return True

    def close(self) -> None:
        """Close the connection; what still waits gets an error."""
        self._lose(ControlError("the connection is closed"))

    async def until_closed(self) -> None:
        """Wait until the socket of a connection that was closed is, too.

        A daemon that is stopped reads nothing: what it has not read within `CLOSE_S` is dropped.
        """
        if asyncio.get_running_loop() is not self._loop:
            # It cannot be told of the end.
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._has_ended.wait()
        finally:
            if self._transport is not None and not self._has_ended.is_set():
                self._transport.abort()
        await self._has_ended.wait()

    # --- asyncio.BufferedProtocol -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._transport.set_write_buffer_limits(CROWDED_BYTES, UNCROWDED_BYTES)
        self._waiting = {}
        self._uncrowded.set()
        self._has_ended.clear()

    def pause_writing(self) -> None:
        self._uncrowded.clear()

    def resume_writing(self) -> None:
        self._uncrowded.set()
        waiting, self._waiting = self._waiting, {}
        for sender in waiting:
            sender.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended.set()
        self._lose(NoDaemonError("the daemon closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.filled(nbytes)
        try:
            while self._lost is None:
                frame = self._reader.next_frame()
                if frame is None:
                    return
                self._on_frame(frame)
        except ProtocolError as error:
            self._lose(error)

    # --- frames -------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        match frame:
            case control.Result(sequence, value):
                self._settle(sequence, value, None)
            case control.Failure(sequence, name, message, fields):
                error = error_of(name, message, fields)
                if sequence == 0:
                    self._lose(error)
                else:
                    self._finish(sequence, error)
                    self._settle(sequence, None, error)
            case control.Item(sequence, value):
                self._add(sequence, value)
            case control.End(sequence, name, message, fields):
                ended = error_of(name, message, fields) if name else None
                self._finish(sequence, ended, fields)
            case _:
                raise ProtocolError("that frame is a program's to send")

    def _settle(self, sequence: int, value: Any, error: BmgdError | None) -> None:
        answer = self._answers.pop(sequence, None)
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    def _add(self, sequence: int, value: Any) -> None:
        sink = self._streams.get(sequence)
        if sink is None:
            return
        try:
            sink.on_item(value)
        except SubscriptionError as error:
            sink.on_end(error, {})
            self.write(control.Cancel(sequence))

    def _finish(
        self, sequence: int, error: BmgdError | None, fields: Mapping[str, Any] | None = None
    ) -> None:
        sink = self._streams.get(sequence)
        if sink is not None:
            sink.on_end(error, fields or {})

    def _lose(self, error: BmgdError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        for sequence in list(self._answers):
            self._settle(sequence, None, error)
        for sink in list(self._streams.values()):
            sink.on_end(error, {})
        self._uncrowded.set()
        if self._transport is not None:
            self._transport.close()

    # --- requests -----------------------------------------------------------------------------

    async def _until_read(self, verb: str, within_s: float) -> float:
        """Wait while too much is on its way to the daemon; returns how many seconds are left."""
        if self.unwritten_bytes <= WRITE_BYTES_MAX:
            return within_s
        self.check_loop()
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        try:
            async with asyncio.timeout(within_s):
                while self._lost is None and self.unwritten_bytes > WRITE_BYTES_MAX:
                    await self._uncrowded.wait()
        except TimeoutError:
            text = f"the daemon has not read for {within_s:g} s, and was not asked for {verb!r}"
            raise SilentDaemonError(text) from None
        return max(until - loop.time(), 0)

    def _request(self, verb: str, params: Mapping[str, Any]) -> int:
        if self._lost is not None:
            raise self._lost
        self.check_loop()
        if self._transport is not None:
            waiting = self._transport.get_write_buffer_size()
            if waiting > WRITE_BYTES_MAX:
                raise RequestError(f"{waiting} bytes wait for the daemon, which does not read")
        sequence = self._last_sequence + 1
        try:
            self.write(control.Request(sequence, verb, params))
        except ProtocolError as error:
            raise RequestError(f"the request cannot be sent: {error}") from None
        self._last_sequence = sequence
        self._answers[sequence] = asyncio.get_running_loop().create_future()
        return sequence

    async def _answer(self, sequence: int, verb: str, within_s: float) -> Any:
        answer = self._answers[sequence]
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            text = f"the daemon has not answered {verb!r} for {within_s:g} s"
            raise SilentDaemonError(text) from None
        finally:
            if self._answers.pop(sequence, None) is not None and sequence not in self._streams:
                self.write(control.Cancel(sequence))

    async def _end_stream(self, sequence: int, stream: Stream[Any]) -> None:
        # Until the daemon has ended it, what was not taken does not wait for the next reader.
        if not stream.over:
            self.write(control.Cancel(sequence))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await stream.until_over()
        finally:
            stream.finish(None)
            self._streams.pop(sequence, None)

    def write(self, frame: Frame) -> None:
        """Send a frame; nothing happens when the connection is over."""
        transport = self._transport
        if self._lost is None and transport is not None and not transport.is_closing():
            write_parts(transport, control.encode_parts(frame, REQUEST_BYTES_MAX))


def write_parts(transport: asyncio.WriteTransport, parts: Parts) -> None:
    """Write a frame; a long body is not copied where the loop can do without."""
    if len(parts) == 1:
        transport.write(parts[0])
    else:
        transport.writelines(parts)


async def open_connection(path: str) -> Connection:
    """Connect to the daemon that listens at a Unix socket.

    Raises:
        NoDaemonError: nobody answers there.
    """
    connection = Connection()
    await open_socket(connection, path)
    return connection


async def open_socket(connection: Connection, path: str) -> None:
    """Connect a connection to the daemon that listens at a Unix socket.

    Raises:
        NoDaemonError: nobody answers there.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_unix_connection(lambda: connection, path)
    except TimeoutError:
        raise NoDaemonError(f"no daemon at {path}: it does not accept") from None
    except OSError as error:
        raise NoDaemonError(f"no daemon at {path}: {error.strerror or error}") from None


@asynccontextmanager
async def open_greeted(path: str) -> AsyncIterator[Connection]:
    """A connection that ends with its daemon, or with the block.

    Raises:
        NoDaemonError: nobody answers there.
        VersionError: there is no common version.
    """
    connection = await open_connection(path)
    try:
        await connection.greet()
        yield connection
    finally:
        connection.close()
        await connection.until_closed()
