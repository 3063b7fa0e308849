"""What programs without asyncio read: items in order, and messages that are answered or come in parts."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from bmgd import client
from bmgd.client.arguments import Payload, check_timeout
from bmgd.client.items import Stream
from bmgd.client.loop_thread import LoopThread
from bmgd.client.message import REPLY_S
from bmgd.client.reading import Messages

T = TypeVar("T")


class Reader(Generic[T]):
    """Items from the daemon, in order; read with ``for``, by one thread at a time.

    What a call took in the moment in which it was interrupted (Ctrl-C), the next one returns.
    """

    def __init__(self, thread: LoopThread, stream: Stream[Any]) -> None:
        self._thread = thread
        self._stream = stream
        self._handed: list[T] = []
        """Taken in the loop, and not returned yet."""

    def __iter__(self) -> Reader[T]:
        return self

    def __next__(self) -> T:
        return self._following(None)

    def get(self, timeout: float | None = None) -> T:
        """The next item.

        Args:
            timeout: seconds, above 0; None waits for ever.

        Raises:
            TimeoutError: none came; the next call finds what comes later.
            StopIteration: none will come.
            SubscriptionError: this program read too slowly.
            NoDaemonError: the daemon is gone.
            RequestError: a bad timeout.
        """
        if timeout is not None:
            check_timeout(timeout)
        return self._following(timeout)

    def _following(self, timeout_s: float | None) -> T:
        if not self._handed:
            self._thread.call(self._take_one(timeout_s))
        if not self._handed:
            raise StopIteration
        return self._handed.pop(0)

    async def _take_one(self, timeout_s: float | None) -> None:
        if self._handed:
            # A call that was interrupted had taken it meanwhile.
            return
        with suppress(StopAsyncIteration):
            async with asyncio.timeout(timeout_s):
                self._handed.append(self._own(await anext(self._stream)))

    def _own(self, item: Any) -> T:
        """An item as this program has it."""
        own: T = item
        return own


class Message:
    """A message that came: what `bmgd.Message` has, with calls that wait.

    Args:
        thread: where the connection is.
        message: as the ordinary client has it.
    """

    __slots__ = ("_message", "_thread")

    def __init__(self, thread: LoopThread, message: client.Message) -> None:
        self._thread = thread
        self._message = message

    def __repr__(self) -> str:
        return repr(self._message)

    @property
    def source(self) -> int:
        """The node id that sent it."""
        return self._message.source

    @property
    def topic(self) -> str:
        """The topic that it was sent to."""
        return self._message.topic

    @property
    def payload(self) -> bytes:
        """Its bytes; of one that is_long a RequestError: see `parts`."""
        return self._message.payload

    @property
    def broadcast(self) -> bool:
        """Whether it was sent to every reader, and not to this one alone."""
        return self._message.broadcast

    @property
    def incarnation(self) -> int:
        """The source's life."""
        return self._message.incarnation

    @property
    def redelivered(self) -> bool:
        """Whether another reader had it before, and went away without having finished it."""
        return self._message.redelivered

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self._message.size

    @property
    def is_long(self) -> bool:
        """Whether it can be read by `parts` only."""
        return self._message.is_long

    @property
    def is_request(self) -> bool:
        """Whether its source waits for a reply."""
        return self._message.is_request

    def reply(self, payload: Payload, *, timeout: float = REPLY_S) -> None:
        """Answer a request; returns when the asker's daemon holds the answer."""
        self._thread.call(self._message.reply(payload, timeout=timeout))

    def reply_soon(
        self, payload: Payload, *, timeout: float = REPLY_S
    ) -> concurrent.futures.Future[None]:
        """Answer a request; waits only until the answer may be sent: the fast way to answer many.

        Args:
            payload: at most 65,527 bytes.
            timeout: seconds, above 0.

        Returns:
            Done when the asker's daemon holds the answer, or failed with what `reply` raises.
        """
        return self._thread.begin_soon(self._message.reply_soon(payload, timeout=timeout))

    def refuse(self, text: str = "", *, timeout: float = REPLY_S) -> None:
        """Tell the asker of a request that it gets no answer, and why."""
        self._thread.call(self._message.refuse(text, timeout=timeout))

    def parts(self) -> Iterator[bytes]:
        """Its bytes in pieces, as they come; of a short one, one piece."""
        return Parts(self._thread, self._message.parts())


class MessageReader(Reader[Message]):
    """The messages of a subscription, and what stands in their place: `Missed`, `Interrupted`."""

    def __init__(self, thread: LoopThread, stream: Messages) -> None:
        super().__init__(thread, stream)
        self._messages = stream

    def take(self, most: int = 1) -> list[Message]:
        """At least one message, at most so many; [] when none will come."""
        if most < 1 or not self._handed:
            self._thread.call(self._take_some(most))
        taken, self._handed = self._handed[:most], self._handed[most:]
        return taken

    async def _take_some(self, most: int) -> None:
        if self._handed and most >= 1:
            # As of `_take_one`.
            return
        self._handed += map(self._own, await self._messages.take(most))

    def _own(self, item: Any) -> Message:
        """An item as this program has it; what is no message is as it is."""
        return Message(self._thread, item) if isinstance(item, client.Message) else item

    def put_back(self) -> None:
        """What was taken last is not finished, see `bmgd.client.Messages.put_back`."""
        self._thread.call(self._put_back())

    def put_unreturned_back(self) -> None:
        """What no call has returned is not finished."""
        if self._handed:
            self.put_back()

    async def _put_back(self) -> None:
        # In the loop's own thread, where messages come; what was not returned yet is put back, too.
        self._handed = []
        self._messages.put_back()

    # --- the calls of a message, by which they could be made before it had them -----------------

    def reply(self, message: Message, payload: Payload, *, timeout: float = REPLY_S) -> None:
        """See `Message.reply`."""
        message.reply(payload, timeout=timeout)

    def reply_soon(
        self, message: Message, payload: Payload, *, timeout: float = REPLY_S
    ) -> concurrent.futures.Future[None]:
        """See `Message.reply_soon`."""
        return message.reply_soon(payload, timeout=timeout)

    def refuse(self, message: Message, text: str = "", *, timeout: float = REPLY_S) -> None:
        """See `Message.refuse`."""
        message.refuse(text, timeout=timeout)

    def parts(self, message: Message) -> Iterator[bytes]:
        """See `Message.parts`."""
        return message.parts()


class Parts(Iterator[bytes]):
    """The pieces of a message; as of a `Reader`, none is lost where a call is interrupted."""

    def __init__(self, thread: LoopThread, pieces: AsyncIterator[bytes]) -> None:
        self._thread = thread
        self._pieces = pieces
        self._handed: list[bytes] = []

    def __next__(self) -> bytes:
        if not self._handed:
            self._thread.call(self._take_one())
        if not self._handed:
            raise StopIteration
        return self._handed.pop(0)

    async def _take_one(self) -> None:
        if self._handed:
            # A call that was interrupted had taken it meanwhile.
            return
        with suppress(StopAsyncIteration):
            self._handed.append(await anext(self._pieces))
