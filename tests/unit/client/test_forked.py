"""Processes that are forked from a program."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import bmgd
from bmgd.client.forked import forget, keep_from_children
from bmgd.core.commands import Unregister
from tests.unit.fake_core import FakeCore


@contextmanager
def forked() -> Iterator[int]:
    """A child that does nothing, and ends with the block; gives what `os.fork` returned."""
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def test_program_ends_at_its_daemon_though_a_child_of_it_lives(core: FakeCore) -> None:
    async with bmgd.connect(core.address) as program, program.register("trainer"):
        with forked() as child:
            transport = program._connection._transport
            assert transport is not None
            # As a kill would: nothing is told, and the process holds the socket no more.
            transport.abort()
            await core.until_told(lambda: isinstance(core.told[-1][1], Unregister))
            os.kill(child, 0)


async def test_children_do_not_disturb_the_connection(core: FakeCore) -> None:
    async with bmgd.connect(core.address) as program:
        for _ in range(3):
            with forked():
                assert (await program.status())["state"] == "ready"
        assert (await program.status())["state"] == "ready"


def test_descriptor_that_is_of_another_file_by_now_is_left_to_the_child() -> None:
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    descriptor = ours.fileno()
    keep_from_children(descriptor)
    ours.close()
    theirs.close()
    os.dup2(writing, descriptor)
    child = os.fork()
    if not child:
        os.write(descriptor, b"mine")
        os._exit(0)
    os.waitpid(child, 0)
    forget(descriptor)
    os.close(descriptor)
    os.close(writing)
    assert os.read(reading, 10) == b"mine"
    os.close(reading)
