"""From the kept rounds of all campaigns to the tables of docs/chaos-results.md."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def _rounds(path: Path) -> list[Document]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def report(directory: Path) -> Iterator[str]:
    """Lines of Markdown: the machine, a table of campaigns, a table of times."""
    files = sorted(directory.glob("*.jsonl"))
    campaigns = {path.stem: rounds for path in files if (rounds := _rounds(path))}
    yield f"Machine: {_machine()}."
    yield ""
    yield from _campaigns(campaigns)
    yield ""
    yield from _times(campaigns)


def _machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = names[0] if names else platform.machine()
    software = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {software}"


HEAD = (
    "campaign",
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


def _row(cells: tuple[object, ...]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _campaigns(campaigns: dict[str, list[Document]]) -> Iterator[str]:
    yield _row(HEAD)
    yield "|" + "---|" * len(HEAD)
    in_all = 0
    for name, rounds in campaigns.items():
        sums: Counter[str] = Counter()
        for row in rounds:
            sent = row["deliveries"]
            sums["faults"] += sum(row["faults"].values())
            sums["failed"] += sum(sent["failed"].values())
            for key in ("violations_in_all", "false_deaths", "alone", "links_exact"):
                sums[key] += row[key]
            for key in ("sent", "acknowledged", "duplicates"):
                sums[key] += sent[key]
        minutes = sum(row["plan"]["seconds"] for row in rounds) / 60
        in_all += sums["faults"]
        yield _row(
            (
                name,
                rounds[0]["nodes"],
                len(rounds),
                f"{minutes:.1f}",
                sums["faults"],
                sums["violations_in_all"],
                sums["false_deaths"],
                sums["alone"],
                f"{sums['links_exact']} of {len(rounds)}",
                sums["sent"],
                sums["acknowledged"],
                sums["failed"],
                sums["duplicates"],
            )
        )
    yield ""
    yield f"{in_all} faults in all."


def _times(campaigns: dict[str, list[Document]]) -> Iterator[str]:
    yield "| campaign | what | how often | not found | median | 99th percentile | greatest |"
    yield "|---|---|---|---|---|---|---|"
    for name, rounds in campaigns.items():
        for what, (values, missed) in sorted(_by_what(rounds).items()):
            if not values:
                continue
            values.sort()
            p99 = values[max(0, -int(-0.99 * len(values) // 1) - 1)]
            times = (f"{ms:.0f} ms" for ms in (values[(len(values) - 1) // 2], p99, values[-1]))
            yield _row((name, what, len(values), missed, *times))


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
