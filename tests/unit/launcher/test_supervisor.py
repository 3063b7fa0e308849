"""The launcher, beside a zygote that only takes orders: what the host refuses ends no cluster."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.launcher import supervisor
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.supervisor import Supervisor, how_ended
from bmgd.launcher.zygote import (
    LAUNCH_MAX,
    NOT_FORKED,
    ORDER_BYTES_MAX,
    Ended,
    Order,
    Plan,
    Spawn,
    Spawned,
    SpawnJoiners,
    Zygote,
)
from bmgd.peers import PeerList

PID = 4711


class Orders(Zygote):
    """Keeps what was ordered."""

    given: list[Order] = []  # noqa: RUF012

    def order(self, order: Order) -> None:
        self.given.append(order)


class Launch:
    """A launcher of one founder, its events, and its clock."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.events: list[dict[str, Any]] = []
        self.run_dir = RunDir.at(str(path))
        events, self.pipe = os.pipe2(os.O_NONBLOCK)
        ours, self.channel = socket.socketpair()
        self.zygote = Orders(1, ours, events)
        self.zygote.given.clear()
        self.signals = socket.socketpair()
        monkeypatch.setattr(supervisor, "_signal_socket", lambda: self.signals[0])
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        config = Config(id=0, size=1, peers=PeerList.parse("127.0.0.1:7400", 1))
        self.supervisor: Any = Supervisor(
            self.zygote, Plan(config, self.run_dir), self.events.append, lambda: None, self.now_s
        )
        self.supervisor._spawn((0,))

    def join(self) -> None:
        """The founder runs, and has joined."""
        self.supervisor._on_news(Spawned(((0, PID),)))
        os.write(self.pipe, b'{"id":0,"event":"ready"}\n')
        self.supervisor._read_events()

    def told(self) -> list[str]:
        """The kinds of the events, in order."""
        return [event["event"] for event in self.events]

    def close(self) -> None:
        os.close(self.pipe)
        os.close(self.zygote.events)
        self.supervisor._server._socket.close()
        for sock in (self.zygote.channel, self.channel, *self.signals):
            sock.close()


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    made = Launch(tmp_path, monkeypatch)
    yield made
    made.close()


def test_supervisor_writes_the_cluster_down_when_the_disk_has_room_again(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_full = os.replace, [True]

    def replace(*paths: str) -> None:
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*paths)

    monkeypatch.setattr(os, "replace", replace)
    launch.join()
    for _ in range(3):
        launch.supervisor._settle()
    assert launch.told() == ["ready", "failed"]
    assert "No space left" in launch.events[-1]["detail"]
    assert not list(Path(launch.run_dir.path).glob("cluster.json*"))
    assert 0 < launch.supervisor._timeout_ms() <= 1001
    is_full[0] = False
    launch.now_s += 1.0
    launch.supervisor._settle()
    assert launch.told() == ["ready", "failed", "up"]
    with open(launch.run_dir.cluster_file, "rb") as file:
        assert json.load(file)["nodes"][0]["pid"] == PID
    assert launch.supervisor._timeout_ms() is None


def test_supervisor_orders_joiners_in_pieces(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "choose_base_port", lambda *_: 20_000)
    launch.join()
    launch.supervisor._settle()
    launch.zygote.given.clear()
    numbers = launch.supervisor._add_joiners(LAUNCH_MAX - 1)
    ordered: list[int] = []
    for order in launch.zygote.given:
        assert isinstance(order, SpawnJoiners)
        assert len(pickle.dumps(order)) < ORDER_BYTES_MAX
        ordered += [joiner.number for joiner in order.joiners]
    assert tuple(ordered) == numbers


def test_supervisor_goes_on_without_a_daemon_that_could_not_be_forked(launch: Launch) -> None:
    launch.join()
    launch.supervisor._settle()
    launch.supervisor._on_news(Ended(((0, PID, -9),)))
    launch.supervisor._spawn((0,))
    assert launch.zygote.given == [Spawn((0,)), Spawn((0,))]
    launch.supervisor._on_news(Spawned(()))
    launch.supervisor._on_news(Ended(((0, 0, NOT_FORKED),)))
    assert launch.told() == ["ready", "up", "ended", "ended"]
    assert launch.supervisor._stopping_s is None
    assert how_ended(NOT_FORKED) == "could not be started, its log says why"
