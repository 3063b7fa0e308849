"""Fake daemons that go and come again, and what a program had open meanwhile."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import bmgd
from bmgd.client.reconnecting import LastingConnection
from bmgd.core.commands import OpenStream, PutSegment
from bmgd.types import NodeId
from tests.unit.fake_core import FakeCore, fake_daemon


class Unopened(FakeCore):
    """Never says that a stream is open."""

    def open_stream(self, request: int, destination: NodeId) -> None:
        pass


def asks_for_stream(core: FakeCore) -> bool:
    return any(isinstance(command, OpenStream) for _, command in core.told)


def put(core: FakeCore) -> list[PutSegment]:
    return [command for _, command in core.told if isinstance(command, PutSegment)]


async def cut_stream(block: AsyncExitStack, path: Path, *, flushes: bool = True) -> bmgd.Writer:
    """A stream that has carried a message, until the block ends; its daemon is gone."""
    async with fake_daemon(path) as core:
        daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        stream = await block.enter_async_context(daemon.stream(1, "jobs"))
        await stream.write(b"x")
        if flushes:
            await stream.flush()
        while stream.confirmed != 1:
            # Each answer comes behind what was told before it.
            await daemon.status()
        connection = daemon._connection
        assert isinstance(connection, LastingConnection)
        gone = connection._changed
    await gone.wait()
    return stream
