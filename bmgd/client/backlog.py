"""What of a stream waits in its program for a segment.

A segment takes the messages that came first, as many as fit. One that nobody waits for any more is left
out, unless it is in a segment already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from bmgd.errors import BmgdError, ControlError, DeliveryError
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.control_errors import error_of

PREFIX_BYTES: Final = 5
"""What a message takes in a segment beyond its bytes, at most; counted so, 13,108 fit at most."""
FULL_BYTES: Final = PAYLOAD_BYTES_MAX
"""Of a segment that is put without waiting for more; one message of the greatest size is above it."""
SEGMENT_BYTES: Final = FULL_BYTES + PREFIX_BYTES
"""What goes into a segment, at most."""
_GAPS_MAX: Final = 64
"""So many may be left out, or half of all, before the others move up."""


class Pending:
    """A message that its sender waits for.

    Attributes:
        confirmed: done when it is, or failed with a `DeliveryError`.
        place: among all messages of its stream, counted from 0; a `Backlog`'s own.
        segment: the number of the segment that it is in; 0 while it waits here.
        given_up: its sender waits no longer, and knows that.
    """

    __slots__ = ("confirmed", "deadline", "given_up", "payload", "place", "segment")

    def __init__(self, payload: bytes, deadline: float, confirmed: asyncio.Future[None]) -> None:
        self.payload = payload
        self.deadline = deadline
        self.confirmed = confirmed
        self.place = 0
        self.segment = 0
        self.given_up = False


class Backlog:
    """The messages of one stream that wait for their segment, in order.

    All it does takes amortized O(1) for each message: thousands that wait at the same time may be given
    up at the same time.

    Attributes:
        payloads: their bytes, None where one was left out; empty where nothing waits.
        size_bytes: what they take in segments; `PREFIX_BYTES` and its own bytes for each.
    """

    __slots__ = ("_first", "_gaps", "_waited", "payloads", "size_bytes")

    def __init__(self) -> None:
        self.payloads: list[bytes | None] = []
        self.size_bytes = 0
        self._first = 0
        """The place of the first of them."""
        self._gaps = 0
        self._waited: dict[int, Pending] = {}
        """Those that somebody waits for, by place."""

    @property
    def is_full(self) -> bool:
        """Whether as much waits as goes into a segment."""
        return self.size_bytes >= FULL_BYTES

    @property
    def following(self) -> int:
        """The place of the message that is added next."""
        return self._first + len(self.payloads)

    def has_before(self, place: int) -> bool:
        """Whether a message before that place waits."""
        return bool(self.payloads) and self._first < place

    def wait_for(self, message: Pending) -> None:
        """Somebody waits for the message that is added next."""
        message.place = self.following
        self._waited[message.place] = message

    def add(self, payload: bytes) -> None:
        """A message waits."""
        self.payloads.append(payload)
        self.size_bytes += len(payload) + PREFIX_BYTES

    def take(self) -> tuple[list[bytes], list[Pending]]:
        """The messages of the next segment, and those of them that somebody waits for."""
        pending = self.payloads
        if self.size_bytes <= SEGMENT_BYTES:
            used, self.payloads, self.size_bytes = len(pending), [], 0
        else:
            used = self._fitting(SEGMENT_BYTES)
            pending, self.payloads = pending[:used], pending[used:]
        if not self._gaps:
            return cast(list[bytes], pending), self._pass(used)
        payloads = [payload for payload in pending if payload is not None]
        self._gaps -= used - len(payloads)
        return payloads, self._pass(used)

    def _fitting(self, room: int) -> int:
        """How many from the first on go into a segment, those that were left out counted."""
        size = used = gaps = 0
        for payload in self.payloads:
            if payload is None:
                gaps += 1
            else:
                size += len(payload) + PREFIX_BYTES
                if size > room and used > gaps:
                    size -= len(payload) + PREFIX_BYTES
                    break
            used += 1
        self.size_bytes -= size
        return used

    def _pass(self, used: int) -> list[Pending]:
        """So many are taken; returns those of them that somebody waits for."""
        first, self._first = self._first, self._first + used
        waited = self._waited
        if not waited:
            return []
        return [waited.pop(place) for place in range(first, first + used) if place in waited]

    def drop(self, message: Pending) -> None:
        """Nobody waits for a message any more; it may be none of these."""
        if self._waited.get(message.place) is not message:
            return
        del self._waited[message.place]
        at = message.place - self._first
        payload, self.payloads[at] = self.payloads[at], None
        self.size_bytes -= len(payload or b"") + PREFIX_BYTES
        self._gaps += 1
        if self._gaps == len(self.payloads) or self._gaps > max(_GAPS_MAX, len(self.payloads) // 2):
            self._close_gaps()

    def _close_gaps(self) -> None:
        places = enumerate(self.payloads, self._first)
        kept = [(place, payload) for place, payload in places if payload is not None]
        waited, self._waited = self._waited, {}
        for at, (place, _) in enumerate(kept, self._first):
            message = waited.get(place)
            if message is not None:
                message.place = at
                self._waited[at] = message
        self.payloads = [payload for _, payload in kept]
        self._gaps = 0

    def fail(self, over: BmgdError) -> None:
        """None of them is sent: the stream is over."""
        for message in self._waited.values():
            if not message.confirmed.done():
                message.confirmed.set_exception(with_sent(over, sent=False))
        self._waited.clear()
        self.payloads.clear()
        self.size_bytes = self._gaps = 0


def with_sent(error: BmgdError, *, sent: bool) -> BmgdError:
    """An error as it is for a message that may have been taken, or was not."""
    if isinstance(error, DeliveryError) and error.sent != sent:
        return type(error)(error.destination, error.detail, sent=sent)
    if isinstance(error, ControlError) and error.sent != sent:
        return type(error)(str(error), sent=sent)
    return error


def told_error(name: str, message: str, fields: Mapping[str, Any]) -> BmgdError:
    """The error that a daemon tells of; one that this release does not know says *sent* all the same."""
    error = error_of(name, message, fields)
    return with_sent(error, sent=True) if fields.get("sent") is True else error


def says_sent(error: BaseException | None) -> bool:
    """Whether an error says of its message that it may have been taken."""
    return isinstance(error, ControlError | DeliveryError) and error.sent
