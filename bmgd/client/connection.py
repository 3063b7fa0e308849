"""One program's connection to its daemon: requests that wait for their answer, and streams.

Nothing here makes a task: the event loop's callbacks hand each frame to the request or the stream
that it belongs to. What is bounded, and what happens there:

    a stream's items in this program   its `bound`        the stream ends with SubscriptionError
    bytes on their way to the daemon   `WRITE_BYTES_MAX`  further requests and messages wait
    waiting for that, and an answer    `within_s`,        SilentDaemonError
                                       or `timeout` and `GRACE_S`
    what waits in its socket           see `daemon_socket.py`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from bmgd.client.backlog import told_error, with_sent
from bmgd.client.calls import SendingCalls
from bmgd.client.daemon_socket import DaemonSocket
from bmgd.client.deadlines import LEAST_S
from bmgd.client.items import Opened, Reading, Sink, Stream
from bmgd.client.line import Line
from bmgd.errors import (
    BmgdError,
    ControlError,
    NoDaemonError,
    ProtocolError,
    RequestError,
    SilentDaemonError,
    SubscriptionError,
    UnreachableError,
)
from bmgd.wire import control
from bmgd.wire.control import Frame

ANSWER_S: Final = 10.0
"""How long a daemon may take for what it needs no other node for."""
GRACE_S: Final = 5.0
"""How much longer than the timeout of what it was asked for a daemon may take to tell of it."""

LEFT: Final = "the connection is closed"
WRITE_BYTES_MAX: Final = 2**20
_END_S = 2.0

T = TypeVar("T")


class Connection(DaemonSocket):
    """One connection to a daemon; made by `bmgd.client.connecting.open_connection`."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._streams: dict[int, Sink] = {}
        self._last_sequence = 0
        self.features: frozenset[str] = frozenset()
        """What the daemon has told that it can do beyond version 1's verbs."""
        self.long_bytes = 0
        """Of long messages, how many bytes were handed to the daemon."""
        self.sending = SendingCalls()
        self.is_left = False
        """Whether the program has closed it."""
        self._line = Line()
        """Those whose requests wait until the daemon has read."""

    lasts = False
    """Whether it is opened again when its daemon is."""

    @property
    def must_wait(self) -> bool:
        """Whether `until_sendable` waits, or fails, before anything can be sent."""
        return self._lost is not None or self.must_queue

    async def until_sendable(self, destination: int, timeout: float) -> float:  # noqa: ASYNC109
        """Wait until something can be sent; returns how many seconds are left.

        Raises:
            NoDaemonError: the daemon is gone for good.
            UnreachableError: it is not there in time, and may come back, or it does not read.
        """
        timeout = await self.until_has_room(destination, timeout)
        # Without the traceback of the last time: it would grow, and keep what was sent then.
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        return timeout

    async def until_has_room(self, destination: int, timeout: float) -> float:  # noqa: ASYNC109
        """Wait while too much is on its way to the daemon; returns how many seconds are left.

        Raises:
            UnreachableError: the daemon has not read it in time.
        """
        try:
            return max(await self._until_read("stream", timeout), LEAST_S)
        except SilentDaemonError:
            raise UnreachableError(destination, "its daemon does not read", sent=False) from None

    async def greet(self, within_s: float = ANSWER_S) -> None:
        """Agree on a version and features; a daemon that knows no `hello` serves version 1.

        Args:
            within_s: how long to wait for its answer, in seconds.

        Raises:
            VersionError: there is no common version.
            RequestError: the daemon refuses the connection.
            SilentDaemonError, NoDaemonError: as `ask`. `sent` is always false: a greeting does nothing.
        """
        params = {"versions": sorted(control.VERSIONS), "features": sorted(control.FEATURES)}
        try:
            # A subclass's waits until the daemon is there, which it is once it has been greeted.
            match await Connection.ask(self, "hello", params, within_s):
                case {"features": list(features)}:
                    self.features = frozenset(map(str, features))
                case _:
                    raise ProtocolError("not an answer to hello")
        except (SilentDaemonError, NoDaemonError) as error:
            raise with_sent(error, sent=False) from None
        except RequestError as error:
            if self._lost is not None:
                # It was not the request that it refused, but the connection.
                raise with_sent(error, sent=False) from None
            self.features = frozenset()

    async def ask(self, verb: str, params: Mapping[str, Any], within_s: float = ANSWER_S) -> Any:
        """Ask for something and wait for the answer.

        Args:
            verb, params: see docs/control-protocol.md.
            within_s: how long to wait, in seconds.

        Raises:
            SilentDaemonError: no answer came in time; `sent` says whether it was asked at all.
            RequestError: the request cannot be sent.
            BmgdError: what the daemon answered, or `NoDaemonError`, with `sent`.
        """
        within_s = await self._until_read(verb, within_s)
        sequence = self._request(verb, params)
        return await self._answer(sequence, verb, within_s)

    async def ask_in_time(self, verb: str, params: Mapping[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
        """As `ask`, for what takes a time that the program has chosen, and the daemon keeps.

        Args:
            verb, params: as of `ask`, but for the parameter ``timeout``.
            timeout: seconds from now. The daemon is told how many are left when it is asked.

        Raises: as `ask`.
        """
        return await self.ask_this_daemon(verb, params, timeout)

    async def with_one_daemon(self, timeout: float, do: Callable[[float], Awaitable[T]]) -> T:  # noqa: ASYNC109
        """Do something that takes several requests, all of the same life of the daemon.

        Args:
            timeout: seconds from now.
            do: gets what is left of them, and asks by `ask_this_daemon`.

        Raises: as `do`.
        """
        return await do(timeout)

    async def ask_this_daemon(
        self,
        verb: str,
        params: Mapping[str, Any],
        timeout: float,  # noqa: ASYNC109
        on_asked: Callable[[], None] = lambda: None,
    ) -> Any:
        """As `ask_in_time`; fails where the daemon is gone, whether another one may come or not.

        Args:
            on_asked: called when the request is written.
        """
        left_s = max(await self._until_read(verb, timeout), LEAST_S)
        sequence = self._request(verb, {**params, "timeout": left_s})
        on_asked()
        return await self._answer(sequence, verb, left_s + GRACE_S)

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

    def close(self) -> None:
        """Close the connection; what still waits gets an error."""
        self.is_left = True
        self._lose(ControlError(LEFT))

    # --- frames -------------------------------------------------------------------------------

    def _on_frame(self, frame: Frame) -> None:
        match frame:
            case control.Result(sequence, value):
                self._settle(sequence, value, None)
            case control.Failure(sequence, name, message, fields):
                error = told_error(name, message, fields)
                if sequence == 0:
                    self._lose(error)
                else:
                    self._finish(sequence, error)
                    self._settle(sequence, None, error)
            case control.Item(sequence, value):
                self._add(sequence, value)
            case control.End(sequence, name, message, fields):
                ended = told_error(name, message, fields) if name else None
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
            self._settle(sequence, None, with_sent(error, sent=True))
        for sink in list(self._streams.values()):
            sink.on_end(error, {})
        self._uncrowded.set()
        if self._transport is not None:
            self._transport.close()

    # --- requests -----------------------------------------------------------------------------

    async def _until_read(self, verb: str, within_s: float) -> float:
        """Wait while too much is on its way to the daemon; returns how many seconds are left.

        Nobody overtakes who waits; the caller writes its request before it waits for anything else.
        """
        if not self.must_queue:
            return within_s
        self.check_loop()
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        try:
            async with asyncio.timeout(within_s), self._line.turn():
                while self._lost is None and self.is_overfull:
                    await self._uncrowded.wait()
        except TimeoutError:
            text = f"the daemon has not read for {within_s:g} s, and was not asked for {verb!r}"
            raise SilentDaemonError(text) from None
        return max(until - loop.time(), 0)

    @property
    def is_overfull(self) -> bool:
        """Whether so much is on its way to the daemon that nothing more is asked for."""
        return self.unwritten_bytes > WRITE_BYTES_MAX

    @property
    def must_queue(self) -> bool:
        """Whether it is overfull, or somebody waits until it is not."""
        return self._line.count > 0 or self.is_overfull

    def _request(self, verb: str, params: Mapping[str, Any]) -> int:
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        self.check_loop()
        if self.is_overfull:
            text = f"{self.unwritten_bytes} bytes wait for the daemon, which does not read"
            raise RequestError(text)
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
            raise SilentDaemonError(text, sent=True) from None
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
            stream.leave()
            self._streams.pop(sequence, None)
