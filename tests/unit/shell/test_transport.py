"""The daemon's sockets towards other daemons: what hostile or unlucky ends do to them."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from bmgd.core.effects import Dial, Welcome
from bmgd.core.events import DialFailed, Event, Greeted, LinkDown
from bmgd.shell.accepting import ACCEPT_PAUSE_S
from bmgd.shell.addresses import bind_listener
from bmgd.shell.engine import Engine
from bmgd.shell.resolver import Found, Resolver
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
        self.notes: list[tuple[str, str]] = []
        self.address = listener.getsockname()
        self.transport = Transport(
            identity(0),
            "host{id}:7400",
            listener,
            1500,
            self.events.extend,
            asyncio.ensure_future,
            lambda event, text: self.notes.append((event, text)),
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
    assert [event for event, _ in accepting.notes] == ["accept"] * Exhausted.calls


@pytest.mark.parametrize(
    ("number", "evidence"),
    [
        (errno.EMFILE, Evidence.OWN_LACK),
        (errno.ENFILE, Evidence.OWN_LACK),
        (errno.ENOBUFS, Evidence.OWN_LACK),
        (errno.EHOSTUNREACH, Evidence.NO_ANSWER),
    ],
)
async def test_dial_without_a_descriptor_says_nothing_of_the_peer(
    accepting: Accepting, monkeypatch: pytest.MonkeyPatch, number: int, evidence: Evidence
) -> None:
    def fail(*_: object) -> socket.socket:
        raise OSError(number, "none left")

    monkeypatch.setattr(socket, "socket", fail)
    dial = Dial(NodeId(1), "127.0.0.1:9", UNKNOWN_INCARNATION, 1, 10**9)
    accepting.transport.dials.dial(dial)
    assert accepting.events == [DialFailed(NodeId(1), evidence)]


@pytest.mark.parametrize(
    ("error", "evidence"),
    [
        (OSError(errno.ENOMEM, "no thread"), Evidence.OWN_LACK),
        (socket.gaierror(socket.EAI_MEMORY, "none left"), Evidence.OWN_LACK),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), Evidence.NO_ANSWER),
        (OSError("not a name"), Evidence.NO_ANSWER),
    ],
)
async def test_lookup_without_resources_says_nothing_of_the_peer(
    accepting: Accepting, monkeypatch: pytest.MonkeyPatch, error: OSError, evidence: Evidence
) -> None:
    async def fail(*_: object) -> Found:
        raise error

    monkeypatch.setattr(Resolver, "resolve", fail)
    dial = Dial(NodeId(1), "nobody.example:9", UNKNOWN_INCARNATION, 1, 10**9)
    accepting.transport.dials.dial(dial)
    await until(lambda: bool(accepting.events))
    assert accepting.events == [DialFailed(NodeId(1), evidence)]
    said = "node 1 at nobody.example:9: its name was not found: "
    assert accepting.notes == [("not linked", said + (error.strerror or "not a name"))]


async def test_lookup_that_ends_after_its_node_tells_nobody(
    accepting: Accepting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A displaced node's lookups are still underway when its process is another node."""
    answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    async def wait(*_: object) -> Found:
        return await answer

    monkeypatch.setattr(Resolver, "resolve", wait)
    for number in (1, 2):
        dial = Dial(NodeId(number), f"nobody{number}.example:9", UNKNOWN_INCARNATION, 1, 10**9)
        accepting.transport.dials.dial(dial)
    await asyncio.sleep(0)
    accepting.transport.stop()
    answer.set_result((socket.AF_INET, ("127.0.0.1", 9)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert accepting.events == []
    assert not accepting.transport.dials._dials


async def test_link_ids_of_a_process_are_never_used_again(accepting: Accepting) -> None:
    first = accepting.transport.own.new_link()
    other = Accepting(bind_listener("127.0.0.1:0"))
    assert other.transport.own.new_link() > first
    other.transport.stop()
