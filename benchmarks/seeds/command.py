"""The campaign of random seeds: thousands of scenarios, many simulated hours, the same trace twice.

    python -m benchmarks.seeds small     10,000 seeds of 2 to 12 nodes, 2 s of faults each
    python -m benchmarks.seeds many      1,000 seeds of 2 to 33 nodes, 5 s of faults each
    python -m benchmarks.seeds hours     500 simulated hours: an hour each, 2 or 3 nodes (and joiners)
    python -m benchmarks.seeds long      100 seeds of 3 to 9 nodes, 700 s of faults each
    python -m benchmarks.seeds twice     200 of those of `many` once more, under another PYTHONHASHSEED
    python -m benchmarks.seeds again     those that violated something once more, with the present sources
    python -m benchmarks.seeds report    docs/seeds.md, of what there is

Each goes on where it ended (`build/seeds/*.jsonl`, a line for each seed). What is kept in the repository
has a line for each hundred of seeds (of `hours` and `long` for twenty), with a hash of their digests: a
run of the same code gives the same. It is kept of which core (`core_sources.py`): on another machine a
campaign goes on after what is kept of the same one. All but `twice` run compiled (`compiled.py`); that
and `again` run the plain sources.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks import compiled, core_sources
from benchmarks.seeds.kept import (
    BUILD,
    PARTS,
    ROOT,
    Row,
    file_of,
    keep,
    kept,
    missing,
    rows_of,
    write,
)
from benchmarks.seeds.page import report, shares_table
from bmgd.sim.campaign import Campaign, read_rows

REPORT = ROOT / "docs" / "seeds.md"
VIOLATED = 1
"""The exit code of a campaign in which a seed violated something."""
ENDED_EARLY = 3
"""The exit code of this command where a campaign ended before its last seed."""


def run(name: str, jobs: int) -> int:
    """Run what is missing of a campaign; returns the command's exit code."""
    part, core = PARTS[name], core_sources.digest()
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = compiled.build() if part.compiled else ROOT
    variables = {"PYTHONHASHSEED": part.hash_seed} if part.hash_seed else {}
    variables["PYTHONPATH"] = str(directory)
    for first, last in missing(kept(), name, core):
        words = [sys.executable, "-m", "bmgd", "sim", "--campaign", f"{first}..{last}"]
        words += ["--nodes", f"{part.nodes[0]}..{part.nodes[1]}", "--time", f"{part.seconds:g}"]
        out = file_of(name, core, first, last)
        words += ["--jobs", str(jobs), "--out", str(out)]
        ended = subprocess.run(words, cwd=directory, env=os.environ | variables, check=False)
        if ended.returncode not in (0, VIOLATED):
            return ended.returncode
        done = {row["seed"] for row in read_rows(out)}
        if not done.issuperset(range(first, last + 1)):
            # Python ends with the same code where an exception was caught by nobody.
            return ENDED_EARLY
    return int(any(row["verdict"] != "pass" for row in rows_of(name, core)))


def again(rows: list[Row]) -> list[Row]:
    """Run the seeds that violated something once more, plain; each row learns which pass now."""
    for row in rows:
        part = PARTS.get(row["campaign"])
        if part is None:
            continue
        campaign = Campaign(row["first"], row["last"], *part.nodes, part.seconds)
        for seed in row["failed"]:
            if seed not in row.get("passes_now", []) and campaign.run_seed(seed).passed:
                row["passes_now"] = sorted([*row.get("passes_now", []), seed])
    return rows


def main() -> int:
    """The command line."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.seeds", description=text.splitlines()[0]
    )
    parser.add_argument("campaign", choices=[*PARTS, "again", "report"])
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    options = parser.parse_args()
    code = run(options.campaign, options.jobs) if options.campaign in PARTS else 0
    keep(core_sources.digest())
    if options.campaign == "again":
        write(again(kept()))
    REPORT.write_text("\n".join([*report(kept()), *shares_table()]) + "\n", encoding="utf-8")
    return code
