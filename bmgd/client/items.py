"""What follows the answer to a request that goes on: items, in order, until it is over.

A connection hands each item to the *sink* of its request. A `Stream` keeps what has come until its
program takes it; an `Opened` is the sink that reads values for one. Other sinks keep their own account.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from bmgd.errors import BmgdError, RequestError, SubscriptionError

T = TypeVar("T")


def check_loop(own: asyncio.AbstractEventLoop | None) -> None:
    """Refuse to wait in another event loop than that of a connection: nothing would end the wait.

    Args:
        own: that of the connection; None where it has none yet.

    Raises:
        RequestError: another one runs.
    """
    if own is not None and asyncio.get_running_loop() is not own:
        raise RequestError(
            "the connection belongs to another event loop: use it in that one, or bmgd.blocking"
        )


class Stream(Generic[T]):
    """Items from the daemon, in order; read with ``async for``, by one reader at a time.

    Taking is safe against cancellation: an item is either returned, or still there.

    Raises (from ``async for``):
        SubscriptionError: this program read too slowly.
        NoDaemonError: the daemon is gone.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: deque[T] = deque()
        self._error: BmgdError | None = None
        self._over = False
        self._changed = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        """In which its items come; None before it is open."""
        self.sequence = 0
        """The number of the request that opened it."""

    @property
    def over(self) -> bool:
        """Whether no further item will come."""
        return self._over

    @property
    def error(self) -> BmgdError | None:
        """Why it is over; None where it is not, or ended as it should."""
        return self._error

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._over:
                raise StopAsyncIteration
            await self._until_changed()
        return self._items.popleft()

    async def _until_changed(self) -> None:
        check_loop(self.loop)
        self._changed.clear()
        await self._changed.wait()

    def add(self, items: list[T]) -> None:
        """Items came from the daemon.

        Raises:
            SubscriptionError: more would wait than the bound; one big batch is taken whole.
        """
        if self._items and len(self._items) + len(items) > self._bound:
            raise SubscriptionError("the program reads too slowly")
        self._items.extend(items)
        self._changed.set()

    def finish(self, error: BmgdError | None) -> None:
        """No further item will come; those that are here can still be taken."""
        if not self._over:
            self._over = True
            self._error = error
            self._changed.set()

    def leave(self) -> None:
        """Its block was left: no item is given any more."""
        self.finish(None)
        self._items.clear()

    async def until_over(self) -> None:
        """Wait until the daemon has ended the stream."""
        while not self._over:
            await self._until_changed()


class Sink(Protocol):
    """What takes the items of one open request."""

    def on_item(self, value: Any) -> None:
        """An item came.

        Raises:
            SubscriptionError: there is no room for it; the stream is ended.
            ProtocolError: it is no such item; the connection is closed.
        """

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        """No further item comes. Called once or more."""


class Reading(Sink, Protocol):
    """A sink that keeps account of what its program has finished."""

    sequence: int

    def finish_taken(self) -> None:
        """Tell the daemon of it: no more is taken."""

    @property
    def items(self) -> Stream[Any]:
        """The stream that it fills."""


class Opened(Generic[T]):
    """A stream, and how an item of it is read from the wire."""

    __slots__ = ("read", "stream")

    def __init__(self, stream: Stream[T], read: Callable[[Any], list[T]]) -> None:
        self.stream = stream
        self.read = read

    def on_item(self, value: Any) -> None:
        if not self.stream.over:
            self.stream.add(self.read(value))

    def on_end(self, error: BmgdError | None, fields: Mapping[str, Any]) -> None:
        self.stream.finish(error)
