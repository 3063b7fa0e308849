"""The fault proxy on real sockets, with plain listeners in place of daemons."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from bmgd.chaos.faults import Slow, read_fault
from bmgd.errors import RequestError
from bmgd.launcher.detour import Detour
from bmgd.trials.gate import listens
from bmgd.trials.impairments import Slowness
from bmgd.trials.proxy import Proxy, _Orders
from bmgd.trials.splice import STRANGER, ends_of
from bmgd.types import Incarnation, NodeId
from bmgd.wire.handshake import Dialer
from bmgd.wire.hello import Identity

DEADLINE_S = 10.0
POLL_S = 0.005


def hello_of(node_id: int, to: int = 0, address: str = "127.0.0.1:1") -> bytes:
    """What a dialer of this id says first."""
    identity = Identity("test", 8, bytes(16), NodeId(node_id), address, (b"secret",))
    return Dialer(
        identity, Incarnation(1 << 32), NodeId(to), Incarnation(0), 1, bytes(16)
    ).take_output()


async def until(predicate: Callable[[], bool]) -> None:
    """Wait until a condition holds, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


class Peer:
    """A listener in place of a daemon, or one end of a connection through the proxy."""

    def __init__(self) -> None:
        self.received = b""
        self.ended: str | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read everything until the end, and remember how it came."""
        self._writer = writer
        try:
            while data := await reader.read(1 << 16):
                self.received += data
            self.ended = "eof"
        except ConnectionResetError:
            self.ended = "reset"

    def send(self, data: bytes) -> None:
        """Write to the other end."""
        assert self._writer is not None
        self._writer.write(data)

    def close(self) -> None:
        """Close this end."""
        assert self._writer is not None
        self._writer.close()


class Bench:
    """Two listeners, 0 and 1, behind a proxy."""

    def __init__(self, proxy: Proxy, detours: list[Detour], accepted: list[Peer]) -> None:
        self.proxy = proxy
        self.detours = detours
        self.accepted = accepted
        self.servers: dict[int, asyncio.Server] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def listen(self, node_id: int) -> None:
        """Listen in place of a daemon."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = Peer()
            self.accepted.append(peer)
            await peer.take(reader, writer)

        port = int(self.detours[node_id].inside.rpartition(":")[2])
        self.servers[node_id] = await asyncio.start_server(accept, "127.0.0.1", port)
        self.proxy.follow()

    async def dial(self, source: int, destination: int, first: bytes | None = None) -> Peer:
        """Dial through the proxy and say hello."""
        port = int(self.detours[destination].outside.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        peer = Peer()
        self.tasks.append(asyncio.create_task(peer.take(reader, writer)))
        await until(lambda: peer._writer is not None)
        peer.send(hello_of(source, destination) if first is None else first)
        return peer

    async def linked(self, source: int, destination: int) -> tuple[Peer, Peer]:
        """Dial, and wait until the listener has the hello."""
        count = len(self.accepted)
        near = await self.dial(source, destination)
        hello = hello_of(source, destination)
        await until(lambda: len(self.accepted) > count and self.accepted[-1].received == hello)
        far = self.accepted[-1]
        far.received = b""
        return near, far


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@asynccontextmanager
async def bench(ids: tuple[int | None, int | None] = (0, 1)) -> AsyncIterator[Bench]:
    """A proxy before two listeners."""
    ports = _free_ports(4)
    detours = [Detour(ids[i], f"127.0.0.1:{ports[i]}", f"127.0.0.1:{ports[2 + i]}") for i in (0, 1)]
    proxy = Proxy(detours)
    found = Bench(proxy, detours, [])
    try:
        await found.listen(0)
        await found.listen(1)
        yield found
    finally:
        proxy.stop()
        for server in found.servers.values():
            server.close()
        for peer in found.accepted:
            peer.close()
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)


async def test_proxy_passes_both_ways_unaltered() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        blob = bytes(range(256)) * 8192
        near.send(blob)
        far.send(b"back")
        await until(lambda: far.received == blob and near.received == b"back")


async def test_proxy_passes_a_stranger_on() -> None:
    async with bench() as b:
        b.proxy.obey({"order": "cut", "links": [[0, 1]]})
        await b.dial(1, 0, b"GET / HTTP/1.0\r\n\r\n")
        await until(lambda: bool(b.accepted) and b.accepted[0].received.startswith(b"GET"))


async def test_proxy_passes_an_end_on() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        near.send(b"last words")
        near.close()
        await until(lambda: far.ended == "eof")
        assert far.received == b"last words"


async def test_proxy_gate_is_shut_while_nobody_listens() -> None:
    async with bench() as b:
        b.servers[0].close()
        await until(lambda: not listens(("127.0.0.1", int(b.detours[0].inside[10:]))))
        b.proxy.follow()
        with pytest.raises(ConnectionRefusedError):
            await b.dial(1, 0)
        await b.listen(0)
        await b.linked(1, 0)


async def test_proxy_shuts_the_gate_before_peers_hear_of_the_end() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.servers[0].close()
        far.close()
        await until(lambda: near.ended is not None)
        with pytest.raises(ConnectionRefusedError):
            await b.dial(1, 0)


async def test_proxy_dial_behind_an_open_gate_without_listener_is_reset_then_refused() -> None:
    async with bench() as b:
        b.servers[0].close()
        near = await b.dial(1, 0)
        await until(lambda: near.ended is not None)
        with pytest.raises(ConnectionRefusedError):
            await b.dial(1, 0)


async def test_proxy_cut_holds_and_mend_delivers() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.proxy.obey({"order": "cut", "links": [[0, 1]]})
        near.send(b"held")
        near.close()
        far.send(b"also held")
        await _settle()
        assert (far.received, far.ended) == (b"", None)
        b.proxy.obey({"order": "mend", "links": [[1, 0]]})
        await until(lambda: far.ended == "eof")
        assert far.received == b"held"


async def test_proxy_one_way_cut_holds_one_direction() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.proxy.obey({"order": "cut", "links": [[1, 0]], "one_way": True})
        near.send(b"held")
        far.send(b"heard")
        await until(lambda: near.received == b"heard")
        assert far.received == b""


async def test_proxy_dial_over_a_cut_stays_unanswered_until_mended() -> None:
    async with bench() as b:
        b.proxy.obey({"order": "cut", "links": [[0, 1]], "one_way": True})
        near = await b.dial(1, 0)
        await _settle()
        assert not b.accepted
        assert near.ended is None
        b.proxy.obey({"order": "mend", "links": None})
        await until(lambda: bool(b.accepted) and b.accepted[0].received == hello_of(1, 0))


async def test_proxy_dial_that_is_given_up_over_a_cut_is_never_seen() -> None:
    async with bench() as b:
        b.proxy.obey({"order": "cut", "links": [[0, 1]]})
        near = await b.dial(1, 0)
        await _settle()
        near.close()
        await until(lambda: b.proxy.obey({"order": "show"})["connections"] == 0)
        b.proxy.obey({"order": "mend", "links": None})
        await _settle()
        assert not b.accepted


async def test_proxy_half_open_tells_neither_end_until_mended() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.proxy.obey({"order": "half-open", "links": [[0, 1]]})
        near.send(b"lost")
        near.close()
        await _settle()
        assert (far.received, far.ended) == (b"", None)
        again, _ = await b.linked(1, 0)
        assert again.ended is None
        b.proxy.obey({"order": "mend", "links": None})
        await until(lambda: far.ended is not None)
        assert far.received == b""


async def test_proxy_reset_breaks_both_ends() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.proxy.obey({"order": "reset", "links": [[0, 1]]})
        await until(lambda: near.ended == "reset" and far.ended == "reset")


async def test_proxy_reset_storm_spares_nobody() -> None:
    async with bench() as b:
        ends = [*await b.linked(1, 0), *await b.linked(0, 1)]
        b.proxy.obey({"order": "reset", "links": None})
        await until(lambda: all(end.ended == "reset" for end in ends))


async def test_proxy_slow_link_delays_each_direction() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        b.proxy.obey({"order": "slow", "links": [], "nodes": [1], "delay_ms": 150})
        began_s = time.monotonic()
        near.send(b"there")
        await until(lambda: far.received == b"there")
        assert time.monotonic() - began_s >= 0.14
        far.send(b"back")
        await until(lambda: near.received == b"back")
        assert time.monotonic() - began_s >= 0.29


async def test_proxy_slow_link_keeps_to_its_rate_and_its_order() -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        slow = {"order": "slow", "links": [[1, 0]], "nodes": [], "delay_ms": 0}
        b.proxy.obey(slow | {"bytes_per_second": 10_000})
        began_s = time.monotonic()
        for count in range(20):
            near.send(struct.pack(">H", count) * 50)
            await asyncio.sleep(0)
        await until(lambda: len(far.received) == 2000)
        assert time.monotonic() - began_s >= 0.1
        assert far.received == b"".join(struct.pack(">H", count) * 50 for count in range(20))


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    """Let this process open no further descriptor."""
    # What other tests have left would close descriptors in the midst of it.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


async def test_proxy_without_a_free_descriptor_takes_who_dials_later() -> None:
    loop, failures = asyncio.get_running_loop(), list[dict[str, object]]()
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    async with bench() as b:
        host, _, port = b.detours[0].outside.rpartition(":")
        with socket.socket() as dialer:
            dialer.setblocking(False)
            with no_descriptor_free():
                await loop.sock_connect(dialer, (host, int(port)))
                await loop.sock_sendall(dialer, hello_of(1))
                for _ in range(20):
                    await asyncio.sleep(0)
            await until(lambda: bool(b.accepted) and b.accepted[0].received == hello_of(1))
    assert failures == []


async def test_proxy_without_a_descriptor_for_the_way_on_breaks_the_connection() -> None:
    loop, failures = asyncio.get_running_loop(), list[dict[str, object]]()
    loop.set_exception_handler(lambda loop, context: failures.append(context))
    async with bench() as b:
        host, _, port = b.detours[0].outside.rpartition(":")
        with socket.socket() as dialer:
            dialer.setblocking(False)
            await loop.sock_connect(dialer, (host, int(port)))
            await until(lambda: len(b.proxy._splices) == 1)
            with no_descriptor_free():
                await loop.sock_sendall(dialer, hello_of(1))
                async with asyncio.timeout(DEADLINE_S):
                    with pytest.raises(ConnectionResetError):
                        await loop.sock_recv(dialer, 1)
    assert failures == []


@pytest.mark.parametrize(
    "eased",
    [
        {"order": "mend", "links": None},
        {"order": "slow", "links": [[1, 0]], "nodes": [], "delay_ms": 0, "bytes_per_second": 10**8},
    ],
)
async def test_proxy_bound_of_bytes_that_is_taken_back_makes_nothing_late(
    eased: dict[str, object],
) -> None:
    async with bench() as b:
        near, far = await b.linked(1, 0)
        slow = {"order": "slow", "links": [[1, 0]], "nodes": [], "delay_ms": 0}
        b.proxy.obey(slow | {"bytes_per_second": 10})
        near.send(bytes(1000))
        await until(lambda: len(far.received) == 1000)
        near.send(b"a minute and a half late")
        (splice,) = b.proxy._splices
        await until(lambda: len(splice._flows[0]._queue) == 1)
        b.proxy.obey(eased)
        near.send(b", and what is behind it")
        await until(lambda: far.received.endswith(b"late, and what is behind it"))


async def test_proxy_learns_whose_a_joiners_gate_is() -> None:
    async with bench(ids=(0, None)) as b:
        port = int(b.detours[1].outside.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(hello_of(0, 7))
        await until(lambda: bool(b.accepted) and b.accepted[0].received == hello_of(0, 7))
        b.proxy.obey({"order": "reset", "links": [[7, 0]]})
        await until(lambda: b.accepted[0].ended == "reset")
        b.servers[1].close()
        b.proxy.on_end_closed(7)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        del reader


@pytest.mark.parametrize(
    "order",
    [
        {"order": "explode"},
        {"order": "cut", "links": [[1]]},
        {"order": "cut", "links": "all"},
        {"order": "part", "groups": [[0, "1"]]},
        {"order": "slow", "links": [], "nodes": [1], "delay_ms": -1},
        {},
    ],
)
async def test_proxy_refuses_what_is_no_order(order: dict[str, object]) -> None:
    async with bench() as b:
        with pytest.raises(RequestError):
            b.proxy.obey(order)


@pytest.mark.parametrize(
    "line",
    [b"", b"nothing\n", b"[]\n", b"7\n", b"[" * 100_000 + b"\n"],
    ids=["empty", "no-json", "list", "number", "nested"],
)
async def test_proxy_answers_a_line_that_is_no_order(line: bytes) -> None:
    async with bench() as b:
        assert list(_Orders(b.proxy)._obey(line)) == ["error"]


async def test_proxy_takes_every_slowness_that_a_plan_may_have() -> None:
    slow = {"fault": "slow", "nodes": [1], "delay_ms": 3_600_000, "bytes_per_second": 10**12}
    fault = read_fault(slow)
    assert isinstance(fault, Slow)
    async with bench() as b:
        order = {"order": "slow", "links": [], "nodes": [1], "delay_ms": fault.delay_ms}
        b.proxy.obey({**order, "bytes_per_second": fault.bytes_per_second})
        assert b.proxy.impairments.slow_nodes == {1: Slowness(3600.0, 1e12)}


def test_ends_are_read_from_the_hello() -> None:
    hello = hello_of(5, 3)
    assert ends_of(hello) == (5, 3)
    assert ends_of(hello[:20]) is None
    assert ends_of(b"BM") is None
    assert ends_of(b"GET /") == (STRANGER, STRANGER)
    assert ends_of(b"BMGD" + bytes(300)) == (STRANGER, STRANGER)


async def _settle() -> None:
    """Let everything that can happen happen: a round trip over another connection and some turns."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    for _ in range(20):
        await loop.sock_sendall(ours, b"x")
        await loop.sock_recv(theirs, 1)
        await asyncio.sleep(0)
    ours.close()
    theirs.close()
