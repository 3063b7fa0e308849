"""What a daemon shows of itself and of its cluster: at once, or as it changes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bmgd.client.arguments import check_destination, check_timeout
from bmgd.client.connection import Connection
from bmgd.client.items import Stream
from bmgd.client.program_stream import followed
from bmgd.client.programs import Program, ProgramEnd, running
from bmgd.errors import ProtocolError

CHANGES_MAX: Final = 16_384
"""How many items of `membership` or `monitor` wait before the stream ends with an error."""


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


class ShowsCluster:
    """The part of `bmgd.Daemon` that shows what its daemon knows."""

    _connection: Connection

    async def status(self) -> dict[str, Any]:
        """What ``bmgd status --json`` prints.

        Raises:
            NoDaemonError: the daemon is gone.
            SilentDaemonError: no answer within `ANSWER_S`.
        """
        value: dict[str, Any] = await self._connection.ask("status", {})
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

    def membership(self) -> AbstractAsyncContextManager[Stream[Change]]:
        """Follow the membership: one `Change` for every node id, then every change, no gap."""
        return self._connection.stream("membership", {}, _changes, CHANGES_MAX)

    def programs(self) -> AbstractAsyncContextManager[Stream[Program | ProgramEnd]]:
        """Follow the registered programs of all nodes: those that run, then every start and end.

        What a node that is held alive runs comes without a gap. When a node is dead, has left or begins a
        new life, its programs end; those of one that was dead by mistake start again. Of a program that
        started and ended while its node was out of reach nothing is told. After a restart of this daemon
        (``reconnect=True``) an end that it does not tell of is told 5 s later: it asks the others first.
        """
        return followed(self._connection, CHANGES_MAX)

    async def running_programs(self) -> list[Program]:
        """The registered programs of all nodes that are held alive, sorted by id.

        Raises: as `status`.
        """
        return await running(self._connection)

    def monitor(self) -> AbstractAsyncContextManager[Stream[dict[str, Any]]]:
        """Follow what the daemon observes, as dicts: ``event, peer, …``."""
        return self._connection.stream("monitor", {}, _events, CHANGES_MAX)

    async def _probe(self, verb: str, destination: int, timeout_s: float) -> Trace:
        check_destination(destination)
        check_timeout(timeout_s)
        params = {"destination": destination}
        value = await self._connection.ask_in_time(verb, params, timeout_s)
        return Trace(tuple(value["path"]), value["rtt_ns"] / 1e9)


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
