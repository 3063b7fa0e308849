"""How long one next hop takes, by this project's formula and by the papers' methods.

    python benchmarks/next_hop.py [--repetitions 25] [--json]

All loops run inside the extension: no Python is measured. Distances are random, 65536 of them in
turn, and the sum of all answers is kept, so the compiler can leave nothing out. Printed are medians
in nanoseconds per call, and how many times as long as `exact` each method takes.

    exact          one first hop by the exact formula (the least weight over all loops)
    all            every first hop by the same formula, as the relay uses it
    table          one first hop looked up in a table of all distances
    equivalence4   Routing §3.3: four loops, the bits scanned as in its Figure 8
    basic          Routing Algorithm 2: the neighbor closest to the destination
    variant        Routing §2.3: a neighbor that links the destination, before that
    bfs            Routing Algorithm 1: breadth-first search for every message
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from typing import TYPE_CHECKING, Literal, TypedDict

from bmgd import _labroutes

if TYPE_CHECKING:
    from bmgd._labroutes import Algorithm

SIZES = (100, 4096, 10**6, 2**31)
METHODS: dict[str, tuple[Algorithm | Literal["all"], int]] = {
    "exact": ("exact", 0),
    "all": ("all", 0),
    "table": ("table", 0),
    "equivalence4": ("equivalence", 4),
    "basic": ("basic", 0),
    "variant": ("variant", 1),
    "bfs": ("bfs", 0),
}
"""The names printed, and what they are called in the extension, with the loops or levels."""

LARGEST = {"table": 2**24, "bfs": 2**24}
CALLS_FOR_BFS = {100: 20_000, 4096: 300, 10**6: 8}
CALLS = 200_000


class Row(TypedDict):
    """One method at one size."""

    size: int
    method: str
    median_ns: float
    least_ns: float
    times_exact: float


def measured(size: int, name: str, repetitions: int) -> list[float]:
    """The nanoseconds per call of each repetition."""
    method, depth = METHODS[name]
    calls = CALLS_FOR_BFS[size] if method == "bfs" else CALLS
    return [
        _labroutes.bench_next_hop(size, calls, seed, method, depth) for seed in range(repetitions)
    ]


def rows(repetitions: int) -> list[Row]:
    """Every method at every size that it can serve."""
    found: list[Row] = []
    for size in SIZES:
        exact = 0.0
        for method in METHODS:
            if size > LARGEST.get(method, size):
                continue
            times = measured(size, method, repetitions)
            middle = median(times)
            exact = exact or middle
            row = Row(
                size=size,
                method=method,
                median_ns=middle,
                least_ns=min(times),
                times_exact=middle / exact,
            )
            found.append(row)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=25, help="at least 20 for a fair median")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    chosen = parser.parse_args()
    found = rows(chosen.repetitions)
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'size':>12} {'method':<13} {'median ns':>14} {'least ns':>14} {'x exact':>12}")
    for row in found:
        print(
            f"{row['size']:>12} {row['method']:<13} {row['median_ns']:>14.1f}"
            f" {row['least_ns']:>14.1f} {row['times_exact']:>12.1f}"
        )


if __name__ == "__main__":
    main()
