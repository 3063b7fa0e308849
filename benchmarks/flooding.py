"""Many programs that flood one daemon, beside one that never reads and one that reads slowly.

    python -m benchmarks.flooding                        64 programs, 30 s
    python -m benchmarks.flooding --programs 16 --seconds 5 --json out.json

Three daemons. The programs, in `PROCESSES` processes, each send 1 KiB messages by a stream of their own
from node 1 to node 2 as fast as they may. At node 2 some readers take them all; one subscription never
takes anything, one takes a message a second, and each of those has a sender that writes without end.
Meanwhile one more program at node 1 sends single messages to node 2 and measures how long each takes.
The flood begins when all its programs are connected.

Shown: the resident memory of the daemons and of the programs' processes, after a third of the time and
at its end; what was moved; the latency of the single messages, alone and beside the flood; how long a
program that comes at the end of the flood waits until its daemon has greeted it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

import bmgd
from benchmarks.launched import launched

SIZE: Final = 3
SOURCE: Final = 1
SINK: Final = 2
PROCESSES: Final = 4
READERS: Final = 4
MESSAGE: Final = bytes(1024)
ALONE_S: Final = 2.0
STARTED: Final = 5_000
"""Messages after which the flood counts as such."""
START_S: Final = 60.0
"""So long may the programs take to connect, and then until the flood counts as such."""


class Signals:
    """Between the measurement and the processes of its programs.

    Attributes:
        there: released by each program that is connected.
        begin: they are to flood.
        over: they are to end.
    """

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.there = spawn.Semaphore(0)
        self.begin = spawn.Event()
        self.over = spawn.Event()

    async def until_all_are_there(self, count: int) -> None:
        """Wait for so many programs.

        Raises:
            TimeoutError: not within `START_S`.
        """
        until = time.monotonic() + START_S
        for number in range(count):
            left_s = max(0.0, until - time.monotonic())
            if not await asyncio.to_thread(self.there.acquire, timeout=left_s):
                raise TimeoutError(f"{number} of {count} programs were connected in {START_S:g} s")

    def end(self) -> None:
        """No program floods any more, those included that never began."""
        self.over.set()
        self.begin.set()


def resident_bytes(pid: int) -> int:
    """What a process has in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


# --- the programs ---------------------------------------------------------------------------------


async def _flood(daemon: bmgd.Daemon, topic: str) -> None:
    async with daemon.stream(SINK, topic) as stream:
        while True:
            await stream.write(MESSAGE)


async def _flood_from(address: str, topic: str) -> None:
    async with bmgd.connect(address) as daemon:
        await _flood(daemon, topic)


async def _flood_when_told(address: str, signals: Signals, begin: asyncio.Event) -> None:
    async with bmgd.connect(address) as daemon:
        signals.there.release()
        await begin.wait()
        await _flood(daemon, "flood")


async def _flood_all(address: str, count: int, signals: Signals) -> None:
    begin = asyncio.Event()
    tasks = [asyncio.create_task(_flood_when_told(address, signals, begin)) for _ in range(count)]
    await asyncio.to_thread(signals.begin.wait)
    begin.set()
    await asyncio.to_thread(signals.over.wait)
    ended = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        # It floods no more: what was measured is not what was asked for.
        task.result()


def flooding_process(address: str, count: int, signals: Signals) -> None:
    """A process with some programs that flood."""
    asyncio.run(_flood_all(address, count, signals))


async def _take_all(address: str, taken: list[int]) -> None:
    async with bmgd.connect(address) as daemon, daemon.subscribe("flood") as messages:
        while True:
            taken[0] += len(await messages.take(1000))


async def _take_slowly(address: str, taken: list[int]) -> None:
    async with (
        bmgd.connect(address) as daemon,
        daemon.subscribe("slow", credit=1) as messages,
    ):
        async for _ in messages:
            taken[1] += 1
            await asyncio.sleep(1)


async def _never_take(address: str) -> None:
    async with bmgd.connect(address) as daemon, daemon.subscribe("never"):
        await asyncio.Event().wait()


async def _latencies(daemon: bmgd.Daemon, seconds: float) -> list[float]:
    found = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        await daemon.send(SINK, b"x", topic="single", timeout=60)
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    return found


async def _connecting_s(address: str) -> float:
    began = time.perf_counter()
    async with bmgd.connect(address):
        return time.perf_counter() - began


async def _drop_singles(address: str) -> None:
    async with bmgd.connect(address) as daemon, daemon.subscribe("single") as messages:
        while True:
            await messages.take(1000)


# --- the measurement ------------------------------------------------------------------------------


async def measure(
    addresses: Sequence[str], pids: dict[str, int], programs: int, seconds: float
) -> dict[str, Any]:
    """Flood for so long; what was seen.

    Args:
        addresses: the control addresses of the daemons, by id.
        pids: the processes whose memory is looked at, by what they are called.
        programs: how many flood, in `PROCESSES` processes.
    """
    signals = Signals()
    taken = [0, 0]
    sink, source = addresses[SINK], addresses[SOURCE]
    tasks = [asyncio.create_task(_take_all(sink, taken)) for _ in range(READERS)]
    tasks += [asyncio.create_task(_take_slowly(sink, taken))]
    tasks += [asyncio.create_task(_never_take(sink)), asyncio.create_task(_drop_singles(sink))]
    flooding: list[SpawnProcess] = []
    try:
        async with bmgd.connect(source) as daemon:
            alone = await _latencies(daemon, ALONE_S)
            tasks += [
                asyncio.create_task(_flood_from(source, topic)) for topic in ("slow", "never")
            ]
            flooding += _started(source, programs, signals)
            await signals.until_all_are_there(programs)
            signals.begin.set()
            async with asyncio.timeout(START_S):
                while taken[0] < STARTED:
                    await _latencies(daemon, 0.1)
            names = {f"programs {n}": p.pid or 0 for n, p in enumerate(flooding)} | pids
            found = await _watch(daemon, names, taken, seconds)
            connecting_s = await _connecting_s(source)
    finally:
        signals.end()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for process in flooding:
            process.join(20)
    failed = [repr(e) for e in ends if e and not isinstance(e, asyncio.CancelledError)]
    failed += [f"{p.name} ended with {p.exitcode}" for p in flooding if p.exitcode]
    return {
        "programs": programs,
        "taken_slowly": taken[1],
        "failed": failed,
        "alone_ms": _spread(alone),
        **found,
        "connecting_ms": round(connecting_s * 1e3, 2),
    }


def _started(address: str, programs: int, signals: Signals) -> list[SpawnProcess]:
    """The processes of so many programs."""
    each = [programs // PROCESSES + (n < programs % PROCESSES) for n in range(PROCESSES)]
    spawn = multiprocessing.get_context("spawn").Process
    started = [
        spawn(target=flooding_process, args=(address, count, signals), daemon=True)
        for count in each
        if count
    ]
    for process in started:
        process.start()
    return started


async def _watch(
    daemon: bmgd.Daemon, pids: dict[str, int], taken: Sequence[int], seconds: float
) -> dict[str, Any]:
    """What is seen beside the flood."""
    beside = await _latencies(daemon, seconds / 3)
    early = {name: resident_bytes(pid) for name, pid in pids.items()}
    count, began = taken[0], time.perf_counter()
    beside += await _latencies(daemon, seconds * 2 / 3)
    rate = (taken[0] - count) / (time.perf_counter() - began)
    late = {name: resident_bytes(pid) for name, pid in pids.items()}
    return {
        "taken_per_s": round(rate),
        "beside_ms": _spread(beside),
        "resident_mib": {
            name: [round(early[name] / 2**20, 1), round(late[name] / 2**20, 1)] for name in early
        },
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "median": round(statistics.median(ordered) * 1e3, 2),
        "p99": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
        "worst": round(ordered[-1] * 1e3, 2),
    }


def main() -> None:
    """Launch, flood, show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    with launched(SIZE) as cluster:
        addresses = [bmgd.local_address(i, str(cluster.run_dir)) for i in range(SIZE)]
        pids = {f"daemon {i}": pid for i, pid in cluster.pids().items()}
        found = asyncio.run(measure(addresses, pids, args.programs, args.seconds))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
