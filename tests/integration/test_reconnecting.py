"""`connect(..., reconnect=True)` over daemons that are killed and started again, under traffic."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import bmgd
from bmgd.errors import DeliveryError, NoDaemonError, UnreachableError
from tests.integration.cluster import DEADLINE_S, LaunchedCluster, launched, until, until_true


def keeping_lives(tmp_path: Path) -> tuple[str, str]:
    """Flags by which a daemon that is started again has the next life at once.

    Without them it may begin with a lower one, and then take another: what was sent between fails.
    """
    return "--state-dir", str(tmp_path / "state")


async def restart(cluster: LaunchedCluster, node_id: int) -> None:
    await cluster.kill(node_id)
    await cluster.hang_up(node_id)
    await cluster.restart(node_id)


async def until_read_at(cluster: LaunchedCluster, node_id: int, topic: str) -> None:
    async def condition() -> list[str]:
        found = await (await cluster.daemon(0)).readers(topic)
        return [] if node_id in found else [f"read at {found}"]

    await until(f"{topic!r} is read at node {node_id}", condition)


async def test_sends_and_streams_go_on_and_what_is_lost_is_told(tmp_path: Path) -> None:
    taken: set[bytes] = set()
    confirmed: set[bytes] = set()
    doubted: set[bytes] = set()
    refused: set[bytes] = set()

    async def read(cluster: LaunchedCluster) -> None:
        async with (await cluster.daemon(2)).subscribe("jobs") as messages:
            async for message in messages:
                assert message.payload not in taken
                taken.add(message.payload)

    async def send(daemon: bmgd.Daemon, who: int, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            number += 1
            payload = b"%d %d" % (who, number)
            try:
                await daemon.send(2, payload, topic="jobs", timeout=20)
            except UnreachableError as error:
                (doubted if error.sent else refused).add(payload)
            else:
                confirmed.add(payload)

    async with launched(3, tmp_path) as cluster, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read(cluster))
        async with bmgd.connect(cluster.control(1), reconnect=True) as here:
            over = asyncio.Event()
            senders = [tasks.create_task(send(here, who, over)) for who in range(16)]
            for _ in range(2):
                count = len(confirmed)
                await until_true("more is confirmed", lambda: len(confirmed) > count + 100)  # noqa: B023
                await restart(cluster, 1)
            count = len(confirmed)
            await until_true("more is confirmed", lambda: len(confirmed) > count + 100)
            over.set()
            await asyncio.gather(*senders)
            assert doubted | refused
        await until_true("all are taken", lambda: taken >= confirmed)
        assert not taken & refused
        assert taken <= confirmed | doubted
        reading.cancel()


async def test_stream_goes_on_after_it_has_told_once(tmp_path: Path) -> None:
    async with (
        launched(3, tmp_path, *keeping_lives(tmp_path)) as cluster,
        bmgd.connect(cluster.control(1), reconnect=True) as here,
        here.stream(2, "jobs") as stream,
    ):
        await stream.write(b"before")
        await stream.flush()
        await restart(cluster, 1)
        # Nothing was underway: nothing is told.
        await stream.write(b"between")
        await stream.flush()
        cluster.stop(2)
        await stream.write(b"underway")
        await restart(cluster, 1)
        with pytest.raises(UnreachableError) as caught:
            await stream.write(b"not sent")
        assert caught.value.sent
        cluster.go_on(2)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await stream.write(b"after")
                    await stream.flush()
                    break
                except DeliveryError:
                    await asyncio.sleep(0.05)
        async with (await cluster.daemon(2)).subscribe("jobs") as messages:
            taken = [(await anext(messages)).payload for _ in range(3)]
            while taken[-1] != b"after":
                taken.append((await anext(messages)).payload)
        assert [p for p in taken if p != b"underway"] == [b"before", b"between", b"after"]


async def test_subscriptions_and_registrations_are_made_again(tmp_path: Path) -> None:
    async with (
        launched(3, tmp_path) as cluster,
        bmgd.connect(cluster.control(1), reconnect=True) as here,
        here.register("worker"),
        here.subscribe("jobs") as jobs,
        here.subscribe("mark") as marks,
        here.membership() as changes,
        here.programs() as programs,
    ):
        source = await cluster.daemon(0)
        await source.send(1, b"one", topic="jobs")
        await source.send(1, b"two", topic="jobs")
        assert (await anext(jobs)).payload == b"one"
        # What is confirmed is at the daemon. What has come after it shows that it is here.
        await source.send(1, b"behind two", topic="mark")
        assert (await anext(marks)).payload == b"behind two"
        first = await anext(programs)
        assert isinstance(first, bmgd.Program)
        for _ in range(3):
            await anext(changes)
        await restart(cluster, 1)
        await until_read_at(cluster, 1, "jobs")
        await source.send(1, b"three", topic="jobs")
        async with asyncio.timeout(DEADLINE_S):
            # What was here stays here, then the gap, then what comes of the new life.
            assert (await anext(jobs)).payload == b"two"
            gap: object = await anext(jobs)
            assert gap == bmgd.Interrupted()
            assert (await jobs.take(10))[0].payload == b"three"
            await source.send(1, b"four", topic="jobs")
            assert (await anext(jobs)).payload == b"four"
            assert await anext(programs) == bmgd.ProgramEnd(*first, None)
            # A daemon that keeps no state may begin with a lower life, and is told to take a later one.
            while (started := await anext(programs)).incarnation < first.incarnation:
                assert (started.id, started.name) == (1, "worker")
            assert isinstance(started, bmgd.Program)
            assert (started.id, started.name) == (1, "worker")
            seen: set[int] = set()
            while seen < {0, 1, 2}:
                seen.add((await anext(changes)).id)

        async def condition() -> list[str]:
            shown = await source.running_programs()
            return [] if [each.name for each in shown] == ["worker"] else [str(shown)]

        await until("node 0 knows of the program again", condition)


async def test_requests_wait_and_questions_underway_are_told(tmp_path: Path) -> None:
    async with (
        launched(3, tmp_path, *keeping_lives(tmp_path)) as cluster,
        bmgd.connect(cluster.control(1), reconnect=True) as here,
        (await cluster.daemon(2)).subscribe("rpc") as questions,
    ):
        asking = asyncio.create_task(here.request(2, b"q", topic="rpc", timeout=30))
        assert (await anext(questions)).payload == b"q"
        await cluster.kill(1)
        await cluster.hang_up(1)
        with pytest.raises(UnreachableError) as caught:
            await asking
        assert caught.value.sent
        with pytest.raises(UnreachableError) as caught:
            await here.send(2, b"x", timeout=0.2)
        assert not caught.value.sent
        evicting = asyncio.create_task(here.status())
        sending = asyncio.create_task(here.send(2, b"waits", timeout=20))
        await cluster.restart(1)
        assert (await evicting)["id"] == 1
        await sending
        asking = asyncio.create_task(here.request(2, b"again", topic="rpc", timeout=30))
        question = await anext(questions)
        await question.reply(b"a")
        assert await asking == b"a"


async def test_reconnecting_needs_a_daemon_at_first_and_ends_with_its_block(tmp_path: Path) -> None:
    with pytest.raises(NoDaemonError):
        async with bmgd.connect(f"unix:{tmp_path}/no.sock", reconnect=True):
            pass
    async with launched(2, tmp_path) as cluster:
        async with bmgd.connect(cluster.control(1), reconnect=True) as here:
            await here.status()
        with pytest.raises(bmgd.ControlError, match="closed"):
            await here.status()


async def test_blocking_lives_through_a_restart(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        address = cluster.control(1)
        context = bmgd.blocking.connect(address, reconnect=True)
        here = await asyncio.to_thread(context.__enter__)
        assert (await asyncio.to_thread(here.status))["id"] == 1
        await restart(cluster, 1)
        assert (await asyncio.to_thread(here.status))["id"] == 1
        await asyncio.to_thread(context.__exit__, None, None, None)
