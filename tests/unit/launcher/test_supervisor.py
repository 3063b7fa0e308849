"""The launcher, beside a zygote that only takes orders: what the host refuses ends no cluster."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bmgd.config import Config
from bmgd.errors import ConfigError
from bmgd.launcher import daemons, ports, supervisor, zygote
from bmgd.launcher.daemons import how_ended
from bmgd.launcher.orders import (
    NOT_FORKED,
    ORDER_BYTES_MAX,
    Ended,
    Order,
    Spawn,
    Spawned,
    SpawnJoiners,
)
from bmgd.launcher.plan import LAUNCH_MAX, Joiner, Plan
from bmgd.launcher.ports import ReservedPorts
from bmgd.launcher.requests import ACCEPT_PAUSE_S, Request
from bmgd.launcher.rundir import RunDir
from bmgd.launcher.supervisor import FLUSH_AGAIN_S, Supervisor
from bmgd.launcher.zygote import Zygote
from bmgd.peers import PeerList

PID = 4711


class Orders(Zygote):
    """Keeps what was ordered."""

    given: list[Order] = []  # noqa: RUF012

    def order(self, order: Order) -> None:
        self.given.append(order)


class Launch:
    """A launcher of one founder, its events, and its clock."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, http: str = "") -> None:
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
        config = Config(id=0, size=1, peers=PeerList.parse("127.0.0.1:7400", 1), http=http)
        plan = Plan(config, self.run_dir)
        self.supervisor: Any = Supervisor(
            self.zygote, plan, ReservedPorts(), self.events.append, lambda: False, self.now_s
        )
        self.supervisor._daemons.spawn((0,))

    def join(self) -> None:
        """The founder runs, and has joined."""
        self.supervisor._on_news(Spawned(((0, PID),)))
        os.write(self.pipe, b'{"id":0,"event":"ready"}\n')
        self.supervisor._read_events()

    def hear(self, number: int, **event: object) -> None:
        """A daemon tells of something, as its process does."""
        lines: list[bytes] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(zygote, "_write_events", lines.append)
            zygote._reporter(number)([event])
        os.write(self.pipe, b"".join(lines))
        self.supervisor._read_events()

    def grow(self) -> int:
        """Another daemon joins, as node 1; its number."""
        (number,) = self.supervisor._daemons.add_joiners(1)
        self.supervisor._on_news(Spawned(((number, PID + 1),)))
        self.hear(number, event="ready", id=1)
        return int(number)

    def ask(self, **asked: Any) -> Request:
        return Request(asked.pop("node_id", -1), self.channel, self.now_s, **asked)

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
def launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Launch]:
    """With a parameter: its daemons have pages there."""
    made = Launch(tmp_path, monkeypatch, getattr(request, "param", ""))
    yield made
    made.close()


@pytest.fixture
def settled(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The cluster of one founder is up; joiners have the ports from 20,000 on."""
    monkeypatch.setattr(ReservedPorts, "choose", lambda *_: 20_000)
    launch.join()
    launch.supervisor._settle()
    return launch


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


def test_supervisor_orders_joiners_in_pieces(settled: Launch) -> None:
    settled.zygote.given.clear()
    numbers = settled.supervisor._daemons.add_joiners(LAUNCH_MAX - 1)
    ordered: list[int] = []
    for order in settled.zygote.given:
        assert isinstance(order, SpawnJoiners)
        assert len(pickle.dumps(order)) < ORDER_BYTES_MAX
        ordered += [joiner.number for joiner in order.joiners]
    assert tuple(ordered) == numbers


def test_supervisor_goes_on_without_a_daemon_that_could_not_be_forked(settled: Launch) -> None:
    settled.supervisor._on_news(Ended(((0, PID, -9),)))
    settled.supervisor._daemons.spawn((0,))
    assert settled.zygote.given == [Spawn((0,)), Spawn((0,))]
    settled.supervisor._on_news(Spawned(()))
    settled.supervisor._on_news(Ended(((0, 0, NOT_FORKED),)))
    assert settled.told() == ["ready", "up", "ended", "ended"]
    assert settled.supervisor._stopping_s is None
    assert how_ended(NOT_FORKED) == "could not be started, its log says why"


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (1, "ended with 1; {log} says why"),
        (-9, "was ended by SIGKILL"),
        (NOT_FORKED, "could not be started, its log says why"),
    ],
)
def test_supervisor_names_the_log_of_a_daemon_that_ends_while_it_is_started_again(
    settled: Launch, code: int, how: str
) -> None:
    settled.supervisor._on_news(Ended(((0, PID, -9),)))
    request = settled.ask(node_id=0)
    assert settled.supervisor._progress(request, settled.now_s) is None
    settled.supervisor._on_news(Ended(((0, PID + 1, code),)))
    answer = settled.supervisor._progress(request, settled.now_s)
    assert answer == {"error": "node 0 " + how.format(log=settled.run_dir.log(0))}


def test_supervisor_tries_again_what_nobody_read(launch: Launch) -> None:
    launch.join()
    left = [True, False]
    launch.supervisor._flush = lambda: left.pop(0)
    launch.supervisor._settle()
    assert 0 < launch.supervisor._timeout_ms() <= 1000 * FLUSH_AGAIN_S + 2
    launch.supervisor._settle()
    assert launch.supervisor._timeout_ms() is None


def test_supervisor_prints_what_it_has_to_say_before_it_answers(
    settled: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def flush() -> bool:
        done.append("printed")
        return False

    monkeypatch.setattr(settled.supervisor, "_flush", flush)
    monkeypatch.setattr(
        settled.supervisor._server, "answer", lambda request, answer: done.append(str(answer))
    )
    settled.supervisor._requests.append(settled.ask(node_id=7))
    settled.supervisor._on_time(settled.now_s)
    settled.supervisor._settle()
    settled.supervisor._settle()
    assert done == ["printed", "{'error': 'id 7 is out of range 0..0'}", "printed"]


# --- descriptors ----------------------------------------------------------------------------------


@contextmanager
def without_descriptors() -> Iterator[None]:
    """No file can be opened, and nobody let in."""
    # What other tests have left would close descriptors in the midst of it.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_supervisor_lets_who_asks_wait_while_there_is_no_descriptor(settled: Launch) -> None:
    supervisor = settled.supervisor
    server = supervisor._server._socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.connect(settled.run_dir.launcher_socket)
        asking.sendall(b'{"restart": 0}\n')
        with without_descriptors():
            for _ in range(2):
                supervisor._on_ready({server.fileno()})
                assert not supervisor._poll.poll(0), "it would spin"
                assert 0 < supervisor._timeout_ms() <= 1000 * ACCEPT_PAUSE_S + 2
                settled.now_s += ACCEPT_PAUSE_S
                supervisor._on_time(settled.now_s)
        assert settled.told() == ["ready", "up", "failed"]
        assert settled.events[-1]["detail"] == f"cannot take a request: {os.strerror(errno.EMFILE)}"
        for _ in range(2):  # it is accepted, and read
            supervisor._on_ready({fd for fd, _ in supervisor._poll.poll(10_000)})
        assert [request.node_id for request in supervisor._requests] == [0]
        supervisor._server._drop(supervisor._requests[0].connection.fileno())


def test_supervisor_refuses_to_grow_while_there_is_no_descriptor(launch: Launch) -> None:
    launch.join()
    launch.supervisor._settle()
    with without_descriptors():
        answer = launch.supervisor._progress(launch.ask(grow=1), launch.now_s)
    assert answer == {"error": f"cannot look for free ports: {os.strerror(errno.EMFILE)}"}
    assert list(launch.supervisor._daemons.by_id) == [0]


# --- secrets --------------------------------------------------------------------------------------


def test_supervisor_starts_daemons_with_the_secrets_that_the_file_holds_then(
    settled: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"new\nold\n")
    file.chmod(0o600)
    plan = settled.supervisor._daemons.plan
    former = replace(plan.config, secret_file=str(file), secrets=(b"old",))
    settled.supervisor._daemons.plan = replace(plan, config=former)
    settled.supervisor._on_news(Ended(((0, PID, -9),)))
    assert settled.supervisor._progress(settled.ask(node_id=0), settled.now_s) is None
    given = settled.zygote.given[-2:]
    assert isinstance(given[0], Plan)
    assert given[0].config.secrets == (b"new", b"old")
    assert given[1] == Spawn((0,))
    file.write_bytes(b"new\n")
    settled.supervisor._daemons.add_joiners(1)
    plan_of_joiner, spawned = settled.zygote.given[-2:]
    assert isinstance(plan_of_joiner, Plan)
    assert plan_of_joiner.config.secrets == (b"new",)
    assert isinstance(spawned, SpawnJoiners)


def test_supervisor_starts_none_whose_secrets_cannot_be_read_and_goes_on(
    settled: Launch, tmp_path: Path
) -> None:
    plan = settled.supervisor._daemons.plan
    gone = str(tmp_path / "gone")
    config = replace(plan.config, secret_file=gone, secrets=(b"old",))
    settled.supervisor._daemons.plan = replace(plan, config=config)
    settled.supervisor._on_news(Ended(((0, PID, -9),)))
    before = list(settled.zygote.given)
    for asked in (settled.ask(node_id=0), settled.ask(grow=1)):
        answer = settled.supervisor._progress(asked, settled.now_s)
        assert answer == {
            "error": f"cannot read the secret file {gone}: {os.strerror(errno.ENOENT)}"
        }
    assert settled.zygote.given == before
    assert list(settled.supervisor._daemons.by_id) == [0]


def test_supervisor_keeps_the_secrets_that_came_through_a_pipe(
    settled: Launch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    plan = settled.supervisor._daemons.plan
    config = replace(plan.config, secret_file=str(tmp_path / "pipe"), secrets=(b"once",))
    settled.supervisor._daemons.plan = replace(plan, config=config)
    settled.supervisor._on_news(Ended(((0, PID, -9),)))
    assert settled.supervisor._progress(settled.ask(node_id=0), settled.now_s) is None
    assert settled.zygote.given[-1] == Spawn((0,))


# --- joiners --------------------------------------------------------------------------------------


@pytest.fixture
def grown(settled: Launch) -> Launch:
    """One founder, and one joiner that has the id 1."""
    settled.grow()
    return settled


def test_supervisor_says_why_it_does_not_grow_where_tls_files_are_named_after_ids(
    settled: Launch,
) -> None:
    files = {name: f"/etc/bmgd/{{id}}.{name}" for name in ("tls_cert", "tls_key", "tls_ca")}
    plan = settled.supervisor._daemons.plan
    settled.supervisor._daemons.plan = replace(plan, config=replace(plan.config, **files))
    answer = settled.supervisor._progress(settled.ask(grow=1), settled.now_s)
    assert "a joiner has no id yet" in answer["error"]
    assert list(settled.supervisor._daemons.by_id) == [0]


def test_supervisor_knows_a_joiner_that_was_started_again_whatever_its_id_becomes(
    grown: Launch,
) -> None:
    """Another one has its id meanwhile, so it is given the next, and the next."""
    grown.supervisor._on_news(Ended(((-1, PID + 1, -9),)))
    request = grown.ask(node_id=1)
    assert grown.supervisor._progress(request, grown.now_s) is None
    order = grown.zygote.given[-1]
    assert isinstance(order, SpawnJoiners)
    assert order.joiners == (Joiner(-1, "127.0.0.1:20000", "", 1),)
    grown.supervisor._on_news(Spawned(((-1, PID + 2),)))
    grown.hear(-1, event="renumbered", id=2, former=1)
    grown.hear(-1, event="ready", id=2)
    assert grown.events[-1]["id"] == 2
    answer = grown.supervisor._progress(request, grown.now_s)
    assert answer == {"error": "node 1 was given another id: 2"}
    grown.hear(-1, event="renumbered", id=3, former=2)
    assert sorted(grown.supervisor._daemons.by_id) == [0, 3]
    grown.supervisor._on_news(Ended(((-1, PID + 2, 0),)))
    assert (grown.events[-1]["event"], grown.events[-1]["id"]) == ("ended", 3)


def test_supervisor_takes_the_number_of_one_for_the_id_of_no_other(grown: Launch) -> None:
    grown.supervisor._on_news(Ended(((-1, PID + 1, -9),)))
    grown.supervisor._daemons.spawn((1,))
    grown.hear(-1, event="renumbered", id=2, former=1)
    (number,) = grown.supervisor._daemons.add_joiners(1)
    grown.hear(number, event="ready", id=1)
    grown.supervisor._on_news(Spawned(((number, PID + 9),)))
    pids = {i: daemon.pid for i, daemon in grown.supervisor._daemons.by_id.items()}
    assert pids == {0: PID, 1: PID + 9, 2: None}


def test_zygote_starts_a_joiner_under_the_id_that_it_had_and_appends_to_its_log(
    grown: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forker: Any = zygote._Forker(grown.channel, grown.channel, -1, lambda *_: 0)
    forked: list[tuple[int, str, int]] = []
    monkeypatch.setattr(
        forker, "_fork", lambda number, log, config: forked.append((number, log, config.id))
    )
    forker._obey(grown.supervisor._daemons.plan)
    joiners = (Joiner(-1, "h:1", "", 4), Joiner(-2, "h:2"))
    forker._obey(SpawnJoiners(joiners, ("h:9",)))
    log = grown.run_dir.log
    assert forked == [(-1, log(4), 4), (-2, log(-2), -1)]


# --- ports ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", ["127.0.0.1:{40000+id}"], indirect=True)
def test_supervisor_finds_ports_for_joiners_below_pages_that_have_the_highest(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda _: True)
    # Other launches on this machine may have reserved some of these.
    monkeypatch.setattr(ports, "_reserve", lambda _: ([], []))
    launch.join()
    numbers = launch.supervisor._daemons.add_joiners(2) + launch.supervisor._daemons.add_joiners(1)
    addresses = [launch.supervisor._daemons.by_id[number].address for number in numbers]
    # The founder has 7400, whether it runs or not.
    assert addresses == ["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"]


def test_supervisor_gives_ports_back_that_refused_joiners_would_have_had(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch.join()
    reserved = launch.supervisor._daemons._ports

    def refuse(_: object) -> None:
        assert len(reserved._held) == 2
        raise ConfigError("not like this")

    monkeypatch.setattr(daemons, "check", refuse)
    with pytest.raises(ConfigError, match="not like this"):
        launch.supervisor._daemons.add_joiners(2)
    assert reserved._held == []


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", ["127.0.0.1:{65534+id}"], indirect=True)
def test_supervisor_refuses_to_grow_where_no_port_is_left_for_a_page(settled: Launch) -> None:
    answer = settled.supervisor._progress(settled.ask(grow=2), settled.now_s)
    assert "65536" in answer["error"]
    assert sorted(settled.supervisor._daemons.by_id) == [0]
    settled.grow()
    # Its id is above the number of daemons: there are 65,535 ports, whatever the ids.
    settled.hear(-1, event="renumbered", id=7, former=1)
    settled.supervisor._settle()
    with open(settled.run_dir.cluster_file, "rb") as file:
        pages = [node["http"] for node in json.load(file)["nodes"]]
    assert pages == ["http://127.0.0.1:65534/", ""]
