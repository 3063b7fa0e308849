"""The long broadcasts of one subscription as they come: put together here, or read in parts.

Theory of operation. A long broadcast comes in pieces, each a reliable broadcast, in order. One that is
longer than the subscription's `max_message` is handed over with its first piece; a shorter one is put
together first, and the credit of its last piece goes back when the program takes the whole.

    first piece --further ones--> whole
       +--a piece is missed, nothing comes for `SILENCE_S`, too many others--> missed as a whole: `Missed`

It is silence only where the daemon had credit: what a program has yet to take holds others up
(`broadcast_credit.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from bmgd.client.broadcast_credit import BroadcastCredit
from bmgd.client.message import BroadcastMessage, LongMessage, Message, Pieces, nothing
from bmgd.client.to_many import Missed
from bmgd.errors import BmgdError, UnreachableError

SILENCE_S: Final = 30.0
"""A long broadcast of which nothing came for so long is missed."""
LONGS_MAX: Final = 64
"""Long broadcasts that one subscription has not got whole; of more the oldest is missed."""

Key = tuple[int, int, int]
"""A source, its life, and its number of one long broadcast."""
Consume = Callable[[int], None]


class GivenUp(Missed):
    """What this side gave up: it has no credit of the daemon's."""


class LongBroadcasts:
    """The long broadcasts of one subscription that have not come whole.

    Args:
        max_message: a longer one is not put together, in bytes.
        give: hands over what the program can take.
        credit: of all broadcasts of the subscription.
        bind: makes of that what gives it to the daemon of now, and to no later one.
    """

    def __init__(
        self,
        max_message: int,
        give: Callable[[Message | Missed], None],
        credit: BroadcastCredit,
        bind: Callable[[Consume], Consume],
    ) -> None:
        self._max_message = max_message
        self._give = give
        self._credit = credit
        self._bind = bind
        self._found: dict[Key, _Unfinished] = {}

    def on_piece(self, value: Mapping[str, Any]) -> None:
        """A piece came."""
        number, at, size = value["piece"]
        key = value["source"], value["incarnation"], number
        if at == 0 and key not in self._found:
            self._begin(key, Pieces(number, {**value, "size": size}), value["sequence"])
        unfinished = self._found.get(key)
        if unfinished is None or unfinished.received != at:
            # It began before this subscription, or is given up already.
            self._credit.finished(1)
            return
        unfinished.take(value["body"], value["sequence"])
        pieces = unfinished.pieces
        is_long = pieces.size > self._max_message
        if pieces.complete:
            self._remove(key)
        if pieces.dropped:
            pieces.give_back()
        elif pieces.complete and not is_long:
            # The credit of the last piece goes back when the program takes the whole.
            whole = b"".join(pieces.waiting)
            self._give(
                BroadcastMessage(pieces.source, pieces.topic, whole, True, pieces.incarnation)
            )
        elif not is_long:
            self._credit.finished(1)

    def on_missed(self, missed: Missed) -> None:
        """Of a long broadcast that lacks a piece the whole is missed."""
        first, life = missed.first, (missed.source, missed.incarnation)
        for key in [key for key in self._found if key[:2] == life]:
            unfinished = self._give_up(key)
            first = min(first, unfinished.first) if unfinished else first
        self._give(Missed(missed.source, first, missed.last, missed.incarnation))

    def cut_off(self) -> None:
        """The daemon is gone: no further piece comes, and no credit is given back."""
        for pieces in self._take_all():
            pieces.cut_off()

    def end(self, error: BmgdError) -> None:
        """The subscription is over."""
        for pieces in self._take_all():
            if not pieces.complete:
                pieces.abort(error)

    def _take_all(self) -> list[Pieces]:
        return [unfinished.pieces for key in list(self._found) if (unfinished := self._remove(key))]

    def _begin(self, key: Key, pieces: Pieces, sequence: int) -> None:
        if len(self._found) >= LONGS_MAX:
            self._miss(next(iter(self._found)))
        self._found[key] = _Unfinished(pieces, sequence, lambda: self._on_silence(key))
        pieces.consume = self._bind(self._credit.finished)
        if pieces.size > self._max_message:
            pieces.on_waiting = self._credit.begin_waiting
            pieces.on_waited = self._credit.end_waiting
            message = LongMessage(pieces.source, pieces.topic, b"", True, pieces.incarnation)
            message._pieces = pieces
            pieces.on_taken = pieces.consume
            self._give(message)

    def _on_silence(self, key: Key) -> None:
        unfinished = self._found.get(key)
        if unfinished is None:
            return
        if self._credit.was_there_for(SILENCE_S):
            self._miss(key)
        else:
            unfinished.wait()

    def _miss(self, key: Key) -> None:
        """One is not waited for any more."""
        unfinished = self._give_up(key)
        if unfinished is not None:
            source, incarnation, _ = key
            self._give(GivenUp(source, unfinished.first, unfinished.last, incarnation))

    def _give_up(self, key: Key) -> _Unfinished | None:
        unfinished = self._remove(key)
        if unfinished is not None:
            pieces = unfinished.pieces
            if pieces.size > self._max_message:
                pieces.give_back()
            pieces.waiting.clear()
            pieces.on_taken = nothing
            pieces.abort(UnreachableError(key[0], "a piece of it did not come", sent=True))
        return unfinished

    def _remove(self, key: Key) -> _Unfinished | None:
        unfinished = self._found.pop(key, None)
        if unfinished is not None:
            unfinished.end()
        return unfinished


class _Unfinished:
    """A long broadcast that comes.

    Args:
        first: the source's count of its first piece.
        on_silence: called when nothing came for `SILENCE_S`, once or more.
    """

    def __init__(self, pieces: Pieces, first: int, on_silence: Callable[[], None]) -> None:
        self.pieces = pieces
        self.first = self.last = first
        self.received = 0
        self._on_silence = on_silence
        self.wait()

    def wait(self) -> None:
        """The next piece may take so long from now on."""
        self._timer = asyncio.get_running_loop().call_later(SILENCE_S, self._on_silence)

    def take(self, body: bytes, sequence: int) -> None:
        """The next piece came."""
        self.pieces.waiting.append(body)
        self.pieces.unconsumed += 1
        self.received += len(body)
        self.last = sequence
        self.pieces.complete = self.received == self.pieces.size
        self.pieces.changed.set()
        self._timer.cancel()
        if not self.pieces.complete:
            self.wait()

    def end(self) -> None:
        """Nothing of it is waited for any more."""
        self._timer.cancel()
