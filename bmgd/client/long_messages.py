"""The long messages of one subscription as they come: put together here, or read in parts.

Theory of operation. A message that is longer than the subscription's `max_message` is handed over with
its first piece, and its program gives the credit of each piece back as it reads. A shorter one is put
together: the credit of its pieces goes back as they come, that of the last one when the program takes
the whole. So many are put together, or whole and not taken, at a time as fit into `max_message`; the
others wait, one piece each:

    waiting --it fits, or it is the only one--> now --the program has finished it, or it ended--> gone
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from bmgd.client.message import LongMessage, Message, Pieces, Whole
from bmgd.client.replying import Question
from bmgd.errors import BmgdError, UnreachableError
from bmgd.wire.segments import COST_MAX

_REPORT_MAX: Final = 8
"""So many pieces of a message are taken at most before the daemon hears of it."""


class LongMessages:
    """The long messages of one subscription that have not come whole.

    Args:
        max_message: a longer one is not put together, in bytes.
        credit_bytes: of the subscription.
        give: hands over what the program can take.
        consumer: makes what gives the credit of so many pieces of a message, named by its number, back.
        question_of: how the source of a message is answered; None where it does not ask.
    """

    def __init__(
        self,
        max_message: int,
        credit_bytes: int,
        give: Callable[[Message], None],
        consumer: Callable[[int], Callable[[int], None]],
        question_of: Callable[[Pieces], Question | None],
    ) -> None:
        self._max_message = max_message
        # A quarter of the credit, so that what is on its way does not run dry.
        self._report_at = max(1, min(credit_bytes // (4 * COST_MAX), _REPORT_MAX))
        self._give = give
        self._consumer = consumer
        self._question_of = question_of
        self._found: dict[int, Pieces] = {}
        self._whole: dict[int, Pieces] = {}
        """Those that came whole, and that the program has not finished."""
        self._together = Together(max_message)

    def on_piece(self, number: int, piece: Mapping[str, Any]) -> None:
        """A piece came, or the source has given the message up."""
        pieces = self._found.get(number)
        if piece.get("aborted"):
            if pieces is not None:
                self._abort(
                    pieces, UnreachableError(piece["source"], str(piece["aborted"]), sent=True)
                )
            return
        if pieces is None:
            pieces = self._begin(number, piece)
        pieces.waiting.append(piece["body"])
        pieces.unconsumed += 1
        pieces.complete = piece["last"]
        pieces.changed.set()
        if pieces.size <= self._max_message:
            if pieces in self._together:
                self._put_together(pieces)
            self._begin_together()
            return
        if pieces.complete:
            del self._found[number]
        if pieces.dropped:
            pieces.give_back()

    def cut_off(self) -> None:
        """The daemon is gone: no further piece comes, and no credit is given back."""
        for pieces in self._found.values():
            pieces.cut_off()
        self._found.clear()
        self._whole.clear()
        self._together.clear()

    def on_finished(self, number: int) -> None:
        """The program has done with one that came whole, and its room is free."""
        pieces = self._whole.pop(number, None)
        if pieces is not None:
            self._together.remove(pieces)
            self._begin_together()

    def end(self, error: BmgdError) -> None:
        """The subscription is over."""
        for pieces in self._found.values():
            if not pieces.complete:
                pieces.abort(error)

    def _begin(self, number: int, piece: Mapping[str, Any]) -> Pieces:
        pieces = self._found[number] = Pieces(number, piece)
        pieces.consume = self._consumer(number)
        if pieces.size <= self._max_message:
            self._together.add(pieces)
            return pieces
        message = LongMessage(pieces.source, pieces.topic, b"", False, pieces.incarnation)
        message._pieces = pieces
        message._asks = self._question_of(pieces)
        pieces.on_taken = pieces.consume
        pieces.report_at = self._report_at
        self._give(message)
        return pieces

    def _begin_together(self) -> None:
        for pieces in self._together.begin():
            self._put_together(pieces)

    def _put_together(self, pieces: Pieces) -> None:
        """The pieces of a message give their credit back; the last one's, when the program takes it."""
        done = pieces.unconsumed - pieces.complete
        if done > 0:
            pieces.unconsumed -= done
            pieces.consume(done)
        if not pieces.complete:
            return
        self._whole[pieces.number] = self._found.pop(pieces.number)
        whole = b"".join(pieces.waiting)
        pieces.waiting.clear()
        message = Whole(pieces.source, pieces.topic, whole, False, pieces.incarnation)
        message.long = pieces.number
        message._asks = self._question_of(pieces)
        self._give(message)

    def _abort(self, pieces: Pieces, error: UnreachableError) -> None:
        del self._found[pieces.number]
        self._together.remove(pieces)
        self._begin_together()
        pieces.waiting.clear()
        pieces.abort(error)


class Together:
    """The long messages of one subscription that are put together, in the order in which they began.

    Args:
        bytes_max: of all that are put together now, or whole and not taken; a single one may have more.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Pieces] = deque()
        self._now: set[Pieces] = set()
        self._bytes = 0

    def __contains__(self, pieces: Pieces) -> bool:
        """Whether it is put together now."""
        return pieces in self._now

    def add(self, pieces: Pieces) -> None:
        """A message has begun: it waits for room."""
        self._waiting.append(pieces)

    def begin(self) -> Iterator[Pieces]:
        """Those that there is room for, one by one: what one gives back is there for the next."""
        while self._waiting:
            pieces = self._waiting[0]
            if self._now and self._bytes + pieces.size > self._bytes_max:
                return
            self._now.add(self._waiting.popleft())
            self._bytes += pieces.size
            yield pieces

    def remove(self, pieces: Pieces) -> None:
        """The program has done with it, or it ended before; it may be none of these."""
        if pieces in self._now:
            self._now.remove(pieces)
            self._bytes -= pieces.size
        elif pieces in self._waiting:
            self._waiting.remove(pieces)

    def clear(self) -> None:
        """All have ended."""
        self._waiting.clear()
        self._now.clear()
        self._bytes = 0
