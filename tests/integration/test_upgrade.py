"""A rolling upgrade: daemons of the release before are replaced one after the other, under traffic."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

import bmgd
from bmgd.errors import BmgdError, ControlError, DeliveryError
from bmgd.wire.features import SPOKEN, names_of
from tests.integration.cluster import (
    FLAVOURS,
    JOINERS_MAX,
    FoundedCluster,
    Process,
    linked_exactly,
    ordered_pairs,
    until,
)
from tests.integration.ports import free_base_port
from tests.integration.wheels import environment_with, previous_commit, sources_of, wheel_of
from tests.unit.wire.test_features import spoken_before

SIZE = 9
TOPIC = "upgrade"
PAUSE_S = 0.1
TIMEOUT_S = 30.0

pytestmark = pytest.mark.long

_KINDS = """
from bmgd.wire import codec
for kind, form in sorted(codec._FORMATS.items()):
    print(hex(kind), form.message.__name__, form.fields)
"""


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel of the release before this one."""
    directory = tmp_path_factory.mktemp("previous")
    sources = sources_of(previous_commit(), directory / "sources")
    wheel = wheel_of(sources, directory / "wheel")
    return environment_with(wheel, directory / "environment")


@pytest.fixture(scope="module")
def new_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel of the present commit."""
    directory = tmp_path_factory.mktemp("present")
    wheel = wheel_of(sources_of("HEAD", directory / "sources"), directory / "wheel")
    return environment_with(wheel, directory / "environment")


class TwoReleases(FoundedCluster):
    """Founders of which each runs on a Python of its own.

    Attributes:
        pythons: by id.
        replacing: the ids that are being replaced now.
    """

    def __init__(self, directory: Path, base_port: int, flags: list[str], python: Path) -> None:
        super().__init__(SIZE, directory, base_port, FLAVOURS[0], flags)
        self.pythons = dict.fromkeys(range(SIZE), python)
        self.replacing: set[int] = set()

    def begin(self, words: list[str], log: IO[bytes]) -> Process:
        node_id = int(words[words.index("--id") + 1])
        # From elsewhere: sources in the working directory would go before what is installed.
        command = [str(self.pythons[node_id]), "-P", "-m", "bmgd", *words]
        state = ["--state-dir", str(self.directory / f"state-{node_id}")]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BMGD", "PYTHON"))}
        return subprocess.Popen(
            [*command, *state],
            stdin=subprocess.DEVNULL,
            stderr=log,
            cwd=self.directory,
            env=environment,
        )

    async def replace(self, node_id: int, python: Path) -> None:
        """Let a daemon leave, and start it again on another Python."""
        self.replacing.add(node_id)
        os.kill(self.pid(node_id), signal.SIGTERM)
        await self.left(node_id)
        self.pythons[node_id] = python
        self.start(node_id)
        await self.listening(node_id)
        await linked_exactly(self, range(SIZE))
        self.replacing.discard(node_id)


@asynccontextmanager
async def cluster_of(python: Path, directory: Path) -> AsyncIterator[TwoReleases]:
    """Nine daemons of one release, linked."""
    base_port = free_base_port(SIZE + JOINERS_MAX)
    flags = ["--size", str(SIZE), "--peers", f"127.0.0.1:{{{base_port}+id}}"]
    cluster = TwoReleases(directory, base_port, flags, python)
    async with cluster.running():
        cluster.start(*range(SIZE))
        await asyncio.gather(*(cluster.listening(node_id) for node_id in range(SIZE)))
        await linked_exactly(cluster, range(SIZE))
        yield cluster


@dataclass
class Traffic:
    """What programs sent and read meanwhile.

    Attributes:
        confirmed, in_doubt: messages by (source, destination, number).
        read: how often each came.
        problems: what should not have happened.
    """

    cluster: TwoReleases
    confirmed: set[tuple[int, int, int]] = field(default_factory=set)
    in_doubt: set[tuple[int, int, int]] = field(default_factory=set)
    read: dict[tuple[int, int, int], int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_at(self, node_id: int) -> None:
        """Read at a node, in each of its lives."""
        while not self.stopping.is_set():
            try:
                async with (
                    bmgd.connect(self.cluster.control(node_id)) as daemon,
                    daemon.subscribe(TOPIC) as messages,
                ):
                    async for message in messages:
                        source, number = map(int, message.payload.split())
                        key = source, node_id, number
                        self.read[key] = self.read.get(key, 0) + 1
            except ControlError:
                await asyncio.sleep(PAUSE_S)

    async def send_from(self, source: int, destination: int) -> None:
        """Count up from one node to another, in each of the source's lives."""
        number = 0
        while not self.stopping.is_set():
            try:
                async with bmgd.connect(self.cluster.control(source)) as daemon:
                    while not self.stopping.is_set():
                        number += 1
                        await self._send(daemon, source, destination, number)
                        await asyncio.sleep(PAUSE_S)
            except ControlError:
                self.in_doubt.add((source, destination, number))
                self._excuse(source, destination, "the daemon is gone")
                await asyncio.sleep(PAUSE_S)

    async def _send(self, daemon: bmgd.Daemon, source: int, to: int, number: int) -> None:
        payload, key = b"%d %d" % (source, number), (source, to, number)
        try:
            await daemon.send(to, payload, topic=TOPIC, timeout=TIMEOUT_S)
            self.confirmed.add(key)
        except DeliveryError as error:
            if error.sent:
                self.in_doubt.add(key)
            self._excuse(source, to, f"{type(error).__name__}: {error}")
        except BmgdError as error:
            if isinstance(error, ControlError):
                raise
            self._excuse(source, to, f"{type(error).__name__}: {error}")

    def _excuse(self, source: int, destination: int, text: str) -> None:
        if not {source, destination} & self.cluster.replacing and not self.stopping.is_set():
            self.problems.append(f"{source} to {destination}: {text}")

    def check(self) -> None:
        """Everything that was confirmed was read, and nothing twice."""
        assert not self.problems, self.problems[:8]
        lost = self.confirmed - self.read.keys()
        assert not lost, f"{len(lost)} of {len(self.confirmed)} are lost: {sorted(lost)[:8]}"
        twice = [key for key, count in self.read.items() if count > 1]
        assert not twice, f"read twice: {twice[:8]}"
        unknown = self.read.keys() - self.confirmed - self.in_doubt
        assert not unknown, f"read and never sent: {sorted(unknown)[:8]}"


@asynccontextmanager
async def traffic_in(cluster: TwoReleases) -> AsyncIterator[Traffic]:
    """Every node sends to every other meanwhile."""
    traffic = Traffic(cluster)
    readers = [asyncio.create_task(traffic.read_at(i)) for i in range(SIZE)]
    senders = [asyncio.create_task(traffic.send_from(a, b)) for a, b in ordered_pairs(range(SIZE))]
    try:
        yield traffic
        traffic.stopping.set()
        await asyncio.gather(*senders)

        async def all_read() -> list[str]:
            return [str(key) for key in traffic.confirmed - traffic.read.keys()]

        await until("everything is read", all_read)
    finally:
        for task in (*senders, *readers):
            task.cancel()
        await asyncio.gather(*senders, *readers, return_exceptions=True)


async def older_at(cluster: TwoReleases, ids: Iterable[int], expected: list[int]) -> None:
    """Wait until new daemons know exactly these for older, or some of them."""

    async def condition() -> list[str]:
        wrong = []
        for node_id in ids:
            status = await cluster.status(node_id)
            features = [] if expected else names_of(SPOKEN)
            older = status["older"]
            known = bool(older) == bool(expected) and set(older) <= set(expected)
            if not known or status["features"] != features:
                wrong.append(f"node {node_id}: older {older}, features {status['features']}")
        return wrong

    await until("new daemons know who is older", condition)


async def check_nothing_was_dropped(cluster: TwoReleases, node_id: int) -> None:
    """No daemon has met a frame that it could not read, nor closed a link for one."""
    status = await cluster.status(node_id)
    assert status["dropped_frames"] == 0, f"node {node_id} dropped {status['dropped_frames']}"
    assert "protocol error" not in cluster.log(node_id)


async def test_rolling_upgrade_of_nine_daemons_loses_nothing(
    old_python: Path, new_python: Path, tmp_path: Path
) -> None:
    async with cluster_of(old_python, tmp_path) as cluster, traffic_in(cluster) as traffic:
        for node_id in range(SIZE):
            assert "older" not in await cluster.status(node_id)
            await check_nothing_was_dropped(cluster, node_id)
            before = len(traffic.confirmed)
            await cluster.replace(node_id, new_python)
            await older_at(cluster, range(node_id + 1), list(range(node_id + 1, SIZE)))

            async def goes_on(before: int = before) -> list[str]:
                return [] if len(traffic.confirmed) > before + 2 * SIZE * SIZE else ["too few"]

            await until("messages go on", goes_on)
    traffic.check()
    for node_id in range(SIZE):
        assert "protocol error" not in cluster.log(node_id)
    print(f"{len(traffic.confirmed)} messages confirmed and read, {len(traffic.in_doubt)} in doubt")


async def test_going_back_to_the_release_before_works_too(
    old_python: Path, new_python: Path, tmp_path: Path
) -> None:
    async with cluster_of(new_python, tmp_path) as cluster, traffic_in(cluster) as traffic:
        await older_at(cluster, range(SIZE), [])
        await cluster.replace(4, old_python)
        await older_at(cluster, sorted(set(range(SIZE)) - {4}), [4])
        await check_nothing_was_dropped(cluster, 4)
        await cluster.replace(4, new_python)
        await older_at(cluster, range(SIZE), [])
    traffic.check()


def test_the_golden_list_of_kinds_is_that_of_the_release_before(old_python: Path) -> None:
    asked = subprocess.run(
        [str(old_python), "-P", "-c", _KINDS], capture_output=True, text=True, check=True, cwd="/"
    )
    rows = [line.split() for line in asked.stdout.splitlines()]
    assert {int(kind, 16): (name, int(n)) for kind, name, n in rows} == spoken_before()
    assert sys.executable != str(old_python)
