"""`drain` on real daemons: what a daemon has is finished, nothing new is taken, and then it leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import bmgd
from bmgd.errors import LeavingError
from tests.integration.cluster import LaunchedCluster, launched, until, until_true


async def until_state(cluster: LaunchedCluster, node_id: int, state: str) -> None:
    async def condition() -> list[str]:
        found = (await cluster.status(node_id))["state"]
        return [] if found == state else [f"node {node_id} is {found}"]

    await until(f"node {node_id} is {state}", condition)


async def until_ended(cluster: LaunchedCluster, node_id: int) -> None:
    cluster.gone.add(node_id)
    await until_true("it ended with 0", lambda: bool(cluster.found("ended", id=node_id, code=0)))
    await cluster.hang_up(node_id)


async def test_drained_daemon_finishes_its_streams_and_its_readers(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster:
        source, there = await cluster.daemon(0), await cluster.daemon(3)
        async with bmgd.connect(cluster.control(2)) as here:
            async with here.subscribe("jobs") as jobs, there.subscribe("results") as results:
                for number in range(200):
                    await source.send(2, b"%d" % number, topic="jobs")
                result = await here.send_soon(3, b"of before", topic="results")
                draining = asyncio.create_task(here.drain(20))
                await until_state(cluster, 2, "leaving")
                for sending in (
                    source.send(2, b"new", topic="jobs", timeout=5),
                    here.send(3, b"new", topic="results", timeout=5),
                    here.broadcast(b"new", topic="news", timeout=5),
                ):
                    with pytest.raises(LeavingError) as caught:
                        await sending
                    assert caught.value.sent is False
                code, text = await cluster.command("check", "--control", cluster.control(2))
                assert (code, "drains" in text) == (2, True)
                taken: list[bytes] = []
                while len(taken) < 200:
                    assert not draining.done()
                    taken += [m.payload for m in await jobs.take(50)]
                assert taken == [b"%d" % number for number in range(200)]
                # What was taken is finished when the next is asked for, or the subscription ends.
            drained = await draining
            assert drained == bmgd.Drained(True, 0, 0)
            await result
        await until_ended(cluster, 2)
        members = await source.members()
        assert members[2]["status"] == "left"
        async with there.subscribe("results") as results:
            assert (await anext(results)).payload == b"of before"


async def test_drain_that_runs_out_of_time_names_what_is_left_over(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        source = await cluster.daemon(0)
        for number in range(3):
            await source.send(2, b"%d" % number, topic="nobody reads")
        await source.send(2, b"slowly", topic="jobs")
        async with bmgd.connect(cluster.control(2)) as reader, reader.subscribe("jobs") as jobs:
            await anext(jobs)
            where = ["--run-dir", str(tmp_path), "--id", "2"]
            code, output = await cluster.command("drain", *where, "--timeout", "1", "--json")
            shown = json.loads(output)
            assert code == 4, output
            assert (shown["drained"], shown["unconfirmed"], shown["unread"]) == (False, 0, 4)
            assert shown["left_over"] == [
                {"kind": "unread", "topic": "nobody reads", "messages": 3},
                {"kind": "unread", "topic": "jobs", "messages": 1},
            ]
        await until_ended(cluster, 2)
        code, output = await cluster.command("drain", "--run-dir", str(tmp_path), "--id", "1")
        assert (code, "drained, left and ended" in output) == (0, True)
        await until_ended(cluster, 1)


async def test_questions_from_and_to_a_draining_daemon_get_their_answers(tmp_path: Path) -> None:
    async with launched(4, tmp_path) as cluster:
        asker, there = await cluster.daemon(0), await cluster.daemon(3)
        async with bmgd.connect(cluster.control(2)) as here:
            async with here.subscribe("mine") as mine, there.subscribe("others") as others:
                to_it = asyncio.create_task(asker.request(2, b"q", topic="mine", timeout=20))
                from_it = asyncio.create_task(here.request(3, b"q", topic="others", timeout=20))
                question, other = await anext(mine), await anext(others)
                draining = asyncio.create_task(here.drain(20))
                await until_state(cluster, 2, "leaving")
                await question.reply(b"a")
                assert await to_it == b"a"
                await other.reply(b"b")
                assert await from_it == b"b"
            assert (await draining).drained
        await until_ended(cluster, 2)
