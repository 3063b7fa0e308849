"""A thread with an event loop, and calls into it from other threads.

Theory of operation. A call hands a coroutine to the loop and waits for what comes of it; one that is
interrupted (Ctrl-C) cancels it there. An asynchronous context must be left by the task that entered it.
So what is entered by `with` is held by a task of its own, which waits until the block is left:

    block  --enter--> task enters the context --its value, or its error--> block runs
    block  --left, by an error or without--> task leaves the context, by the same --done--> block is over

The caller raises its own error itself. The task gives it to the context and does not raise it: what a
task raises would end the loop where it is KeyboardInterrupt or SystemExit.

How a call is waited for is in `thread_calls.py`. A block may be left by the garbage collector, in
whatever thread: where that is the thread of a loop, nobody waits.

A block that is never left (one within a generator that nobody finishes) is left when the interpreter
throws it away. No such thread runs any more then, so all are ended before: else that waits for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

from bmgd.client.thread_calls import Call, Outcome, Soon
from bmgd.errors import NoDaemonError, RequestError

T = TypeVar("T")

_CLOSED: Final = "this connection is closed"
_FORKED: Final = "this connection belongs to the process that this one was forked from"
_running: Final[set[LoopThread]] = set()
# None of them runs in a child; and its threads may get the numbers that theirs had.
os.register_at_fork(after_in_child=_running.clear)


async def _outcome(soon: asyncio.Future[T]) -> T:
    return await soon


class LoopThread:
    """A thread with an event loop; any thread may call, and several at a time.

    Raises:
        NoDaemonError: there is no descriptor for a loop, or no room for a thread.
    """

    def __init__(self) -> None:
        # Made here: what the thread raises would be told to nobody, and this would wait for it for ever.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        try:
            self._loop = self._runner.get_loop()
        except OSError as error:
            raise NoDaemonError(f"no event loop can be made: {error.strerror}") from None
        # A signal's handler may call, too, in the thread that it interrupts.
        self._lock = threading.RLock()
        self._is_closing = False
        self._pid = os.getpid()
        self._ready = Outcome[None]()
        self._thread = threading.Thread(target=self._run, name="bmgd client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            # Not by its runner, which would run it here, where another may run.
            self._loop.close()
            raise NoDaemonError(f"no thread can be started: {error}") from None
        self._ready.result()
        _running.add(self)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self._ready.give(None)
        await self._over.wait()
        begun = asyncio.all_tasks() - {asyncio.current_task()}
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

    @property
    def is_alive(self) -> bool:
        """Whether the loop has not ended."""
        return self._thread.is_alive()

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Let a coroutine run in the loop.

        Raises:
            NoDaemonError: the loop ends, or has ended, or is another process's.
        """
        soon = Soon(self._until_closed, work, self._soon)
        if self._is_own():
            with self._lock:
                # What is begun here is done, or fails, before the loop ends.
                if not self._is_closing:
                    self._loop.call_soon_threadsafe(soon.start)
                    return soon
        work.close()
        raise self._closed_error()

    def begin_soon(
        self, work: Coroutine[Any, Any, asyncio.Future[T]]
    ) -> concurrent.futures.Future[T]:
        """Let a coroutine run that gives a future of the loop, and wait for that; a future of the same.

        Raises: as `call`.
        """
        outcome = self.call(work)
        soon = self.begin(_outcome(outcome))

        def on_done(_: object) -> None:
            # It may be cancelled before it waits for the outcome.
            if soon.cancelled():
                self._soon(outcome.cancel)

        soon.add_done_callback(on_done)
        return soon

    def _start(self, call: Call[Any]) -> None:
        """As `begin`, for what is waited for at once."""
        if self._is_own() and threading.get_ident() == self._thread.ident:
            call.close()
            raise RequestError("a call in the thread of its own connection would wait for itself")
        if self._is_own():
            with self._lock:
                if not self._is_closing:
                    self._loop.call_soon_threadsafe(call.start)
                    return
        call.close()
        raise self._closed_error()

    def _is_own(self) -> bool:
        """Whether this is the process that has the loop; else a fork may have left the lock held."""
        return os.getpid() == self._pid

    def _closed_error(self) -> NoDaemonError:
        return NoDaemonError(_CLOSED if self._is_own() else _FORKED)

    async def _until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_closing:
                raise NoDaemonError(_CLOSED) from None
            raise

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Let a coroutine run in the loop, and wait for what comes of it.

        What an interrupted one had done in that moment is done: its result is lost.

        Raises:
            NoDaemonError: as `begin`.
            RequestError: this is the loop's own thread.
        """
        call, is_over = Call(self._until_closed, work), False
        try:
            self._start(call)
            result = call.outcome.result()
            is_over = True
            return result
        finally:
            if not is_over:
                # Interrupted (Ctrl-C), in _start() perhaps: it may run, or begin later.
                self._soon(call.cancel)

    def set_soon(self, event: asyncio.Event) -> None:
        """Set an event of the loop; nothing happens where the loop has ended."""
        self._soon(event.set)

    def _soon(self, act: Callable[[], object]) -> None:
        if os.getpid() != self._pid:
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def may_be_waited_for(self) -> bool:
        """Whether this is a thread that the loop does not need, of the process that has it."""
        own = threading.get_ident()
        return os.getpid() == self._pid and all(each._thread.ident != own for each in _running)

    def hold(self, context: AbstractAsyncContextManager[T]) -> Held[T]:
        """An asynchronous context as one for `with`, entered and left in the loop."""
        return Held(self, context)

    def close(self) -> None:
        """End the loop and its thread; may be called again."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._loop.call_soon_threadsafe(self._over.set)
        if self.may_be_waited_for():
            self._thread.join()
        _running.discard(self)


@atexit.register
def _close_all() -> None:
    """The program ends: so do the threads whose connections it has not left."""
    for thread in list(_running):
        thread.close()


class Held(Generic[T]):
    """An asynchronous context that a task of another thread's loop enters, and leaves.

    Args:
        thread: whose loop.
        context: what is entered, once.
    """

    def __init__(self, thread: LoopThread, context: AbstractAsyncContextManager[T]) -> None:
        self._thread = thread
        self._context = context
        self._entered = Outcome[T]()
        self._left = asyncio.Event()
        self._error: BaseException | None = None
        """By which the block was left."""

    def __enter__(self) -> T:
        self._held = Call(self._thread._until_closed, self._hold(), self._tell_unentered)
        is_entered = False
        try:
            self._thread._start(self._held)
            value = self._entered.result()
            is_entered = True
        finally:
            if not is_entered:
                # Interrupted (Ctrl-C): it would be entered later, and held for nobody.
                self._thread._soon(self._held.cancel)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._error = error
        self._thread.set_soon(self._left)
        if not self._thread.may_be_waited_for():
            # Thrown away by the garbage collector, or by a process that was forked within.
            return
        self._held.outcome.wait()
        if error is None:
            self._held.outcome.result()

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            self._entered.give(await stack.enter_async_context(self._context))
            await self._left.wait()
            error = self._error
            if error is not None:
                await stack.pop_all().__aexit__(type(error), error, error.__traceback__)

    def _tell_unentered(self, error: BaseException | None) -> None:
        """What kept the context from being entered is what the caller who waits for it is told."""
        self._entered.give(cast(T, None), error or NoDaemonError(_CLOSED))
