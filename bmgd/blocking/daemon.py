"""A connection of a program without asyncio: to its daemon, and what it writes to others."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
)
from typing import Any, TypeVar

from bmgd import client
from bmgd.blocking.reading import MessageReader, Reader
from bmgd.client import CREDIT_BYTES, DEFAULT_TOPIC, MAX_MESSAGE, Change, Trace
from bmgd.client.arguments import Payload, Priority, Quality
from bmgd.client.connection import ANSWER_S
from bmgd.client.draining import Drained
from bmgd.client.loop_thread import LoopThread
from bmgd.client.programs import Program, ProgramEnd
from bmgd.client.reading import Messages
from bmgd.client.requesting import MAX_ANSWER
from bmgd.errors import Report

T = TypeVar("T")


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

    def until_failed(self) -> None:
        """Wait until something of the stream has failed; raises that."""
        self._thread.call(self._writer.until_failed())

    @property
    def confirmed(self) -> int:
        """How many of its messages are confirmed, from the first one on to the first that was lost."""
        # Also when the connection was left: that is when somebody wants to know.
        return self._writer.confirmed


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
        return self._thread.begin_soon(
            self._daemon.send_soon(
                destination,
                payload,
                topic=topic,
                timeout=timeout,
                priority=priority,
                quality=quality,
            )
        )

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
        """Ask a program that reads a topic, and wait for its answer (`Message.reply`)."""
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
def connect(
    address: str, *, reconnect: bool = False, timeout: float = ANSWER_S
) -> Iterator[Daemon]:
    """Connect to the local daemon; leaving it without an exception waits until all is confirmed.

    Args:
        address: ``unix:PATH`` or a path, at most 107 bytes.
        reconnect: live through restarts of the daemon, see `bmgd.connect`.
        timeout: how long the daemon may take to answer at first, in seconds, above 0.

    Raises:
        ConfigError: the address has another form.
        NoDaemonError: nobody listens there.
        SilentDaemonError: the daemon did not answer in time; it may be stopped.
        RequestError: this user may not use the daemon, or not a timeout.
        VersionError: the daemon speaks no version of the control protocol that this client does.
    """
    thread = LoopThread()
    try:
        with thread.hold(client.connect(address, reconnect=reconnect, timeout=timeout)) as daemon:
            yield Daemon(thread, daemon)
    finally:
        thread.close()
