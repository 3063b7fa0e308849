"""A long message to some nodes: more than one frame holds goes to each of them singly.

Theory of operation. The nodes take turns, `SINGLY_MAX` at a time, all within one deadline:

    waiting --its turn--> underway --confirmed, or an error of this node--> in the report
       +--the time is over: not sent
       +--the daemon is gone for good: the error is raised, when nothing is underway any more
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from bmgd.client.backlog import with_sent
from bmgd.errors import (
    ControlError,
    DeliveryError,
    PartialError,
    Report,
    RequestError,
    Ungrouped,
    UnreachableError,
)

SINGLY_MAX: Final = 8
"""Nodes to which one long multicast is underway at a time."""

SendOne = Callable[[int, float], Awaitable[None]]
"""Sends the message to a node, within so many seconds."""


async def multicast_singly(
    send: SendOne, ids: Sequence[int], timeout_s: float, *, lasts: bool
) -> Report:
    """Send a message to each of some nodes.

    Args:
        send: sends it to one.
        ids: the nodes.
        timeout_s: until the report is made.
        lasts: whether the connection outlives its daemon.

    Raises:
        PartialError: some did not confirm it.
        ControlError: the daemon is gone; `sent` says whether any node may have taken it.
        ProtocolError: the daemon says what it may not.
    """
    singly = _Singly(send, ids, asyncio.get_running_loop().time() + timeout_s, lasts)
    with Ungrouped():
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(SINGLY_MAX, len(ids))):
                tasks.create_task(singly.send_in_turn())
    return singly.report()


class _Singly:
    def __init__(self, send: SendOne, ids: Sequence[int], until_s: float, lasts: bool) -> None:
        self._send = send
        self._waiting: Iterator[int] = iter(ids)
        self._until_s = until_s
        self._lasts = lasts
        self._confirmed: set[int] = set()
        self._failed: dict[int, DeliveryError] = {}
        self._gone: ControlError | None = None

    async def send_in_turn(self) -> None:
        """Send it to one node after the other, as long as some wait."""
        loop = asyncio.get_running_loop()
        for each in self._waiting:
            if self._gone is not None:
                return
            left_s = self._until_s - loop.time()
            if left_s <= 0:
                detail = "its turn did not come before the deadline"
                self._failed[each] = UnreachableError(each, detail, sent=False)
                continue
            try:
                await self._send(each, left_s)
            except DeliveryError as error:
                self._failed[each] = error
            except ControlError as error:
                # What is refused for one node, such as one stream too many, is no matter of the others.
                if not self._lasts and not isinstance(error, RequestError):
                    self._gone = self._gone or error
                self._failed[each] = UnreachableError(each, str(error), sent=error.sent)
            else:
                self._confirmed.add(each)

    def report(self) -> Report:
        """Who has it.

        Raises: as `multicast_singly`.
        """
        if self._gone is not None:
            in_doubt = any(error.sent for error in self._failed.values())
            raise with_sent(self._gone, sent=bool(self._confirmed) or in_doubt)
        report = Report(frozenset(self._confirmed), dict(sorted(self._failed.items())))
        if report.failed:
            raise PartialError(report)
        return report
