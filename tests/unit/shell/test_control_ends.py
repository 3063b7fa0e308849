"""Connections of programs that end: once, on either loop, and nothing is raised in the loop for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bmgd.client.reconnecting import LastingConnection
from bmgd.shell import control_connection as connection_module
from bmgd.shell.access import Level, Peer
from bmgd.shell.control_connection import ProgramConnection
from bmgd.shell.turns import Turns
from bmgd.wire.control import Frame
from bmgd.wire.control_reader import ReadBuffer

BACKLOG = bytes(1 << 20)
LINGER_S = 0.25
"""Far above what the other end takes to read everything, while this process runs now and then only."""
DEADLINE_S = 10.0


class Server:
    """Admits everybody."""

    def __init__(self) -> None:
        self.read_buffer = ReadBuffer()
        self.turns = Turns()
        self.lingering: set[ProgramConnection] = set()
        self.admitted: asyncio.Queue[ProgramConnection] = asyncio.Queue()

    def admit(self, program: ProgramConnection, _: Peer) -> Level:
        self.admitted.put_nowait(program)
        return Level.EVERYTHING

    def on_frame(self, program: ProgramConnection, frame: Frame) -> None:
        """Nothing is asked."""

    def forget(self, program: ProgramConnection) -> None:
        """Nothing is known."""


def errors_of(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    """What is raised in callbacks of the loop."""
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    return errors


async def all_of(sock: socket.socket) -> int:
    """Read until the other end says no more."""
    loop, count = asyncio.get_running_loop(), 0
    async with asyncio.timeout(DEADLINE_S):
        while data := await loop.sock_recv(sock, 1 << 16):
            count += len(data)
    return count


def half_close(program: ProgramConnection, sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def finish(program: ProgramConnection, sock: socket.socket) -> None:
    program.finish()
    sock.shutdown(socket.SHUT_WR)


def close(program: ProgramConnection, _: socket.socket) -> None:
    program.close()


async def ends_cleanly(path: Path, end: Callable[[ProgramConnection, socket.socket], None]) -> None:
    """A program ends, or is ended, with a backlog; then it reads everything, and time passes."""
    loop, server = asyncio.get_running_loop(), Server()
    errors = errors_of(loop)
    listening = await loop.create_unix_server(lambda: ProgramConnection(server), str(path))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, str(path))
        program = await server.admitted.get()
        assert program._transport is not None
        program._transport.write(BACKLOG[: connection_module.PAUSE_BYTES])
        end(program, sock)
        assert await all_of(sock) == connection_module.PAUSE_BYTES
        cut = asyncio.Event()
        loop.call_later(2 * LINGER_S, cut.set)
        await cut.wait()
    listening.close()
    assert errors == []
    assert not server.lingering


@pytest.mark.parametrize("end", [half_close, finish, close])
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_that_ends_with_a_backlog_is_cut_at_most_once(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    end: Callable[[ProgramConnection, socket.socket], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "LINGER_S", LINGER_S)
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(ends_cleanly(tmp_path / "d.sock", end))


async def is_cut_while_it_writes(path: Path) -> None:
    """Its daemon says no more, and reads on what a program has written."""
    loop = asyncio.get_running_loop()
    errors = errors_of(loop)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        connection = LastingConnection(str(path))
        await loop.create_unix_connection(lambda: connection, str(path))
        daemon, _ = listening.accept()
        with daemon:
            daemon.setblocking(False)
            assert connection._transport is not None
            connection._transport.write(BACKLOG)
            daemon.shutdown(socket.SHUT_WR)
            await all_of(daemon)
    for _ in range(3):
        await asyncio.sleep(0)
    assert errors == []


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_lasting_connection_that_is_cut_while_it_writes_ends_once(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(is_cut_while_it_writes(tmp_path / "d.sock"))
