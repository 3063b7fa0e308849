"""Reliable broadcasts on real processes whose source is killed midway: all or none.

    python -m benchmarks.broadcasts run    [--each 125] [--sizes 8,16,33] [--results FILE]
    python -m benchmarks.broadcasts report docs/broadcasts.md, of docs/results/broadcasts.jsonl

In each trial a daemon of the cluster begins a new life, a program at it broadcasts, and the daemon kills
itself (SIGKILL) when it has written the broadcast to k of its children, k = 0 to all of them in turn, and
the killed id in turn too. Every other daemon has a program that reads the topic. Where k = 0 nobody may
get it; else everybody must, once. `run` goes on where it ended; a result names its core, and those of
another core do not count as done (`python -m benchmarks.core_sources`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.core_sources import digest
from benchmarks.forked import NEVER, Forked
from bmgd.client import Daemon, Missed, connect
from bmgd.errors import BmgdError
from bmgd.launcher.ports import choose_base_port

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results" / "broadcasts.jsonl"
REPORT = ROOT / "docs" / "broadcasts.md"
TOPIC = "news"
LIMIT_S = 60.0
POLL_S = 0.01
ORPHANS_S = 1.0
"""Neighbors compare what they have of a source that is gone every 0.5 s."""
Row = dict[str, Any]


def children_of(size: int) -> int:
    """How many children the source of a broadcast to so many nodes has."""
    return (size - 1).bit_length()


class Trials:
    """A cluster, and a reader at each daemon.

    Args:
        daemons: its processes.
        stack: ends the connections.
    """

    def __init__(self, daemons: Forked, stack: AsyncExitStack) -> None:
        self._daemons = daemons
        self._stack = stack
        self._readers: dict[int, AsyncExitStack] = {}
        self._programs: dict[int, Daemon] = {}
        self._pids: dict[int, int] = {}
        self.taken: dict[int, Counter[bytes]] = {}
        self.missed: dict[int, list[Missed]] = {}

    async def start(self) -> None:
        """All daemons run, and all programs read."""
        for node_id in range(self._daemons.size):
            self._pids[node_id] = self._daemons.start(node_id)
        for node_id in range(self._daemons.size):
            await self._begin_reading(node_id)
        await self._all_linked()

    async def _begin_reading(self, node_id: int) -> None:
        stack = self._readers[node_id] = AsyncExitStack()
        self._stack.push_async_exit(stack)
        daemon = self._programs[node_id] = await self._connect(node_id, stack)
        messages = await stack.enter_async_context(daemon.subscribe(TOPIC))
        self.taken[node_id], self.missed[node_id] = Counter(), []
        task = asyncio.create_task(self._read(node_id, messages))
        stack.callback(task.cancel)

    async def _read(self, node_id: int, messages: Any) -> None:
        with suppress(BmgdError):
            async for item in messages:
                if isinstance(item, Missed):
                    self.missed[node_id].append(item)
                else:
                    self.taken[node_id][item.payload] += 1

    async def _connect(self, node_id: int, stack: AsyncExitStack) -> Daemon:
        until_s = time.monotonic() + LIMIT_S
        while True:
            try:
                return await stack.enter_async_context(connect(self._daemons.control(node_id)))
            except BmgdError:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(POLL_S)

    async def _all_linked(self, but: int | None = None) -> None:
        """Every daemon holds the same ids alive, and has settled its links."""
        alive = [each for each in range(self._daemons.size) if each != but]
        until_s = time.monotonic() + LIMIT_S
        while True:
            statuses = [await self._programs[each].status() for each in alive]
            wrong = [
                each
                for each, status in zip(alive, statuses, strict=True)
                if status["state"] != "ready" or status["alive"] != alive
            ]
            if not wrong and len({status["digest"] for status in statuses}) == 1:
                return
            if time.monotonic() > until_s:
                raise SystemExit(f"not linked within {LIMIT_S} s: {wrong}")
            await asyncio.sleep(POLL_S)

    async def trial(self, number: int, victim: int, copies: int) -> Row:
        """A source that ends when it has sent so many copies."""
        await self._readers.pop(victim).aclose()
        self._daemons.kill(self._pids[victim])
        await self._all_linked(but=victim)
        pid = self._daemons.start(victim, copies)
        others = [each for each in range(self._daemons.size) if each != victim]
        payload = b"trial %d" % number
        async with AsyncExitStack() as stack:
            source = self._programs[victim] = await self._connect(victim, stack)
            await self._all_linked()
            began_s = time.monotonic()
            error = ""
            try:
                await source.broadcast(payload, topic=TOPIC, timeout=LIMIT_S)
            except BmgdError as found:
                error = type(found).__name__
        ended_by = self._daemons.wait(pid)
        await self._all_linked(but=victim)
        await self._settle(payload, others if copies else [])
        row = {
            "size": self._daemons.size,
            "source": victim,
            "copies": copies,
            "ended_by": ended_by,
            "error": error,
            "took": sum(bool(self.taken[each][payload]) for each in others),
            "twice": sum(self.taken[each][payload] > 1 for each in others),
            "others": len(others),
            "missed": sum(len(self.missed[each]) for each in others),
            "seconds": round(time.monotonic() - began_s, 3),
        }
        for each in others:
            self.taken[each].clear()
            self.missed[each].clear()
        self._pids[victim] = self._daemons.start(victim, NEVER)
        await self._begin_reading(victim)
        await self._all_linked()
        return row

    async def _settle(self, payload: bytes, takers: list[int]) -> None:
        """Wait until these have it; without any, until it could have come."""
        until_s = time.monotonic() + (LIMIT_S if takers else ORPHANS_S)
        while True:
            if takers and all(self.taken[each][payload] for each in takers):
                return
            if time.monotonic() > until_s:
                return
            await asyncio.sleep(POLL_S)


def is_right(row: Row) -> bool:
    """Whether it was all or none, once each, by a source that ended midway, with its error shown."""
    wanted = row["others"] if row["copies"] else 0
    shown = row["took"] + row["missed"] >= wanted
    return bool(
        row["took"] in (0, row["others"])
        and row["took"] == wanted
        and shown
        and not row["twice"]
        and row["ended_by"] == 9
        and row["error"]
    )


def _done(results: Path) -> list[Row]:
    return (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )


def _of_core(rows: list[Row], core: str) -> list[Row]:
    return [row for row in rows if row.get("core") == core]


async def run_size(size: int, each: int, results: Path) -> None:
    """The trials of one size that are not done."""
    steps = children_of(size) + 1
    core = digest()
    done = Counter(row["copies"] for row in _of_core(_done(results), core) if row["size"] == size)
    turns = [(n, copies) for n in range(each) for copies in range(steps) if done[copies] <= n]
    if not turns:
        return
    with tempfile.TemporaryDirectory(prefix="bmgd-bench-") as place:
        daemons = Forked(size, choose_base_port(size, 20_000 + 100 * size), Path(place))
        try:
            async with AsyncExitStack() as stack:
                trials = Trials(daemons, stack)
                await trials.start()
                for number, (turn, copies) in enumerate(turns):
                    row = await trials.trial(number, (turn * 7 + copies) % size, copies)
                    row["core"] = core
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print("ok" if is_right(row) else "WRONG", row, flush=True)
        finally:
            daemons.stop()


def table(rows: list[Row]) -> list[str]:
    """Of all trials: how many for each size and k, and what became of them."""
    lines = ["| N | children told | broadcasts | taken by all | by nobody | by some | twice |"]
    lines.append("|---|---|---|---|---|---|---|")
    for key in sorted({(row["size"], row["copies"]) for row in rows}):
        some = [row for row in rows if (row["size"], row["copies"]) == key]
        every = sum(row["took"] == row["others"] for row in some)
        nobody = sum(row["took"] == 0 for row in some)
        twice = sum(row["twice"] for row in some)
        cells = (*key, len(some), every, nobody, len(some) - every - nobody, twice)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def report() -> None:
    """Write the page, of the core that was tried last."""
    rows = _done(RESULTS)
    core = rows[-1].get("core", "") if rows else ""
    rows = _of_core(rows, core)
    wrong = sum(not is_right(row) for row in rows)
    told = sum(row["missed"] for row in rows)
    text = [
        "# Broadcasts whose source is killed",
        "",
        "Written by `python -m benchmarks.broadcasts report`, of",
        "[results/broadcasts.jsonl](results/broadcasts.jsonl). Real daemons on one machine; in each",
        "trial one begins a new life, broadcasts (reliably, a few bytes) and kills itself when it has",
        "written the broadcast to k of its children. Whoever was told has a copy and shares it with its",
        "neighbors, so with k = 0 nobody may get it, and else everybody must.",
        "",
        f"**{len(rows)} broadcasts of core {core}, {wrong} not as they must be**; `Missed` was told",
        f"{told} times.",
        "At the program of the killed daemon each `broadcast` ended with an error (`NoDaemonError`).",
        "",
        *table(rows),
    ]
    REPORT.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


def main() -> None:
    """Run what is left, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--each", type=int, default=125, help="trials of each size and k")
    parser.add_argument("--sizes", default="8,16,33")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where `run` keeps them")
    options = parser.parse_args()
    if options.what == "report":
        report()
        return
    for size in map(int, options.sizes.split(",")):
        asyncio.run(run_size(size, options.each, options.results))


if __name__ == "__main__":
    main()
