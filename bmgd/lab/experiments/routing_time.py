"""Routing figure 11: how long one next hop takes, C against C."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run

if TYPE_CHECKING:
    from bmgd._labroutes import Algorithm

L1_RESIDENT_SIZE: Final = 4096
"""The largest size whose table of 4 bytes per distance lies in a first-level cache, with room."""

METHODS: Final[tuple[tuple[str, Algorithm, int, int], ...]] = (
    ("exact", "exact", 0, 2**31),
    ("table", "table", 0, 2**22),
    ("equivalence class, 4 loops", "equivalence", 4, 2**31),
    ("consecutive bit elimination", "elimination", 0, 2**31),
    ("bit counting", "bits-table", 0, 2**31),
    ("basic", "basic", 0, 2**31),
    ("variant", "variant", 1, 2**31),
    ("breadth-first search", "bfs", 0, 2**16),
)
"""Name, what the extension calls it, its depth, and the largest size at which it is timed."""

SIZES: Final = (
    *(16, 17, 24, 31, 32, 48, 63, 64, 100, 128, 200, 256, 365, 512, 777, 1000, 1024, 1365, 2048),
    *(2731, 3000, 4095, 4096, 10**4, 2**16, 10**5, 10**6, 2**20, 2**22, 10**7, 10**8, 10**9, 2**30),
    *(2**31 - 1, 2**31),
)
QUICK_SIZES: Final = (16, 64, 100, 1000, 1024, 3000, 4096, 2**16, 10**6, 10**9, 2**31)

ROUNDS: Final = 15
"""Repetitions; methods take turns, so that a slow moment of the machine hits all of them."""

CALLS: Final = 65536
QUICK_CALLS: Final = 16384
BFS_CALLS_TIMES_SIZE: Final = 2**19


def _timed(run: Run, size: int, place: tuple[int, int]) -> list[list[float]]:
    """The nanoseconds of each method at one size: the median and the least of the rounds."""
    # The experiment needs the extension itself, so that it says so instead of timing Python.
    from bmgd import _labroutes

    which, total = place
    of = [each for each in METHODS if size <= each[3]]
    times: list[list[float]] = [[] for _ in of]
    for turn in range(ROUNDS):
        run.progress(which + turn / ROUNDS, total, f"N = {size}")
        for found, (_, method, depth, _) in zip(times, of, strict=True):
            calls = QUICK_CALLS if run.quick else CALLS
            if method == "bfs":
                calls = max(1, BFS_CALLS_TIMES_SIZE // size)
            if method == "variant":
                calls //= 16
            found.append(_labroutes.bench_next_hop(size, calls, turn, method, depth))
    return [[median(found), min(found)] for found in times]


def _figure_11(run: Run) -> Iterator[Row]:
    sizes = QUICK_SIZES if run.quick else SIZES
    for which, size in enumerate(sizes):
        place = (which, len(sizes))
        found = run.resumed(f"N = {size}", partial(_timed, run, size, place))
        exact = found[0]
        named = [name for name, _, _, largest in METHODS if size <= largest]
        for name, (middle, least) in zip(named, found, strict=True):
            yield size, name, middle, least, least / exact[1]


def _ratios(rows: Rows, algorithm: str, least: int = 0, most: int = 2**31) -> list[float]:
    return [
        r["times_exact"] for r in rows if r["algorithm"] == algorithm and least <= r["size"] <= most
    ]


def _faster_than_search(rows: Rows) -> bool:
    of_search = [r for r in rows if r["algorithm"] == "breadth-first search"]
    search = {r["size"]: r["least"] for r in of_search if r["size"] >= 64}
    return all(
        r["least"] < search[r["size"]]
        for r in rows
        if r["algorithm"] == EQUIVALENCE and r["size"] in search
    )


def _slower_than_basic(rows: Rows) -> bool:
    basic = {r["size"]: r["least"] for r in rows if r["algorithm"] == "basic"}
    return all(r["least"] > basic[r["size"]] for r in rows if r["algorithm"] == EQUIVALENCE)


EQUIVALENCE: Final = "equivalence class, 4 loops"

EXPERIMENTS: Final = (
    Experiment(
        name="routing-figure-11",
        paper="Routing",
        section="§4, figure 11",
        title="How long it takes to find one next hop",
        explanation=(
            "Every algorithm is a C function, called through a pointer for random distances; the time "
            "is that of one call, with the loop around it. The paper times breadth-first search, the "
            "basic algorithm and the equivalence class with four loops up to 4096 nodes, on a machine "
            "of 2.13 GHz, and prints no numbers. Here the exact algorithm of bmgd, a table that was "
            "worked out before, and the others join them, to the largest size of 2^31 nodes (the "
            "search to 2^16 and the table to 2^22, as both need memory for every node).\n\n"
            "All methods take turns in 15 rounds. Columns are the median and the least of the rounds; "
            "ratios and checks use the least, which other work on the machine disturbs the least. "
            "The exact algorithm is optimal at all sizes, and needs no more memory than the number of "
            "nodes; the table is what it has to be compared with when there is memory to spare.\n\n"
            "The paper finds the equivalence class significantly faster than the search; from some "
            "dozens of nodes on it is. It finds it 'even faster than the basic sub-optimal "
            "algorithm'. That is not so here: with four loops it looks at ten distances, and the basic "
            "algorithm at two neighbors per power of two, without the bit loops."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("algorithm", "", "how the next hop is found"),
            Column("median", "ns", "per next hop, the median of 15 rounds"),
            Column("least", "ns", "per next hop, the fastest round"),
            Column("times_exact", "", "its fastest round over that of the exact algorithm"),
        ),
        checks=(
            Check(
                "exact takes at most half the time of the equivalence class with four loops, at "
                "every size",
                lambda rows: min(_ratios(rows, EQUIVALENCE)) >= 2,
            ),
            Check(
                "exact takes at most 20 times a look into a table in the first-level cache "
                "(to 4096 nodes)",
                lambda rows: min(_ratios(rows, "table", 16, L1_RESIDENT_SIZE)) >= 1 / 20,
            ),
            Check(
                "the equivalence class is faster than breadth-first search, from 64 nodes on",
                _faster_than_search,
            ),
            Check(
                "the equivalence class is not faster than the basic algorithm, at any size tried",
                _slower_than_basic,
            ),
        ),
        run=_figure_11,
        plot=Plot(
            x="size",
            ys=("least",),
            by="algorithm",
            log_x=True,
            log_y=True,
            x_label="nodes n",
            y_label="ns per next hop",
        ),
        alone=True,
    ),
)
