"""docs/patterns.md: what each pattern of messages costs as a cluster grows."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "results" / "patterns.jsonl"
REPORT: Final = ROOT / "docs" / "patterns.md"
HEAD: Final = """\
# Messages per second of patterns, as a cluster grows

Written by `python -m benchmarks.patterns`, of [results/patterns.jsonl](results/patterns.jsonl): real
daemons on one machine, a program at each, messages of 64 bytes. bmgd's are reliable and in order
(`stream.write`); the star is nats-server with nats-py, at most once. The programs of either share two
processes. Medians of the runs, which took turns. Bytes are what TCP has carried between daemons,
acknowledgements and heartbeats included, or between programs and the broker. *Busiest link* is the share
of all bytes that went one way on one link.

A run has 40,000 messages, and a stream for each pair that talks. In the uniform pattern these are 56
streams at 8 nodes and 16,000 at 128, with 2.5 messages each: there the rate is that of opening and ending
streams, about 1.7 ms of CPU for each, of all processes together.

All daemons share the machine's processors here, so more nodes are more work and no more processors. With
a host for each, what bounds a pattern is its busiest link and node, which [many.md](many.md) counts.

| pattern | N | messages/s | star | ratio | bytes per message | star | busiest link | star |
|---|---|---|---|---|---|---|---|---|
"""
Row = dict[str, Any]


def report() -> str:
    """The page."""
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    cases = sorted({(row["pattern"], row["size"]) for row in rows})
    return HEAD + "".join(_line(rows, pattern, size) for pattern, size in cases)


def _line(rows: list[Row], pattern: str, size: int) -> str:
    here, star = (
        [r for r in rows if (r["pattern"], r["size"], r["system"]) == (pattern, size, system)]
        for system in ("bmgd", "nats")
    )
    rate, its_rate = _median(here, "per_s"), _median(star, "per_s")
    cells = [pattern, str(size), f"{rate:,.0f}"]
    cells += [f"{its_rate:,.0f}", f"{rate / its_rate:.2f}"] if star else ["", ""]
    cells += [_shown(runs, "bytes_per_message") for runs in (here, star)]
    cells += [_share(runs) for runs in (here, star)]
    return "| " + " | ".join(cells) + " |\n"


def _median(runs: list[Row], key: str) -> float:
    return median(row[key] for row in runs) if runs else 0.0


def _shown(runs: list[Row], key: str) -> str:
    return f"{_median(runs, key):,.0f}" if runs else ""


def _share(runs: list[Row]) -> str:
    shares = [row["busiest_bytes_per_message"] / row["bytes_per_message"] for row in runs]
    return f"{median(shares):.3f}" if shares else ""
