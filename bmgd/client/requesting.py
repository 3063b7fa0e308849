"""Requests of one program: questions to other nodes, and what becomes of each.

Theory of operation. All questions to one topic of one node share a stream, as single messages do; each
has a number, which its answer names (`questions.py`). The answers of all come to one inbox (`inbox.py`).
What is known of a question:

    waiting here --in a segment--> put --answer, or why there is none--> its outcome
       |                            |--the stream ends (a death, a new life)--> failed; what was taken by
       |                            |    a daemon that is leaving is still answered
       +--timeout, cancelled        +--timeout, cancelled--> given up: a late answer is dropped
          --> not sent

With its outcome a question gives back the room that the daemon keeps for its answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bmgd.client.arguments import (
    Payload,
    Priority,
    check_bound,
    check_destination,
    check_timeout,
    checked_payload,
    checked_topic,
    checked_word,
)
from bmgd.client.backlog import with_sent
from bmgd.client.connection import Connection
from bmgd.client.deadlines import left_until
from bmgd.client.inbox import Inbox
from bmgd.client.kept_streams import KeptStreams
from bmgd.client.line import Line
from bmgd.client.questions import OVERDUE, Asked, Questions
from bmgd.client.writing import outcome_of
from bmgd.errors import NoDaemonError, UnreachableError
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

UNDERWAY_MAX: Final = 1024
"""Questions of one connection without an outcome; one more waits."""
MAX_ANSWER: Final = 64 * 2**20


class Asking:
    """All questions of one connection, and their inbox."""

    def __init__(self, connection: Connection) -> None:
        self.inbox = Inbox(connection)
        self._connection = connection
        self._streams: KeptStreams[Questions] = KeptStreams()
        self._room = asyncio.Semaphore(UNDERWAY_MAX)
        self._entering = Line()
        """Those who wait for the inbox."""

    async def request(
        self,
        destination: int,
        payload: Payload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        max_answer: int,
    ) -> bytes:
        """See `bmgd.Daemon.request`."""
        check_destination(destination)
        question_bytes = checked_payload(payload)
        checked_topic(topic)
        checked_word("a priority", priority)
        check_timeout(timeout)
        check_bound("max_answer", max_answer)
        self._connection.check_loop()
        if self._connection.must_wait:
            timeout = await self._connection.until_sendable(destination, timeout)
        until = asyncio.get_running_loop().time() + timeout
        await self._enter(destination, until)
        try:
            inbox = await self._inbox_until(destination, until)
            while self._connection.is_overfull:
                left = left_until(until)
                await self._connection.until_has_room(destination, left)
                inbox = await self._inbox_until(destination, until)
            if len(question_bytes) > PAYLOAD_BYTES_MAX:
                stream = self._new_stream(destination, topic, priority, inbox)
                question = Asked(question_bytes, until, stream, max_answer)
                return await self._ask_long(question)
            stream = self._stream(destination, topic, priority, inbox)
            question = Asked(question_bytes, until, stream, max_answer)
            stream.add(question_bytes, question)
            return await self._outcome(question)
        finally:
            self._room.release()

    async def _enter(self, destination: int, until: float) -> None:
        """Take one of the places of questions underway."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout_at(until):
                await self._room.acquire()
        except TimeoutError:
            detail = f"{UNDERWAY_MAX} other requests are underway"
            raise UnreachableError(destination, detail, sent=False) from None

    async def _inbox_until(self, destination: int, until: float) -> int:
        if self.inbox.number and not self._entering.count:
            return self.inbox.number
        try:
            async with asyncio.timeout_at(until), self._entering.turn():
                return self.inbox.number or await self._lasting_inbox(destination, until)
        except TimeoutError:
            detail = "its daemon has not answered before the deadline"
            raise UnreachableError(destination, detail, sent=False) from None

    async def _lasting_inbox(self, destination: int, until: float) -> int:
        """The inbox; that of the next daemon, where this one goes away and another may come."""
        while True:
            try:
                number = await self.inbox.opened()
                if self.inbox.number or not self._connection.lasts:
                    return number
            except NoDaemonError as error:
                if not self._connection.lasts:
                    raise with_sent(error, sent=False) from None
            if self._connection.must_wait:
                left = left_until(until)
                await self._connection.until_sendable(destination, left)

    def _new_stream(
        self, destination: int, topic: str, priority: Priority, inbox: int
    ) -> Questions:
        return Questions(self.inbox.asked, self._connection, destination, topic, priority, inbox)

    def _stream(self, destination: int, topic: str, priority: Priority, inbox: int) -> Questions:
        return self._streams.get(
            (destination, topic, priority),
            lambda: self._new_stream(destination, topic, priority, inbox),
        )

    async def _outcome(self, question: Asked) -> bytes:
        try:
            answer: bytes = await outcome_of(question.stream, question, OVERDUE)
        finally:
            self._done(question)
        return answer

    async def _ask_long(self, question: Asked) -> bytes:
        stream = question.stream
        try:
            async with asyncio.timeout_at(question.deadline):
                await stream.until_open()
                stream.number(question)
                await self._put_until_answered(question)
                answer: bytes = await asyncio.shield(question.confirmed)
        except TimeoutError:
            raise UnreachableError(stream.destination, OVERDUE, sent=stream.has_put) from None
        finally:
            self._done(question)
            stream.abandon()
        return answer

    async def _put_until_answered(self, question: Asked) -> None:
        """Put a long question, as far as it takes: the answer may come before its end is put."""
        loop = asyncio.get_running_loop()
        left_s = question.deadline - loop.time()
        putting = asyncio.ensure_future(question.stream.put_long(question.payload, left_s))
        try:
            both = putting, question.confirmed
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not question.confirmed.done():
                await putting
        finally:
            putting.cancel()
            await asyncio.wait((putting,))
            if not putting.cancelled():
                putting.exception()

    def _done(self, question: Asked) -> None:
        """A question has its outcome: what was kept for its answer is given back."""
        question.stream.forget(question)
        if not question.confirmed.done():
            question.confirmed.cancel()
        elif not question.confirmed.cancelled():
            question.confirmed.exception()
        self.inbox.give_back(question)
        self._streams.trim(question.stream)
