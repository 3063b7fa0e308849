"""Every set of failed nodes in eight small graphs: Healing figures 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, factorial
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.lab.faults import all_fault_sets
from bmgd.topology import BinomialGraph
from bmgd.topology.faults import FaultCounts, sets_with_node_0

SIZES: Final = (11, 13, 14, 15, 17, 18, 20, 24)
"""Healing §2.2; all of degree 8."""

DEGREE: Final = 8

SIZE_MAX_QUICK: Final = 20
"""Of distances: beyond, one size takes ten seconds."""


def census(
    run: Run, sizes: tuple[int, ...], distances: bool
) -> Iterator[tuple[int, int, FaultCounts]]:
    """Every size with every number of failed nodes that leaves at least two: (N, F, counts)."""
    steps = [(n, failed) for n in sizes for failed in range(n - 1)]
    total = sum(sets_with_node_0(*step) for step in steps)
    done = 0
    for n, failed in steps:

        def tell(sets: int, n: int = n, failed: int = failed, done: int = done) -> None:
            sets = min(sets, sets_with_node_0(n, failed))
            run.progress(done + sets, total, f"N = {n}, {failed} failed")

        def count(n: int = n, failed: int = failed) -> list[int]:
            return list(all_fault_sets(n, failed, distances, tell))

        found = run.resumed(f"{n} nodes, {failed} failed, distances {distances}", count)
        done += sets_with_node_0(n, failed)
        yield n, failed, FaultCounts(*found)


def transmissions(n: int, failed: int) -> int:
    """The paper's T: from one node to each other one, with each set of failed nodes between."""
    return (n - 1) * comb(n - 2, failed)


def _unreachable(run: Run) -> Iterator[Row]:
    for n, failed, counts in census(run, SIZES, distances=False):
        # The counts are over every source; the paper takes one, since all look the same.
        unreachable, cases = counts.unreachable // n, transmissions(n, failed)
        yield n, failed, 100 * failed / n, cases, unreachable, 100 * unreachable / cases


def _bisected(run: Run) -> Iterator[Row]:
    for n, failed, counts in census(run, SIZES, distances=False):
        sets = comb(n, failed)
        share = 100 * counts.disconnected / sets
        yield n, failed, 100 * failed / n, sets, counts.disconnected, share


def _distances(run: Run) -> Iterator[tuple[int, int, FaultCounts, int]]:
    sizes = tuple(n for n in SIZES if not run.quick or n <= SIZE_MAX_QUICK)
    for n, failed, counts in census(run, sizes, distances=True):
        yield n, failed, counts, n * transmissions(n, failed) - counts.unreachable


def _average_hops(run: Run) -> Iterator[Row]:
    for n, failed, counts, reachable in _distances(run):
        yield n, failed, 100 * failed / n, counts.hops / reachable


def _diameters(run: Run) -> Iterator[Row]:
    for n, failed, counts, _ in _distances(run):
        yield n, failed, 100 * failed / n, counts.diameters / counts.measured, counts.most


def _of_size(rows: Rows, name: str) -> dict[int, list[float]]:
    """A column by size, in the order of failed nodes."""
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row["size"], []).append(row[name])
    return found


def _ends_at_one(rows: Rows, name: str) -> bool:
    return all(values[-1] == 1 for values in _of_size(rows, name).values())


def _risen(rows: Rows, name: str, size: int) -> float:
    """The highest value of a size, as a multiple of that without failures."""
    values = _of_size(rows, name)[size]
    return max(values) / values[0]


_SIZE: Final = Column("size", "nodes", "N")
_FAILED: Final = Column("failed", "nodes", "how many have failed, to N − 2")
_PERCENT: Final = Column("failed_percent", "%", "the same, of N")

_METHOD: Final = (
    "Every set of failed nodes was examined, in eight graphs of degree 8, with every number of failed "
    "nodes that leaves two or more. Nothing heals the graph. "
)

_UNREACHABLE_COLUMNS: Final = (
    _SIZE,
    _FAILED,
    _PERCENT,
    Column("cases", "", "T: destinations of one source, times sets of failed nodes beside the two"),
    Column("unreachable", "", "U: the cases in which no way is left"),
    Column("unreachable_percent", "%", "P = U / T"),
)

EXPERIMENTS: Final = (
    Experiment(
        name="healing-figure-2a",
        paper="Healing",
        section="§2.2, figure 2(a)",
        title="How many failed nodes it takes until some message cannot arrive",
        explanation=(
            f"{_METHOD}A case is a source, a destination and a set of failed nodes that contains "
            "neither; the message is unreachable if no way is left at all.\n\n"
            "Up to seven failures everything is reachable, in every graph; eight, as many as a node "
            "has neighbors, can cut one off. The logarithmic axis shows how rare that is at first."
        ),
        columns=_UNREACHABLE_COLUMNS,
        checks=(
            Check(
                "all eight graphs have degree 8, and T is the paper's (N−1)! / ((N−F−2)! F!)",
                lambda rows: all(
                    BinomialGraph(r["size"]).degree == DEGREE
                    and r["cases"] * factorial(r["size"] - r["failed"] - 2) * factorial(r["failed"])
                    == factorial(r["size"] - 1)
                    for r in rows
                ),
            ),
            Check(
                "nothing is unreachable while fewer than 8 nodes have failed",
                lambda rows: all(r["unreachable"] == 0 for r in rows if r["failed"] < DEGREE),
            ),
            Check(
                "with 8 failed nodes or more something is unreachable, in every graph",
                lambda rows: all(r["unreachable"] > 0 for r in rows if r["failed"] >= DEGREE),
            ),
        ),
        run=_unreachable,
        plot=Plot(
            x="failed",
            ys=("unreachable_percent",),
            by="size",
            log_y=True,
            x_label="failed nodes",
            y_label="unreachable cases, %",
        ),
    ),
    Experiment(
        name="healing-figure-2b",
        paper="Healing",
        section="§2.2, figure 2(b)",
        title="The share of messages that cannot arrive stays tiny until half of the nodes have failed",
        explanation=(
            f"{_METHOD}The same cases as in figure 2(a), over the share of failed nodes.\n\n"
            "The paper calls the share significant above 50 %. In these graphs it is below a quarter "
            "of a percent up to there, and above a quarter of all cases when 80 % have failed (but "
            "for the smallest graphs, where so few survivors are neighbors of each other). In large "
            "graphs the turning point is later, see reliability-random."
        ),
        columns=_UNREACHABLE_COLUMNS,
        checks=(
            Check(
                "up to 50 % failed nodes, fewer than 0.25 % of the cases are unreachable",
                lambda rows: all(
                    r["unreachable_percent"] < 0.25 for r in rows if r["failed_percent"] <= 50
                ),
            ),
            Check(
                "in each graph the share grows with every failed node from the eighth on",
                lambda rows: all(
                    a < b
                    for values in _of_size(rows, "unreachable_percent").values()
                    for a, b in zip(values[DEGREE:], values[DEGREE + 1 :], strict=False)
                ),
            ),
            Check(
                "with two survivors it is the share of pairs that are no neighbors: 1 − 8/(N−1)",
                lambda rows: all(
                    r["unreachable"] * (r["size"] - 1) == r["cases"] * (r["size"] - 1 - DEGREE)
                    for r in rows
                    if r["failed"] == r["size"] - 2
                ),
            ),
        ),
        run=_unreachable,
        plot=Plot(
            x="failed_percent",
            ys=("unreachable_percent",),
            by="size",
            x_label="failed nodes, %",
            y_label="unreachable cases, %",
        ),
    ),
    Experiment(
        name="healing-figure-2c",
        paper="Healing",
        section="§2.2, figure 2(c)",
        title="How often failed nodes cut the survivors into parts",
        explanation=(
            f"{_METHOD}A set of failed nodes bisects the graph if some survivor cannot reach another. "
            "\n\nAs the paper says, this becomes frequent above 50 %. It does not grow to the end: the "
            "last few survivors are more often all neighbors of each other than a few more would be "
            "all connected, so the curves of the larger graphs bend down."
        ),
        columns=(
            _SIZE,
            _FAILED,
            _PERCENT,
            Column("sets", "", "sets of so many failed nodes"),
            Column("bisected", "", "of these, the sets whose survivors are not connected"),
            Column("bisected_percent", "%", "the share of these sets"),
        ),
        checks=(
            Check(
                "no set of fewer than 8 nodes bisects a graph, and some set of 8 bisects each",
                lambda rows: all((r["bisected"] > 0) == (r["failed"] >= DEGREE) for r in rows),
            ),
            Check(
                "up to 50 % failed nodes, at most 1.3 % of the sets bisect",
                lambda rows: all(
                    r["bisected_percent"] <= 1.3 for r in rows if r["failed_percent"] <= 50
                ),
            ),
            Check(
                "from 17 nodes on some number of failed nodes bisects in half of the sets",
                lambda rows: all(
                    max(values) >= 50
                    for size, values in _of_size(rows, "bisected_percent").items()
                    if size >= 17
                ),
            ),
        ),
        run=_bisected,
        plot=Plot(
            x="failed_percent",
            ys=("bisected_percent",),
            by="size",
            x_label="failed nodes, %",
            y_label="sets that bisect, %",
        ),
    ),
    Experiment(
        name="healing-figure-3a",
        paper="Healing",
        section="§2.2, figure 3(a)",
        title="The average way grows little while nodes fail and nobody heals",
        explanation=(
            f"{_METHOD}The mean number of hops of the shortest ways between survivors, over all pairs "
            "that have a way and all sets.\n\n"
            "It grows by at most a seventh, and falls again when the survivors are few: as the paper "
            "says, to one hop when two are left that can reach each other. A quick run leaves out 24 "
            "nodes."
        ),
        columns=(_SIZE, _FAILED, _PERCENT, Column("average_hops", "hops")),
        checks=(
            Check(
                "without failures it is the average distance of the graph",
                lambda rows: all(
                    abs(r["average_hops"] - BinomialGraph(r["size"]).average_distance) < 1e-12
                    for r in rows
                    if r["failed"] == 0
                ),
            ),
            Check(
                "it never exceeds that of the whole graph by more than a seventh",
                lambda rows: all(_risen(rows, "average_hops", r["size"]) < 8 / 7 for r in rows),
            ),
            Check("with two survivors it is 1", lambda rows: _ends_at_one(rows, "average_hops")),
        ),
        run=_average_hops,
        plot=Plot(
            x="failed",
            ys=("average_hops",),
            by="size",
            x_label="failed nodes",
            y_label="average hops",
        ),
    ),
    Experiment(
        name="healing-figure-3b",
        paper="Healing",
        section="§2.2, figure 3(b)",
        title="The longest way grows faster",
        explanation=(
            f"{_METHOD}The diameter is the most hops between any two survivors that can reach each "
            "other. The paper does not say whether it takes its mean over the sets or the worst; "
            "both are here, the mean is drawn.\n\n"
            "'Rapidly increases' holds for the larger graphs: at 20 nodes the mean rises by two "
            "thirds and the worst from 2 to 6 hops. At 11 nodes the mean never rises at all: each node "
            "is linked to all others but two. A quick run leaves out 24 nodes."
        ),
        columns=(
            _SIZE,
            _FAILED,
            _PERCENT,
            Column("mean_diameter", "hops", "over the sets that leave a pair with a way"),
            Column("worst_diameter", "hops", "of all sets"),
        ),
        checks=(
            Check(
                "without failures both are the diameter of the graph",
                lambda rows: all(
                    r["mean_diameter"] == r["worst_diameter"] == BinomialGraph(r["size"]).diameter
                    for r in rows
                    if r["failed"] == 0
                ),
            ),
            Check(
                "at 20 nodes the mean rises by more than 60 %, the worst to three times the diameter",
                lambda rows: (
                    _risen(rows, "mean_diameter", 20) > 1.6
                    and _risen(rows, "worst_diameter", 20) == 3
                ),
            ),
            Check(
                "at 11 nodes the mean never rises",
                lambda rows: _risen(rows, "mean_diameter", 11) == 1,
            ),
            Check(
                "with two survivors both are 1",
                lambda rows: (
                    _ends_at_one(rows, "mean_diameter") and _ends_at_one(rows, "worst_diameter")
                ),
            ),
        ),
        run=_diameters,
        plot=Plot(
            x="failed",
            ys=("mean_diameter",),
            by="size",
            x_label="failed nodes",
            y_label="diameter, hops (mean)",
        ),
    ),
)
