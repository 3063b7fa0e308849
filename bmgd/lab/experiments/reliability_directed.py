"""Failures that somebody chooses: the fewest that part the survivors, at any size."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
from bmgd.topology import BinomialGraph
from bmgd.topology.faults import component_sizes

SIZES: Final = (16, 24, 48, 64, 100, 256, 1000, 1024, 4096, 10_000, 16_384, 65_536, 100_000)
SIZES_QUICK: Final = tuple(size for size in SIZES if size <= 16_384)

NODE: Final = "a node's neighbors"
ALL_BUT_ONE: Final = "all of them but one"
PAIR: Final = "a pair's neighbors"


def pair_neighbors(size: int) -> tuple[int, ...]:
    """The fewest nodes that cut two linked nodes off from the rest; node 0 is one of the two."""
    graph = BinomialGraph(size)
    around = []
    for jump in graph.jumps:
        both = {*graph.neighbors(0), *graph.neighbors(jump)} - {0, jump}
        around.append(tuple(sorted(both)))
    return min(around, key=lambda nodes: (len(nodes), nodes))


def most_failed_neighbors(size: int, failed: tuple[int, ...]) -> int:
    """The most failed neighbors that any survivor has."""
    graph, counts = BinomialGraph(size), dict[int, int]()
    for node in failed:
        for other in graph.neighbors(node):
            counts[other] = counts.get(other, 0) + 1
    gone = set(failed)
    return max(count for node, count in counts.items() if node not in gone)


def _row(size: int, schedule: str, failed: tuple[int, ...], odds: float | None) -> Row:
    parts = component_sizes(size, failed)
    degree = BinomialGraph(size).degree
    cut_off = sum(parts[1:])
    most = most_failed_neighbors(size, failed)
    return size, degree, schedule, len(failed), len(parts), cut_off, most, odds


def _directed(run: Run) -> Iterator[Row]:
    sizes = SIZES_QUICK if run.quick else SIZES
    for done, size in enumerate(sizes):
        run.progress(done, len(sizes), f"N = {size}")
        neighbors = tuple(BinomialGraph(size).neighbors(0))
        odds = comb(size, len(neighbors)) / size
        yield _row(size, NODE, neighbors, odds)
        spared = [tuple(each for each in neighbors if each != one) for one in neighbors]
        # The one that leaves the most parts speaks for all.
        yield _row(
            size, ALL_BUT_ONE, max(spared, key=lambda few: len(component_sizes(size, few))), None
        )
        yield _row(size, PAIR, pair_neighbors(size), None)


EXPERIMENTS: Final = (
    Experiment(
        name="reliability-directed",
        paper="bmgd",
        section="Healing §5, future work: directed failures",
        title="Failing one node's neighbors parts a graph of any size",
        explanation=(
            "Three schedules of failures, in graphs that nobody heals. The neighbors of one node: δ "
            "failures, and that node is alone. All of them but one, whichever is spared: the survivors "
            "stay connected, so δ is the least. The neighbors of two linked nodes, for the pair that "
            "needs the fewest: these two are cut off from the rest.\n\n"
            "The last schedule matters for Healing §3.2, which has healing begin before a node has δ "
            "failed neighbors. That is necessary. It is not enough by itself: here the survivors are "
            "parted, and no survivor has δ failed neighbors. A policy that waits must count failures "
            "in all (fewer than δ part nothing), not only failures around a node.\n\n"
            "'One in' says how many random sets of δ failed nodes there are for each that is some "
            "node's neighborhood: so many trials a random search needs. At 100,000 nodes no computer "
            "ever finds one."
        ),
        columns=(
            Column("size", "nodes", "N"),
            Column("degree", "links", "δ"),
            Column("schedule", "", "what fails"),
            Column("failed", "nodes"),
            Column("parts", "", "into which the survivors fall"),
            Column("cut_off", "nodes", "survivors outside the largest part"),
            Column("most_failed_neighbors", "nodes", "of any survivor"),
            Column("one_in", "sets", "of δ nodes, for one that is a neighborhood"),
        ),
        checks=(
            Check(
                "δ failures cut off one node, at every size",
                lambda rows: all(
                    (r["failed"], r["parts"], r["cut_off"]) == (r["degree"], 2, 1)
                    for r in rows
                    if r["schedule"] == NODE
                ),
            ),
            Check(
                "with any one of them spared nothing is parted",
                lambda rows: all(r["parts"] == 1 for r in rows if r["schedule"] == ALL_BUT_ONE),
            ),
            Check(
                "a pair is cut off although no survivor has δ failed neighbors",
                lambda rows: all(
                    r["parts"] == 2
                    and r["cut_off"] == 2
                    and r["most_failed_neighbors"] < r["degree"]
                    for r in rows
                    if r["schedule"] == PAIR
                ),
            ),
            Check(
                "a pair needs fewer than twice δ failures",
                lambda rows: all(
                    r["degree"] < r["failed"] < 2 * r["degree"]
                    for r in rows
                    if r["schedule"] == PAIR
                ),
            ),
        ),
        run=_directed,
        plot=Plot(
            x="size",
            ys=("failed",),
            by="schedule",
            log_x=True,
            x_label="nodes N",
            y_label="failed nodes",
        ),
    ),
)
