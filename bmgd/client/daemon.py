"""A daemon as a program uses it.

    async with bmgd.connect("unix:/run/bmgd/3.sock") as daemon:
        await daemon.send(7, b"payload", topic="jobs")
        async with daemon.subscribe("jobs") as messages:
            async for message in messages: ...
        async with daemon.membership() as changes:
            async for change in changes: ...

One connection carries any number of requests and streams at a time. Every wait has a bound: a
daemon that does not answer gives `SilentDaemonError`, one that goes away `NoDaemonError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from bmgd.client.arguments import (
    DEFAULT_TOPIC,
    Payload,
    Priority,
    Quality,
    check_bound,
    check_credit,
    check_destination,
    check_quality,
    check_timeout,
    checked_topic,
)
from bmgd.client.connecting import open_greeted
from bmgd.client.connection import ANSWER_S, Connection
from bmgd.client.deadlines import left_until
from bmgd.client.draining import Drained, drained_of
from bmgd.client.file_payload import FilePayload
from bmgd.client.outgoing import Outgoing
from bmgd.client.programs import registered
from bmgd.client.reading import Messages
from bmgd.client.reconnecting import open_lasting
from bmgd.client.requesting import MAX_ANSWER, Asking
from bmgd.client.sending import SharedStreams
from bmgd.client.showing import ShowsCluster
from bmgd.client.to_many import SendsToMany
from bmgd.client.writing import Writer
from bmgd.config import control_path
from bmgd.wire.control import READ_BYTES_MAX, READ_CREDIT_MAX

LEAVE_S: Final = 86_400.0
"""So long a daemon may take to leave: its `leave_ms` are its own matter."""
SETTLE_S: Final = 5.0
"""So long what was sent before may take until a daemon is asked to leave."""
CREDIT_BYTES: Final = 2**20
"""How many bytes of a subscription wait in the program before it takes them."""

MAX_MESSAGE: Final = 64 * 2**20
"""Messages up to this length are put together for the program."""


class Daemon(SendsToMany, ShowsCluster):
    """A daemon as a program sees it; made by `connect`."""

    _streams: SharedStreams

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams = SharedStreams(connection)
        self._asking = Asking(connection)

    @property
    def features(self) -> frozenset[str]:
        """What the daemon can do beyond the first version's verbs, see docs/control-protocol.md."""
        return self._connection.features

    @property
    def long_bytes(self) -> int:
        """How much of long messages, above 64 KiB, has gone since `connect`, in bytes; to show progress.

        Of a `send`, a `request` and a `multicast` it is what the daemon was given, which takes no more
        than the other side has room for; of a `broadcast` what is confirmed. A multicast counts for
        each of its nodes.
        """
        return self._connection.long_bytes

    async def send(
        self,
        destination: int,
        payload: Payload | FilePayload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,  # noqa: ASYNC109
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> None:
        """Send a message of any size; returns when it is confirmed.

        Confirmed is what the destination's daemon holds; a message longer than 64 KiB when a program
        has read all of it, and where it was put together for it has asked for what comes next. Messages
        to one topic of one node are in order, but for long ones. A message that was not transmitted when
        the time is over, or the caller is cancelled, is not sent.

        Args:
            destination: a node id.
            payload: its bytes.
            topic: 1 to 255 bytes.
            timeout: seconds, above 0.
            priority: "high", "normal" or "bulk": of several that wait for a link, which goes first.
            quality: "reliable", or "best-effort": at most once, dropped where there is no room, and
                done when it is on its way.

        Raises:
            DeadError: the destination is dead, excluded or has left.
            UnreachableError: no confirmation before the timeout.
            QueueFullError: the destination had no room for it within the timeout. A topic that nobody
                reads takes 1,024 messages, or 16 MiB.
            NewLifeError: the destination restarted; its former life may have taken the message.
            NoReaderError: a long message, and nobody there who could read it.
            ReaderLostError: the program that read a long message went away.
            RequestError: no such node, or a bad payload, topic or timeout.
            NoDaemonError: the daemon is gone.
        """
        await self._streams.send(destination, payload, topic, timeout, priority, quality)

    async def send_soon(
        self,
        destination: int,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,  # noqa: ASYNC109
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> asyncio.Future[None]:
        """Send a message of at most 64 KiB; waits only until it may be sent.

        Returns:
            Done when the message is confirmed, or failed with what `send` raises. Cancelled, it takes its
            message back as a `send` does that is cancelled.

        Raises: RequestError and NoDaemonError, as `send`; UnreachableError: it could not be sent.
        """
        return await self._streams.send_soon(
            destination, payload, topic, timeout, priority, quality
        )

    async def request(
        self,
        destination: int,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,  # noqa: ASYNC109
        priority: Priority = "normal",
        max_answer: int = MAX_ANSWER,
    ) -> bytes:
        """Ask a program that reads a topic, and wait for its answer (`Message.reply`).

        One reader of the topic gets the question. It waits for none: where nobody reads the topic by
        `subscribe`, or the program that has the question goes away, the request ends at once.

        Args:
            destination: a node id.
            payload: the question, of any size.
            topic: 1 to 255 bytes.
            timeout: seconds until the answer must be here, above 0.
            priority: see `send`.
            max_answer: a longer answer is not taken, in bytes.

        Returns:
            The answer.

        Raises:
            NoReaderError: nobody reads that topic there.
            ReaderLostError: the program that had the question went away without an answer.
            FailedAnswerError: it says that it has none.
            DeadError: the destination is dead, excluded or has left.
            NewLifeError: the destination restarted.
            UnreachableError: no answer before the timeout.
            RequestError: no such node, a bad payload, topic or timeout, or too long an answer.
            NoDaemonError: the daemon is gone.
        """
        return await self._asking.request(
            destination, payload, topic, timeout, priority, max_answer
        )

    async def readers(
        self,
        topic: str = DEFAULT_TOPIC,
        *,
        timeout: float = 2.0,  # noqa: ASYNC109
    ) -> list[int]:
        """The ids of the nodes where a program reads a topic, sorted.

        Every node that is not held dead is asked. One that has not answered when the time is over is
        not among them: it may have a reader or not.

        Args:
            topic: 1 to 255 bytes.
            timeout: seconds that a node may take to answer, above 0.

        Raises:
            RequestError: a bad topic or timeout, or too many programs ask at a time.
            NoDaemonError: the daemon is gone.
        """
        check_timeout(timeout)
        params = {"topic": checked_topic(topic)}
        value = await self._connection.ask_in_time("readers", params, timeout)
        return list(value["readers"])

    def stream(
        self,
        destination: int,
        topic: str = DEFAULT_TOPIC,
        *,
        priority: Priority = "normal",
        quality: Quality = "reliable",
    ) -> AbstractAsyncContextManager[Writer]:
        """A stream of messages to one topic of one node, in order: the fast way to send many.

        Leaving it waits until all are confirmed; leaving it by an exception, or being cancelled while it
        waits, abandons what waits. It waits for as long as the destination's queue for the topic is full:
        where nobody may come to read, bound it by `asyncio.timeout`.

        Args: as `send`.

        Raises:
            RequestError: a bad destination, topic, priority or quality, or too many streams.
            DeliveryError (on exit): not everything is confirmed.
        """
        check_destination(destination)
        check_quality(quality)
        return self._writing(destination, checked_topic(topic), priority, quality)

    @asynccontextmanager
    async def _writing(
        self, destination: int, topic: str, priority: Priority, quality: Quality
    ) -> AsyncIterator[Writer]:
        connection = self._connection
        await connection.until_sendable(destination, ANSWER_S)

        def make() -> Outgoing:
            stream = Outgoing(connection, destination, topic, priority, quality)
            self._streams.watch(stream)
            return stream

        writer = Writer(make(), make if connection.lasts else None)
        is_closed = False
        try:
            await writer.until_open()
            yield writer
            await writer.close()
            is_closed = True
        finally:
            if not is_closed:
                writer.abandon()

    async def flush(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until everything that this connection has sent is confirmed, or has failed.

        That is what was begun before: each `send`, `send_soon`, `multicast` and `broadcast` has its
        outcome, which its own caller is told, and each open stream has sent what was written. A `request`
        waits for its answer itself, and ends with its connection.

        Args:
            timeout: seconds, above 0.

        Raises:
            UnreachableError: not within the timeout.
            DeliveryError: the first error of a stream that was not left; its own `flush` raises it too.
            NoDaemonError: the daemon is gone, and with it what such a stream had not confirmed.
            RequestError: a bad timeout.
        """
        check_timeout(timeout)
        await self._streams.flush(timeout)

    async def reload(self) -> dict[str, Any]:
        """Let the daemon read its secrets and certificates anew: ``{"changed": …, "keys": […]}``.

        Raises:
            RequestError: what the files hold cannot be used; nothing was changed.
        """
        value: dict[str, Any] = await self._connection.ask("reload", {})
        return value

    async def record(self) -> dict[str, Any]:
        """Let the daemon write its flight recording to a file on its machine, for `bmgd replay`.

        Returns:
            ``{"path": …, "steps": …, "seconds": …}``; the file is there when it is whole.

        Raises:
            RequestError: nothing is recorded, or no file can be written.
        """
        value: dict[str, Any] = await self._connection.ask("record", {})
        return value

    async def evict(
        self,
        node_id: int,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> bool:
        """Take a node out of the cluster: everybody is told, and its daemon ends.

        Args:
            node_id: whom.
            timeout: seconds to wait for its end, above 0.

        Returns:
            Whether it is known to have ended; False when nobody could confirm that in time. The
            others hold it to have left in either case.

        Raises:
            RequestError: no such node, this daemon itself, or a bad timeout.
            NoDaemonError: the daemon is gone.
        """
        check_timeout(timeout)
        params = {"destination": node_id}
        outcome = await self._connection.ask_in_time("evict", params, timeout)
        return bool(outcome["ended"])

    async def drain(self, timeout: float = 30.0) -> Drained:  # noqa: ASYNC109
        """Let the daemon finish what it has, leave the cluster, and end.

        It is not ready any more, and takes nothing new: sends to it and through it fail with
        `LeavingError`. What its programs have sent before is confirmed, its readers finish what waits for
        them. Then it tells the others, and ends. What this connection has sent before is settled first.

        Args:
            timeout: seconds that it may take, above 0; what is left over then is given up, and named.

        Raises: as `status`; RequestError: a bad timeout.
        """
        check_timeout(timeout)
        until = asyncio.get_running_loop().time() + timeout
        await self._streams.settle(min(SETTLE_S, timeout))
        left = left_until(until)
        return drained_of(await self._connection.ask_in_time("drain", {}, left))

    async def leave(self) -> None:
        """Let the daemon leave the cluster and end; returns when the others are told.

        What this connection has sent before is settled first, for `SETTLE_S` at most: what still waits in
        the program would come too late.

        Raises: as `status`.
        """
        await self._streams.settle(SETTLE_S)
        # One that is away is waited for as for anything else; another one would be told by surprise.
        connection = self._connection
        await connection.with_one_daemon(
            ANSWER_S, lambda _: Connection.ask(connection, "leave", {}, LEAVE_S)
        )

    def subscribe(
        self,
        topic: str = DEFAULT_TOPIC,
        *,
        credit: int | None = None,
        credit_bytes: int = CREDIT_BYTES,
        max_message: int = MAX_MESSAGE,
    ) -> AbstractAsyncContextManager[Messages]:
        """Read the messages of a topic; registered on entry, ended on exit.

        What was not taken when the block ends waits in the daemon for the next reader: for ten minutes
        after the last message came. What was taken counts as finished then, also where an exception ends
        the block. `Messages.put_back` gives it back before that. Where this process is killed, it comes
        again.
        Broadcasts do not wait: those go to every reader that is there when they come. Where reliable
        ones were missed, `Missed` stands in their place: whoever reads a topic of reliable broadcasts
        asks ``isinstance(item, Missed)`` first. The stream's type leaves that out, for all other readers.

        Args:
            topic: 1 to 255 bytes.
            credit: how many messages may wait in this program, 1..1048576; None for as many as
                `credit_bytes` allows.
            credit_bytes: how many bytes of messages, and 256 for each segment of them, may wait in
                this program, 1..67108864; one message may wait whatever it has.
            max_message: a message longer than so many bytes, and than 65,536, is not put together: read
                its `parts`. One that is not read to its end is confirmed all the same, when the next one
                is asked for.

        Raises:
            RequestError: a bad topic, credit or `max_message`; on entry: too many subscriptions.
        """
        if credit is not None:
            check_credit("a credit", credit, READ_CREDIT_MAX)
        check_credit("a credit in bytes", credit_bytes, READ_BYTES_MAX)
        check_bound("max_message", max_message)
        credit = credit or READ_CREDIT_MAX
        params = {
            "topic": checked_topic(topic),
            "credit": credit,
            "credit_bytes": credit_bytes,
        }
        messages = Messages(self._connection, credit, credit_bytes, max_message)
        return self._reading(params, messages)

    @asynccontextmanager
    async def _reading(self, params: dict[str, Any], messages: Messages) -> AsyncIterator[Messages]:
        async with self._connection.reading("read", params, messages):
            yield messages
            await messages.finish_replies()

    def register(self, name: str) -> AbstractAsyncContextManager[None]:
        """Be known to the whole cluster as a program of this name, until the block is left.

        Leaving it tells how the program ended: exit 0; by an exception 1; by SystemExit its code. A
        program that is killed, or loses its daemon, ends with an unknown exit.

        Args:
            name: 1 to 255 bytes, not that of another registered program of this daemon.

        Raises (on entry; where the daemon was restarted meanwhile, and does not take the name again, when
        the block is left without an exception):
            RequestError: a bad or known name, or too many programs.
            LeavingError: the daemon is leaving.
        """
        return registered(self._connection, name)


@asynccontextmanager
async def connect(
    address: str,
    *,
    reconnect: bool = False,
    timeout: float = ANSWER_S,  # noqa: ASYNC109
) -> AsyncIterator[Daemon]:
    """Connect to the local daemon; leaving it without an exception waits as `flush()` does.

    That is until all is confirmed, for 10 s at most: call `flush` before, where it may take longer.

    It is used in the event loop in which it was made: in another one, what waits is a RequestError. When
    the block was left, every call is a ControlError.

    Args:
        address: ``unix:PATH`` or a path, at most 107 bytes.
        reconnect: live through restarts of the daemon, which must be there at first. Messages that
            are not confirmed when it goes fail with UnreachableError, whose `sent` says what is known;
            what is asked meanwhile waits within its time. Subscriptions, registrations and streams are
            made again: a subscription shows the gap by an `Interrupted`, `membership` begins anew with
            everybody, `programs` goes on with what differs (see there). The first `write` or `flush` of a
            stream after a restart raises, if anything of it was not confirmed; then it goes on.
        timeout: how long the daemon may take to answer at first, in seconds, above 0.

    Raises:
        ConfigError: the address has another form.
        NoDaemonError: nobody listens there.
        SilentDaemonError: the daemon did not answer in time; it may be stopped.
        RequestError: this user may not use the daemon, or not a timeout.
        VersionError: the daemon speaks no version of the control protocol that this client does.
    """
    check_timeout(timeout)
    opening = open_lasting if reconnect else open_greeted
    async with opening(control_path(address), timeout) as connection:
        daemon = Daemon(connection)
        yield daemon
        if not connection.is_left:
            await daemon.flush()
