"""A long broadcast from one program: its pieces on their way, and what becomes of the whole.

Theory of operation. Each piece is a reliable broadcast of its own, and some are underway at a time:

    not asked --room at the daemon--> asked --report--> confirmed by some, failed at the others
                                        +--an error--> those that follow are not sent

A node has the whole when it has confirmed each piece.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from bmgd.client.backlog import says_sent, with_sent
from bmgd.errors import BmgdError, DeliveryError, PartialError, Report, Ungrouped
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

PIECES_UNDERWAY: Final = 14
"""Pieces of one long broadcast that wait for their confirmation; less than a connection may hold."""

AskPiece = Callable[[dict[str, Any], Callable[[], None]], Coroutine[Any, Any, Report]]
"""Sends one piece, calls when it is on its way to the daemon, and returns its report."""


async def broadcast_in_pieces(
    ask_piece: AskPiece, payload: bytes, params: dict[str, Any]
) -> Report:
    """Send a message in pieces, `PIECES_UNDERWAY` at a time.

    Args:
        ask_piece: what `AskPiece` says.
        payload: as `checked_payload` gave it.
        params: of every piece.

    Raises:
        PartialError: some nodes have not confirmed each piece.
        BmgdError: whatever a piece fails with; those that follow are not sent. `sent` is that of
            the whole: whether any piece may have been taken.
    """
    pieces = _Pieces(ask_piece, payload, params)
    try:
        with Ungrouped():
            async with asyncio.TaskGroup() as tasks:
                await pieces.send(tasks)
    except BmgdError as error:
        if pieces.may_be_taken:
            raise with_sent(error, sent=True) from None
        raise
    return pieces.report()


class _Pieces:
    """One long broadcast on its way: the pieces underway, and what the reports of the others say."""

    def __init__(self, ask_piece: AskPiece, payload: bytes, params: dict[str, Any]) -> None:
        self._ask_piece = ask_piece
        self._payload = payload
        number = secrets.randbits(63) + 1
        self._params = {**params, "number": number, "size": len(payload)}
        self._underway: dict[int, asyncio.Task[Report]] = {}
        self._asked: set[int] = set()
        """Where those begin that are on their way to the daemon, or were."""
        self._confirmed: frozenset[int] | None = None
        self._failed: dict[int, DeliveryError] = {}

    async def send(self, tasks: asyncio.TaskGroup) -> None:
        """Send them all, and wait for their reports."""
        for at in range(0, len(self._payload), PAYLOAD_BYTES_MAX):
            body = bytes(self._payload[at : at + PAYLOAD_BYTES_MAX])
            asking = self._ask_piece(
                {**self._params, "payload": body, "at": at}, partial(self._asked.add, at)
            )
            self._underway[at] = tasks.create_task(asking)
            if len(self._underway) >= PIECES_UNDERWAY:
                await self._take_first()
        while self._underway:
            await self._take_first()

    async def _take_first(self) -> None:
        at = next(iter(self._underway))
        report = await self._underway[at]
        del self._underway[at]
        confirmed = self._confirmed
        self._confirmed = report.confirmed if confirmed is None else confirmed & report.confirmed
        for node_id, error in report.failed.items():
            self._failed.setdefault(node_id, error)

    @property
    def may_be_taken(self) -> bool:
        """Whether any piece is confirmed, or in doubt; none is asked any more."""
        return self._confirmed is not None or any(
            self._is_in_doubt(at, task) for at, task in self._underway.items()
        )

    def _is_in_doubt(self, at: int, task: asyncio.Task[Report]) -> bool:
        if task.cancelled():
            return at in self._asked
        error = task.exception()
        return error is None or says_sent(error)

    def report(self) -> Report:
        """Who has confirmed each piece.

        Raises:
            PartialError: some nodes have not.
        """
        # A frozenset less the keys of a dict would be a set.
        confirmed = (self._confirmed or frozenset()).difference(self._failed)
        report = Report(confirmed, self._failed)
        if report.failed:
            raise PartialError(report)
        return report
