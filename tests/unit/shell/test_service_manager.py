"""What a daemon tells a service manager that has no room for it just then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from bmgd.shell import service_manager
from bmgd.shell.service_manager import WAITING_MAX, ServiceManager

DEADLINE_S = 30.0
FILLER = "WATCHDOG=1"


class Manager:
    """The manager's end, and the daemon's."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))
        self.told = ServiceManager({"NOTIFY_SOCKET": str(path)})
        self.told.start(asyncio.get_running_loop())

    def fill(self) -> None:
        """Leave no room for a datagram more."""
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as other,
            suppress(BlockingIOError),
        ):
            while True:
                other.sendto(FILLER.encode(), self.socket.getsockname())

    def read(self) -> list[list[str]]:
        """The datagrams that are there, without those of `fill`."""
        found: list[list[str]] = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode().split("\n"))
        return [lines for lines in found if lines != [FILLER]]

    async def until_sent(self) -> list[list[str]]:
        """What comes, once nothing waits any more."""
        found = self.read()
        async with asyncio.timeout(DEADLINE_S):
            while self.told._waiting:
                await asyncio.sleep(0)
                found += self.read()
        return found + self.read()


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Manager]:
    monkeypatch.setattr(service_manager, "AGAIN_S", 0.001)
    made = Manager(tmp_path / "notify")
    yield made
    made.told.close()
    made.socket.close()


async def test_changes_that_a_full_queue_refused_are_sent_again_in_order(manager: Manager) -> None:
    manager.fill()
    manager.told.ready("node 3 is ready")
    manager.told.reloading()
    manager.told.status("node 3: isolated")
    manager.told.reloaded()
    manager.told.stopping(2.0)
    told = await manager.until_sent()
    assert [lines[0] for lines in told] == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    # A status is that of now.
    assert {lines[-1] for lines in told} == {"STATUS=leaving"}
    assert "EXTEND_TIMEOUT_USEC=2000000" in told[-1]


async def test_change_is_sent_at_once_where_there_is_room(manager: Manager) -> None:
    manager.told.ready("node 3 is ready")
    manager.told.status("node 3: isolated")
    assert manager.read() == [["READY=1", "STATUS=node 3 is ready"], ["STATUS=node 3: isolated"]]


async def test_changes_that_nobody_takes_are_bounded_and_the_last_ones_stay(
    manager: Manager,
) -> None:
    manager.fill()
    for _ in range(WAITING_MAX):
        manager.told.reloading()
    manager.told.stopping(2.0)
    told = await manager.until_sent()
    assert [lines[0] for lines in told] == ["RELOADING=1"] * (WAITING_MAX - 1) + ["STOPPING=1"]


async def test_end_sends_what_there_is_room_for_by_then(manager: Manager) -> None:
    manager.fill()
    manager.told.stopping(2.0)
    assert manager.read() == []
    manager.told.close()
    assert [lines[0] for lines in manager.read()] == ["STOPPING=1"]


async def test_manager_that_is_gone_is_told_nothing_more(manager: Manager) -> None:
    manager.fill()
    manager.told.ready("node 3 is ready")
    manager.socket.close()
    async with asyncio.timeout(DEADLINE_S):
        while manager.told._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
    manager.told.stopping(2.0)
    assert not manager.told._waiting
