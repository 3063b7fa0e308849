"""Registered programs, as programs see them: who runs where, under which name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, NamedTuple

from bmgd.client.arguments import checked_name
from bmgd.client.connection import ANSWER_S, Connection
from bmgd.errors import (
    ControlError,
    LeavingError,
    ProtocolError,
    RequestError,
    SilentDaemonError,
)
from bmgd.wire.program_news import EXIT_MAX

_FAILED: Final = 1
_BATCHES: Final = 1024


class Program(NamedTuple):
    """A registered program that runs.

    Attributes:
        id: the node id of its daemon.
        incarnation: the life of its daemon.
        name: unique among the programs of that daemon.
    """

    id: int
    incarnation: int
    name: str


class ProgramEnd(NamedTuple):
    """A registered program that ended.

    Attributes:
        id, incarnation, name: as of its `Program`.
        exit: its exit code; None where it is not known: killed, or its daemon is gone.
    """

    id: int
    incarnation: int
    name: str
    exit: int | None


@asynccontextmanager
async def registered(connection: Connection, name: str) -> AsyncIterator[None]:
    """See `bmgd.Daemon.register`."""

    async def tell_end(
        _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if stream.over or connection.lost is not None:
            # A daemon that is gone tells of the end itself.
            return
        exit_code = 0 if error is None else _exit_code_of(error)
        with suppress(ControlError):
            params = {"registration": stream.sequence, "exit": exit_code}
            await connection.ask("unregister", params)

    async with (
        connection.stream("register", {"name": checked_name(name)}, _nothing, 1) as stream,
        AsyncExitStack() as block,
    ):
        block.push_async_exit(tell_end)
        yield
    if isinstance(stream.error, RequestError | LeavingError):
        # Its daemon was restarted, and did not take the name again.
        raise stream.error


def _exit_code_of(error: BaseException) -> int:
    """How a program ends that leaves its block by this exception."""
    match error:
        case SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)) if -EXIT_MAX <= code <= EXIT_MAX:
            # True, and the members of an IntEnum, are no integers to the daemon.
            return int(code)
    return _FAILED


async def running(connection: Connection) -> list[Program]:
    """See `bmgd.Daemon.running_programs`."""

    def read(value: Any) -> list[list[Program | ProgramEnd]]:
        return [read_programs(value)]

    async with connection.stream("programs", {}, read, _BATCHES) as batches:
        try:
            async with asyncio.timeout(ANSWER_S):
                snapshot = await anext(batches)
        except TimeoutError:
            text = f"the daemon has not told of any programs for {ANSWER_S:g} s"
            raise SilentDaemonError(text) from None
    return [each for each in snapshot if isinstance(each, Program)]


def _nothing(value: Any) -> list[None]:
    raise ProtocolError("a registration has no items")


def read_programs(value: Any) -> list[Program | ProgramEnd]:
    """An item of the stream `programs`.

    Raises:
        ProtocolError: it is no such item.
    """
    match value:
        case {"programs": list(rows)} | {"changes": list(rows)}:
            return [_program(row) for row in rows]
    raise ProtocolError("not programs")


def _program(row: Any) -> Program | ProgramEnd:
    match row:
        case {"id": int(node), "incarnation": int(life), "name": str(name), "exit": exit_code} if (
            exit_code is None or type(exit_code) is int
        ):
            return ProgramEnd(node, life, name, exit_code)
        case {"id": int(node), "incarnation": int(life), "name": str(name)}:
            return Program(node, life, name)
    raise ProtocolError("not a program")
