"""Chosen faults in virtual time: sets of deaths, neighborhoods, halves, second deaths, parted halves.

    python -m benchmarks.directed                    all families that are not finished, then the report
    python -m benchmarks.directed --family halves    one of them
    python -m benchmarks.directed --report           the report alone

A family is a list of groups, one for each size; a group begins with one cluster at rest, and each case
goes on from there in a forked process, so that a thousand cases cost one start. Finished groups are kept
as JSON lines, and left out when the command is begun again; what was run on another core
(`benchmarks.core_sources`) is run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core_sources import digest
from benchmarks.directed.cases import (
    CHECKED_MAX,
    Case,
    Failure,
    every_set,
    half_told,
    halves,
    neighborhoods,
    one_way,
    parted,
    random_sets,
    second_deaths,
    settled,
    silent,
)
from bmgd.errors import BmgdError
from bmgd.sim import Network

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "directed.jsonl"
REPORT = ROOT / "docs" / "directed.md"


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that begin with the same cluster at rest.

    Args:
        family: the kind of cases.
        size: how many founders.
        cases: each a name, and what it does; returns the seconds that are of interest.
        limit_s: what those may be at most.
    """

    family: str
    size: int
    cases: Callable[[Network], Iterator[Case]]
    limit_s: float

    @property
    def key(self) -> str:
        """Names the group in the results."""
        return f"{self.family} {self.size}"


# --- running ------------------------------------------------------------------------------------------


def groups() -> Iterator[Group]:
    """All of them, from the quick to the slow."""
    yield Group("one-way cuts", 3, one_way, 10.0)
    for size in (8, 9, 12, 16, 33):
        yield Group("silent nodes", size, silent, 2.5)
    for size in (8, 9, 12, 16, 20, 33, 64):
        yield Group("parted halves", size, parted, 10.0)
    for size in (8, 9, 16):
        yield Group("half-told notices", size, half_told, 15.0)
    for size in (16, 32, 64, 128, 256, 512, 1024):
        yield Group("halves", size, halves, 15.0)
    for size in range(3, 13):
        yield Group("every set of d-1", size, every_set, 15.0)
    for size in (5, 8, 9):
        yield Group("second deaths", size, second_deaths, 15.0)
    for size in range(13, 65):
        yield Group("random sets of d-1", size, random_sets(20), 15.0)
    for size in range(4, 65):
        yield Group("neighborhoods", size, neighborhoods, 15.0)


def in_child(action: Callable[[], float]) -> dict[str, Any]:
    """Do something in a forked process: ``{"s": seconds}`` or ``{"error": text}``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            row: dict[str, Any] = {"s": action()}
        except (Failure, BmgdError, TimeoutError, LookupError, AssertionError) as error:
            row = {"error": f"{type(error).__name__}: {error}"[:400]}
        os.write(writing, json.dumps(row).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": "the process ended"}
    return found


def run_group(group: Group, *, every: int = 1) -> dict[str, Any]:
    """Run every case of a group (or one in so many); returns its row of the results."""
    began, network = time.monotonic(), settled(group.size)
    count, worst_s, failures = 0, 0.0, []
    for number, (name, case) in enumerate(group.cases(network)):
        if number % every:
            continue
        found = in_child(lambda case=case: case(network))  # type: ignore[misc]
        count += 1
        worst_s = max(worst_s, found.get("s", 0.0))
        if "error" in found or found["s"] > group.limit_s:
            failures.append({"case": name} | found)
    return {
        "group": group.key,
        "family": group.family,
        "size": group.size,
        "cases": count,
        "failed": len(failures),
        "failures": failures[:5],
        "worst_s": round(worst_s, 4),
        "limit_s": group.limit_s,
        "real_s": round(time.monotonic() - began, 1),
        "core": digest(),
    }


def read_rows() -> dict[str, dict[str, Any]]:
    """The results until now, by group."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["group"]: row for row in rows}


def report() -> str:
    """The results as a page of the documentation."""
    rows = list(read_rows().values())
    lines = [
        "# Chosen faults in virtual time",
        "",
        "Written by `python -m benchmarks.directed`. A case begins with a cluster at rest; healing ends",
        "when all survivors agree, hold exactly the dead dead, and have exactly the links of the healed",
        f"graph. Up to N = {CHECKED_MAX} all checkers watch. Seconds are virtual, with 0.1 ms of delay.",
        "",
        "| family | N | cases | failed | slowest, s | bound, s |",
        "|---|---|---|---|---|---|",
    ]
    for family in dict.fromkeys(row["family"] for row in rows):
        of_it = [row for row in rows if row["family"] == family]
        sizes = sorted(row["size"] for row in of_it)
        shown = ", ".join(map(str, sizes)) if len(sizes) < 9 else f"{sizes[0]} to {sizes[-1]}"
        cases, failed = sum(r["cases"] for r in of_it), sum(r["failed"] for r in of_it)
        worst = max(r["worst_s"] for r in of_it)
        lines.append(
            f"| {family} | {shown} | {cases} | {failed} | {worst:.3f} | {of_it[0]['limit_s']:g} |"
        )
    cores = sorted({str(row.get("core", "an older one")) for row in rows})
    return "\n".join([*lines, "", f"The core: {', '.join(cores)}."]) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.directed")
    parser.add_argument("--family", default="", help="only this one")
    parser.add_argument("--size-max", type=int, default=1024, help="only clusters up to this size")
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    arguments = parser.parse_args()
    core = digest()
    done = {
        key for key, row in read_rows().items() if not row["failed"] and row.get("core") == core
    }
    for group in () if arguments.report else groups():
        wanted = arguments.family in ("", group.family) and group.size <= arguments.size_max
        if not wanted or group.key in done:
            continue
        row = run_group(group)
        rows = read_rows() | {group.key: row}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(rows[key]) + "\n" for key in rows)
        RESULTS.write_text(text, encoding="utf-8")
        print(
            f"{group.key}: {row['cases']} cases, {row['failed']} failed, worst {row['worst_s']} s",
            f"{row['failures'][:2] or ''}",
            flush=True,
        )
    REPORT.write_text(report(), encoding="utf-8")
