"""A daemon whose host has nothing left says so and goes on with its links, or ends with a clear line."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from bmgd.client import connect
from bmgd.errors import BmgdError
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId
from bmgd.wire.handshake import Dialer, HelloState
from bmgd.wire.hello import NONCE_BYTES, Identity
from tests.integration.cluster import (
    FLAVOURS,
    Cluster,
    Flavour,
    ended,
    founded,
    until,
    until_true,
)

SIZE = 3
TARGET = 1
LIMITED = 128
PATIENT = ("--profile", "oversubscribed")
LOOPS = [FLAVOURS[0], Flavour("asyncio", "c")]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: needs root")


@contextmanager
def limited(pid: int, kind: int, soft: int) -> Iterator[None]:
    """A limit of a running process, as it was afterwards."""
    before = psutil.Process(pid).rlimit(kind)
    psutil.Process(pid).rlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).rlimit(kind, before)


@contextmanager
def small_disk(place: Path, kibibytes: int) -> Iterator[Path]:
    """A file system with so much room."""
    place.mkdir()
    options = f"size={kibibytes}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Use all room of a file system; the file that does."""
    path = place / "full"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def seal(place: Path) -> None:
    """Let nothing be written to a file system any more."""
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)


def greet(cluster: Cluster, known: Incarnation) -> None:
    """As a new life of node 2, say to node 1 that a life of it is known."""
    peers = PeerList.parse(f"127.0.0.1:{{{cluster.base_port}+id}}", SIZE)
    me = Identity("bmgd", SIZE, peers.fingerprint(), NodeId(2), peers.address_of(NodeId(2)))
    life = Incarnation(1 << 50)
    dialer = Dialer(me, life, NodeId(TARGET), known, 1, os.urandom(NONCE_BYTES))
    with socket.create_connection(("127.0.0.1", cluster.base_port + TARGET), 20) as sock:
        while dialer.state is HelloState.WAITING:
            sock.sendall(dialer.take_output())
            data = sock.recv(4096)
            if not data:
                return
            dialer.receive(data)


# --- descriptors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", LOOPS, ids=str)
async def test_daemon_without_descriptors_keeps_its_links(flavour: Flavour, tmp_path: Path) -> None:
    async with founded(SIZE, tmp_path, *PATIENT, flavour=flavour) as cluster:
        cluster.start(*range(SIZE))
        await cluster.at_rest()
        await cluster.exchange()
        process = psutil.Process(cluster.pid(TARGET))
        with ExitStack() as stack:
            stack.enter_context(limited(process.pid, resource.RLIMIT_NOFILE, LIMITED))
            for _ in range(LIMITED):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                stack.callback(sock.close)
                sock.setblocking(False)
                with suppress(BlockingIOError):
                    sock.connect(cluster.control(TARGET).removeprefix("unix:"))
            for _ in range(LIMITED):
                sock = socket.socket()
                stack.callback(sock.close)
                sock.setblocking(False)
                with suppress(BlockingIOError):
                    sock.connect(("127.0.0.1", cluster.base_port + TARGET))
            await until_true("it says so", lambda: "Too many open files" in cluster.log(TARGET))
            end_s = time.monotonic() + 2.5
            while time.monotonic() < end_s:
                await cluster.exchange()
        await cluster.at_rest()
        async with connect(cluster.control(TARGET)) as program:
            await program.send(0, b"x", topic="after")
        assert "suspected" not in cluster.log(0) + cluster.log(2)


# --- disk ---------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("is_full", [True, False], ids=["full", "read-only"])
async def test_life_that_cannot_be_kept_is_not_begun(is_full: bool, tmp_path: Path) -> None:
    with small_disk(tmp_path / "state", 64) as state:
        flags = ["--state-dir", str(state)]
        async with founded(1, tmp_path, *flags) as cluster:
            if is_full:
                (state / "incarnation-0.lock").touch()
                fill(state)
            else:
                seal(state)
            with (tmp_path / "first.log").open("wb") as log:
                port = cluster.base_port
                words = ["run", "--id", "0", "--size", "1", "--peers", f"127.0.0.1:{port}"]
                process = cluster.spawn([*words, *flags], log)
                assert await ended(process) == 1
            text = (tmp_path / "first.log").read_text()
            assert ("No space left" if is_full else "Read-only file system") in text
            assert "Traceback" not in text


async def test_new_life_that_cannot_be_kept_ends_the_daemon_clearly(tmp_path: Path) -> None:
    async with founded(SIZE, tmp_path, *PATIENT) as cluster:
        for i in range(SIZE):
            cluster.start(i, flags=["--state-dir", str(tmp_path / f"state-{i}")])
        await cluster.at_rest()
        await cluster.kill(2)
        await cluster.at_rest()
        life = Incarnation((await cluster.status(TARGET))["incarnation"])
        process = cluster._processes[TARGET]
        shutil.rmtree(tmp_path / f"state-{TARGET}")
        await asyncio.to_thread(greet, cluster, Incarnation(life + (9 << 32)))
        assert await ended(process) == 1
        cluster.gone.add(TARGET)
        await cluster.hang_up(TARGET)
        assert "the new life cannot be kept" in cluster.log(TARGET)
        assert "a bug" not in cluster.log(TARGET)
        cluster.start(TARGET, flags=["--state-dir", str(tmp_path / f"state-{TARGET}")])
        await cluster.at_rest()


@needs_root
async def test_daemon_whose_log_has_no_room_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "logs", 64) as place:
        async with founded(SIZE, tmp_path, *PATIENT) as cluster:
            cluster.start(0, 2)
            words = ["run", "--id", "1", "--control", cluster.control(1), *cluster._flags]
            with (place / "node-1.log").open("wb") as log:
                process = cluster._processes[1] = cluster.spawn(words, log)
            cluster.gone.discard(1)
            await cluster.at_rest()
            full = fill(place)
            await cluster.kill(2)
            await cluster.at_rest()
            await cluster.exchange()
            size = (place / "node-1.log").stat().st_size
            full.unlink()
            cluster.start(2)
            await cluster.at_rest()
            await until_true(
                "the log goes on", lambda: (place / "node-1.log").stat().st_size > size
            )
            assert process.poll() is None


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", LOOPS, ids=str)
async def test_daemon_without_memory_ends_clearly_or_goes_on(
    flavour: Flavour, tmp_path: Path
) -> None:
    async with founded(SIZE, tmp_path, *PATIENT, flavour=flavour) as cluster:
        cluster.start(*range(SIZE))
        await cluster.at_rest()
        process = cluster._processes[TARGET]
        now = psutil.Process(process.pid).memory_info().vms
        with limited(process.pid, resource.RLIMIT_AS, now + (1 << 20)):
            # Nobody reads the topic: all of it waits there.
            sender = await cluster.daemon(0)

            async def send() -> None:
                with suppress(BmgdError):
                    await sender.send(TARGET, bytes(60_000), topic="heavy", timeout=5)

            await asyncio.gather(*(send() for _ in range(400)))

            async def settled() -> list[str]:
                if process.poll() is not None:
                    return []
                with suppress(BmgdError):
                    await cluster.status(TARGET)
                    return []
                return ["it neither answers nor has ended"]

            await until("it answers or has ended", settled)
        has_ended = process.poll() is not None
        text = cluster.log(TARGET)
        assert "a bug" not in text
        if has_ended:
            assert process.returncode == 1
            assert "no memory" in text
            cluster.gone.add(TARGET)
            await cluster.hang_up(TARGET)
            cluster.start(TARGET)
        await cluster.at_rest()
        await cluster.exchange()
