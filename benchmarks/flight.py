"""What the flight recorder costs: two clusters side by side, one with and one without, the same messages.

    python -m benchmarks.flight [--size 8] [--messages 4000] [--rounds 5] [--seconds 40]

Both are idle at first for so many seconds. Then each round sends as many messages in both, at the same
time and rate, and compares the CPU time that all daemons of each used. Ratios hold on a busy machine
too; times do not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import psutil

import bmgd
from benchmarks.launched import Launched, launched
from bmgd.launcher.rundir import read_members

TOPICS = 20
SENDERS = 8
PAUSE_S = 0.02
PAYLOAD = bytes(200)


class Side:
    """One of the two clusters."""

    def __init__(self, cluster: Launched, run_dir: Path) -> None:
        self.cluster = cluster
        self.addresses = [member.control for member in read_members(str(run_dir))]
        self._processes = [psutil.Process(m.pid) for m in read_members(str(run_dir))]

    def cpu_s(self) -> float:
        """The CPU time of all its daemons."""
        return float(sum(sum(process.cpu_times()[:2]) for process in self._processes))

    def resident_mb(self) -> float:
        """The mean memory of its daemons."""
        return float(sum(p.memory_info().rss for p in self._processes) / len(self._processes) / 1e6)

    async def read(self) -> None:
        """Read all topics at all nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for address in self.addresses:
                for topic in range(TOPICS):
                    tasks.create_task(_reader(address, f"t{topic}"))

    async def send(self, count: int) -> None:
        """Send so many messages from node 0 to all others."""
        left = iter(range(count))

        async def sender(daemon: bmgd.Daemon) -> None:
            for number in left:
                to = 1 + number % (len(self.addresses) - 1)
                await daemon.send(to, PAYLOAD, topic=f"t{number % TOPICS}")
                await asyncio.sleep(PAUSE_S)

        async with bmgd.connect(self.addresses[0]) as daemon, asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(sender(daemon))


async def _reader(address: str, topic: str) -> None:
    async with bmgd.connect(address) as daemon, daemon.subscribe(topic) as messages:
        async for _ in messages:
            pass


async def compare(sides: dict[str, Side], args: argparse.Namespace) -> None:
    """The rest, and the rounds."""
    before = {name: side.cpu_s() for name, side in sides.items()}
    await asyncio.sleep(args.seconds)
    report("idle", sides, before)
    reading = [asyncio.create_task(side.read()) for side in sides.values()]
    await asyncio.sleep(2)
    for number in range(args.rounds):
        before = {name: side.cpu_s() for name, side in sides.items()}
        await asyncio.gather(*(side.send(args.messages) for side in sides.values()))
        report(f"round {number + 1}", sides, before)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


def report(what: str, sides: dict[str, Side], before: dict[str, float]) -> None:
    """One line."""
    spent = {name: round(side.cpu_s() - before[name], 3) for name, side in sides.items()}
    resident = {name: round(side.resident_mb(), 1) for name, side in sides.items()}
    ratio = round(spent["on"] / spent["off"], 3)
    print(json.dumps({"what": what, "cpu_s": spent, "ratio": ratio, "mb": resident}), flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40)
    args = parser.parse_args()
    with launched(args.size) as on, launched(args.size, ("--flight-bytes", "0")) as off:
        sides = {"on": Side(on, on.run_dir), "off": Side(off, off.run_dir)}
        asyncio.run(compare(sides, args))


if __name__ == "__main__":
    main()
