"""A connection that lives through the restarts of its daemon: ``connect(..., reconnect=True)``.

Theory of operation. One object stays; its socket is opened again, at once where it had been open for
`PAUSE_MAX_S`, and then after pauses that grow to that, for as long as the program keeps the connection.
What was open on the lost socket

    messages that are not confirmed  fail with UnreachableError, whose `sent` says what is known of them
    streams out                      are over; the next message opens another one
    what was asked and changes nothing  is asked again, within its time
    what else was asked              fails with NoDaemonError, `sent`: it may have been done, or not
    what was not asked yet           is asked within its time, or fails with `sent` False
    what lasts: subscriptions, registrations, membership, programs, monitor  is opened again, in order

and who asks for something meanwhile waits, within its own time, until the daemon is there again. A
subscription shows the gap by an `Interrupted` between what came before and what comes after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from bmgd.client import forked
from bmgd.client.backlog import with_sent
from bmgd.client.connecting import open_socket
from bmgd.client.connection import ANSWER_S, LEFT, Connection
from bmgd.client.deadlines import left_until
from bmgd.client.items import Opened, Reading, Sink, Stream
from bmgd.client.lasting import Lasting
from bmgd.client.line import Line
from bmgd.errors import (
    BmgdError,
    ControlError,
    NoDaemonError,
    RequestError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.wire import control
from bmgd.wire.control import ANSWER_BYTES_MAX
from bmgd.wire.control_reader import FrameReader

PAUSE_MIN_S: Final = 0.02
PAUSE_MAX_S: Final = 2.0
REPEATABLE: Final = frozenset({"status", "members", "links", "cluster", "ping", "trace", "readers"})
"""Verbs that change nothing."""
LOST: Final = "its daemon went away before the confirmation"
_END_S: Final = 2.0

T = TypeVar("T")


class _Interruptible(Protocol):
    def interrupt(self) -> None:
        """The daemon is gone, and may come back."""


@runtime_checkable
class _Sends(Sink, Protocol):
    """A stream out."""

    destination: int

    @property
    def is_in_doubt(self) -> bool:
        """Whether something of it was handed over, and is not confirmed."""


class LastingConnection(Connection):
    """A connection that is opened again when its daemon is.

    Args:
        path: of the daemon's socket.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._lost = NoDaemonError(f"no daemon at {path} yet")
        self._lasting: dict[Lasting, None] = {}
        self._changed = asyncio.Event()
        self._is_closed = False
        self._is_greeting = False
        """Whether the socket is open, and the daemon has not answered anything yet."""
        self._refusal: RequestError | None = None
        """Why the daemon refused the connection, the last time."""
        self._waiting_for_daemon = Line()
        self._random = Random(id(self))

    # --- up and down --------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the daemon is there."""
        return self._lost is None and not self._is_greeting

    async def keep_open(self) -> None:
        """Connect again whenever the daemon has gone, until this is cancelled."""
        loop, pause_s = asyncio.get_running_loop(), PAUSE_MIN_S
        while not self._is_closed:
            try:
                if not self.is_up:
                    await self.reopen()
                up_since = loop.time()
                await self._until_down()
                if loop.time() - up_since >= PAUSE_MAX_S:
                    pause_s = PAUSE_MIN_S
                    continue
                # Else one that greets and goes would be dialled without end.
            except (NoDaemonError, SilentDaemonError, RequestError):
                self._interrupt(NoDaemonError("the daemon is not there yet"))
            except BmgdError as error:
                # Another version, or something that is no daemon: it will not be better.
                self._end(error)
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def reopen(self, within_s: float = ANSWER_S) -> None:
        """Connect, and open again what lasts.

        Args:
            within_s: how long the daemon may take to answer, in seconds.

        Raises: as `bmgd.connect`.
        """
        self._reader = FrameReader(ANSWER_BYTES_MAX)
        self._refusal = None
        await open_socket(self, self._path)
        self._lost, self._is_greeting = None, True
        try:
            await self.greet(within_s)
        except NoDaemonError:
            if self._refusal is not None:
                raise self._refusal from None
            raise
        finally:
            self._is_greeting = False
        for lasting in list(self._lasting):
            lasting.open()
        self._tell_change()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        forked.forget(self._descriptor)
        # asyncio would tell it twice if a transport were aborted that is telling it just now.
        self._transport = None
        self._has_ended.set()
        self._interrupt(NoDaemonError("the daemon closed the connection"))

    def _lose(self, error: BmgdError) -> None:
        if isinstance(error, RequestError | NoDaemonError):
            # Too many programs, for instance.
            self._refusal = error if isinstance(error, RequestError) else None
            self._interrupt(NoDaemonError(str(error)))
        else:
            self._end(error)

    def _interrupt(self, error: NoDaemonError) -> None:
        """The daemon is gone for now: what is underway fails, what lasts waits."""
        if self._lost is None:
            self._lost = error
            self._fail_all(error)
            self._tell_change()

    def _end(self, error: BmgdError) -> None:
        """The connection is over for good."""
        if self._is_closed:
            return
        self._is_closed = True
        self._lost = error
        self._fail_all(error)
        for lasting in list(self._lasting):
            lasting.on_end(error, {})
        self._tell_change()

    def _fail_all(self, error: BmgdError) -> None:
        for sequence in list(self._answers):
            self._settle(sequence, None, with_sent(error, sent=True))
        self._uncrowded.set()
        sinks, self._streams = list(self._streams.values()), {}
        # Streams out know best what became of what was put into them.
        for sink in sorted(sinks, key=lambda sink: not isinstance(sink, _Sends)):
            if isinstance(sink, _Sends) and isinstance(error, NoDaemonError):
                sent = sink.is_in_doubt
                sink.on_end(UnreachableError(sink.destination, LOST, sent=sent), {})
            else:
                sink.on_end(error, {})
        if self._transport is not None:
            if isinstance(error, NoDaemonError):
                # One that is closed may go on writing, and its end would be taken for that of the next.
                self._transport.abort()
                self._transport = None
            else:
                self._transport.close()

    def let_go(self, lasting: Lasting) -> None:
        """It is over, and not opened again: nobody would end it at the daemon."""
        self._lasting.pop(lasting, None)

    def close(self) -> None:
        """Close the connection for good."""
        self.is_left = True
        self._end(ControlError(LEFT))

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_for_change(self) -> None:
        self.check_loop()
        await self._changed.wait()

    async def _until_down(self) -> None:
        while self.is_up:
            await self._wait_for_change()

    async def until_up(self, within_s: float) -> None:
        """Wait until the daemon is there, so many seconds at most; nobody overtakes who waits.

        Raises:
            NoDaemonError: it is not.
            BmgdError: the connection is over for good.
        """
        if self._is_away:
            try:
                async with asyncio.timeout(within_s), self._waiting_for_daemon.turn():
                    while not self.is_up and not self._is_closed:
                        await self._wait_for_change()
            except TimeoutError:
                pass
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._is_greeting:
            raise NoDaemonError("the daemon has not answered yet")

    lasts = True

    @property
    def must_wait(self) -> bool:
        """As of a `Connection`; also while others wait."""
        return self._is_away or self.must_queue

    @property
    def _is_away(self) -> bool:
        """Whether the daemon is not there, or others wait for it who come first."""
        return not self.is_up or self._waiting_for_daemon.count > 0

    async def until_sendable(self, destination: int, timeout: float) -> float:  # noqa: ASYNC109
        """As of a `Connection`."""
        if not self.must_wait:
            return timeout
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            # Where the daemon goes, who waited for it to read still comes before who comes then.
            left_s = await self.until_has_room(destination, left_until(until))
            try:
                await self.until_up(left_s)
            except NoDaemonError:
                raise UnreachableError(destination, "its daemon is not there", sent=False) from None
            if not self.is_overfull:
                return left_until(until)

    # --- requests -----------------------------------------------------------------------------

    async def ask(self, verb: str, params: Mapping[str, Any], within_s: float = ANSWER_S) -> Any:
        """As of a `Connection`; waits until the daemon is there, and asks again what changes nothing."""
        ask = super().ask
        may_repeat = verb in REPEATABLE
        return await self._repeat(may_repeat, within_s, lambda left_s: ask(verb, params, left_s))

    async def ask_in_time(self, verb: str, params: Mapping[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
        """As of a `Connection`, and of `ask`."""
        ask = self.ask_this_daemon
        may_repeat = verb in REPEATABLE
        return await self._repeat(may_repeat, timeout, lambda left_s: ask(verb, params, left_s))

    async def with_one_daemon(self, timeout: float, do: Callable[[float], Awaitable[T]]) -> T:  # noqa: ASYNC109
        """As of a `Connection`; begun anew with the next daemon where none has taken any of it."""
        return await self._repeat(False, timeout, do)

    async def _repeat(
        self,
        may_repeat: bool,
        within_s: float,
        ask: Callable[[float], Awaitable[T]],
    ) -> T:
        """Ask once the daemon is there, and again where that may be; each time with what is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while True:
            await self.until_up(max(until - loop.time(), 0))
            try:
                return await ask(left_until(until))
            except NoDaemonError as error:
                is_vain = error.sent and not may_repeat
                if is_vain or self._is_closed or loop.time() >= until:
                    raise

    @asynccontextmanager
    async def stream(
        self,
        verb: str,
        params: Mapping[str, Any],
        read: Callable[[Any], list[T]],
        bound: int,
    ) -> AsyncIterator[Stream[T]]:
        """As of a `Connection`; opened again when the daemon is."""
        stream: Stream[T] = Stream(bound)

        def on_opened(sequence: int) -> None:
            stream.sequence = sequence

        lasting = Lasting(self, verb, params, Opened(stream, read), on_opened)
        async with self._kept(lasting, stream):
            yield stream

    @asynccontextmanager
    async def reading(
        self, verb: str, params: Mapping[str, Any], stream: Reading
    ) -> AsyncIterator[None]:
        """As of a `Connection`; opened again when the daemon is."""

        def on_opened(sequence: int) -> None:
            stream.sequence = sequence

        interrupt = cast(_Interruptible, stream).interrupt
        lasting = Lasting(self, verb, params, stream, on_opened, interrupt)
        async with self._kept(lasting, stream.items):
            try:
                yield
            finally:
                stream.finish_taken()

    @asynccontextmanager
    async def _kept(self, lasting: Lasting, items: Stream[Any]) -> AsyncIterator[None]:
        async def open_once(left_s: float) -> None:
            left_s = await self._until_read(lasting.verb, left_s)
            items.loop = self._loop
            answer = lasting.open()
            try:
                async with asyncio.timeout(left_s):
                    await asyncio.shield(answer)
            except TimeoutError:
                raise SilentDaemonError(f"no answer for {ANSWER_S:g} s") from None

        try:
            # What a daemon had open that is gone is gone with it.
            await self._repeat(True, ANSWER_S, open_once)
            if not items.over:
                self._lasting[lasting] = None
            yield
        finally:
            self._lasting.pop(lasting, None)
            await self._end_lasting(lasting, items)

    async def _end_lasting(self, lasting: Lasting, items: Stream[Any]) -> None:
        try:
            # 0 until its request is written: the daemon knows of none, and would tell of no end.
            if self.is_up and lasting.sequence and not items.over:
                self.write(control.Cancel(lasting.sequence))
                await self._until_over(items)
        finally:
            items.leave()
            self.forget(lasting.sequence)

    async def _until_over(self, items: Stream[Any]) -> None:
        waiting = asyncio.ensure_future(items.until_over())
        down = asyncio.ensure_future(self._wait_for_change())
        try:
            await asyncio.wait((waiting, down), timeout=_END_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            down.cancel()


@asynccontextmanager
async def open_lasting(path: str, within_s: float) -> AsyncIterator[Connection]:
    """A connection that is opened again when its daemon is, until the block is left.

    Args:
        path: of the daemon's socket.
        within_s: how long the daemon may take to answer at first, in seconds.

    Raises:
        NoDaemonError: nobody listens there at first.
        SilentDaemonError: it did not answer in time at first.
        VersionError: there is no common version.
    """
    connection = LastingConnection(path)
    keeping: asyncio.Task[None] | None = None
    try:
        await connection.reopen(within_s)
        keeping = asyncio.create_task(connection.keep_open())
        yield connection
    finally:
        connection.close()
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait((keeping,))
        await connection.until_closed()
