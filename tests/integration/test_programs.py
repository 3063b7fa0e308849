"""Registered programs on real daemons: who runs where, by everybody's view."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import bmgd
from bmgd.client.items import Stream
from bmgd.errors import RequestError
from tests.integration.cluster import DEADLINE_S, LaunchedCluster, launched, until

Named = set[tuple[int, str]]


async def until_all_know(cluster: LaunchedCluster, wanted: Named) -> None:
    """Wait until every running daemon shows exactly these programs."""

    async def condition() -> list[str]:
        wrong = []
        for node_id in cluster.alive:
            shown = await (await cluster.daemon(node_id)).running_programs()
            found = {(each.id, each.name) for each in shown}
            if found != wanted or len(shown) != len(found):
                wrong.append(f"node {node_id} shows {sorted(found)}, not {sorted(wanted)}")
        return wrong

    await until("all know the programs", condition)


async def following(programs: Stream[bmgd.Program | bmgd.ProgramEnd]) -> AsyncIterator[object]:
    """The changes, each within the deadline."""
    while True:
        async with asyncio.timeout(DEADLINE_S):
            yield await anext(programs)


async def test_programs_are_known_to_all_with_their_ends(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster, AsyncExitStack() as stack:
        watcher = await cluster.daemon(3)
        here = await stack.enter_async_context(bmgd.connect(cluster.control(1)))
        life = (await here.status())["incarnation"]
        async with here.register("before"):
            await until_all_know(cluster, {(1, "before")})
            async with watcher.programs() as programs:
                changes = following(programs)
                assert await anext(changes) == bmgd.Program(1, life, "before")
                async with here.register("worker-3"):
                    assert await anext(changes) == bmgd.Program(1, life, "worker-3")
                    with pytest.raises(RequestError, match="worker-3"):
                        async with here.register("worker-3"):
                            pass
                assert await anext(changes) == bmgd.ProgramEnd(1, life, "worker-3", 0)
                with pytest.raises(ZeroDivisionError):
                    async with here.register("fails"):
                        raise ZeroDivisionError
                assert await anext(changes) == bmgd.Program(1, life, "fails")
                assert await anext(changes) == bmgd.ProgramEnd(1, life, "fails", 1)
                with pytest.raises(SystemExit):
                    async with here.register("exits"):
                        sys.exit(7)
                assert await anext(changes) == bmgd.Program(1, life, "exits")
                assert await anext(changes) == bmgd.ProgramEnd(1, life, "exits", 7)
                async with bmgd.connect(cluster.control(1)) as other:
                    entered = other.register("vanishes")
                    await entered.__aenter__()
                    assert await anext(changes) == bmgd.Program(1, life, "vanishes")
                    other._connection.close()
                assert await anext(changes) == bmgd.ProgramEnd(1, life, "vanishes", None)
        await until_all_know(cluster, set())


async def test_programs_end_with_their_daemon_and_newcomers_know_all(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster, AsyncExitStack() as stack:
        for node_id in (0, 1, 2):
            daemon = await stack.enter_async_context(bmgd.connect(cluster.control(node_id)))
            for name in ("a", "b"):
                await stack.enter_async_context(daemon.register(name))
        await until_all_know(cluster, {(i, name) for i in (0, 1, 2) for name in "ab"})
        async with (await cluster.daemon(3)).programs() as programs:
            changes = following(programs)
            for _ in range(6):
                assert isinstance(await anext(changes), bmgd.Program)
            await cluster.kill(1)
            ends = [await anext(changes) for _ in range(2)]
            assert {(e.id, e.name, e.exit) for e in ends if isinstance(e, bmgd.ProgramEnd)} == {
                (1, "a", None),
                (1, "b", None),
            }
        await cluster.restart(1)
        await until_all_know(cluster, {(i, name) for i in (0, 2) for name in "ab"})
        code, output = await cluster.command("grow", "--run-dir", str(tmp_path), "2")
        assert code == 0, output
        cluster.size = 6
        await until_all_know(cluster, {(i, name) for i in (0, 2) for name in "ab"})
        where = ["--run-dir", str(tmp_path), "--id", "5"]
        code, output = await cluster.command("programs", *where, "--json")
        assert code == 0, output
        shown = json.loads(output)
        assert [(each["id"], each["name"]) for each in shown] == [
            (i, name) for i in (0, 2) for name in "ab"
        ]


async def test_blocking_programs_register_and_follow(tmp_path: Path) -> None:
    def program(cluster: LaunchedCluster) -> None:
        with (
            bmgd.blocking.connect(cluster.control(0)) as here,
            bmgd.blocking.connect(cluster.control(1)) as there,
            there.programs() as programs,
        ):
            with here.register("plain"):
                assert isinstance(next(programs), bmgd.Program)
                assert [each.name for each in there.running_programs()] == ["plain"]
            ended = next(programs)
            assert isinstance(ended, bmgd.ProgramEnd)
            assert (ended.name, ended.exit) == ("plain", 0)

    async with launched(2, tmp_path) as cluster:
        await asyncio.to_thread(program, cluster)


async def test_command_follows_programs_until_it_is_interrupted(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bmgd", "programs", "--watch", "--json"),
            *("--run-dir", str(tmp_path), "--id", "0"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with bmgd.connect(cluster.control(1)) as here, asyncio.timeout(DEADLINE_S):
            async with here.register("worker"):
                shown = json.loads(await process.stdout.readline())
                assert (shown["event"], shown["id"], shown["name"]) == ("start", 1, "worker")
            shown = json.loads(await process.stdout.readline())
            assert (shown["event"], shown["name"], shown["exit"]) == ("end", "worker", 0)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
