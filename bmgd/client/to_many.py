"""Messages from one program to many nodes: broadcasts and multicasts, and what is told of them.

A long broadcast goes in pieces. Each is a reliable broadcast, so all nodes get it or none, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from bmgd.client.arguments import (
    DEFAULT_TOPIC,
    Payload,
    Priority,
    Quality,
    check_quality,
    check_timeout,
    checked_payload,
    checked_topic,
    id_ranges,
    listed,
)
from bmgd.client.backlog import says_sent, with_sent
from bmgd.client.broadcast_pieces import broadcast_in_pieces
from bmgd.client.connection import Connection
from bmgd.client.deadlines import left_until
from bmgd.client.long_multicasts import multicast_singly
from bmgd.errors import (
    BmgdError,
    DeliveryError,
    NoDaemonError,
    PartialError,
    ProtocolError,
    Report,
    RequestError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from bmgd.wire.control_errors import error_of


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


class SendsToOne(Protocol):
    """What sends to one node, as `bmgd.Daemon.send` does."""

    async def send(
        self,
        destination: int,
        payload: Payload,
        topic: str,
        timeout: float,  # noqa: ASYNC109
        priority: Priority,
        quality: Quality,
    ) -> None:
        """Send a message; returns when it is confirmed."""


class SendsToMany:
    """The part of `bmgd.Daemon` that sends to many nodes at once."""

    _connection: Connection
    _streams: SendsToOne

    async def broadcast(
        self,
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
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
        check_quality(quality)
        with self._connection.sending.one():
            if quality == "reliable" and len(checked) > PAYLOAD_BYTES_MAX:
                return await self._broadcast_long(checked, topic, timeout)
            params = _checked(checked, topic, quality)
            return _report(await self._connection.ask_in_time("broadcast", params, timeout))

    async def _broadcast_long(self, payload: bytes, topic: str, timeout_s: float) -> Report:
        connection, loop = self._connection, asyncio.get_running_loop()
        until_s = loop.time() + timeout_s

        async def ask_piece(params: dict[str, Any], on_asked: Callable[[], None]) -> Report:
            left_s = left_until(until_s)
            answer = await connection.ask_this_daemon("broadcast_piece", params, left_s, on_asked)
            connection.long_bytes += len(params["payload"])
            return report_of(answer)

        _checked(b"", topic, "reliable")
        # A reader puts together what came of one life of the source only.
        return await connection.with_one_daemon(
            timeout_s, lambda _: broadcast_in_pieces(ask_piece, payload, {"topic": topic})
        )

    async def multicast(
        self,
        destinations: Iterable[int | range],
        payload: Payload,
        *,
        topic: str = DEFAULT_TOPIC,
        quality: Quality = "reliable",
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> Report:
        """Send a message to one reader of a topic at each of some nodes.

        Args:
            destinations: node ids, and ranges of them.
            payload, topic, timeout: as of `broadcast`.
            quality: "reliable": as by a `send` to each, in order with those, at most 512 of them;
                what others did not confirm was confirmed by those that the report names.
                "best-effort": at most once. Both share a way as long as they can. What is longer than
                65,536 bytes goes to each singly, to a few at a time, as by a `send`.

        Raises:
            PartialError: as `broadcast`; with `reconnect` also where the daemon is or goes away: its
                report has an `UnreachableError` for each destination of a reliable one.
            RequestError, NoQuorumError, NoDaemonError: as `broadcast`.
        """
        check_timeout(timeout)
        checked = checked_payload(payload)
        check_quality(quality)
        with self._connection.sending.one():
            return await self._multicast(id_ranges(destinations), checked, topic, quality, timeout)

    async def _multicast(
        self,
        ranges: list[tuple[int, int]],
        checked: bytes,
        topic: str,
        quality: Quality,
        timeout: float,  # noqa: ASYNC109
    ) -> Report:
        if quality == "reliable" and len(checked) > PAYLOAD_BYTES_MAX:
            checked_topic(topic)
            return await self._multicast_long(listed(ranges), checked, topic, timeout)
        params = _checked(checked, topic, quality)
        params["destinations"] = ranges
        if quality != "reliable":
            return _report(await self._connection.ask_in_time("multicast", params, timeout))
        ids = listed(ranges)
        try:
            return _report(await self._connection.ask_in_time("multicast", params, timeout))
        except (NoDaemonError, SilentDaemonError) as error:
            raise self._unanswered(ids, error) from None

    async def _multicast_long(
        self, ids: list[int], payload: bytes, topic: str, timeout_s: float
    ) -> Report:
        until_s = asyncio.get_running_loop().time() + timeout_s
        try:
            await self._check_known(ids, timeout_s)
        except (NoDaemonError, SilentDaemonError) as error:
            raise self._unanswered(ids, with_sent(error, sent=False)) from None

        async def send(node_id: int, within_s: float) -> None:
            await self._streams.send(node_id, payload, topic, within_s, "normal", "reliable")

        left_s = until_s - asyncio.get_running_loop().time()
        return await multicast_singly(send, ids, left_s, lasts=self._connection.lasts)

    async def _check_known(self, ids: list[int], within_s: float) -> None:
        """Refuse a multicast to an id that no node has before anything of it is sent."""
        try:
            members = (await self._connection.ask("members", {}, within_s))["members"]
        except RequestError:
            # More than a list holds: such an id fails when its turn comes.
            return
        unknown = sorted(set(ids) - {member["id"] for member in members})
        if unknown:
            raise RequestError(f"no node has the id {unknown[0]}")

    def _unanswered(self, ids: list[int], error: BmgdError) -> BmgdError:
        """The error of a reliable multicast whose daemon has not told what became of it."""
        if not self._connection.lasts:
            return error
        sent = says_sent(error)
        lost: dict[int, DeliveryError] = {
            each: UnreachableError(each, str(error), sent=sent) for each in ids
        }
        return PartialError(Report(frozenset(), lost))


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
        text = f"the payload has {size} bytes, at most {PAYLOAD_BYTES_MAX} fit by best effort"
        raise RequestError(text)
    return {"topic": checked_topic(topic), "payload": payload, "quality": quality}


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
            if not isinstance(error, DeliveryError):
                # One of a later release: who has confirmed counts all the same.
                error = UnreachableError(node_id, f"{name}: {detail}")
            error.sent = sent
            return node_id, error
    raise ProtocolError("not a failure")
