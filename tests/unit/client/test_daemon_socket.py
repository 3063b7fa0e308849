"""Many streams write to one socket: none keeps the others from it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from bmgd.client.connection import Connection

DEADLINE_S = 10.0
PIECE = bytes(65_536)


class Greedy:
    """A stream that always has more to put."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.put = 0

    def on_writable(self) -> None:
        while self._connection.may_write(self):
            assert self._connection._transport is not None
            self._connection._transport.write(PIECE)
            self.put += 1


class GreedyTask(Greedy):
    """One that puts from a task, which is woken when it may: as a long message does."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._may = asyncio.Event()

    def on_writable(self) -> None:
        self._may.set()

    async def go_on(self) -> None:
        while True:
            super().on_writable()
            self._may.clear()
            await self._may.wait()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Connection, socket.socket]]:
    """A connection, and the socket of its daemon."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, sock=ours)
    try:
        yield connection, theirs
    finally:
        theirs.close()
        connection.close()
        await connection.until_closed()


async def read_pieces(theirs: socket.socket, count: int) -> None:
    loop = asyncio.get_running_loop()
    left = count * len(PIECE)
    async with asyncio.timeout(DEADLINE_S):
        while left > 0:
            left -= len(await loop.sock_recv(theirs, 100_000))


async def test_streams_write_in_turn_where_the_socket_is_full(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    first, second, third = (Greedy(connection) for _ in range(3))
    for stream in (first, second):
        stream.on_writable()
    await read_pieces(theirs, 100)
    third.on_writable()
    await read_pieces(theirs, 200)
    assert min(first.put, second.put, third.put) > 50


async def test_task_of_a_long_message_has_its_turn_too(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    stream, long = Greedy(connection), GreedyTask(connection)
    stream.on_writable()
    going_on = asyncio.create_task(long.go_on())
    await read_pieces(theirs, 200)
    assert min(stream.put, long.put) > 50
    going_on.cancel()
    await asyncio.wait((going_on,))


async def test_newcomer_does_not_overtake_who_waits(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, theirs = ends
    first, second, late = (Greedy(connection) for _ in range(3))
    first.on_writable()
    assert not connection.may_write(second)
    # There is room, and the next turn of the loop is that of who waits.
    connection._uncrowded.set()
    assert not connection.may_write(late)
    connection._uncrowded.clear()
    await read_pieces(theirs, 100)
    assert second.put > 0
