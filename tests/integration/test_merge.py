"""Halves of a cluster that did not hear of each other, both of which grew, become one again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path

import pytest

from bmgd.client import connect
from bmgd.errors import ControlError, NoDaemonError
from bmgd.topology import BinomialGraph
from tests.integration.cluster import FoundedCluster, Status, founded, linked_exactly, until
from tests.integration.test_life import start_joiner

MERGED_S = 10.0
LOADED_S = 10.0
"""What a loaded machine may add to that."""


@contextmanager
def _ended_at_last(joiners: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        for joiner in joiners:
            if joiner.poll() is None:
                joiner.kill()
            joiner.wait()


async def _answering(patterns: Sequence[str]) -> dict[int, Status]:
    """The status of every daemon that has one of these sockets, by its id."""

    async def ask(path: str) -> Status | None:
        try:
            async with connect(f"unix:{path}") as daemon:
                return await daemon.status()
        except (NoDaemonError, ControlError):
            return None

    paths = [path for pattern in patterns for path in glob(pattern)]
    found = await asyncio.gather(*map(ask, paths))
    return {status["id"]: status for status in found if status is not None}


async def _one_cluster(patterns: Sequence[str], pids: set[int]) -> dict[int, Status]:
    """Wait until these processes are one cluster with exactly its links; returns who is who."""
    seen: dict[int, Status] = {}

    async def condition() -> list[str]:
        seen.clear()
        seen.update(await _answering(patterns))
        alive = sorted(seen)
        if {status["pid"] for status in seen.values()} != pids or len(alive) != len(pids):
            return [f"those that answer are {alive}"]
        graph, wrong = BinomialGraph(len(alive)), []
        for node_id, status in seen.items():
            wanted = sorted(alive[rank] for rank in graph.neighbors(alive.index(node_id)))
            linked = sorted(row["id"] for row in status["links"])
            if (status["state"], status["alive"], linked) != ("ready", alive, wanted):
                wrong.append(f"node {node_id} holds {status['alive']}, is linked to {linked}")
        digests = {status["digest"] for status in seen.values()}
        return wrong or ([] if len(digests) == 1 else ["the digests differ"])

    await until(f"{len(pids)} are one cluster", condition, MERGED_S + LOADED_S)
    return seen


def _grow(
    cluster: FoundedCluster, numbers: Sequence[int], through: int, directory: Path
) -> list[subprocess.Popen[bytes]]:
    directory.mkdir(exist_ok=True)
    control = ["--control", f"unix:{directory}/node-{{id}}.sock"]
    return [start_joiner(cluster, number, through, *control) for number in numbers]


@pytest.mark.long
async def test_halves_that_grew_apart_become_one_cluster(tmp_path: Path) -> None:
    """Each half is stopped while the other buries it, heals and grows."""
    here, there = range(4), range(4, 8)
    of_others = f"{tmp_path}/there/node-*.sock"
    joiners: list[subprocess.Popen[bytes]] = []
    with _ended_at_last(joiners):
        async with founded(8, tmp_path) as cluster:
            cluster.start(*here, *there)
            await linked_exactly(cluster, range(8))
            incarnations = {i: s["incarnation"] for i, s in (await cluster.statuses()).items()}

            for node_id in there:
                cluster.stop(node_id)
            await linked_exactly(cluster, here)
            joiners += _grow(cluster, (0, 1), 0, tmp_path)
            await linked_exactly(cluster, [*here, 8, 9])

            for joiner in joiners:
                joiner.send_signal(signal.SIGSTOP)
            for node_id in here:
                cluster.stop(node_id)
            for node_id in there:
                cluster.go_on(node_id)
            await linked_exactly(cluster, there)
            other = _grow(cluster, (2, 3), 4, tmp_path / "there")
            joiners += other
            pids = {cluster.pid(i) for i in there} | {joiner.pid for joiner in other}
            await _one_cluster([f"{tmp_path}/node-[4-7].sock", of_others], pids)

            for node_id in here:
                cluster.go_on(node_id)
            for joiner in joiners[:2]:
                joiner.send_signal(signal.SIGCONT)
            pids |= {cluster.pid(i) for i in here} | {joiner.pid for joiner in joiners}
            merged = await _one_cluster([f"{tmp_path}/node-*.sock", of_others], pids)
            assert {i: merged[i]["incarnation"] for i in incarnations} == incarnations
            for joiner in joiners:
                joiner.terminate()
