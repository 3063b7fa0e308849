"""How a command's coroutine runs: to its end, until Ctrl-C, or until TERM or HUP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_STUCK_S: Final = 0.5
"""So long a loop may stand still after Ctrl-C before what it runs is interrupted."""

T = TypeVar("T")


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run a command's coroutine to its end.

    Ctrl-C cancels it. It cannot see that while it writes to an output that nobody reads: so it is
    interrupted where it stands, unless the loop has gone on in a moment.
    """
    import asyncio

    async def body() -> T:
        with _interruptible(asyncio.get_running_loop()):
            return await main()

    return asyncio.run(body())


async def until_ended(work: Coroutine[object, object, int]) -> int:
    """Run a command's coroutine until it is over, or TERM or HUP ends it: it cleans up then.

    One that is ignored (``nohup``) stays so.

    Returns:
        The exit code: its own, or 128 and the number of the signal.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    ended_by = 0

    def end(number: int) -> None:
        nonlocal ended_by
        ended_by = number
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by


@contextmanager
def _interruptible(loop: AbstractEventLoop) -> Iterator[None]:
    import signal
    from threading import current_thread, main_thread

    cancel = signal.getsignal(signal.SIGINT)
    is_default = cancel is signal.default_int_handler
    if not callable(cancel) or is_default or current_thread() is not main_thread():
        # Ctrl-C is ignored, or is not this loop's.
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, _STUCK_S)
        loop.call_soon_threadsafe(signal.setitimer, signal.ITIMER_REAL, 0)
        cancel(number, frame)

    alarmed = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, cancel)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarmed)
