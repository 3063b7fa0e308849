"""Many programs at one daemon: those that flood, one that never reads, one that reads slowly; bounds."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import bmgd
from benchmarks.flooding import measure
from bmgd.errors import NoDaemonError, RequestError
from bmgd.shell.control import PROGRAMS_MAX
from tests.integration.cluster import launched, until

FLOODING = 64
MIB = 2**20
OTHERS = PROGRAMS_MAX - 2
AT_ONCE = 64
"""Beside the connection that the cluster keeps, and the last one."""
FLAT_MIB = 60
"""So much more may a process hold at the end than after a third of the time: buffers are still filled."""


async def test_memory_is_flat_under_64_programs_that_flood(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        addresses = [cluster.control(node_id) for node_id in range(3)]
        pids = {f"daemon {node_id}": cluster.pid(node_id) for node_id in range(3)}
        found = await measure(addresses, pids, FLOODING, 15)
        assert found["failed"] == []
        assert found["taken_per_s"] > 100
        assert found["taken_slowly"] >= 10
        for name, (early, late) in found["resident_mib"].items():
            assert late < early + FLAT_MIB, f"{name} grows from {early} to {late} MiB"
            assert late < 300, f"{name} has {late} MiB"


async def test_1024_programs_are_served_and_the_next_is_refused(tmp_path: Path) -> None:
    async with launched(2, tmp_path) as cluster:
        here = cluster.control(1)
        await cluster.at_rest()

        async def program(number: int) -> None:
            async with AsyncExitStack() as stack:
                async with beginning:
                    daemon = await stack.enter_async_context(bmgd.connect(here))
                    await stack.enter_async_context(daemon.register(f"program {number}"))
                ready.release()
                await over.wait()

        # Not all at once: each waits for an answer no longer than the others before it take.
        beginning = asyncio.Semaphore(AT_ONCE)
        ready, over = asyncio.Semaphore(0), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            async with bmgd.connect(cluster.control(0)) as there:
                for number in range(OTHERS):
                    tasks.create_task(program(number))
                for _ in range(OTHERS):
                    await ready.acquire()
                async with bmgd.connect(here) as last:
                    await last.send(0, b"served", topic="jobs")
                    with pytest.raises((RequestError, NoDaemonError), match="1024 programs"):
                        async with bmgd.connect(here):
                            pass

                async def condition() -> list[str]:
                    count = len(await there.running_programs())
                    return [] if count == OTHERS else [f"{count} programs are known"]

                await until("all programs are known at the other node", condition)
            over.set()
