"""How long a node needs to work out its links: Healing figure 6(a)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from bmgd.healing import link_diff
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.routing import BACKEND, reference

SIZES: Final = tuple(1 << k for k in range(4, 13))
FAILED: Final = (1, 2, 4, 8)

_REPEATS: Final = 15
_CALLS: Final = 200
_CALLS_QUICK: Final = 50


def _nanoseconds(
    call: Callable[[int, int, list[int]], object], size: int, failed: int, calls: int
) -> float:
    """The least of some means: what else the machine does only ever adds to it."""
    random = Random(f"{size} {failed}")
    dead = sorted(random.sample(range(size), failed))
    gone = set(dead)
    nodes = random.choices([node for node in range(size) if node not in gone], k=calls)
    best = float("inf")
    for _ in range(_REPEATS):
        began_ns = time.perf_counter_ns()
        for node in nodes:
            call(size, node, dead)
        best = min(best, (time.perf_counter_ns() - began_ns) / calls)
    return best


def _timed(run: Run) -> Iterator[Row]:
    calls = _CALLS_QUICK if run.quick else _CALLS
    for done, size in enumerate(SIZES):
        run.progress(done, len(SIZES), f"N = {size}")
        for failed in FAILED:
            as_used = _nanoseconds(link_diff, size, failed, calls)
            in_python = _nanoseconds(reference.link_changes, size, failed, calls)
            yield size, failed, BACKEND, as_used, in_python


def _growth(rows: Rows, name: str, over: str) -> float:
    """How many times longer the last takes than the first; the other variable at its least."""
    other = "failed" if over == "size" else "size"
    least = min(r[other] for r in rows) if over == "size" else max(r[other] for r in rows)
    taken = sorted((r[over], r[name]) for r in rows if r[other] == least)
    return float(taken[-1][1] / taken[0][1])


EXPERIMENTS: Final = (
    Experiment(
        name="healing-figure-6a",
        paper="Healing",
        section="§4, figure 6(a)",
        title="A node works out its new links in microseconds, at every size",
        explanation=(
            "The time that one node needs to work out which links to close and to open (Algorithm 1), "
            "after one to eight deaths, in graphs of 16 to 4096 nodes: as bmgd calls it, and in plain "
            "Python. Each is the least mean of fifteen repetitions, over random survivors.\n\n"
            "The paper says that it scales well with the nodes and that the number of failed ones "
            "matters little; it prints no numbers. The time grows with the number "
            "of neighbors, so as log2 N. The checks leave room for what else the machine does."
        ),
        columns=(
            Column("size", "nodes", "N, before the deaths"),
            Column("failed", "nodes", "how many have died"),
            Column("backend", "", "what bmgd uses: c, or python without the extension"),
            Column("nanoseconds", "ns", "per call, as bmgd uses it"),
            Column("nanoseconds_python", "ns", "per call, by the reference in Python"),
        ),
        checks=(
            Check(
                "256 times as many nodes take less than 16 times as long",
                lambda rows: all(
                    _growth(rows, name, "size") < 16
                    for name in ("nanoseconds", "nanoseconds_python")
                ),
            ),
            Check(
                "at 4096 nodes eight deaths take less than 6 times as long as one",
                lambda rows: all(
                    _growth(rows, name, "failed") < 6
                    for name in ("nanoseconds", "nanoseconds_python")
                ),
            ),
        ),
        run=_timed,
        plot=Plot(
            x="size",
            ys=("nanoseconds", "nanoseconds_python"),
            by="failed",
            log_x=True,
            log_y=True,
            x_label="nodes N",
            y_label="nanoseconds per call",
        ),
        alone=True,
    ),
)
