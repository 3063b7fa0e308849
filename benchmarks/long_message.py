"""One long message on real processes, while the relays that it goes by are killed one after another.

    python -m benchmarks.long_message [--size 16] [--mib 1024] [--every 2.0]

A program at node 0 sends, another at the node farthest from it reads the parts; both are processes of
their own. A trace names the relays of the moment; the first of them is killed, and started again when the
next one is killed. In the end the message must have come whole, once, and be confirmed. Shown are how
long it took, how many relays were killed, and the most memory of every process; the sender maps the
message from a file, and counts what of the file is in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import bmgd
from benchmarks.launched import Launched, launched
from bmgd.client import Daemon
from bmgd.errors import BmgdError
from bmgd.topology import BinomialGraph

TOPIC: Final = "long"
LIMIT_S: Final = 900.0
TRACE_S: Final = 2.0
BLOCK_BYTES: Final = 1 << 20
PROGRAM: Final = "_program"


def most_resident_mib(pid: int) -> float:
    """The most that a process ever had in memory; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


# --- the programs ---------------------------------------------------------------------------------


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file, as they are needed."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole,
        memoryview(whole) as view,
    ):
        yield view


async def _read(address: str) -> None:
    """Read one long message; print its length and hash, and whether another one came."""
    hashed, length = hashlib.sha256(), 0
    async with bmgd.connect(address) as daemon, daemon.subscribe(TOPIC, max_message=0) as messages:
        print("ready", flush=True)
        message = await anext(messages)
        async for part in message.parts():
            hashed.update(part)
            length += len(part)
        # It is confirmed when the next one is asked for.
        again = False
        try:
            async with asyncio.timeout(5.0):
                await anext(messages)
                again = True
        except TimeoutError:
            pass
    print(json.dumps({"bytes": length, "sha256": hashed.hexdigest(), "again": again}), flush=True)


async def _send(address: str, path: str, to: int) -> None:
    """Send a file's bytes as one message; print how long it took, or its error."""
    with mapped(Path(path)) as view:
        async with bmgd.connect(address) as daemon:
            began_s = time.perf_counter()
            error = None
            try:
                await daemon.send(to, view, topic=TOPIC, timeout=LIMIT_S)
            except BmgdError as failure:
                error = f"{type(failure).__name__}: {failure}"
            seconds = time.perf_counter() - began_s
    print(json.dumps({"seconds": round(seconds, 3), "error": error}), flush=True)


# --- the trial ------------------------------------------------------------------------------------


def write_file(path: Path, mib: int) -> str:
    """Fill a file with blocks that all differ; returns the hash of the whole."""
    block, hashed = Random(7).randbytes(BLOCK_BYTES - 8), hashlib.sha256()
    with path.open("wb") as file:
        for number in range(mib):
            piece = number.to_bytes(8, "big") + block
            file.write(piece)
            hashed.update(piece)
    return hashed.hexdigest()


def farthest_from(source: int, size: int) -> int:
    """The node with the most hops from one, the highest of them."""
    graph = BinomialGraph(size)
    return max(range(size), key=lambda node: (graph.hops(source, node), node))


class Killer:
    """Kills the first relay on the way of the moment, and starts the one before again."""

    def __init__(self, cluster: Launched, daemon: Daemon, to: int) -> None:
        self.killed: list[int] = []
        self.kept: Counter[int] = Counter()
        """The most memory of daemons that were killed, in MiB, by id."""
        self._cluster, self._daemon, self._to = cluster, daemon, to

    async def kill_one(self) -> None:
        """Kill a relay, if a trace finds one."""
        try:
            path = (await self._daemon.trace(self._to, timeout=TRACE_S)).path
        except BmgdError:
            return
        if len(path) < 3:
            return
        before = self.killed[-1] if self.killed else None
        relay = path[1]
        pid = self._cluster.pids()[relay]
        self.kept[relay] = max(self.kept[relay], round(most_resident_mib(pid)))
        self._cluster.kill(relay)
        self.killed.append(relay)
        if before is not None and before != relay:
            await self.restart(before)

    async def restart(self, node: int) -> None:
        """Start a killed one again, if it is still down."""
        await asyncio.to_thread(self._cluster.restart, node)


async def trial(cluster: Launched, mib: int, every_s: float, place: Path) -> dict[str, Any]:
    """Send one message; what came of it."""
    path, to = place / "message", farthest_from(0, cluster.size)
    wanted = write_file(path, mib)
    sockets = [f"unix:{cluster.run_dir}/node-{node}.sock" for node in (0, to)]
    words = (sys.executable, "-m", "benchmarks.long_message", PROGRAM)
    reader = await asyncio.create_subprocess_exec(
        *words, "read", sockets[1], stdout=subprocess.PIPE
    )
    assert reader.stdout is not None
    await reader.stdout.readline()
    sender = await asyncio.create_subprocess_exec(
        *words, "send", sockets[0], str(path), str(to), stdout=subprocess.PIPE
    )
    assert sender.stdout is not None
    async with bmgd.connect(sockets[0]) as daemon:
        killer = Killer(cluster, daemon, to)
        line = asyncio.ensure_future(sender.stdout.readline())
        while not (await asyncio.wait([line], timeout=every_s))[0]:
            await killer.kill_one()
        sent: dict[str, Any] = json.loads(await line)
    programs = {"sender": most_resident_mib(sender.pid), "reader": most_resident_mib(reader.pid)}
    daemons = {node: most_resident_mib(pid) for node, pid in cluster.pids().items() if pid}
    read = json.loads(await reader.stdout.readline())
    await asyncio.gather(sender.wait(), reader.wait())
    return {
        "nodes": cluster.size,
        "mib": mib,
        "to": to,
        "seconds": sent["seconds"],
        "mib_per_second": round(mib / sent["seconds"], 1),
        "error": sent["error"],
        "whole": (read["bytes"], read["sha256"]) == (mib << 20, wanted),
        "again": read["again"],
        "relays_killed": killer.killed,
        "sender_mib": round(programs["sender"]),
        "reader_mib": round(programs["reader"]),
        "daemons_mib_max": round(max([*daemons.values(), *killer.kept.values()])),
    }


def main() -> int:
    """The command line."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two deaths")
    options = parser.parse_args()
    with launched(options.size) as cluster, tempfile.TemporaryDirectory() as place:
        row = asyncio.run(trial(cluster, options.mib, options.every, Path(place)))
    print(json.dumps(row))
    return 0 if row["whole"] and not row["again"] and row["error"] is None else 1


def program(words: list[str]) -> None:
    """One of the two programs."""
    match words:
        case ["read", address]:
            asyncio.run(_read(address))
        case ["send", address, path, to]:
            asyncio.run(_send(address, path, int(to)))


if __name__ == "__main__":
    if PROGRAM in sys.argv:
        program(sys.argv[2:])
    else:
        sys.exit(main())
