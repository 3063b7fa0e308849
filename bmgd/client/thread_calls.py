"""What one thread waits for, and the thread of a loop gives it.

A signal's handler may call in the thread that it interrupts, in whatever moment, and wait in its turn.
So whoever waits holds nothing that the giving thread takes. Whoever waits for a plain
`concurrent.futures.Future` holds its condition, in some moments.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Outcome(Generic[T]):
    """What one thread waits for, and another gives once.

    Args:
        then: told of the error, or of None, when it is given.
    """

    def __init__(self, then: Callable[[BaseException | None], None] | None = None) -> None:
        self._then = then
        self._missing = threading.Lock()
        self._missing.acquire()
        self._value: T | None = None
        self._error: BaseException | None = None
        self.is_given = False

    def give(self, value: T | None, error: BaseException | None = None) -> None:
        """Give it: a value, or an error."""
        if not self.is_given:
            self._value, self._error = value, error
            self.is_given = True
            if self._then is not None:
                self._then(error)
            self._missing.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is given, so many seconds at most; whether it is."""
        if not self.is_given and self._missing.acquire(timeout=_longest_s(timeout_s)):
            self._missing.release()
        return self.is_given

    def result(self) -> T:
        """Wait for the value, or raise the error."""
        self.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


def _longest_s(timeout_s: float | None) -> float:
    """A timeout as a lock takes it: -1 for none."""
    return -1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)


class Call(Generic[T]):
    """A coroutine that another thread waits for; used in the loop's thread but for its making.

    Args:
        guard: what its task runs instead.
        work: the coroutine.
        then: see `Outcome`.
    """

    def __init__(
        self,
        guard: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]],
        work: Coroutine[Any, Any, T],
        then: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        self._guard = guard
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self.outcome = Outcome[T](then)

    def start(self) -> None:
        """Let it run, unless nobody waits for it any more."""
        if self._is_cancelled:
            self.close()
            return
        self._task = asyncio.get_running_loop().create_task(self._guard(self._work))
        self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Nobody waits for it."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """It is not run."""
        self._work.close()
        self.outcome.give(None, concurrent.futures.CancelledError())

    def _on_done(self, task: asyncio.Task[T]) -> None:
        # One that was cancelled before its first step has not begun it.
        self._work.close()
        if task.cancelled():
            self.outcome.give(None, concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.give(None, error)
        else:
            self.outcome.give(task.result())


class Soon(concurrent.futures.Future[T]):
    """A coroutine whose end is a future: one whose condition is left alone until it is done.

    Args:
        guard, work: as of a `Call`.
        call_soon: lets something be called in the loop's thread.
    """

    def __init__(
        self,
        guard: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]],
        work: Coroutine[Any, Any, T],
        call_soon: Callable[[Callable[[], object]], None],
    ) -> None:
        super().__init__()
        self._guard = guard
        self._work = work
        self._call_soon = call_soon
        self._task: asyncio.Task[T] | None = None
        self._outcome = Outcome[None]()
        self.add_done_callback(self._on_done)

    def start(self) -> None:
        """Let it run, unless it was cancelled before; in the loop's thread."""
        if self.cancelled():
            self._work.close()
            # Whoever waits for several of them is told by this alone.
            self.set_running_or_notify_cancel()
            return
        self._task = asyncio.get_running_loop().create_task(self._guard(self._work))
        self._task.add_done_callback(self._follow)

    def result(self, timeout: float | None = None) -> T:
        """As of any future."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout_s: float | None) -> None:
        if not self._outcome.wait(timeout_s):
            raise TimeoutError

    def _on_done(self, _: object) -> None:
        self._outcome.give(None)
        if self.cancelled():
            self._call_soon(self._stop)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _follow(self, task: asyncio.Task[T]) -> None:
        """The task is done: so is this."""
        self._work.close()
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.cancel()
        if not self.set_running_or_notify_cancel():
            return
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())
