"""Long broadcasts: sent in pieces by one program, put together by others.

Each piece is a reliable broadcast, so all nodes get it or none, in order. A reader that misses one, or
waits for the next one for longer than `SILENCE_S` with nothing left to read of it, misses the whole:
that is shown as `Missed`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

from bmgd.errors import BmgdError, DeliveryError, PartialError, Report, RequestError
from bmgd.wire.bounds import LONG_BYTES_MAX, PAYLOAD_BYTES_MAX

PIECES_UNDERWAY: Final = 14
"""Pieces of one long broadcast that wait for their confirmation; less than a connection may hold."""
SILENCE_S: Final = 30.0
"""A long broadcast of which nothing came for so long is missed."""
LONGS_MAX: Final = 64
"""Long broadcasts that one subscription has not got whole; of more the oldest is missed."""

Life = tuple[int, int]
"""A source, and its life."""


async def broadcast_long(
    ask_piece: Callable[[dict[str, Any]], Any], payload: bytes | memoryview, params: dict[str, Any]
) -> Report:
    """Send a message in pieces, `PIECES_UNDERWAY` at a time.

    Args:
        ask_piece: sends one, and returns its report.
        params: of every piece.

    Raises:
        PartialError: some nodes have not confirmed each piece.
        BmgdError: whatever a piece fails with; those that follow are not sent.
    """
    size = len(payload)
    if size > LONG_BYTES_MAX:
        raise RequestError(f"a message has at most {LONG_BYTES_MAX} bytes")
    number = secrets.randbits(63) + 1
    confirmed: frozenset[int] | None = None
    failed: dict[int, DeliveryError] = {}
    underway: list[asyncio.Task[Report]] = []

    def take(report: Report) -> None:
        nonlocal confirmed
        confirmed = report.confirmed if confirmed is None else confirmed & report.confirmed
        for node_id, error in report.failed.items():
            failed.setdefault(node_id, error)

    try:
        async with asyncio.TaskGroup() as tasks:
            for at in range(0, size, PAYLOAD_BYTES_MAX):
                body = bytes(payload[at : at + PAYLOAD_BYTES_MAX])
                piece = {**params, "payload": body, "number": number, "at": at, "size": size}
                underway.append(tasks.create_task(ask_piece(piece)))
                if len(underway) >= PIECES_UNDERWAY:
                    take(await underway.pop(0))
            for task in underway:
                take(await task)
    except* BmgdError as group:
        raise group.exceptions[0] from None
    report = Report((confirmed or frozenset()) - failed.keys(), failed)
    if failed:
        raise PartialError(report)
    return report


class Unfinished:
    """A long broadcast as it comes to a subscription.

    Args:
        first: the source's count of its first piece.
        give_up: called when nothing came for `SILENCE_S`, once or more.
    """

    def __init__(self, pieces: Any, first: int, give_up: Callable[[], None]) -> None:
        self.pieces = pieces
        self.first = self.last = first
        self.received = 0
        self._give_up = give_up
        self.wait()

    def wait(self) -> None:
        """The next piece may take so long from now on."""
        self._timer = asyncio.get_running_loop().call_later(SILENCE_S, self._give_up)

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


class Assembly:
    """The long broadcasts of one subscription that have not come whole."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int], Unfinished] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, life: Life, number: int, unfinished: Unfinished) -> None:
        """One begins."""
        self._found[(*life, number)] = unfinished

    def get(self, life: Life, number: int) -> Unfinished | None:
        """The one that a piece is of; None where its beginning did not come."""
        return self._found.get((*life, number))

    def oldest(self) -> tuple[Life, int]:
        """The one that began first."""
        source, incarnation, number = next(iter(self._found))
        return (source, incarnation), number

    def remove(self, life: Life, number: int) -> Unfinished | None:
        """It is whole, or given up."""
        unfinished = self._found.pop((*life, number), None)
        if unfinished is not None:
            unfinished.end()
        return unfinished

    def of_life(self, life: Life) -> Iterator[int]:
        """The numbers of those of one life of a source."""
        return iter([key[2] for key in self._found if key[:2] == life])

    def end(self) -> Iterator[Unfinished]:
        """All of them, for the end of the subscription."""
        for unfinished in self._found.values():
            unfinished.end()
            yield unfinished
        self._found.clear()
