"""Answers of one program to the questions that a subscription brought it.

All answers to one asker's inbox share a stream. An answer is confirmed when the asker's daemon holds it.
A question is answered once; one that was not sent may be answered again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NamedTuple

from bmgd.client.arguments import Payload, check_timeout, checked_payload
from bmgd.client.backlog import Pending
from bmgd.client.calls import SendingCalls
from bmgd.client.connection import Connection
from bmgd.client.inbox import TEXT_BYTES_MAX
from bmgd.client.kept_streams import KeptStreams
from bmgd.client.outgoing import Outgoing
from bmgd.client.writing import end_in_time, send_and_wait, send_long
from bmgd.errors import DeliveryError, NoDaemonError, RequestError
from bmgd.wire.answers import ANSWER, FAILED, answer_head
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

SETTLE_S: Final = 5.0
"""So long what was answered may take to be confirmed when a subscription ends."""


class Asker(NamedTuple):
    """One inbox of one life of a node."""

    source: int
    incarnation: int
    inbox: int


class Replies:
    """The streams of answers of one subscription."""

    def __init__(self, connection: Connection) -> None:
        self.reader = 0
        """The number of the subscription, once it is open."""
        self._connection = connection
        self._streams: KeptStreams[Outgoing] = KeptStreams()
        self.longs = SendingCalls()
        """Long answers that are being sent, each on a stream of its own."""
        self._over = False

    def check(self) -> None:
        """See whether an answer can still be given.

        Raises:
            RequestError: the subscription is over, and so the asker was told that no answer comes.
            NoDaemonError: it is over because the daemon is gone.
        """
        connection = self._connection
        connection.check_loop()
        if self._over:
            if not connection.lasts and isinstance(connection.lost, NoDaemonError):
                raise connection.lost.with_traceback(None)
            raise RequestError("its subscription is over, and the asker knows that no answer comes")

    def stream(self, asker: Asker) -> Outgoing:
        """The stream to an asker."""
        return self._streams.get(asker, lambda: self.new_stream(asker))

    def new_stream(self, asker: Asker) -> Outgoing:
        """A stream of its own, for a long answer."""
        params = {
            "destination": asker.source,
            "incarnation": asker.incarnation,
            "inbox": asker.inbox,
            "reader": self.reader,
        }
        opens = "answers", params
        return Outgoing(self._connection, asker.source, "answers", "normal", "reliable", opens)

    def trim(self, used: Outgoing) -> None:
        """Close the streams that are more than are kept, and have sent what they had."""
        self._streams.trim(used)

    async def close(self) -> None:
        """No further answer: what was given is sent, the streams end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                for stream in self._streams:
                    await stream.until_settled()
                await self.longs.until_over()
        self.end()

    def end(self) -> None:
        """The subscription is over, and so are its streams."""
        self._over = True
        self._streams.close_all()


class Question:
    """What a message asks, and how it is answered.

    Attributes:
        answered: whether an answer is on its way.
    """

    __slots__ = ("_asker", "_number", "_replies", "_soon", "answered")

    def __init__(self, replies: Replies, asker: Asker, number: int) -> None:
        self._replies = replies
        self._asker = asker
        self._number = number
        self.answered = False
        self._soon: Pending | None = None

    async def answer(self, payload: Payload, timeout: float) -> None:  # noqa: ASYNC109
        """Answer it; returns when the asker's daemon holds the answer.

        Raises: as `bmgd.Message.reply`.
        """
        checked = checked_payload(payload)
        await self._send(answer_head(ANSWER, self._number) + bytes(checked), timeout)

    async def fail(self, text: str, timeout: float) -> None:  # noqa: ASYNC109
        """Say that there is no answer, and why.

        Raises: as `bmgd.Message.reply`.
        """
        # Names of files may be in it that are no valid text.
        detail = text.encode(errors="backslashreplace")[:TEXT_BYTES_MAX]
        await self._send(answer_head(FAILED, self._number) + detail, timeout)

    async def answer_soon(
        self,
        payload: Payload,
        timeout: float,  # noqa: ASYNC109
    ) -> asyncio.Future[None]:
        """Answer it; waits only until the answer may be sent.

        Returns:
            Done when the asker's daemon holds the answer, or failed with what `answer` raises.
        """
        checked = checked_payload(payload)
        whole = answer_head(ANSWER, self._number) + bytes(checked)
        if len(whole) > PAYLOAD_BYTES_MAX:
            raise RequestError("a long answer is sent by reply()")
        check_timeout(timeout)
        self._begin()
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        is_put = False
        try:
            stream = await self._stream_with_room(len(whole), until)
            message = Pending(whole, until, loop.create_future())
            stream.add(whole, message)
            # As in `_send_short`.
            end_in_time(stream, message, self._replies.trim, takes_back=False)
            is_put = True
        finally:
            # Not where it was cancelled, or failed, before it was put.
            self.answered = is_put
        self._soon = message
        return message.confirmed

    async def _stream_with_room(self, size: int, until: float) -> Outgoing:
        """The stream that an answer is added to at once; another one, where one is cut meanwhile."""
        stream = self._replies.stream(self._asker)
        while stream.is_crowded:
            await stream.until_room(size, until)
            self._replies.check()
            if not stream.is_broken:
                break
            stream = self._replies.stream(self._asker)
        return stream

    def _begin(self) -> None:
        self._replies.check()
        if self.answered and not _is_unsent(self._soon):
            raise RequestError("the request is answered already")
        self.answered, self._soon = True, None

    async def _send(self, whole: bytes, timeout: float) -> None:  # noqa: ASYNC109
        check_timeout(timeout)
        self._begin()
        try:
            if len(whole) > PAYLOAD_BYTES_MAX:
                await self._send_long(whole, timeout)
                return
            await self._send_short(whole, timeout)
        except DeliveryError as error:
            self.answered = error.sent
            raise

    async def _send_short(self, whole: bytes, timeout: float) -> None:  # noqa: ASYNC109
        loop = asyncio.get_running_loop()
        message = Pending(whole, loop.time() + timeout, loop.create_future())
        try:
            stream = self._replies.stream(self._asker)
            stream.add(whole, message)
            try:
                # The daemon would not tell whether it took it back, so that it could be given again.
                await send_and_wait(stream, message, takes_back=False)
            finally:
                self._replies.trim(stream)
        finally:
            # Not where it was cancelled, or failed, before it was put.
            self.answered = bool(message.segment)

    async def _send_long(self, whole: bytes, timeout: float) -> None:  # noqa: ASYNC109
        stream: Outgoing | None = None
        overdue = "no confirmation of the whole answer before the deadline"
        try:
            stream = self._replies.new_stream(self._asker)
            with self._replies.longs.one():
                await send_long(stream, whole, timeout, overdue, takes_back=False)
        finally:
            # As of a short one.
            self.answered = stream is not None and stream.has_put


def _is_unsent(soon: Pending | None) -> bool:
    """Whether an answer that nobody waited for was not taken, and will not be."""
    if soon is None or not soon.confirmed.done():
        return False
    if soon.confirmed.cancelled():
        return soon.given_up and not soon.segment
    error = soon.confirmed.exception()
    return isinstance(error, DeliveryError) and not error.sent
