"""From the kept rounds of all campaigns to the tables of docs/chaos-results.md.

The rounds stay on the machine that ran them; a summary of each campaign stays in the repository.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Row = dict[str, Any]

HEAD = (
    "campaign",
    "machine",
    "core",
    "nodes",
    "rounds",
    "minutes of faults",
    "faults",
    "violations",
    "false deaths",
    "alone",
    "links exact",
    "messages sent",
    "acknowledged",
    "failed with a reason",
    "came twice",
)
SUMS = (
    *("faults", "violations", "false_deaths", "alone", "links_exact"),
    *("sent", "acknowledged", "failed", "duplicates"),
)


def keep(directory: Path, results: Path) -> list[Row]:
    """Sum up the rounds that are there, beside what was kept of other campaigns.

    Args:
        directory: has a file of rounds for each campaign.
        results: the summaries in the repository, a line of JSON for each campaign; written anew.

    Returns:
        All summaries, by the campaigns' names.
    """
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    kept = {row["campaign"]: row for row in map(json.loads, lines)}
    for path in sorted(directory.glob("*.jsonl")):
        if rounds := _rounds(path):
            kept[path.stem] = _summary(path.stem, rounds)
    rows = [kept[name] for name in sorted(kept)]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    results.write_text(text, encoding="utf-8")
    return rows


def _rounds(path: Path) -> list[Document]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def _summary(name: str, rounds: list[Document]) -> Row:
    sums: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for row in rounds:
        sent = row["deliveries"]
        sums["faults"] += sum(row["faults"].values())
        sums["failed"] += sum(sent["failed"].values())
        sums["violations"] += row["violations_in_all"]
        for key in ("false_deaths", "alone", "links_exact"):
            sums[key] += row[key]
        for key in ("sent", "acknowledged", "duplicates"):
            sums[key] += sent[key]
        kinds.update(sent.get("kinds", {}))
    minutes = sum(row["plan"]["seconds"] for row in rounds) / 60
    return {
        "campaign": name,
        "machine": _machine(),
        "core": "; ".join(dict.fromkeys(row["core"] for row in rounds if "core" in row)),
        "nodes": rounds[0]["nodes"],
        "rounds": len(rounds),
        "minutes": round(minutes, 1),
        **{key: sums[key] for key in SUMS},
        "kinds": dict(sorted(kinds.items())),
        "times": [_times_of(what, *found) for what, found in sorted(_by_what(rounds).items())],
    }


def _times_of(what: str, values: list[float], missed: int) -> Row:
    values.sort()
    times = (0.0, 0.0, 0.0)
    if values:
        p99 = values[max(0, -int(-0.99 * len(values) // 1) - 1)]
        times = values[(len(values) - 1) // 2], p99, values[-1]
    names = ("median_ms", "p99_ms", "greatest_ms")
    rounded = dict(zip(names, map(round, times), strict=True))
    return {"what": what, "count": len(values), "not_found": missed} | rounded


def report(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown, of summaries: the machines, a table of campaigns, a table of times."""
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    for number, machine in enumerate(machines, 1):
        yield f"{number}. {machine}"
    yield ""
    yield _line(HEAD)
    yield "|" + "---|" * len(HEAD)
    for row in rows:
        exact = f"{row['links_exact']} of {row['rounds']}"
        machine = machines.index(row["machine"]) + 1
        cells = {"core": "", **row, "links_exact": exact, "machine": machine}
        names = ("campaign", "machine", "core", "nodes", "rounds", "minutes", *SUMS)
        yield _line([cells[name] for name in names])
    yield ""
    yield f"{sum(row['faults'] for row in rows)} faults in all."
    yield ""
    for row in rows:
        if len(kinds := row.get("kinds", {})) > 1:
            text = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
            yield f"Messages of {row['campaign']}: {text}."
            yield ""
    yield "| campaign | what | how often | not found | median | 99th percentile | greatest |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        for found in row["times"]:
            if found["count"]:
                times = [f"{found[key]} ms" for key in ("median_ms", "p99_ms", "greatest_ms")]
                yield _line(
                    (row["campaign"], found["what"], found["count"], found["not_found"], *times)
                )


def _machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = names[0] if names else platform.machine()
    software = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {software}"


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _by_what(rounds: list[Document]) -> dict[str, tuple[list[float], int]]:
    """Times in milliseconds of what was measured, and how often it did not come to an end."""
    found: dict[str, tuple[list[float], int]] = {}

    def add(what: str, values: list[float], missed: int = 0) -> None:
        before, missed_before = found.get(what, ([], 0))
        found[what] = (before + values, missed_before + missed)

    for row in rounds:
        for kind, by_calm in row["detection_ms"].items():
            for calm in ("calm", "calm_hogged"):
                what = f"{kind}: found by all" + (" beside hogs" if calm == "calm_hogged" else "")
                add(what, by_calm[calm]["values"], by_calm[calm]["not_found"])
        for kind, times in row["healing_ms"].items():
            add(f"{kind}: all links exact", times["values"])
        rest_s = row["rest_s"]
        at_rest = [] if rest_s is None else [rest_s * 1000]
        add("end of all faults: at rest", at_rest, int(rest_s is None))
    return found
