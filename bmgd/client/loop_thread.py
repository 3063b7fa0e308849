"""A thread with an event loop, and calls into it from other threads.

Theory of operation. A call hands a coroutine to the loop and waits for what comes of it; one that is
interrupted (Ctrl-C) cancels it there. An asynchronous context must be left by the task that entered it.
So what is entered by `with` is held by a task of its own, which waits until the block is left:

    block  --enter--> task enters the context --its value, or its error--> block runs
    block  --left, by an error or without--> task leaves the context, by the same --done--> block is over

The caller raises its own error itself. The task gives it to the context and does not raise it: what a
task raises would end the loop where it is KeyboardInterrupt or SystemExit.

A block that is never left (one within a generator that nobody finishes) is left when the interpreter
throws it away. No such thread runs any more then, so all are ended before: else that waits for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from bmgd.errors import NoDaemonError

T = TypeVar("T")

_CLOSED: Final = "this connection is closed"
_running: Final[set[LoopThread]] = set()


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
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
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
        self._ready.set_result(None)
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
            NoDaemonError: the loop ends, or has ended.
        """
        with self._lock:
            # What is begun here is done, or fails, before the loop ends.
            if not self._is_closing:
                return asyncio.run_coroutine_threadsafe(self._until_closed(work), self._loop)
        work.close()
        raise NoDaemonError(_CLOSED)

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
        """
        call, is_over = _Call(work), False
        try:
            try:
                done = self.begin(call.run())
            except NoDaemonError:
                work.close()
                raise
            result = done.result()
            is_over = True
            return result
        finally:
            if not is_over:
                # Interrupted (Ctrl-C), in begin() perhaps: it may run, or begin later.
                self._soon(call.cancel)

    def set_soon(self, event: asyncio.Event) -> None:
        """Set an event of the loop; nothing happens where the loop has ended."""
        self._soon(event.set)

    def _soon(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    def hold(self, context: AbstractAsyncContextManager[T]) -> Held[T]:
        """An asynchronous context as one for `with`, entered and left in the loop."""
        return Held(self, context)

    def close(self) -> None:
        """End the loop and its thread; may be called again."""
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        _running.discard(self)


class _Call(Generic[T]):
    """A coroutine that another thread waits for; used in the loop's thread but for its making."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    async def run(self) -> T:
        """The coroutine, unless nobody waits for it any more."""
        if self._is_cancelled:
            self._work.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def cancel(self) -> None:
        """Nobody waits for it."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


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
        self._entered: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._left = asyncio.Event()
        self._error: BaseException | None = None
        """By which the block was left."""

    def __enter__(self) -> T:
        self._held = self._thread.begin(self._hold())
        self._held.add_done_callback(self._tell_unentered)
        is_entered = False
        try:
            value = self._entered.result()
            is_entered = True
        finally:
            if not is_entered:
                # Interrupted (Ctrl-C): it would be entered later, and held for nobody.
                self._held.cancel()
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._error = error
        self._thread.set_soon(self._left)
        concurrent.futures.wait([self._held])
        if error is None:
            self._held.result()

    async def _hold(self) -> None:
        async with AsyncExitStack() as stack:
            self._entered.set_result(await stack.enter_async_context(self._context))
            await self._left.wait()
            error = self._error
            if error is not None:
                await stack.pop_all().__aexit__(type(error), error, error.__traceback__)

    def _tell_unentered(self, held: concurrent.futures.Future[None]) -> None:
        """What kept the context from being entered is what the caller who waits for it is told."""
        if self._entered.done():
            return
        error = concurrent.futures.CancelledError() if held.cancelled() else held.exception()
        self._entered.set_exception(error or NoDaemonError(_CLOSED))
