"""The client for programs without asyncio: the calls of `bmgd.Daemon`, each of which waits.

    with bmgd.blocking.connect("unix:/run/bmgd/3.sock") as daemon:
        daemon.send(7, b"payload", topic="jobs")
        with daemon.subscribe("jobs") as messages:
            for message in messages: ...

A connection has a thread of its own with an event loop, in which the ordinary client runs
(`client/loop_thread.py`). A call that is interrupted (Ctrl-C) cancels what it waits for: a message
that was not transmitted is not sent. Any thread may call, and several at a time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from typing import Any, Generic, TypeVar

from bmgd import client
from bmgd.client import CREDIT_BYTES, DEFAULT_TOPIC, MAX_MESSAGE, Change, Trace
from bmgd.client.arguments import Payload, Priority, Quality, check_timeout
from bmgd.client.draining import Drained
from bmgd.client.items import Stream
from bmgd.client.loop_thread import LoopThread
from bmgd.client.message import Message
from bmgd.client.programs import Program, ProgramEnd
from bmgd.client.reading import Messages
from bmgd.client.requesting import MAX_ANSWER
from bmgd.errors import Report

__all__ = ["Daemon", "MessageReader", "Reader", "Writer", "connect"]

T = TypeVar("T")


class Reader(Generic[T]):
    """Items from the daemon, in order; read with ``for``, by one thread at a time.

    What a call took in the moment in which it was interrupted (Ctrl-C), the next one returns.
    """

    def __init__(self, thread: LoopThread, stream: Stream[T]) -> None:
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
        with suppress(StopAsyncIteration):
            async with asyncio.timeout(timeout_s):
                self._handed.append(await anext(self._stream))


class MessageReader(Reader[Message]):
    """The messages of a subscription."""

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
        self._handed += await self._messages.take(most)

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

    def reply(self, message: Message, payload: Payload, *, timeout: float = 10.0) -> None:
        """Answer a request; returns when the asker's daemon holds the answer."""
        self._thread.call(message.reply(payload, timeout=timeout))

    def reply_soon(
        self, message: Message, payload: Payload, *, timeout: float = 10.0
    ) -> concurrent.futures.Future[None]:
        """Answer a request; waits only until the answer may be sent: the fast way to answer many.

        Args:
            message: the request.
            payload: at most 65,527 bytes.
            timeout: seconds, above 0.

        Returns:
            Done when the asker's daemon holds the answer, or failed with what `reply` raises.
        """
        return self._thread.begin(
            _confirmed(self._thread.call(message.reply_soon(payload, timeout=timeout)))
        )

    def refuse(self, message: Message, text: str = "", *, timeout: float = 10.0) -> None:
        """Tell the asker of a request that it gets no answer, and why."""
        self._thread.call(message.refuse(text, timeout=timeout))

    def parts(self, message: Message) -> Iterator[bytes]:
        """The payload of a message in pieces, as they come; of a short one, one piece."""
        return Parts(self._thread, message.parts())


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
        with suppress(StopAsyncIteration):
            self._handed.append(await anext(self._pieces))


async def _confirmed(soon: asyncio.Future[None]) -> None:
    await soon


class Writer:
    """A stream of messages to one topic of one node, in order."""

    def __init__(self, thread: LoopThread, writer: client.Writer) -> None:
        self._thread = thread
        self._writer = writer

    def write(self, payload: Payload, *, timeout: float = 0.0) -> None:
        """Send a message; waits only while the stream is full."""
        self._thread.call(self._writer.write(payload, timeout=timeout))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all is confirmed; raises the first error."""
        self._thread.call(self._writer.flush(timeout))


class Daemon:
    """A daemon as a program without asyncio sees it; made by `connect`.

    Each call is that of `bmgd.Daemon` by the same name, which says what it takes, gives and raises.
    """

    def __init__(self, thread: LoopThread, daemon: client.Daemon) -> None:
        self._thread = thread
        self._daemon = daemon

    @property
    def features(self) -> frozenset[str]:
        """What the daemon can do beyond the first version's verbs."""
        return self._daemon.features

    @property
    def long_bytes(self) -> int:
        """How much of long messages, above 64 KiB, has gone since `connect`, in bytes."""
        return self._daemon.long_bytes

    # --- messages -----------------------------------------------------------------------------

    def send(
        self,
        destination: int,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> None:
        """Send a message of any size; returns when it is confirmed."""
        self._thread.call(
            self._daemon.send(
                destination,
                payload,
                topic=topic,
                timeout=timeout,
                priority=priority,
                quality=quality,
            )
        )

    def send_soon(
        self,
        destination: int,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> concurrent.futures.Future[None]:
        """Send a message of at most 64 KiB; the future is done when it is confirmed."""
        soon = self._thread.call(
            self._daemon.send_soon(
                destination,
                payload,
                topic=topic,
                timeout=timeout,
                priority=priority,
                quality=quality,
            )
        )
        return self._thread.begin(_confirmed(soon))

    def request(
        self,
        destination: int,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,
        priority: Priority = "normal",
        max_answer: int = MAX_ANSWER,
    ) -> bytes:
        """Ask a program that reads a topic, and wait for its answer (`MessageReader.reply`)."""
        return self._thread.call(
            self._daemon.request(
                destination,
                payload,
                topic=topic,
                timeout=timeout,
                priority=priority,
                max_answer=max_answer,
            )
        )

    def readers(self, topic: str = DEFAULT_TOPIC, *, timeout: float = 2.0) -> list[int]:
        """The ids of the nodes where a program reads a topic, sorted."""
        return self._thread.call(self._daemon.readers(topic, timeout=timeout))

    def stream(
        self,
        destination: int,
        topic: str = DEFAULT_TOPIC,
        *,
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> AbstractContextManager[Writer]:
        """A stream of messages to one topic of one node; leaving it waits until all are confirmed."""
        stream = self._daemon.stream(destination, topic, priority=priority, quality=quality)
        return self._entered(stream, Writer)

    def subscribe(
        self,
        topic: str = DEFAULT_TOPIC,
        *,
        credit: int | None = None,
        credit_bytes: int = CREDIT_BYTES,
        max_message: int = MAX_MESSAGE,
    ) -> AbstractContextManager[MessageReader]:
        """Read the messages of a topic; registered on entry, ended on exit."""
        messages = self._daemon.subscribe(
            topic, credit=credit, credit_bytes=credit_bytes, max_message=max_message
        )
        return self._reading(messages)

    @contextmanager
    def _reading(
        self, subscription: AbstractAsyncContextManager[Messages]
    ) -> Iterator[MessageReader]:
        with self._thread.hold(subscription) as messages:
            reader = MessageReader(self._thread, messages)
            try:
                yield reader
            finally:
                reader.put_unreturned_back()

    def multicast(
        self,
        destinations: Iterable[int | range],
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        quality: Quality = "reliable",
        timeout: float = 10.0,
    ) -> Report:
        """Send a message to one reader of a topic at each of some nodes."""
        return self._thread.call(
            self._daemon.multicast(
                destinations, payload, topic=topic, quality=quality, timeout=timeout
            )
        )

    def broadcast(
        self,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        quality: Quality = "reliable",
        timeout: float = 10.0,
    ) -> Report:
        """Send a message to every reader of a topic, at every node."""
        return self._thread.call(
            self._daemon.broadcast(payload, topic=topic, quality=quality, timeout=timeout)
        )

    def flush(self, timeout: float = 10.0) -> None:
        """Wait until everything that this connection has sent is confirmed, or has failed."""
        self._thread.call(self._daemon.flush(timeout))

    # --- the cluster --------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What ``bmgd status --json`` prints."""
        return self._thread.call(self._daemon.status())

    def cluster(self) -> dict[str, Any]:
        """The whole cluster as this daemon sees it: ``summary``, ``members``, ``reports``."""
        return self._thread.call(self._daemon.cluster())

    def members(self) -> list[dict[str, Any]]:
        """A dict for every node id, sorted by id."""
        return self._thread.call(self._daemon.members())

    def links(self) -> list[dict[str, Any]]:
        """A dict for every link that is up, sorted by id."""
        return self._thread.call(self._daemon.links())

    def ping(self, destination: int, *, timeout: float = 10.0) -> float:
        """Seconds from sending a probe to a node until it came back."""
        return self._thread.call(self._daemon.ping(destination, timeout=timeout))

    def trace(self, destination: int, *, timeout: float = 10.0) -> Trace:
        """The path that a real probe took to a node."""
        return self._thread.call(self._daemon.trace(destination, timeout=timeout))

    def reload(self) -> dict[str, Any]:
        """Let the daemon read its secrets and certificates anew."""
        return self._thread.call(self._daemon.reload())

    def record(self) -> dict[str, Any]:
        """Let the daemon write its flight recording to a file on its machine."""
        return self._thread.call(self._daemon.record())

    def evict(self, node_id: int, *, timeout: float = 10.0) -> bool:
        """Take a node out of the cluster; whether it is known to have ended."""
        return self._thread.call(self._daemon.evict(node_id, timeout=timeout))

    def drain(self, timeout: float = 30.0) -> Drained:
        """Let the daemon finish what it has, leave the cluster, and end."""
        return self._thread.call(self._daemon.drain(timeout))

    def leave(self) -> None:
        """Let the daemon leave the cluster and end."""
        self._thread.call(self._daemon.leave())

    def membership(self) -> AbstractContextManager[Reader[Change]]:
        """Follow the membership: one `Change` for every node id, then every change, no gap."""
        return self._entered(self._daemon.membership(), Reader[Change])

    @contextmanager
    def register(self, name: str) -> Iterator[None]:
        """Be known to the whole cluster as a program of this name, until the block is left."""
        with self._thread.hold(self._daemon.register(name)):
            yield

    def running_programs(self) -> list[Program]:
        """The registered programs of all nodes that are held alive, sorted by id."""
        return self._thread.call(self._daemon.running_programs())

    def programs(self) -> AbstractContextManager[Reader[Program | ProgramEnd]]:
        """Follow the registered programs of all nodes: those that run, then every start and end."""
        return self._entered(self._daemon.programs(), Reader[Program | ProgramEnd])

    def monitor(self) -> AbstractContextManager[Reader[dict[str, Any]]]:
        """Follow what the daemon observes, as dicts."""
        return self._entered(self._daemon.monitor(), Reader[dict[str, Any]])

    @contextmanager
    def _entered(
        self, context: AbstractAsyncContextManager[Any], make: Callable[[LoopThread, Any], T]
    ) -> Iterator[T]:
        with self._thread.hold(context) as value:
            yield make(self._thread, value)


@contextmanager
def connect(address: str, *, reconnect: bool = False) -> Iterator[Daemon]:
    """Connect to the local daemon; leaving it without an exception waits until all is confirmed.

    Args:
        address: ``unix:PATH`` or a path, at most 107 bytes.
        reconnect: live through restarts of the daemon, see `bmgd.connect`.

    Raises:
        ConfigError: the address has another form.
        NoDaemonError: nobody answers there.
        VersionError: the daemon speaks no version of the control protocol that this client does.
    """
    thread = LoopThread()
    try:
        with thread.hold(client.connect(address, reconnect=reconnect)) as daemon:
            yield Daemon(thread, daemon)
    finally:
        thread.close()
