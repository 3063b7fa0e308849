"""The campaign of random seeds: thousands of scenarios, many simulated hours, the same trace twice.

    python -m benchmarks.seeds many      10,000 seeds of 2 to 33 nodes, 5 s of faults each
    python -m benchmarks.seeds hours     1,000 simulated hours: an hour each, 2 or 3 nodes (and joiners)
    python -m benchmarks.seeds twice     200 of the first once more, under another PYTHONHASHSEED
    python -m benchmarks.seeds report    docs/seeds.md, of what there is

Each goes on where it ended (`build/seeds/*.jsonl`, a line for each seed). What is kept in the repository
has a line for each hundred of seeds, with a hash of their digests: a run of the same code gives the same.
The first two run compiled (`compiled.py`), the third the plain sources.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import compiled
from bmgd.sim.campaign import read_rows
from bmgd.sim.conditions import Conditions
from bmgd.sim.options import random_scenario

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "seeds"
RESULTS = ROOT / "docs" / "results" / "seeds.jsonl"
REPORT = ROOT / "docs" / "seeds.md"
GROUP = 100
SHARES_OF = 1_000

COLUMNS = (
    *("campaign", "aim", "seeds", "nodes", "faults for, s", "violated"),
    *("simulated hours", "steps of cores", "hours of processor"),
)

OF_WHICH_CORE = (
    "**The table is of the core of commit 1e0311c**, before streams, reliable broadcasts and",
    "multicasts, requests and registered programs; a campaign of so many seeds on one present core is",
    "still to be run. On 2026-11-23 these were, on several states of the core, each of which mended what",
    "the one before it had shown (`bmgd sim --campaign`, seeds from 1 on):",
    "",
    "| what | seeds | violated | of which the core was to blame |",
    "|---|---|---|---|",
    "| 2 to 33 nodes, 5 s of faults | 3,750 | 13 | 6 |",
    "| 2 or 3 nodes, an hour each | 60 | 8 | 2 |",
    "| 3 to 9 nodes, 700 s | 65 | 6 | 1 |",
    "",
    "The others were faults of checkers, most of them of ids that are retired, which no seed had",
    "come to, and three of the simulator. What the core did: it took a neighbor to be dialled for",
    "ever after a secret was renewed; of broadcasts whose source had died it asked who had none,",
    "or asked for the same part again, or not for a gap at all, until the copies went; it told of",
    "one missed and not of the next, nor readers whose daemon took another id; it used streams",
    "that had been forgotten while it was stopped; and it did not ask a source that came back.",
    "Each has a test now. One seed (3101, a broadcast that is not stable at rest) passes since,",
    "and was not explained. The last 19 of 700 s violated nothing.",
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One campaign.

    Args:
        count: the seeds 1..count.
        nodes: how many nodes, at least and at most.
        seconds: how long faults go on in each.
        hash_seed: Python's, for all processes; "" for whatever there is.
        compiled: whether the core and the simulator run compiled.
        aim: what the seeds, or the hours, are to be.
    """

    count: int
    nodes: tuple[int, int]
    seconds: float
    hash_seed: str
    compiled: bool
    aim: str


PARTS = {
    "many": Part(10_000, (2, 33), 5.0, "", True, "10,000 seeds"),
    "hours": Part(1_000, (2, 3), 3600.0, "", True, "1,000 hours"),
    "twice": Part(200, (2, 33), 5.0, "4242", False, "200 seeds"),
}


def run(name: str, jobs: int) -> int:
    """Run what is missing of a campaign; returns the command's exit code."""
    part = PARTS[name]
    BUILD.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "bmgd", "sim", "--campaign", f"1..{part.count}"]
    words += ["--nodes", f"{part.nodes[0]}..{part.nodes[1]}", "--time", f"{part.seconds:g}"]
    words += ["--jobs", str(jobs), "--out", str(BUILD / f"{name}.jsonl")]
    directory = compiled.build() if part.compiled else ROOT
    variables = {"PYTHONHASHSEED": part.hash_seed} if part.hash_seed else {}
    variables["PYTHONPATH"] = str(directory)
    return subprocess.run(words, cwd=directory, env=os.environ | variables, check=False).returncode


def summaries(name: str) -> Iterator[Row]:
    """One row for each hundred of seeds of a campaign, by seed."""
    rows = sorted(read_rows(BUILD / f"{name}.jsonl"), key=lambda row: int(row["seed"]))
    for _, group in groupby(rows, key=lambda row: (int(row["seed"]) - 1) // GROUP):
        yield _summary(name, list(group))


def _summary(name: str, rows: list[Row]) -> Row:
    digests = " ".join(row["digest"] for row in rows)
    return {
        "campaign": name,
        "first": rows[0]["seed"],
        "last": rows[-1]["seed"],
        "seeds": len(rows),
        "failed": [row["seed"] for row in rows if row["verdict"] != "pass"],
        "virtual_s": round(sum(row["virtual_s"] for row in rows), 1),
        "real_s": round(sum(row["real_s"] for row in rows), 1),
        "events": sum(row["events"] for row in rows),
        "nodes_max": max(row["nodes"] for row in rows),
        "digest": hashlib.sha256(digests.encode()).hexdigest()[:32],
    }


def other_digests() -> tuple[int, list[int]]:
    """How many seeds were run twice, and those whose traces differ."""
    first = {row["seed"]: row["digest"] for row in read_rows(BUILD / "many.jsonl")}
    again = {row["seed"]: row["digest"] for row in read_rows(BUILD / "twice.jsonl")}
    both = sorted(first.keys() & again.keys())
    return len(both), [seed for seed in both if first[seed] != again[seed]]


def keep() -> None:
    """Write the summaries of what was run into the repository's results."""
    rows: list[Row] = [row for name in PARTS for row in summaries(name)]
    count, other = other_digests()
    rows.append({"campaign": "compared", "seeds": count, "failed": other})
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def report(rows: Iterable[Row]) -> Iterator[str]:
    """The page, line by line."""
    kept = list(rows)
    yield "# The campaign of random seeds"
    yield ""
    yield "Written by `python -m benchmarks.seeds report`, of [results/seeds.jsonl](results/seeds.jsonl)."
    yield "Each seed decides size, settings, network, faults and traffic ([simulator.md](simulator.md));"
    yield "all checkers watch each step."
    yield ""
    yield from OF_WHICH_CORE
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for name, part in PARTS.items():
        of_it = [row for row in kept if row["campaign"] == name]
        seeds, events = sum(r["seeds"] for r in of_it), sum(r["events"] for r in of_it)
        failed = sum(len(r["failed"]) for r in of_it)
        hours = sum(r["virtual_s"] for r in of_it) / 3600
        real = sum(r["real_s"] for r in of_it) / 3600
        size = f"{part.nodes[0]} to {part.nodes[1]}"
        yield (
            f"| {name} | {part.aim} | {seeds:,} | {size} | {part.seconds:g} | {failed} | {hours:,.1f}"
            f" | {events:,} | {real:.1f} |"
        )
    compared = [row for row in kept if row["campaign"] == "compared"]
    for row in compared:
        yield ""
        yield (
            f"{row['seeds']} seeds were run twice, in other processes with another PYTHONHASHSEED:"
            f" {len(row['failed'])} gave another trace."
        )


def shares(seeds: int = SHARES_OF) -> dict[str, float]:
    """In which share of the seeds each option is not as a daemon has it, and each fault occurs."""
    part, plain = PARTS["many"], asdict(Conditions())
    counted: Counter[str] = Counter()
    for seed in range(1, seeds + 1):
        nodes = Random(f"size {seed}").randint(*part.nodes)
        scenario = random_scenario(seed, nodes, part.seconds)
        on = {f"setting {key}" for key in scenario.settings}
        on |= {f"network {key}" for key, value in scenario.simulated.items() if value != plain[key]}
        on |= {f"fault {type(step.fault).__name__.lower()}" for step in scenario.steps}
        counted.update(on)
    return {name: counted[name] / seeds for name in sorted(counted)}


def shares_table() -> Iterator[str]:
    """The shares as a table of the page."""
    yield ""
    yield f"Of {SHARES_OF:,} seeds this share has a setting, network or fault that is no default:"
    yield ""
    yield "| option | share |"
    yield "|---|---|"
    for name, share in shares().items():
        yield f"| {name} | {100 * share:.0f} % |"


def main() -> int:
    """The command line."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("campaign", choices=[*PARTS, "report"])
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    options = parser.parse_args()
    code = run(options.campaign, options.jobs) if options.campaign in PARTS else 0
    if any(BUILD.glob("*.jsonl")):
        keep()
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    REPORT.write_text("\n".join([*report(rows), *shares_table()]) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
