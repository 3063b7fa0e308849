"""What is kept of the campaigns of random seeds: a row for each group of them, and of which core."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from bmgd.sim.campaign import read_rows

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "seeds"
RESULTS: Final = ROOT / "docs" / "results" / "seeds.jsonl"
GROUP: Final = 100
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
        group: so many seeds have a row in common; what is not whole is run again on another machine.
    """

    count: int
    nodes: tuple[int, int]
    seconds: float
    hash_seed: str
    compiled: bool
    group: int = GROUP


PARTS = {
    "small": Part(10_000, (2, 12), 2.0, "", True),
    "many": Part(1_000, (2, 33), 5.0, "", True),
    "hours": Part(500, (2, 3), 3600.0, "", True, group=20),
    "long": Part(100, (3, 9), 700.0, "", True, group=20),
    "twice": Part(200, (2, 33), 5.0, "4242", False),
}


def file_of(name: str, core: str, first: int, last: int) -> Path:
    """Where a range of a campaign's seeds, run with a core, has its lines."""
    return BUILD / f"{name}-{core}-{first}..{last}.jsonl"


def rows_of(name: str, core: str) -> list[Row]:
    """All lines of a campaign with a core, one for each seed, sorted by seed."""
    files = sorted(BUILD.glob(f"{name}-{core}-*.jsonl"))
    by_seed = {int(row["seed"]): row for path in files for row in read_rows(path)}
    return [by_seed[seed] for seed in sorted(by_seed)]


def missing(rows: Iterable[Row], name: str, core: str) -> list[tuple[int, int]]:
    """The ranges of seeds of a campaign that no whole group that is kept of this core has."""
    part = PARTS[name]
    whole = {
        row["first"]
        for row in rows
        if (row["campaign"], row.get("core")) == (name, core) and row["seeds"] == part.group
    }
    ranges: list[tuple[int, int]] = []
    for first in range(1, part.count, part.group):
        last = min(first + part.group - 1, part.count)
        if first in whole:
            continue
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = ranges[-1][0], last
        else:
            ranges.append((first, last))
    return ranges


def kept() -> list[Row]:
    """The rows that the repository keeps."""
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def summaries(name: str, core: str) -> Iterator[Row]:
    """One row for each group of seeds of a campaign with a core, by seed."""
    for _, group in groupby(
        rows_of(name, core), key=lambda row: (int(row["seed"]) - 1) // PARTS[name].group
    ):
        yield _summary(name, core, list(group))


def _summary(name: str, core: str, rows: list[Row]) -> Row:
    size = PARTS[name].group
    digests = " ".join(row["digest"] for row in rows)
    return {
        "campaign": name,
        "core": core,
        "first": (rows[0]["seed"] - 1) // size * size + 1,
        "last": rows[-1]["seed"],
        "seeds": len(rows),
        "failed": [row["seed"] for row in rows if row["verdict"] != "pass"],
        "virtual_s": round(sum(row["virtual_s"] for row in rows), 1),
        "real_s": round(sum(row["real_s"] for row in rows), 1),
        "events": sum(row["events"] for row in rows),
        "nodes_max": max(row["nodes"] for row in rows),
        "digest": hashlib.sha256(digests.encode()).hexdigest()[:32],
    }


def other_digests(core: str) -> tuple[int, list[int]]:
    """How many seeds were run twice with a core, and those whose traces differ."""
    first = {row["seed"]: row["digest"] for row in rows_of("many", core)}
    second = {row["seed"]: row["digest"] for row in rows_of("twice", core)}
    both = sorted(first.keys() & second.keys())
    return len(both), [seed for seed in both if first[seed] != second[seed]]


def merged(rows: Iterable[Row]) -> list[Row]:
    """The rows, without those of which a later one has as many seeds of the same group, or more."""
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        key = row["campaign"], row.get("core", ""), row.get("first", 0)
        if key not in best or best[key]["seeds"] <= row["seeds"]:
            passed = best[key].get("passes_now", []) if key in best else []
            # With newer checkers some violate nothing any more.
            known = [seed for seed in passed if seed in row.get("failed", [])]
            best[key] = ({"passes_now": known} if known else {}) | row
    return list(best.values())


def write(rows: Iterable[Row]) -> None:
    """Write rows into the repository's results."""
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def keep(core: str) -> None:
    """Add summaries of what was run with a core."""
    rows = [row for name in PARTS for row in summaries(name, core)]
    count, other = other_digests(core)
    if count:
        rows.append({"campaign": "compared", "core": core, "seeds": count, "failed": other})
    write(merged([*kept(), *rows]))
