"""The rest of the cluster, while it is attacked: it sends messages, and is watched."""

from __future__ import annotations

import asyncio
import threading
import time

import psutil

from benchmarks.launched import Launched
from benchmarks.mutated.attack import PATIENCE_S
from benchmarks.mutated.cases import ATTACKERS
from bmgd.client import Daemon, connect
from bmgd.errors import BmgdError
from bmgd.launcher.rundir import read_members

OTHERS = range(ATTACKERS[0])
PAUSE_S = 0.05


class Meanwhile:
    """The others of the cluster: they send, and are watched."""

    def __init__(self, cluster: Launched) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.problems: list[str] = []
        self.slowest_s = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S * 3)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(self._watch(i)) for i in OTHERS]
                watching += [tasks.create_task(self._read(i)) for i in OTHERS]
                await asyncio.gather(*(self._talk(i) for i in OTHERS))
                for task in watching:
                    task.cancel()
        except* (BmgdError, OSError) as group:
            self.problems += [repr(error) for error in group.exceptions]

    def _path(self, node_id: int) -> str:
        return read_members(str(self._cluster.run_dir))[node_id].control

    async def _talk(self, node_id: int) -> None:
        async with connect(self._path(node_id)) as daemon:
            while not self._stopping.is_set():
                to = (node_id + 1 + self.sent % 3) % len(OTHERS)
                if to != node_id:
                    await self._send(daemon, to)
                await asyncio.sleep(PAUSE_S)

    async def _send(self, daemon: Daemon, to: int) -> None:
        began_s = time.monotonic()
        await daemon.send(to, b"x" * 100, topic="meanwhile", timeout=60)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        self.sent += 1

    async def _read(self, node_id: int) -> None:
        async with (
            connect(self._path(node_id)) as daemon,
            daemon.subscribe("meanwhile") as messages,
        ):
            async for _ in messages:
                pass

    async def _watch(self, node_id: int) -> None:
        async with connect(self._path(node_id)) as daemon, daemon.monitor() as events:
            async for event in events:
                peer = event.get("peer")
                is_other = peer is not None and peer in OTHERS
                if is_other and event["event"] == "link down":
                    self.problems.append(f"node {node_id} lost its link to {peer}: {event}")
                if (
                    is_other
                    and event["event"] == "record"
                    and event.get("status")
                    not in (
                        "alive",
                        "expected",
                    )
                ):
                    self.problems.append(f"node {node_id} holds {peer} for {event.get('status')}")


def rss_bytes(cluster: Launched) -> list[int]:
    """The memory of each daemon that lives."""
    pids = cluster.pids()
    return [psutil.Process(pids[i]).memory_info().rss for i in OTHERS]


def tracebacks(cluster: Launched) -> list[str]:
    """The logs that have one."""
    logs = sorted(cluster.run_dir.glob("node-*.log"))
    return [
        path.name
        for path in logs
        if any(word in path.read_text(errors="replace") for word in ("Traceback", "a bug in bmgd"))
    ]
