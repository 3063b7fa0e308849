"""A launched cluster, seen through its run directory."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmgd.errors import ControlError, NoDaemonError, RequestError
from bmgd.launcher.rundir import RunDir
from bmgd.trials.cluster import LaunchedTrial
from bmgd.trials.harm import STARTS_MAX

DEADLINE_S = 20.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, and logs as daemon 0 does."""
    with (tmp_path / "node-0.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], stderr=log
        )
    yield started
    started.kill()
    started.wait()


def write_cluster(run_dir: Path, *pids: int | None) -> None:
    """What a launcher writes: who has which id."""
    nodes = [
        {"id": i, "pid": pid, "address": "127.0.0.1:1", "control": f"unix:{run_dir}/{i}"}
        for i, pid in enumerate(pids)
    ]
    (run_dir / "cluster.json").write_text(json.dumps({"nodes": nodes}))


def test_cluster_adopts_daemons_and_sees_their_end(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_cluster(tmp_path, process.pid)
    cluster = LaunchedTrial(str(tmp_path))
    assert (cluster.size, cluster.proxy_path) == (1, None)
    assert cluster.is_running(0)
    cluster.send(0, signal.SIGKILL)
    process.wait()
    assert cluster.has_ended(0)
    with pytest.raises(NoDaemonError):
        cluster.send(0, signal.SIGKILL)


def test_cluster_finds_a_daemon_that_was_started_again(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_cluster(tmp_path, None)
    cluster = LaunchedTrial(str(tmp_path))
    assert cluster.has_ended(0)
    write_cluster(tmp_path, process.pid)
    assert cluster.is_running(0)


def test_cluster_neither_signals_nor_buries_a_process_under_another_id(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_cluster(tmp_path, None, process.pid)
    cluster = LaunchedTrial(str(tmp_path))
    assert not cluster.is_running(1)
    assert not cluster.has_ended(1)
    with pytest.raises(ControlError):
        cluster.send(1, signal.SIGKILL)
    assert process.poll() is None


def test_cluster_without_a_launcher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoDaemonError):
        LaunchedTrial(str(tmp_path))


def test_cluster_of_another_user_is_not_taken_for_one_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    write_cluster(tmp_path, None, os.getpid())
    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(RequestError, match=f"process {os.getpid()} of node 1 is another user's"):
        LaunchedTrial(str(tmp_path))


async def test_cluster_asks_for_a_restart_though_many_others_have_not_joined(
    tmp_path: Path,
) -> None:
    write_cluster(tmp_path, *[None] * STARTS_MAX)
    asked: set[int] = set()
    all_asked = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.add(json.loads(await reader.readline())["restart"])
        if len(asked) == STARTS_MAX:
            all_asked.set()
        await all_asked.wait()
        writer.write(b'{"pid": 1, "seconds": 0.1}\n')
        writer.close()

    path = RunDir.at(str(tmp_path)).launcher_socket
    cluster = LaunchedTrial(str(tmp_path))
    async with await asyncio.start_unix_server(on_connection, path):
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(*(cluster.restart(node) for node in range(STARTS_MAX)))
        finally:
            # Threads that wait for an answer end with it.
            all_asked.set()
    assert len(asked) == STARTS_MAX
