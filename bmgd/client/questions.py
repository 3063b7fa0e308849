"""Questions, and the streams that they are put into: one for each topic of each node.

A stream counts its questions as its daemon does: the number of each names it to the daemons, and in its
answer. A question that was taken by the other daemon waits for its answer; one that was not has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from bmgd.client.arguments import Priority
from bmgd.client.backlog import Pending, with_sent
from bmgd.client.connection import Connection
from bmgd.client.outgoing import Outgoing
from bmgd.client.putting import CLOSED
from bmgd.client.underway import Segment
from bmgd.errors import BmgdError, LeavingError, NoReaderError, RequestError, UnreachableError

OVERDUE: Final = "no answer before the deadline"


class Asked(Pending):
    """A question; `confirmed` is done with its answer.

    Attributes:
        number: names it to the daemons; 0 until it is put.
        stream: that it is put into.
        max_answer: a longer answer is not taken, in bytes.
    """

    __slots__ = ("max_answer", "number", "stream")

    confirmed: asyncio.Future[Any]

    def __init__(self, payload: bytes, deadline: float, stream: Questions, max_answer: int) -> None:
        super().__init__(payload, deadline, asyncio.get_running_loop().create_future())
        self.number = 0
        self.stream = stream
        self.max_answer = max_answer

    def fail(self, error: BmgdError) -> None:
        """It gets no answer."""
        if not self.confirmed.done():
            self.confirmed.set_exception(error)


class Questions(Outgoing):
    """A stream of questions to one topic of one node.

    Args:
        asked: all questions without an outcome, by number; those of this stream are put in.
        inbox: where the answers come.
    """

    unconfirmed = OVERDUE

    def __init__(
        self,
        asked: dict[int, Asked],
        connection: Connection,
        destination: int,
        topic: str,
        priority: Priority,
        inbox: int,
    ) -> None:
        params = {
            "destination": destination,
            "topic": topic,
            "priority": priority,
            "inbox": inbox,
        }
        self._all = asked
        self._next = 0
        self._asked: dict[int, Asked] = {}
        super().__init__(
            connection, destination, topic, priority, "reliable", ("questions", params)
        )

    @property
    def is_unused(self) -> bool:
        """Whether nothing of it waits, is underway or lacks its outcome."""
        return self.is_idle and not self._asked

    def _begin(self, value: Mapping[str, Any]) -> None:
        self._next = int(value["first"])

    def _put(
        self,
        body: bytes,
        count: int,
        waited: list[Pending],
        timeout: float,
        size: int = 0,
        flags: int = 0,
        more: bytes | memoryview = b"",
    ) -> int:
        number = super()._put(body, count, waited, timeout, size, flags, more)
        for message in waited:
            if isinstance(message, Asked):
                self.number(message)
        return number

    def number(self, question: Asked) -> None:
        """The next question is put: the daemon counts it too."""
        question.number = self._next
        self._next += 1
        self._asked[question.number] = question
        self._all[question.number] = question

    def forget(self, question: Asked) -> None:
        """It has its outcome."""
        self._asked.pop(question.number, None)

    def _settle(self, segment: Segment, error: BmgdError | None) -> None:
        if error is not None:
            super()._settle(segment, error)
            if not segment.count:
                # A piece of a long question, which has the stream to itself.
                for question in list(self._asked.values()):
                    question.fail(error)
            return
        # Taken by the other daemon: the answer is what is waited for.
        for message in segment.waited:
            if message.given_up and isinstance(message, Asked):
                message.fail(UnreachableError(self.destination, OVERDUE, sent=True))

    def _fail(self, error: BmgdError | None, unsent: int) -> None:
        super()._fail(error, unsent)
        if isinstance(error, LeavingError):
            # The other daemon takes no more; what it has taken its readers answer before it goes.
            return
        over = error or RequestError(CLOSED)
        for question in list(self._asked.values()):
            # Those that the other daemon has taken; the others have failed just now.
            question.fail(with_sent(over, sent=not isinstance(over, NoReaderError)))
