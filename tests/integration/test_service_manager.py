"""A daemon under a service manager: what it tells it, over the socket that the manager gives it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.cluster import until_true
from tests.integration.ports import free_base_port
from tests.processes import started

DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]


class Manager:
    """The manager's end of NOTIFY_SOCKET, and the daemon that it started."""

    def __init__(self, sock: socket.socket, process: asyncio.subprocess.Process) -> None:
        self._socket = sock
        self.process = process
        self.told: list[dict[str, str]] = []

    async def until(self, name: str, value: str | None = None) -> dict[str, str]:
        """The first datagram from now on that has this line."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                data = (await loop.sock_recv(self._socket, 4096)).decode()
                lines = dict(line.split("=", 1) for line in data.splitlines())
                self.told.append(lines)
                if name in lines and value in (None, lines[name]):
                    return lines

    def forget(self) -> None:
        """Leave what has come until now unread."""
        with suppress(BlockingIOError):
            while self._socket.recv(4096):
                pass


@asynccontextmanager
async def managed(address: str, *words: str) -> AsyncIterator[Manager]:
    """One daemon, alone in its cluster, started as a service manager would."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind("\0" + address[1:] if address.startswith("@") else address)
    port = free_base_port(1)
    with sock:
        async with started(
            *(sys.executable, "-m", "bmgd", "run", "--id", "0", "--size", "1"),
            *("--peers", f"127.0.0.1:{port}", *words),
            env={**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"},
            stderr=subprocess.DEVNULL,
        ) as process:
            yield Manager(sock, process)


@pytest.mark.parametrize("abstract", [False, True])
async def test_service_manager_is_told_of_start_reload_and_end(
    abstract: bool, tmp_path: Path
) -> None:
    address = f"@bmgd-{os.getpid()}-notify" if abstract else str(tmp_path / "notify")
    async with managed(address) as manager:
        ready = await manager.until("READY", "1")
        assert ready["STATUS"].startswith("node 0 is ready")
        for _ in range(3):
            await manager.until("WATCHDOG", "1")
        manager.process.send_signal(signal.SIGHUP)
        reloading = await manager.until("RELOADING", "1")
        assert int(reloading["MONOTONIC_USEC"]) > 0
        await manager.until("READY", "1")
        manager.process.send_signal(signal.SIGTERM)
        stopping = await manager.until("STOPPING", "1")
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) >= 5_000_000
        assert await manager.process.wait() == 0


async def test_service_manager_hears_nothing_of_a_loop_that_stands_still(tmp_path: Path) -> None:
    async with managed(str(tmp_path / "notify")) as manager:
        await manager.until("READY", "1")
        os.kill(manager.process.pid, signal.SIGSTOP)
        process = psutil.Process(manager.process.pid)
        await until_true("it stands", lambda: process.status() == psutil.STATUS_STOPPED)
        manager.forget()
        # Five times the interval of its watchdog.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await manager.until("WATCHDOG", "1")
        os.kill(manager.process.pid, signal.SIGCONT)
        await manager.until("WATCHDOG", "1")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_service_manager_unit_is_verified_by_systemd(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "bmgd@.service").read_text()
    unit = tmp_path / "bmgd@.service"
    unit.write_text(text.replace("/usr/local/bin/bmgd", str(Path(sys.executable).parent / "bmgd")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "bmgd@" in line]
    assert (done.returncode, complaints) == (0, [])
