"""The daemon's sockets towards other daemons: what hostile or unlucky ends do to them."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from bmgd.core.effects import Welcome
from bmgd.core.events import Event, Greeted, LinkDown
from bmgd.shell.accepting import ACCEPT_PAUSE_S
from bmgd.shell.addresses import bind_listener
from bmgd.shell.engine import Engine
from bmgd.shell.slots import SLOTS_MAX
from bmgd.shell.transport import Transport
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId
from bmgd.wire.handshake import Dialer
from bmgd.wire.hello import NONCE_BYTES, Identity


def identity(node_id: int) -> Identity:
    return Identity("test", 4, bytes(16), NodeId(node_id), f"127.0.0.1:{node_id + 1}")


class Accepting:
    """A transport of node 0 on a loop of its own, and the events that it gave."""

    def __init__(self, listener: socket.socket) -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.address = listener.getsockname()
        self.transport = Transport(
            identity(0),
            "host{id}:7400",
            listener,
            1500,
            self.events.extend,
            asyncio.ensure_future,
            lambda event, text: self.notes.append(event),
            Incarnation(1 << 32),
            Engine(),
        )
        self.transport.start()

    def has_read(self, count: int) -> bool:
        """Whether the one connection's hello has taken this many bytes."""
        waiting = self.transport.hellos._waiting.values()
        return [hello._received_bytes for hello, _ in waiting] == [count]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds, at most ten seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
async def accepting() -> AsyncIterator[Accepting]:
    made = Accepting(bind_listener("127.0.0.1:0"))
    yield made
    made.transport.stop()


async def test_a_hello_is_told_once_whatever_comes_behind_it(accepting: Accepting) -> None:
    """The core may hold a hello for a while; a byte behind it was taken for another hello."""
    nonce = bytes(range(NONCE_BYTES))
    dialer = Dialer(identity(1), Incarnation(5), NodeId(0), UNKNOWN_INCARNATION, 1, nonce)
    with socket.create_connection(accepting.address) as sock:
        sent_bytes = 0
        for data in (dialer.take_output(), b"B", b"M"):
            sock.sendall(data)
            sent_bytes += len(data)
            await until(partial(accepting.has_read, sent_bytes))
        assert [type(event) for event in accepting.events] == [Greeted]


async def test_a_welcome_for_a_hello_that_is_gone_is_a_lost_link(accepting: Accepting) -> None:
    accepting.transport.hellos.welcome(Welcome(LinkId(77), UNKNOWN_INCARNATION))
    assert accepting.events == [LinkDown(LinkId(77), Evidence.EOF)]


async def test_silent_strangers_do_not_keep_a_member_waiting(accepting: Accepting) -> None:
    """128 of them held every slot for three seconds; whoever came was closed at once."""
    strangers = [socket.create_connection(accepting.address) for _ in range(SLOTS_MAX)]
    await until(lambda: len(accepting.transport.hellos._waiting) == SLOTS_MAX)
    nonce = bytes(range(NONCE_BYTES))
    dialer = Dialer(identity(1), Incarnation(5), NodeId(0), UNKNOWN_INCARNATION, 1, nonce)
    with socket.create_connection(accepting.address) as sock:
        sock.sendall(dialer.take_output())
        await until(lambda: bool(accepting.events))
        assert [type(event) for event in accepting.events] == [Greeted]
        # It waits for the core now, and is in nobody's slot: more strangers do not drive it out.
        strangers += [socket.create_connection(accepting.address) for _ in range(2 * SLOTS_MAX)]
        await until(lambda: len(accepting.transport.hellos._waiting) == SLOTS_MAX + 1)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    for stranger in strangers:
        stranger.close()


class Exhausted(socket.socket):
    """A listener of a process that has no descriptor left."""

    calls = 0

    def accept(self) -> tuple[socket.socket, object]:
        Exhausted.calls += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_without_descriptors_the_listener_is_not_spun_on() -> None:
    plain = bind_listener("127.0.0.1:0")
    listener = Exhausted(fileno=plain.detach())
    accepting = Accepting(listener)
    began_s = time.monotonic()
    with socket.create_connection(accepting.address):
        await until(lambda: Exhausted.calls >= 4)
    accepting.transport.stop()
    assert time.monotonic() - began_s >= 2.9 * ACCEPT_PAUSE_S
    assert accepting.notes == ["accept"] * Exhausted.calls
