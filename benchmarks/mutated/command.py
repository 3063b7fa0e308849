"""Mutated frames and hellos against live daemons under traffic: what is wrong harms nobody else.

    python -m benchmarks.mutated run [--cases 1000000] [--first 0]
    python -m benchmarks.mutated report        the figures of docs/hostile.md, of what there is

A cluster of eight, of which the nodes 4 to 7 are dead. Four attackers of node 1 say at the same time
that they are new lives of them. The others send to each other all the time, each message confirmed. A
case is one hello or one frame: a sound one (`arbitrary/`) with up to eight changes of its bytes,
sometimes of its length. Frames that a codec still reads as what a member may say in another's name, or
of others (records, joins, lives), are not sent, nor such hellos: they are lies, not broken input:
SECURITY.md, tests/hostile/semantics.toml.

After each four thousands of cases, and at the end: the others hold each other alive and are linked, every
message was confirmed, no link between them was lost, nothing in a log is a traceback; at the end memory
has grown by less than 10 MB since the first of them. The flight recorder's ring, 8 MiB by default, has
1 MiB here, or its filling would be most of that growth. `run` goes on where it ended: a line of
`docs/results/mutated.jsonl` for each thousand, which its number makes again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.launched import Launched, launched
from benchmarks.mutated.attack import BATCH, PATIENCE_S, Attack
from benchmarks.mutated.cases import ATTACKERS, SIZE
from benchmarks.mutated.meanwhile import Meanwhile, rss_bytes, tracebacks
from bmgd.launcher.rundir import read_members

FLIGHT_BYTES = 2**20
GROWTH_MAX_BYTES = 10 * 2**20
OUT = Path(__file__).parents[2] / "docs" / "results" / "mutated.jsonl"

Row = dict[str, Any]


def rows() -> list[Row]:
    """What has been run."""
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


def run(first: int, cases: int) -> int:
    """Run the thousands that are missing; returns the command's exit code."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    done = {row["batch"] for row in rows() if not row["problems"]}
    missing = [number for number in range(first, first + cases // BATCH) if number not in done]
    # A machine that others use too may not run a daemon for a second: that is no death.
    flags = ("--without-secret", "--profile", "oversubscribed", "--flight-bytes", str(FLIGHT_BYTES))
    with launched(SIZE, flags) as cluster, OUT.open("a") as out:
        base_port = int(read_members(str(cluster.run_dir))[0].address.rpartition(":")[2])
        for attacker in ATTACKERS:
            cluster.kill(attacker)
        time.sleep(2)
        meanwhile = Meanwhile(cluster)
        meanwhile.start()
        attacks = [Attack(base_port, attacker) for attacker in ATTACKERS]
        began_rss: list[int] = []
        for at in range(0, len(missing), len(attacks)):
            found = _batches(missing[at : at + len(attacks)], attacks, meanwhile, cluster)
            began_rss = began_rss or rss_bytes(cluster)
            grown = max(b - a for a, b in zip(began_rss, rss_bytes(cluster), strict=True))
            for row in found:
                out.write(json.dumps({**row, "rss_growth_bytes": grown}) + "\n")
            out.flush()
            if found[0]["problems"]:
                print(f"thousand {missing[at]} and on: {found[0]['problems']}", flush=True)
                return 1
        meanwhile.stop()
        total = [b - a for a, b in zip(began_rss, rss_bytes(cluster), strict=True)]
        print(
            f"{len(missing) * BATCH:,} cases, memory grew by {total}, {meanwhile.sent:,} messages"
        )
        return 1 if meanwhile.problems or (total and max(total) > GROWTH_MAX_BYTES) else 0


def _batches(
    numbers: list[int], attacks: list[Attack], meanwhile: Meanwhile, cluster: Launched
) -> list[Row]:
    """Some thousands at the same time, one for each attacker; the first row has what all share."""
    before, began_s = meanwhile.sent, time.monotonic()
    meanwhile.slowest_s = 0.0
    used = attacks[: len(numbers)]
    with ThreadPoolExecutor(len(attacks)) as pool:
        results = list(pool.map(lambda attack, number: attack.run(number), used, numbers))
    end_s = time.monotonic() + PATIENCE_S
    while meanwhile.sent == before and time.monotonic() < end_s:
        time.sleep(0.01)
    problems = [*meanwhile.problems, *tracebacks(cluster)]
    if meanwhile.sent == before:
        problems.append("nobody's message was confirmed")
    seconds, sent = round(time.monotonic() - began_s, 3), meanwhile.sent - before
    return [
        {
            "batch": number,
            "seconds": 0 if at else seconds,
            "outcomes": dict(sorted(outcomes.items())),
            "lies": lies,
            "sent": 0 if at else sent,
            "slowest_ms": round(meanwhile.slowest_s * 1e3, 1),
            "problems": problems,
        }
        for at, (number, (outcomes, lies)) in enumerate(zip(numbers, results, strict=True))
    ]


def report() -> Iterator[str]:
    """The figures, line by line."""
    kept = rows()
    outcomes: Counter[str] = Counter()
    for row in kept:
        outcomes.update(row["outcomes"])
    seconds = sum(row["seconds"] for row in kept)
    yield f"cases: {len(kept) * BATCH:,} in {seconds:,.0f} s"
    for name, count in sorted(outcomes.items()):
        yield f"{name}: {count:,}"
    yield f"lies left out: {sum(row['lies'] for row in kept):,}"
    yield f"messages confirmed meanwhile: {sum(row['sent'] for row in kept):,}"
    yield f"slowest of them: {max(row['slowest_ms'] for row in kept):,} ms"
    yield f"memory grew by at most: {max(row['rss_growth_bytes'] for row in kept):,} bytes"
    yield f"thousands with a problem: {[row['batch'] for row in kept if row['problems']]}"


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutated")
    verbs = parser.add_subparsers(dest="verb", required=True)
    campaign = verbs.add_parser("run")
    campaign.add_argument("--cases", type=int, default=1_000_000)
    campaign.add_argument("--first", type=int, default=0)
    verbs.add_parser("report")
    options = parser.parse_args()
    if options.verb == "run":
        return run(options.first, options.cases)
    print("\n".join(report()))
    return 0
