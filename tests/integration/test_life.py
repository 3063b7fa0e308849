"""The life of a member, on real processes: eviction, growth, leaving, restarts."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bmgd.errors import NoQuorumError, RequestError
from bmgd.launcher.requests import ask_grow
from bmgd.launcher.rundir import read_members
from tests.integration.cluster import (
    FoundedCluster,
    ended,
    founded,
    launched,
    linked_exactly,
    until,
    until_true,
)
from tests.integration.ports import free_base_port


def start_joiner(
    cluster: FoundedCluster, number: int, through: int, *flags: str
) -> subprocess.Popen[bytes]:
    """Start `bmgd run --join`; its socket is named after the id that it is given."""
    port = cluster.base_port + cluster.size + number
    words = ["run", "--join", f"127.0.0.1:{cluster.base_port + through}"]
    words += [
        "--listen",
        f"127.0.0.1:{port}",
        "--control",
        f"unix:{cluster.directory}/node-{{id}}.sock",
    ]
    with (cluster.directory / f"joiner-{number}.log").open("ab") as log:
        return cluster.spawn([*words, "--log-level", "debug", *flags], log)


async def test_evicted_daemon_ends_and_is_left(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster:
        where = ["--run-dir", str(tmp_path), "--id", "1", "--json"]
        code, output = await cluster.command("evict", "3", *where)
        assert (code, json.loads(output)) == (0, {"id": 3, "ended": True})
        cluster.gone.add(3)
        await until_true("its process ended", lambda: bool(cluster.found("ended", id=3, code=1)))
        await cluster.told_of(3, 0, "left")
        code, output = await cluster.command("evict", "5", *where)
        assert (code, "no node has the id 5" in output) == (1, True)


async def test_joiners_become_members_and_come_back_as_the_same(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret for growth")
    secret = ["--secret-file", str(tmp_path / "secret")]
    async with founded(3, tmp_path, *secret) as cluster:
        cluster.start(0, 1, 2)
        await linked_exactly(cluster, range(3))
        joiners = [
            start_joiner(cluster, i, i % 3, *secret, "--state-dir", str(tmp_path / f"state-{i}"))
            for i in range(4)
        ]
        try:
            await linked_exactly(cluster, range(7))
            await cluster.exchange(range(7))
            victim = joiners[1]
            status = {i: await cluster.status(i) for i in range(3, 7)}
            was = next(i for i, s in status.items() if s["pid"] == victim.pid)
            await cluster.hang_up(was)
            victim.kill()
            await linked_exactly(cluster, [i for i in range(7) if i != was])
            flags = [*secret, "--state-dir", str(tmp_path / "state-1")]
            joiners[1] = start_joiner(cluster, 1, 1, *flags)
            await linked_exactly(cluster, range(7))
            again = await cluster.status(was)
            assert again["pid"] == joiners[1].pid
            assert again["incarnation"] >> 32 == 2
            for joiner in joiners:
                joiner.send_signal(signal.SIGTERM)
            assert [await ended(joiner) for joiner in joiners] == [0] * 4
            for node_id in range(3, 7):
                await cluster.hang_up(node_id)
            await linked_exactly(cluster, range(3))
            assert (await cluster.status(0))["left"] == [3, 4, 5, 6]
        finally:
            for joiner in joiners:
                if joiner.poll() is None:
                    joiner.kill()
                joiner.wait()


async def test_joiner_with_a_wrong_secret_ends_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "wrong").write_text("another")
    async with founded(2, tmp_path, "--secret-file", str(tmp_path / "secret")) as cluster:
        cluster.start(0, 1)
        await linked_exactly(cluster, range(2))
        joiner = start_joiner(cluster, 0, 1, "--secret-file", str(tmp_path / "wrong"))
        assert await ended(joiner) == 1
        assert "wrong secret" in (tmp_path / "joiner-0.log").read_text()
        assert (await cluster.status(0))["alive"] == [0, 1]


async def test_launched_cluster_grows_and_restarts_what_it_grew(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster:
        answer = await asyncio.to_thread(ask_grow, str(tmp_path), 5)
        assert answer["ids"] == [4, 5, 6, 7, 8]
        await linked_exactly(cluster, range(9))
        await cluster.kill(6)
        await linked_exactly(cluster, [0, 1, 2, 3, 4, 5, 7, 8])
        await cluster.restart(6)
        await linked_exactly(cluster, range(9))
        assert [member.id for member in read_members(str(tmp_path))] == list(range(9))
        code, output = await cluster.command("launch", "--grow", "1", "--run-dir", str(tmp_path))
        assert (code, "node 9 joined" in output) == (0, True)


async def test_rolling_restart_of_all_loses_no_message(tmp_path: Path) -> None:
    state = ["--state-dir", str(tmp_path / "state")]
    async with founded(3, tmp_path, *state) as cluster:
        cluster.start(0, 1, 2)
        await linked_exactly(cluster, range(3))
        for victim in range(3):
            others = [i for i in range(3) if i != victim]
            async with cluster.reading(others[0], "work") as taken:
                daemon = await cluster.daemon(victim)
                payloads = [f"{victim}: {number}".encode() for number in range(50)]
                sends = [
                    asyncio.ensure_future(daemon.send(others[0], payload, topic="work"))
                    for payload in payloads
                ]
                await asyncio.sleep(0)
                await daemon.leave()
                await asyncio.gather(*sends)
                await until_true("all are read", lambda: len(taken) >= 50)
                assert sorted(m.payload for m in taken) == sorted(payloads)
            await cluster.left(victim)
            await linked_exactly(cluster, others)
            cluster.start(victim)
            await linked_exactly(cluster, range(3))
            assert (await cluster.status(victim))["incarnation"] >> 32 == 2


async def test_second_daemon_of_a_living_id_ends_and_harms_nobody(tmp_path: Path) -> None:
    async with founded(3, tmp_path) as cluster:
        cluster.start(0, 1, 2)
        await linked_exactly(cluster, range(3))
        living = await cluster.status(1)
        second = start_joiner(
            cluster, 0, 2, "--id", "1", "--control", f"unix:{tmp_path}/second.sock"
        )
        assert await ended(second) == 1
        assert "another living daemon has the id 1" in (tmp_path / "joiner-0.log").read_text()
        await linked_exactly(cluster, range(3))
        assert (await cluster.status(1))["incarnation"] == living["incarnation"]
        await cluster.exchange(range(3))


async def test_dead_daemon_is_replaced_at_another_address(tmp_path: Path) -> None:
    async with founded(3, tmp_path) as cluster:
        cluster.start(0, 1, 2)
        await linked_exactly(cluster, range(3))
        await cluster.kill(1)
        replacement = start_joiner(cluster, 0, 2, "--id", "1")
        try:
            await linked_exactly(cluster, range(3))
            member = (await (await cluster.daemon(0)).members())[1]
            assert member["address"] == f"127.0.0.1:{cluster.base_port + 3}"
            await cluster.exchange(range(3))
            replacement.send_signal(signal.SIGTERM)
            assert await ended(replacement) == 0
            await cluster.hang_up(1)
        finally:
            if replacement.poll() is None:
                replacement.kill()
            replacement.wait()


async def test_minority_stands_aside_and_says_so(tmp_path: Path) -> None:
    async with launched(3, tmp_path, "--quorum", "majority") as cluster:
        await cluster.kill(1, 2)

        async def condition() -> list[str]:
            quorum = (await cluster.status(0))["quorum"]
            return [str(quorum)] if quorum["holds"] else []

        await until("node 0 stands aside", condition)
        with pytest.raises(NoQuorumError):
            await (await cluster.daemon(0)).send(0, b"x")
        await until_true("the launcher heard", lambda: bool(cluster.found("quorum lost", id=0)))
        await cluster.restart(1)

        async def holds() -> list[str]:
            quorum = (await cluster.status(0))["quorum"]
            return [] if quorum["holds"] else [str(quorum)]

        # The link is up at the other end first.
        await until("the quorum holds again", holds)
        await cluster.exchange([0, 1])


async def test_joiners_that_end_are_told_with_the_log_that_says_why(tmp_path: Path) -> None:
    port = free_base_port(4)
    async with launched(3, tmp_path, "--http", str(port)):
        with socket.create_server(("127.0.0.1", port + 3)):
            says = r"1 of 1 joiners ended; .*/joiner-1\.log says why"
            with pytest.raises(RequestError, match=says):
                await asyncio.to_thread(ask_grow, str(tmp_path), 1)
    assert "in use" in (tmp_path / "joiner-1.log").read_text()


async def test_joiners_of_a_launch_with_pages_find_ports_of_their_own(tmp_path: Path) -> None:
    """Without a port for the daemons they are searched behind those of the pages, joiners' too."""
    port, run_dir = free_base_port(5), str(tmp_path / "run")
    words = [sys.executable, "-m", "bmgd", "launch", "-n", "3", "--run-dir", run_dir, "--json"]
    process = await asyncio.create_subprocess_exec(
        *words, "--http", str(port), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        while json.loads(await process.stdout.readline())["event"] != "up":
            pass
        grown = await asyncio.to_thread(ask_grow, run_dir, 2)
        assert grown["ids"] == [3, 4]
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
