"""How fast a local cluster starts, hears of a death and heals, and what an idle daemon costs.

    python -m benchmarks.cluster launch [--sizes 16,64,128,256] [--repetitions 20]
    python -m benchmarks.cluster kill   [--sizes 16,32,64]      [--repetitions 20]
    python -m benchmarks.cluster death  [--sizes 64]            [--repetitions 20]
    python -m benchmarks.cluster memory [--sizes 64]
    python -m benchmarks.cluster idle   [--sizes 64] [--seconds 30] [--profile lan]
    python -m benchmarks.cluster soak   [--sizes 64] [--seconds 600] [--hogs 2]
                                 each:  [--before COMMIT] [--turns 4] [--json]

Printed are medians, least and greatest, with `--json` as one object a line. With `--before` another
commit is measured too, the two in turns, and then the median of this code by that of the other.
`launch` runs from the start of the command to the line that all have joined; its reference is a fork of
as many processes that end at once. `kill` runs from just before SIGKILL to the time, taken in the
daemons, of the last survivor's notice and of the last link exact; its reference is one round trip over
a loopback socket. `death` counts the CPU time of all survivors until half a second after each death,
less what they use at rest; the victims stay dead. CPU time is the kernel's, in nanoseconds
(`/proc/PID/schedstat`). `idle` counts all of the loopback interface, so let nothing else use it
(`unshare -n` gives an own one). `soak` counts deaths that were declared while nobody died.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cluster.measures import MEASURES, Values
from benchmarks.commits import python_of

Row = dict[str, Any]


def measured(options: argparse.Namespace, size: int) -> list[Row]:
    """All rows of one size: of each code, and then the ratios."""
    measure = MEASURES[options.measure][0]
    codes = {"now": Path(sys.executable)}
    if options.before:
        codes[options.before] = python_of(options.before)
    found: dict[tuple[str, str, str], list[float]] = {}
    repetitions = options.repetitions
    for turn in range(options.turns):
        options.repetitions = repetitions // options.turns + (turn < repetitions % options.turns)
        # Each begins as often as the other, so what warms up or drifts favors none.
        names = sorted(codes, reverse=turn % 2 == 1)
        for name in names:
            for values in measure(size, options, codes[name]):
                found.setdefault((name, values.name, values.unit), []).extend(values.values)
    options.repetitions = repetitions
    rows = [
        _summary(size, code, Values(what, unit, values))
        for (code, what, unit), values in found.items()
    ]
    return rows + [
        {"what": what, "size": size, "unit": "of " + options.before, "median": round(ratio, 4)}
        for what, ratio in _ratios(found, options.before).items()
    ]


def _summary(size: int, code: str, measured: Values) -> Row:
    values = measured.values
    return {
        "what": measured.name,
        "size": size,
        "unit": measured.unit,
        "code": code,
        "median": round(median(values), 4),
        "least": round(min(values), 4),
        "greatest": round(max(values), 4),
        "repetitions": len(values),
    }


def _ratios(found: dict[tuple[str, str, str], list[float]], before: str) -> dict[str, float]:
    """By what was measured: the median of this code, by that of the other."""
    return {
        what: median(values) / median(found[before, what, unit])
        for (code, what, unit), values in found.items()
        if before and code == "now" and not what.startswith("reference") and median(values)
    }


def _text(row: Row) -> str:
    text = f"N={row['size']:<4} {row['what']:<46} {row.get('code', ''):<8}"
    text += f" median {row['median']:>10} {row['unit']}"
    if "least" in row:
        text += f"   ({row['least']} to {row['greatest']}, {row['repetitions']} values)"
    return text


def main() -> None:
    """Run one measure at each size."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__.splitlines()[0] if __doc__ else None,
    )
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--sizes", help="comma-separated cluster sizes")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--profile", default="lan", help="of `idle`")
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--before", default="", help="a commit to compare with")
    parser.add_argument("--turns", type=int, help="rounds of the measure; 1, with --before 4")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.turns = min(options.turns or (4 if options.before else 1), options.repetitions)
    for size in map(int, (options.sizes or MEASURES[options.measure][1]).split(",")):
        for row in measured(options, size):
            print(json.dumps(row) if options.json else _text(row), flush=True)
