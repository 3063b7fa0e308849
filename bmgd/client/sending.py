"""The streams that a program's single messages share: one for each topic of each node."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bmgd.client.arguments import (
    Payload,
    Priority,
    Quality,
    check_destination,
    check_quality,
    check_timeout,
    checked_payload,
    checked_topic,
    checked_word,
)
from bmgd.client.backlog import Pending
from bmgd.client.connection import LEFT, Connection
from bmgd.client.deadlines import left_until
from bmgd.client.file_payload import FilePayload
from bmgd.client.kept_streams import KeptStreams
from bmgd.client.outgoing import Outgoing
from bmgd.client.writing import end_in_time, send_and_wait, send_long
from bmgd.errors import ALL_NODES, ControlError, DeliveryError, RequestError, UnreachableError
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX


class SharedStreams:
    """All streams of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._shared: KeptStreams[Outgoing] = KeptStreams()
        self._watched: dict[Outgoing, None] = {}

    def watch(self, stream: Outgoing) -> None:
        """Let `flush` wait for a stream, until it is over."""
        for known in [s for s in self._watched if s.over and s.is_idle and not s.was_cut]:
            del self._watched[known]
        self._watched[stream] = None

    def _stream(
        self, destination: int, topic: str, priority: Priority, quality: Quality
    ) -> Outgoing:
        def make() -> Outgoing:
            return Outgoing(self._connection, destination, checked_topic(topic), priority, quality)

        words = checked_word("a topic", topic), checked_word("a priority", priority)
        return self._shared.get((destination, *words, quality), make)

    async def send(
        self,
        destination: int,
        payload: Payload | FilePayload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> None:
        """See `bmgd.Daemon.send`."""
        check_destination(destination)
        checked = payload if isinstance(payload, FilePayload) else checked_payload(payload)
        check_timeout(timeout)
        check_quality(quality)
        self._connection.check_loop()
        with self._connection.sending.one(destination):
            await self._send(destination, checked, topic, timeout, priority, quality)

    async def _send(
        self,
        destination: int,
        checked: bytes | FilePayload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> None:
        if self._connection.must_wait:
            timeout = await self._connection.until_sendable(destination, timeout)
        if isinstance(checked, FilePayload) or len(checked) > PAYLOAD_BYTES_MAX:
            await self._send_long(destination, checked, topic, timeout, priority, quality)
            return
        stream = self._stream(destination, topic, priority, quality)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while stream.has_line:
            # What `send_soon` waits to add is not overtaken.
            await stream.until_room(len(checked), until)
            if not stream.is_broken:
                break
            stream = await self._another(destination, topic, priority, quality, until)
        message = Pending(checked, until, loop.create_future())
        stream.add(checked, message)
        try:
            await send_and_wait(stream, message)
        finally:
            self._shared.trim(stream)

    async def send_soon(
        self,
        destination: int,
        payload: Payload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> asyncio.Future[None]:
        """See `bmgd.Daemon.send_soon`."""
        check_destination(destination)
        checked = checked_payload(payload)
        check_timeout(timeout)
        check_quality(quality)
        if len(checked) > PAYLOAD_BYTES_MAX:
            raise RequestError(f"more than {PAYLOAD_BYTES_MAX} bytes are sent by send()")
        self._connection.check_loop()
        sending = self._connection.sending
        call, message = sending.begin(destination), None
        try:
            message = await self._put_soon(destination, checked, topic, timeout, priority, quality)
        finally:
            if message is None:
                sending.end(call)
        message.confirmed.add_done_callback(lambda _: sending.end(call))
        return message.confirmed

    async def _put_soon(
        self,
        destination: int,
        checked: bytes,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> Pending:
        if self._connection.must_wait:
            timeout = await self._connection.until_sendable(destination, timeout)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        stream = self._stream(destination, topic, priority, quality)
        while stream.is_crowded:
            await stream.until_room(len(checked), until)
            if not stream.is_broken:
                break
            stream = await self._another(destination, topic, priority, quality, until)
        message = Pending(checked, until, loop.create_future())
        stream.add(checked, message)
        end_in_time(stream, message, self._shared.trim)
        return message

    async def _another(
        self, destination: int, topic: str, priority: Priority, quality: Quality, until: float
    ) -> Outgoing:
        """The stream that takes the place of one that is over, as soon as the daemon is there."""
        if self._connection.must_wait:
            left = left_until(until)
            await self._connection.until_sendable(destination, left)
        return self._stream(destination, topic, priority, quality)

    async def _send_long(
        self,
        destination: int,
        payload: bytes | FilePayload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> None:
        # A stream of its own: what is short need not wait behind it.
        if quality != "reliable":
            raise RequestError("a long message is not sent by best effort")
        stream = Outgoing(self._connection, destination, checked_topic(topic), priority, quality)
        overdue = "no confirmation of the whole before the deadline"
        await send_long(stream, payload, timeout, overdue)

    async def settle(self, timeout: float) -> None:  # noqa: ASYNC109
        """Wait, so many seconds at most, until all that was sent is confirmed or has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._until_settled()

    async def _until_settled(self) -> None:
        await self._connection.sending.until_over()
        for stream in list(self._watched):
            await stream.until_settled()

    async def flush(self, timeout: float) -> None:  # noqa: ASYNC109
        """See `bmgd.Daemon.flush`."""
        self._connection.check_loop()
        if self._connection.is_left:
            raise ControlError(LEFT)
        try:
            async with asyncio.timeout(timeout):
                await self._until_settled()
        except TimeoutError:
            detail = f"not everything is confirmed within {timeout:g} s"
            raise UnreachableError(self._first_unsettled(), detail, sent=True) from None
        for stream in self._watched:
            has_failed = isinstance(stream.error, DeliveryError) and not stream.over
            if stream.was_cut or has_failed:
                raise stream.first_error()

    def _first_unsettled(self) -> int:
        """A node of which something is not confirmed."""
        oldest = self._connection.sending.oldest
        if oldest is not None:
            return oldest
        return next((s.destination for s in self._watched if not s.is_settled), ALL_NODES)
