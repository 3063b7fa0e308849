"""Messages from one program to many nodes: broadcasts and multicasts, and what is told of them.

A long broadcast goes in pieces. Each is a reliable broadcast, so all nodes get it or none, in order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from bmgd.client.arguments import Payload, Quality, check_timeout, checked_payload, checked_topic
from bmgd.client.backlog import with_sent
from bmgd.client.connection import Connection
from bmgd.errors import (
    BmgdError,
    ControlError,
    DeliveryError,
    NoDaemonError,
    PartialError,
    ProtocolError,
    Report,
    RequestError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.routing.id_sets import ID_SET_SPACE, ids_between, runs_in
from bmgd.wire.bounds import ENTRIES_MAX, PAYLOAD_BYTES_MAX
from bmgd.wire.control_errors import error_of

PIECES_UNDERWAY: Final = 14
"""Pieces of one long broadcast that wait for their confirmation; less than a connection may hold."""


@dataclass(frozen=True, slots=True)
class Missed:
    """An item of a subscription: some reliable broadcasts of a source did not come, and will not.

    They were for this node while it was held dead, or its reader was too slow.

    Args:
        source: the node id whose they are.
        first, last: the source's count of its reliable broadcasts, over all topics.
        incarnation: the source's life.
    """

    source: int
    first: int
    last: int
    incarnation: int = 0


class SendsToMany:
    """The part of `bmgd.Daemon` that sends to many nodes at once."""

    _connection: Connection

    async def broadcast(
        self,
        payload: Payload,
        *,
        topic: str = "default",
        quality: Quality = "reliable",
        timeout: float = 10.0,  # noqa: ASYNC109 (the daemon keeps it, not this loop)
    ) -> Report:
        """Send a message to every reader of a topic, at every node, this one too.

        Args:
            payload: reliable any number of bytes, beyond 65,536 in pieces; at best effort at most
                65,536.
            topic: 1 to 255 bytes.
            quality: "reliable": all nodes that nobody holds dead meanwhile get it, or none, in the
                order in which this daemon sent them. "best-effort": at most once, and nothing is
                told of it.
            timeout: seconds until the report is made, above 0. What is on its way then stays so.

        Returns:
            Whose daemons hold it; at best effort nobody is named.

        Raises:
            PartialError: some nodes did not confirm it; its report says which, and why.
            RequestError: a bad or too large payload, or a bad topic or timeout.
            NoQuorumError: this node stands aside.
            NoDaemonError: the daemon is gone; `sent` says whether it may have taken the message.
        """
        checked = checked_payload(payload)
        check_timeout(timeout)
        if quality == "reliable" and len(checked) > PAYLOAD_BYTES_MAX:
            return await self._broadcast_long(checked, topic, timeout)
        params = _checked(checked, topic, quality)
        return _report(await self._connection.ask_in_time("broadcast", params, timeout))

    async def _broadcast_long(self, payload: bytes, topic: str, timeout_s: float) -> Report:
        until_s = asyncio.get_running_loop().time() + timeout_s

        async def ask_piece(params: dict[str, Any]) -> Report:
            left_s = max(0.001, until_s - asyncio.get_running_loop().time())
            return report_of(await self._connection.ask_in_time("broadcast_piece", params, left_s))

        _checked(b"", topic, "reliable")
        return await _broadcast_pieces(ask_piece, payload, {"topic": topic})

    async def multicast(
        self,
        destinations: Iterable[int | range],
        payload: Payload,
        *,
        topic: str = "default",
        quality: Quality = "reliable",
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> Report:
        """Send a message to one reader of a topic at each of some nodes.

        Args:
            destinations: node ids, and ranges of them.
            payload, topic, timeout: as of `broadcast`.
            quality: "reliable": as by a `send` to each, in order with those, at most 512 of them;
                what others did not confirm was confirmed by those that the report names.
                "best-effort": at most once. Both share a way as long as they can.

        Raises:
            PartialError: as `broadcast`; with `reconnect` also where the daemon is or goes away: its
                report has an `UnreachableError` for each destination of a reliable one.
            RequestError, NoQuorumError, NoDaemonError: as `broadcast`.
        """
        check_timeout(timeout)
        params = _checked(checked_payload(payload), topic, quality)
        ranges = _ranges(destinations)
        params["destinations"] = ranges
        if quality != "reliable":
            return _report(await self._connection.ask_in_time("multicast", params, timeout))
        ids = _ids(ranges)
        try:
            return _report(await self._connection.ask_in_time("multicast", params, timeout))
        except (NoDaemonError, SilentDaemonError) as error:
            if not self._connection.lasts:
                raise
            lost = {each: UnreachableError(each, str(error), sent=error.sent) for each in ids}
            raise PartialError(Report(frozenset(), lost)) from None


async def _broadcast_pieces(
    ask_piece: Callable[[dict[str, Any]], Any], payload: bytes, params: dict[str, Any]
) -> Report:
    """Send a message in pieces, `PIECES_UNDERWAY` at a time.

    Args:
        ask_piece: sends one, and returns its report.
        payload: as `checked_payload` gave it.
        params: of every piece.

    Raises:
        PartialError: some nodes have not confirmed each piece.
        BmgdError: whatever a piece fails with; those that follow are not sent. `sent` is that of
            the whole: whether any piece may have been taken.
    """
    size = len(payload)
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
        error = _first_of(group)
        if confirmed is not None or any(map(_may_be_taken, underway)):
            error = with_sent(error, sent=True)
        raise error from None
    # A frozenset less the keys of a dict would be a set.
    report = Report((confirmed or frozenset()).difference(failed), failed)
    if failed:
        raise PartialError(report)
    return report


def _first_of(group: BaseExceptionGroup[BmgdError]) -> BmgdError:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _may_be_taken(asking: asyncio.Task[Report]) -> bool:
    """Whether a piece is confirmed, or in doubt."""
    if not asking.done() or asking.cancelled():
        return False
    error = asking.exception()
    return error is None or (isinstance(error, ControlError | DeliveryError) and error.sent)


def missed_of(value: Any) -> Missed | None:
    """The `Missed` that an item of a subscription tells of; None where it is something else."""
    match value:
        case {
            "missed": {
                "source": int(source),
                "incarnation": int(incarnation),
                "first": int(first),
                "last": int(last),
            }
        }:
            return Missed(source, first, last, incarnation)
    return None


def _checked(payload: bytes, topic: str, quality: str) -> dict[str, Any]:
    size = len(payload)
    if size > PAYLOAD_BYTES_MAX:
        raise RequestError(f"the payload has {size} bytes, at most {PAYLOAD_BYTES_MAX} fit")
    return {"topic": checked_topic(topic), "payload": payload, "quality": quality}


def _ranges(destinations: Iterable[int | range]) -> list[tuple[int, int]]:
    found = 0
    for item in destinations:
        ids = item if isinstance(item, range) else _one_id(item)
        # Its ends are enough: a range may be longer than anybody has time to walk through.
        if ids and not (0 <= ids[0] < ID_SET_SPACE and 0 <= ids[-1] < ID_SET_SPACE):
            raise RequestError(f"destinations are node ids below {ID_SET_SPACE}, not {item}")
        for each in ids if ids.step != 1 else ():
            found |= 1 << each
        if ids.step == 1:
            found |= ids_between(ids.start, ids.stop)
    if not found:
        raise RequestError("a multicast needs a destination")
    return runs_in(found)


def _ids(ranges: list[tuple[int, int]]) -> list[int]:
    """The destinations of a reliable multicast; not walked through where they are too many."""
    count = sum(last + 1 - first for first, last in ranges)
    if count > ENTRIES_MAX:
        raise RequestError(f"a reliable multicast has at most {ENTRIES_MAX} destinations")
    return [each for first, last in ranges for each in range(first, last + 1)]


def _one_id(item: int) -> range:
    # True would be node 1.
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise RequestError(f"destinations are node ids and ranges of them, not {item!r}")
    return range(index(item), index(item) + 1)


def _report(value: Any) -> Report:
    report = report_of(value)
    if report.failed:
        raise PartialError(report)
    return report


def report_of(value: Any) -> Report:
    """The report that a daemon answers with."""
    match value:
        case {"confirmed": list(confirmed), "failed": list(failed)}:
            return Report(frozenset(confirmed), dict(_failure(item) for item in failed))
    raise ProtocolError("not a report")


def _failure(value: Any) -> tuple[int, DeliveryError]:
    match value:
        case {
            "id": int(node_id),
            "error": str(name),
            "detail": str(detail),
            "sent": bool(sent),
        }:
            error = error_of(name, detail, {"destination": node_id, "detail": detail})
            if isinstance(error, DeliveryError):
                error.sent = sent
                return node_id, error
    raise ProtocolError("not a failure")
