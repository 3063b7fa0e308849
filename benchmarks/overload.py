"""More broadcasts than the machine can pass on for a while: what it costs, and how long until it is over.

    python -m benchmarks.overload [--size 33] [--rate 240] [--seconds 8] [--rounds 2] [--before COMMIT]

A program at each daemon; in turn they broadcast 64 bytes reliably, so many a second in all. Shown are how
many copies the sources sent again, the daemons' CPU time, how long after the last broadcast all were
confirmed, and how many failed for some node; with `--before` in turns with the daemons of another commit.
Where a source sends again what is only late, a busy cluster keeps itself busy (docs/adr/0056).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import psutil

from benchmarks.commits import python_of
from benchmarks.launched import Launched, launched
from bmgd.client import Daemon, connect
from bmgd.errors import BmgdError

TOPIC = "news"
TIMEOUT_S = 60.0
TICK_S = 0.005
LOOKS_MAX = 2000
COLUMNS = ("broadcasts", "sent again", "failed", "CPU s", "confirmed after s")
Row = tuple[float, ...]


async def load(daemons: list[Daemon], rate: float, seconds: float) -> tuple[int, int, float]:
    """Broadcast, and wait for all reports.

    Returns:
        How many were sent, how many of them failed for some node, and how long after the last one all
        reports were there.
    """
    began_s, failed = time.monotonic(), 0
    underway: list[asyncio.Task[None]] = []

    async def one(daemon: Daemon) -> None:
        nonlocal failed
        try:
            await daemon.broadcast(bytes(64), topic=TOPIC, timeout=TIMEOUT_S)
        except BmgdError:
            failed += 1

    async with asyncio.TaskGroup() as tasks:
        while (past_s := time.monotonic() - began_s) < seconds:
            while len(underway) < rate * past_s:
                daemon = daemons[len(underway) % len(daemons)]
                underway.append(tasks.create_task(one(daemon)))
            await asyncio.sleep(TICK_S)
        ended_s = time.monotonic()
    return len(underway), failed, time.monotonic() - ended_s


async def read(daemon: Daemon) -> None:
    """Take whatever comes."""
    async with daemon.subscribe(TOPIC) as messages:
        async for _ in messages:
            pass


async def until_all_read(daemons: list[Daemon]) -> None:
    """Wait until there is a reader at each daemon; TimeoutError when there is none for long."""
    for _ in range(LOOKS_MAX):
        if len(await daemons[0].readers(TOPIC)) == len(daemons):
            return
        await asyncio.sleep(TICK_S)
    raise TimeoutError("a program does not read")


async def resent(daemons: list[Daemon]) -> int:
    """How many copies all sources have sent again."""
    found = [(await daemon.status())["to_many"]["reliable"]["resent"] for daemon in daemons]
    return sum(found)


async def measure(cluster: Launched, rate: float, seconds: float) -> Row:
    """One round on a launched cluster; the values of `COLUMNS`."""
    async with AsyncExitStack() as stack:
        daemons = [
            await stack.enter_async_context(connect(f"unix:{cluster.run_dir}/node-{number}.sock"))
            for number in range(cluster.size)
        ]
        readers = [asyncio.create_task(read(daemon)) for daemon in daemons]
        try:
            await until_all_read(daemons)
            before, before_s = await resent(daemons), cpu_s(cluster)
            sent, failed, after_s = await load(daemons, rate, seconds)
            again, spent_s = await resent(daemons) - before, cpu_s(cluster) - before_s
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return sent, again, failed, spent_s, after_s


def cpu_s(cluster: Launched) -> float:
    """The CPU time of all daemons that run."""
    times = [psutil.Process(pid).cpu_times() for pid in cluster.pids().values()]
    return float(sum(each.user + each.system for each in times))


def main() -> None:
    """The command line."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload", description=text.splitlines()[0]
    )
    parser.add_argument("--size", type=int, default=33)
    parser.add_argument("--rate", type=float, default=240.0, help="broadcasts a second in all")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--before", default="", help="a commit to compare with")
    options = parser.parse_args()
    codes = {"now": Path(sys.executable)}
    if options.before:
        codes[options.before] = python_of(options.before)
    found: dict[str, list[Row]] = {code: [] for code in codes}
    for _ in range(options.rounds):
        for code, python in codes.items():
            with launched(options.size, ("--profile", "oversubscribed"), python) as cluster:
                row = asyncio.run(measure(cluster, options.rate, options.seconds))
            found[code].append(row)
            print(
                code,
                *(f"{value:.4g} {name}" for name, value in zip(COLUMNS, row, strict=True)),
                sep=", ",
                flush=True,
            )
    for code, rows in found.items():
        medians = map(median, zip(*rows, strict=True))
        print(
            f"median of {code}:",
            *(f"{v:.4g} {n}" for n, v in zip(COLUMNS, medians, strict=True)),
            sep=", ",
        )


if __name__ == "__main__":
    main()
