"""What of a stream waits in its program for a segment.

A segment takes the messages that came first, as many as fit. One that nobody waits for any more is left
out, unless it is in a segment already.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bmgd.errors import BmgdError, DeliveryError
from bmgd.wire.bounds import MESSAGES_PER_SEGMENT_MAX, PAYLOAD_BYTES_MAX

PREFIX_BYTES: Final = 5
"""What a message takes in a segment beyond its bytes, at most."""
FULL_BYTES: Final = PAYLOAD_BYTES_MAX
"""What goes into a segment."""


class Pending:
    """A message that its sender waits for.

    Attributes:
        confirmed: done when it is, or failed with a `DeliveryError`.
        segment: the number of the segment that it is in; 0 while it waits here.
        given_up: its sender waits no longer, and knows that.
    """

    __slots__ = ("confirmed", "deadline", "given_up", "payload", "segment")

    def __init__(self, payload: bytes, deadline: float, confirmed: asyncio.Future[None]) -> None:
        self.payload = payload
        self.deadline = deadline
        self.confirmed = confirmed
        self.segment = 0
        self.given_up = False


class Backlog:
    """The messages of one stream that wait for their segment, in order.

    Attributes:
        payloads: their bytes.
        size_bytes: what they take in segments; `PREFIX_BYTES` and its own bytes for each.
        waited: those that somebody waits for, by their place.
    """

    __slots__ = ("payloads", "size_bytes", "waited")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        self.waited: dict[int, Pending] = {}

    @property
    def is_full(self) -> bool:
        """Whether as much waits as goes into a segment."""
        return self.size_bytes >= FULL_BYTES

    def take(self) -> tuple[list[bytes], list[Pending]]:
        """The messages of the next segment, and those of them that somebody waits for."""
        pending = self.payloads
        room = FULL_BYTES + PREFIX_BYTES
        if self.size_bytes <= room and len(pending) <= MESSAGES_PER_SEGMENT_MAX:
            payloads, self.payloads, self.size_bytes = pending, [], 0
        else:
            payloads = self._first_fitting(room)
        return payloads, self._take_waited(len(payloads)) if self.waited else []

    def _first_fitting(self, room: int) -> list[bytes]:
        size = count = 0
        for payload in self.payloads:
            size += len(payload) + PREFIX_BYTES
            if count and (size > room or count == MESSAGES_PER_SEGMENT_MAX):
                size -= len(payload) + PREFIX_BYTES
                break
            count += 1
        payloads, self.payloads = self.payloads[:count], self.payloads[count:]
        self.size_bytes -= size
        return payloads

    def _take_waited(self, count: int) -> list[Pending]:
        taken = [self.waited.pop(at) for at in sorted(self.waited) if at < count]
        self.waited = {at - count: message for at, message in self.waited.items()}
        return taken

    def drop(self, message: Pending) -> None:
        """Nobody waits for a message any more; it may be none of these."""
        at = next((at for at, waited in self.waited.items() if waited is message), None)
        if at is None:
            return
        del self.waited[at]
        self.size_bytes -= len(self.payloads.pop(at)) + PREFIX_BYTES
        self.waited = {n - (n > at): each for n, each in self.waited.items()}

    def fail(self, over: BmgdError) -> None:
        """None of them is sent: the stream is over."""
        for message in self.waited.values():
            if not message.confirmed.done():
                message.confirmed.set_exception(with_sent(over, sent=False))
        self.waited.clear()
        self.payloads.clear()
        self.size_bytes = 0


def with_sent(error: BmgdError, *, sent: bool) -> BmgdError:
    """An error as it is for a message that may have been taken, or was not."""
    if isinstance(error, DeliveryError) and error.sent != sent:
        return type(error)(error.destination, error.detail, sent=sent)
    return error
