"""The client for programs without asyncio, against real daemons."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bmgd
from bmgd import blocking
from bmgd.errors import (
    DeadError,
    FailedAnswerError,
    NoDaemonError,
    NoReaderError,
    RequestError,
)
from tests.integration.cluster import LaunchedCluster, launched

LONG_BYTES = 3_000_000


@contextmanager
def connected(cluster: LaunchedCluster, node_id: int) -> Iterator[blocking.Daemon]:
    with bmgd.blocking.connect(bmgd.local_address(node_id, str(cluster.directory))) as daemon:
        yield daemon


async def test_blocking_sends_and_reads_in_order(tmp_path: Path) -> None:
    def program(cluster: LaunchedCluster) -> None:
        with (
            connected(cluster, 0) as here,
            connected(cluster, 2) as there,
            there.subscribe("jobs") as messages,
        ):
            here.send(2, b"one", topic="jobs")
            soon = here.send_soon(2, b"two", topic="jobs")
            soon.result(10)
            with here.stream(2, "jobs") as stream:
                for number in range(500):
                    stream.write(number.to_bytes(2, "big"))
                stream.flush()
            assert next(messages).payload == b"one"
            assert messages.get(timeout=5).payload == b"two"
            taken: list[int] = []
            while len(taken) < 500:
                taken += [int.from_bytes(m.payload, "big") for m in messages.take(200)]
            assert taken == list(range(500))
            with pytest.raises(TimeoutError):
                messages.get(timeout=0.05)

    async with launched(3, tmp_path) as cluster:
        await asyncio.to_thread(program, cluster)


async def test_blocking_long_message_is_read_in_parts(tmp_path: Path) -> None:
    payload = bytes(range(256)) * (LONG_BYTES // 256)

    def program(cluster: LaunchedCluster) -> None:
        with (
            connected(cluster, 0) as here,
            connected(cluster, 1) as there,
            there.subscribe("files", max_message=65_536) as messages,
        ):
            arguments = {"topic": "files"}
            sender = threading.Thread(target=here.send, args=(1, payload), kwargs=arguments)
            sender.start()
            message = next(messages)
            assert b"".join(message.parts()) == payload
            sender.join(30)
            assert not sender.is_alive()

    async with launched(2, tmp_path) as cluster:
        await asyncio.to_thread(program, cluster)


async def test_blocking_asks_and_answers(tmp_path: Path) -> None:
    def program(cluster: LaunchedCluster) -> None:
        with connected(cluster, 0) as here, connected(cluster, 2) as there:
            with pytest.raises(NoReaderError):
                here.request(2, b"q", topic="rpc", timeout=30)
            with there.subscribe("rpc") as messages:
                assert here.readers("rpc") == [2]

                def answer() -> None:
                    next(messages).reply(b"a")
                    next(messages).refuse("not today")

                answering = threading.Thread(target=answer)
                answering.start()
                assert here.request(2, b"q", topic="rpc", timeout=30) == b"a"
                with pytest.raises(FailedAnswerError, match="not today"):
                    here.request(2, b"q", topic="rpc", timeout=30)
                answering.join(30)
                assert not answering.is_alive()

    async with launched(3, tmp_path) as cluster:
        await cluster.at_rest()
        await asyncio.to_thread(program, cluster)


async def test_blocking_tells_errors_membership_and_the_end_of_its_daemon(tmp_path: Path) -> None:
    def before(here: blocking.Daemon) -> None:
        with pytest.raises(RequestError):
            here.send(99, b"nobody")
        with pytest.raises(RequestError), here.subscribe("x" * 256):
            pass
        with here.membership() as changes:
            assert {next(changes).id for _ in range(3)} == {0, 1, 2}
        assert here.status()["id"] == 0
        assert here.trace(2).path[-1] == 2
        report = here.broadcast(b"all", topic="news")
        assert report.confirmed >= {1, 2}

    def after(here: blocking.Daemon) -> None:
        with here.membership() as changes:
            for change in changes:
                if change.id == 1 and change.status == "excluded":
                    break
        with pytest.raises(DeadError):
            here.send(1, b"too late")

    def without_daemon(here: blocking.Daemon) -> None:
        def ping_until_it_fails() -> None:
            while True:
                here.ping(2, timeout=1.0)

        with pytest.raises(NoDaemonError):
            ping_until_it_fails()

    async with launched(3, tmp_path) as cluster:
        with connected(cluster, 0) as here:
            await asyncio.to_thread(before, here)
            await cluster.kill(1)
            await asyncio.to_thread(after, here)
        with connected(cluster, 0) as here:
            await cluster.kill(0)
            await asyncio.to_thread(without_daemon, here)


async def test_blocking_without_a_daemon_says_so(tmp_path: Path) -> None:
    def program() -> None:
        with pytest.raises(NoDaemonError), blocking.connect(f"unix:{tmp_path}/no.sock"):
            pass

    await asyncio.to_thread(program)
