"""The Python client: what a program imports to use its daemon.

    async with bmgd.connect("unix:/run/bmgd/3.sock") as daemon:
        await daemon.send(7, b"payload", topic="jobs")
        async with daemon.subscribe("jobs") as messages:
            async for message in messages: ...
        async with daemon.membership() as changes:
            async for change in changes: ...

One connection carries any number of requests and streams at a time. Every wait has a bound: a
daemon that does not answer gives `SilentDaemonError`, one that goes away `NoDaemonError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from bmgd.config import control_path
from bmgd.connection import Connection, Stream, open_connection
from bmgd.errors import ProtocolError, RequestError
from bmgd.to_many import Missed, SendsToMany, missed_of
from bmgd.wire.control import BROADCASTS_MAX, CREDIT_MAX
from bmgd.wire.messages import PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX

__all__ = ["Change", "Daemon", "Message", "Missed", "Stream", "Trace", "connect"]

LEAVE_S: Final = 86_400.0
"""So long a daemon may take to leave: its `leave_ms` are its own matter."""
DEFAULT_TOPIC: Final = "default"
CREDIT: Final = 64
"""How many messages of a subscription wait in the program before it takes them."""

CHANGES_MAX: Final = 16_384
"""How many items of `membership` or `monitor` wait before the stream ends with an error."""

GRACE_S: Final = 5.0
"""How much longer than its own timeout a daemon may take to answer."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came to this node.

    Args:
        source: the node id that sent it.
        topic: the topic that it was sent to.
        payload: at most 65,536 bytes.
        broadcast: whether it was sent to every reader, and not to this one alone.
    """

    source: int
    topic: str
    payload: bytes = field(repr=False)
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What the daemon believes of a node id from now on.

    Args:
        id: the node id.
        status: "expected", "alive", "dead", "excluded" or "left".
        incarnation: the life that is meant; 0 when not known.
        version: raised by a living node to refute a false accusation.
        revision: counts the changes that the daemon has seen, without a gap; equal for the
            items of the snapshot at the beginning.
        address: where the daemon of that node can be dialled.
    """

    id: int
    status: str
    incarnation: int
    version: int
    revision: int
    address: str = ""


class Trace(NamedTuple):
    """The path of a probe.

    Args:
        path: the node ids that it went through, both ends included.
        seconds: from sending it to its return.
    """

    path: tuple[int, ...]
    seconds: float


class Daemon(SendsToMany):
    """A daemon as a program sees it; made by `connect`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(
        self,
        destination: int,
        payload: bytes,
        *,
        topic: str = DEFAULT_TOPIC,
        timeout: float = 10.0,  # noqa: ASYNC109 (the daemon keeps it, not this loop)
    ) -> None:
        """Send a message; returns when the destination's daemon has taken it.

        Args:
            destination: a node id.
            payload: at most 65,536 bytes.
            topic: 1 to 255 bytes.
            timeout: seconds until the daemon gives up, above 0.

        Raises:
            DeadError: the destination is dead, excluded or has left.
            UnreachableError: no confirmation before the timeout.
            QueueFullError: the destination has too many unread messages of that topic.
            NewLifeError: the destination restarted; its former life may have taken the message.
            RequestError: no such node, too large a payload, or a bad topic or timeout.
            NoDaemonError: the daemon is gone.
        """
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise RequestError(
                f"a payload is bytes, not {type(payload).__name__}: encode a text with .encode()"
            )
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise RequestError(
                f"the payload has {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} fit"
            )
        params = {
            "destination": destination,
            "topic": _checked_topic(topic),
            "payload": bytes(payload),
            "timeout": timeout,
        }
        await self._connection.ask("send", params, timeout + GRACE_S)

    async def status(self) -> dict[str, Any]:
        """What ``bmgd status --json`` prints.

        Raises:
            NoDaemonError: the daemon is gone.
            SilentDaemonError: no answer within `ANSWER_S`.
        """
        value: dict[str, Any] = await self._connection.ask("status", {})
        return value

    async def reload(self) -> dict[str, Any]:
        """Let the daemon read its secrets and certificates anew: ``{"changed": …, "keys": […]}``.

        Raises:
            RequestError: what the files hold cannot be used; nothing was changed.
        """
        value: dict[str, Any] = await self._connection.ask("reload", {})
        return value

    async def record(self) -> dict[str, Any]:
        """Let the daemon write its flight recording to a file on its machine, for `bmgd replay`.

        Returns:
            ``{"path": …, "steps": …, "seconds": …}``; the file is there when it is whole.

        Raises:
            RequestError: nothing is recorded, or no file can be written.
        """
        value: dict[str, Any] = await self._connection.ask("record", {})
        return value

    async def cluster(self) -> dict[str, Any]:
        """The whole cluster as this daemon sees it: ``summary``, ``members``, ``reports`` of the nodes.

        The daemon asks the others while somebody looks: the first answer has few reports, and one a
        second later all.

        Raises: as `status`; RequestError when the answer is too long for a frame.
        """
        value: dict[str, Any] = await self._connection.ask("cluster", {})
        return value

    async def members(self) -> list[dict[str, Any]]:
        """A dict for every node id: ``id, status, incarnation, version, address``; sorted by id.

        Raises: as `status`; RequestError when the answer is too long for a frame.
        """
        value: dict[str, Any] = await self._connection.ask("members", {})
        members: list[dict[str, Any]] = value["members"]
        return members

    async def links(self) -> list[dict[str, Any]]:
        """A dict for every link that is up: ``id, dialled_by, state`` and more; sorted by id.

        Raises: as `status`.
        """
        value: list[dict[str, Any]] = await self._connection.ask("links", {})
        return value

    async def ping(
        self,
        destination: int,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> float:
        """Seconds from sending a probe to a node until it came back.

        Raises: as `trace`.
        """
        return (await self._probe("ping", destination, timeout)).seconds

    async def trace(
        self,
        destination: int,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> Trace:
        """The path that a real probe took to a node, as the nodes on it wrote it down.

        Args:
            destination: a node id.
            timeout: seconds, above 0.

        Raises:
            DeadError: the destination is dead, excluded or has left.
            UnreachableError: the probe did not come back before the timeout.
            RequestError: no such node, or a bad timeout.
            NoDaemonError: the daemon is gone.
        """
        return await self._probe("trace", destination, timeout)

    async def evict(
        self,
        node_id: int,
        *,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> bool:
        """Take a node out of the cluster: everybody is told, and its daemon ends.

        Args:
            node_id: whom.
            timeout: seconds to wait for its end, above 0.

        Returns:
            Whether it is known to have ended; False when nobody could confirm that in time. The
            others hold it to have left in either case.

        Raises:
            RequestError: no such node, this daemon itself, or a bad timeout.
            NoDaemonError: the daemon is gone.
        """
        params = {"destination": node_id, "timeout": timeout}
        outcome = await self._connection.ask("evict", params, timeout + GRACE_S)
        return bool(outcome["ended"])

    async def leave(self) -> None:
        """Let the daemon leave the cluster and end; returns when the others are told.

        Raises: as `status`.
        """
        await self._connection.ask("leave", {}, LEAVE_S)

    def subscribe(
        self, topic: str = DEFAULT_TOPIC, *, credit: int = CREDIT
    ) -> AbstractAsyncContextManager[Stream[Message]]:
        """Read the messages of a topic; registered on entry, ended on exit.

        What was not taken when the stream ends waits in the daemon for the next reader, but for
        broadcasts: those go to every reader that is there when they come. Where reliable ones were
        missed, `Missed` stands in their place: whoever reads a topic of reliable broadcasts asks
        ``isinstance(item, Missed)`` first. The stream's type leaves that out, for all other readers.

        Args:
            topic: 1 to 255 bytes.
            credit: how many messages may wait in this program, 1..1024.

        Raises (on entry):
            RequestError: a bad topic or credit, or too many subscriptions.
        """
        params = {"topic": _checked_topic(topic), "credit": credit}
        if not 1 <= credit <= CREDIT_MAX:
            raise RequestError(f"a credit is in 1..{CREDIT_MAX}, not {credit}")
        return self._connection.stream(
            "subscribe", params, _messages, credit + BROADCASTS_MAX, counts=True
        )

    def membership(self) -> AbstractAsyncContextManager[Stream[Change]]:
        """Follow the membership: one `Change` for every node id, then every change, no gap."""
        return self._connection.stream("membership", {}, _changes, CHANGES_MAX)

    def monitor(self) -> AbstractAsyncContextManager[Stream[dict[str, Any]]]:
        """Follow what the daemon observes, as dicts: ``event, peer, …``."""
        return self._connection.stream("monitor", {}, _events, CHANGES_MAX)

    async def _probe(self, verb: str, destination: int, timeout_s: float) -> Trace:
        params = {"destination": destination, "timeout": timeout_s}
        value = await self._connection.ask(verb, params, timeout_s + GRACE_S)
        return Trace(tuple(value["path"]), value["rtt_ns"] / 1e9)


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Daemon]:
    """Connect to the local daemon.

    Args:
        address: ``unix:PATH`` or a path, at most 107 bytes.

    Raises:
        ConfigError: the address has another form.
        NoDaemonError: nobody answers there.
    """
    connection = await open_connection(control_path(address))
    try:
        yield Daemon(connection)
    finally:
        connection.close()


# --- from the wire to values ----------------------------------------------------------------------


def _checked_topic(topic: str) -> str:
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        raise RequestError("the topic is not valid text") from None
    if not 1 <= length <= TOPIC_BYTES_MAX:
        raise RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes, not {length}")
    return topic


def _messages(value: Any) -> list[Message]:
    missed = missed_of(value)
    if missed is not None:
        return cast(list[Message], [missed])
    match value:
        case {
            "source": int(source),
            "topic": str(topic),
            "payload": bytes(payload),
            "broadcast": True,
        }:
            return [Message(source, topic, payload, broadcast=True)]
        case {"source": int(source), "topic": str(topic), "payload": bytes(payload)}:
            return [Message(source, topic, payload)]
    raise ProtocolError("not a message")


def _changes(value: Any) -> list[Change]:
    match value:
        case {"revision": int(revision), "members": list(members)}:
            return [_change({**member, "revision": revision}) for member in members]
    return [_change(value)]


def _change(value: Any) -> Change:
    match value:
        case {
            "id": int(node_id),
            "status": str(status),
            "incarnation": int(incarnation),
            "version": int(version),
            "revision": int(revision),
            "address": str(address),
        }:
            return Change(node_id, status, incarnation, version, revision, address)
    raise ProtocolError("not a change of the membership")


def _events(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        raise ProtocolError("not an event")
    return [value]
