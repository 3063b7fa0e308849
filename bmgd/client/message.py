"""A message that came, as its program sees it: whole, or in the parts of a long one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple

from bmgd.client.arguments import Payload, checked_word
from bmgd.client.replying import Question
from bmgd.errors import BmgdError, RequestError, UnreachableError

REPLY_S: Final = 10.0


class _Fields(NamedTuple):
    source: int
    topic: str
    payload: bytes
    broadcast: bool = False
    incarnation: int = 0
    redelivered: bool = False


class Message(_Fields):
    """A message that came to this node. A tuple, because one call makes all of a segment.

    Attributes:
        source: the node id that sent it.
        topic: the topic that it was sent to.
        payload: its bytes; of one that is longer than 65,536, and than the subscription's `max_message`,
            see `parts`.
        broadcast: whether it was sent to every reader, and not to this one alone.
        incarnation: the source's life.
        redelivered: another reader had it before, and went away without having finished it.
    """

    __slots__ = ()

    _asks: Question | None = None

    @property
    def is_request(self) -> bool:
        """Whether its source waits for a reply."""
        return self._asks is not None

    async def reply(self, payload: Payload, *, timeout: float = REPLY_S) -> None:  # noqa: ASYNC109
        """Answer a request; returns when the asker's daemon holds the answer.

        Where it is cancelled, a short answer that the daemon has already goes on, and counts as given.

        Args:
            payload: any number of bytes.
            timeout: seconds, above 0.

        Raises:
            RequestError: it is no request, or is answered already, or its subscription is over.
            NoReaderError: the program that asked is gone.
            DeadError: its node is dead, excluded or has left.
            NewLifeError: its node restarted.
            UnreachableError: no confirmation before the timeout; where it was not sent, it can be
                answered again.
            NoDaemonError: the daemon is gone.
        """
        await self._question().answer(payload, timeout)

    async def reply_soon(
        self,
        payload: Payload,
        *,
        timeout: float = REPLY_S,  # noqa: ASYNC109
    ) -> asyncio.Future[None]:
        """Answer a request; waits only until the answer may be sent: the fast way to answer many.

        Args:
            payload: at most 65,527 bytes.

        Returns:
            Done when the asker's daemon holds the answer, or failed with what `reply` raises.

        Raises: RequestError and UnreachableError, as `reply`.
        """
        return await self._question().answer_soon(payload, timeout)

    async def refuse(self, text: str = "", *, timeout: float = REPLY_S) -> None:  # noqa: ASYNC109
        """Tell the asker that it gets no answer: its `request` raises `FailedAnswerError`.

        Args:
            text: why, at most 4096 bytes of it are sent.

        Raises: as `reply`.
        """
        await self._question().fail(checked_word("a reason", text), timeout)

    def _question(self) -> Question:
        if self._asks is None:
            raise RequestError("this message is no request: nobody waits for a reply")
        return self._asks

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return len(self.payload)

    @property
    def is_long(self) -> bool:
        """Whether it can be read by `parts` only."""
        return False

    async def parts(self) -> AsyncIterator[bytes]:
        """Its bytes, from the beginning: one that is_long in pieces of at most 64 KiB, others in one.

        Of a message that is_long: before the next message is taken, and once.

        Raises:
            UnreachableError: its source went away, or gave it up, before the whole was here. Of a
                broadcast that is told when no piece of it has come for 30 s.
            RequestError: the next message was taken, the subscription left, or it was read before.
        """
        yield self.payload


class ShortQuestion(Message):
    """A short question."""


class Whole(Message):
    """A long message that was put together here; it is confirmed once it is taken."""

    long: int


class LongMessage(Message):
    """A message longer than 65,536 bytes, and than `max_message`: read it with `parts`.

    As a tuple it has no payload.
    """

    _pieces: Pieces

    @property
    def payload(self) -> bytes:
        """Not there as a whole.

        Raises:
            RequestError: always.
        """
        raise RequestError(f"a message of {self.size} bytes is read with parts()")

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self._pieces.size

    @property
    def is_long(self) -> bool:
        """It can be read by `parts` only."""
        return True

    def parts(self) -> AsyncIterator[bytes]:
        """Its bytes, from the beginning, in pieces of at most 64 KiB; see `Message.parts`."""
        return Parts(self._pieces)


class Parts(AsyncIterator[bytes]):
    """The parts of a long message; taking one is safe against cancellation, as it is of messages.

    No generator: one that was cancelled is over, and the rest of the message would look like its end.
    """

    __slots__ = ("_is_over", "_pieces")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._is_over = False

    async def __anext__(self) -> bytes:
        piece = None if self._is_over else await self._pieces.next()
        if piece is None:
            self._is_over = True
            raise StopAsyncIteration
        return piece


class Pieces:
    """A long message as it comes."""

    def __init__(self, number: int, piece: Mapping[str, Any]) -> None:
        self.number = number
        self.source: int = piece["source"]
        self.topic: str = piece["topic"]
        self.incarnation: int = piece["incarnation"]
        self.size: int = piece["size"]
        self.inbox: int = piece.get("inbox", 0)
        self.question: int = piece.get("question", 0)
        self.dropped = False
        """Its program does not want to read the rest."""
        self.waiting: deque[bytes] = deque()
        self.unconsumed = 0
        """Pieces whose credit was not given back."""
        self.complete = False
        self.aborted: BmgdError | None = None
        self.taken = False
        self.changed = asyncio.Event()
        self.report_at = 1
        """So many pieces are taken before the daemon hears of them, unless no further one is here."""
        self._unreported = 0
        self.on_taken: Callable[[int], None] = nothing
        """The program has finished so many more pieces."""
        self.consume: Callable[[int], None] = nothing
        """Give the credit of so many pieces back."""
        self.on_waiting: Callable[[], None] = nothing
        """The program waits for a piece."""
        self.on_waited: Callable[[], None] = nothing
        """It waits no longer."""
        self.ended = False
        """The program was told that there is no further piece."""

    def cut_off(self) -> None:
        """The daemon is gone: no further piece comes, and none is given back."""
        self.on_taken = self.consume = nothing
        self.on_waiting = self.on_waited = nothing
        if not self.complete:
            detail = "the daemon went away before the whole was here"
            self.abort(UnreachableError(self.source, detail, sent=True))

    async def next(self) -> bytes | None:
        """The next piece; None behind the last one.

        Raises:
            RequestError: the rest was dropped, or its end was told before.
            BmgdError: no further piece comes, for this reason.
        """
        if self.ended:
            raise RequestError("a long message is read once, and this one was")
        if self.taken:
            self.taken = False
            self._unreported += 1
        if self._unreported >= self.report_at or not self.waiting:
            self.report()
        while not self.waiting:
            if self.aborted is not None:
                raise self.aborted
            if self.dropped:
                detail = "the next one was taken, or the subscription left"
                raise RequestError(f"the rest of a long message is gone: {detail}")
            if self.complete:
                self.ended = True
                return None
            await self._until_changed()
        self.taken = True
        return self.waiting.popleft()

    async def _until_changed(self) -> None:
        self.changed.clear()
        self.on_waiting()
        try:
            await self.changed.wait()
        finally:
            self.on_waited()

    def drop(self) -> None:
        """The program does not want to read the rest."""
        self.give_back()
        self.leave()

    def leave(self) -> None:
        """The program goes away, and has not finished what is here."""
        self.dropped = True
        self.waiting.clear()
        self.changed.set()

    @property
    def is_read(self) -> bool:
        """Whether the program has all of it."""
        return self.complete and not self.waiting

    def abort(self, error: BmgdError) -> None:
        """No further piece comes."""
        self.aborted = error
        self.changed.set()

    def give_back(self) -> None:
        """Nobody reads what is here: it is not kept, and its credit goes back."""
        self.waiting.clear()
        self.consume(self.unconsumed)
        self.unconsumed = 0

    def report(self) -> None:
        """Tell of the pieces that the program has finished."""
        count, self._unreported = min(self._unreported, self.unconsumed), 0
        if count:
            self.unconsumed -= count
            self.on_taken(count)


class BroadcastMessage(Message):
    """A message to all readers."""

    __slots__ = ()


def nothing(count: int = 0) -> None:
    """Nobody is to be told."""
