"""Diameter, average distance and broadcast steps beside other topologies: ISPA07 figure 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Any, Final

from bmgd.lab.compared import (
    BINOMIAL,
    CHORD_ONE_WAY,
    NOTE,
    binomials,
    compared,
    one_way_fingers,
)
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import Topology
from bmgd.topology.measures.broadcasts import broadcast_steps
from bmgd.topology.measures.distances import Distances, distances, level_sizes, links_of

SOURCES_MOST: Final = 64
"""A graph that is not symmetric is broadcast in from this many nodes at most, evenly spread."""


def _distance_rows(run: Run) -> Iterator[tuple[str, int, Distances]]:
    graphs: list[tuple[str, Topology]] = [*binomials(run.quick), *compared(run.quick)]
    total = sum(graph.size for _, graph in graphs)
    done = 0
    for family, graph in graphs:
        yield family, graph.size, distances(graph)
        done += graph.size
        run.progress(done, total, f"{family} of {graph.size}")
    for bits in range(4, 11 if run.quick else 13):
        fingers = one_way_fingers(bits)
        counts = level_sizes(fingers.__getitem__, len(fingers), 0)
        yield CHORD_ONE_WAY, len(fingers), Distances(counts)


def _diameter_formula(family: str, size: int) -> int | None:
    log2 = (size - 1).bit_length()
    match family:
        case "2D torus":
            return 2 * (isqrt(size) // 2)
        case "hypercube" | "Chord, one way":
            return log2
        case "Chord, undirected":
            return (log2 + 1) // 2
        case "HiC(4,h)":
            return 2 * _levels(size, 4) - 1
    return None


def _levels(size: int, first: int) -> int:
    """How many levels, the first of `first` nodes and each of four times the one before, make a size."""
    levels = 0
    while size > 0:
        size -= first * 4**levels
        levels += 1
    return levels


def _average_formula(family: str, size: int) -> float | None:
    log2 = (size - 1).bit_length()
    match family:
        case "2D torus":
            side = isqrt(size)
            return 2 * (side * side // 4) * side / (size - 1)
        case "hypercube" | "Chord, one way":
            return log2 / 2 * size / (size - 1)
    return None


def _figure_2a(run: Run) -> Iterator[Row]:
    for family, size, found in _distance_rows(run):
        yield family, size, found.diameter, _diameter_formula(family, size)


def _figure_2b(run: Run) -> Iterator[Row]:
    for family, size, found in _distance_rows(run):
        yield family, size, found.average, _average_formula(family, size)


def _figure_2c(run: Run) -> Iterator[Row]:
    graphs: list[tuple[str, Topology]] = [
        *((family, graph) for family, graph in binomials(True)),
        *compared(run.quick),
    ]
    for number, (family, graph) in enumerate(graphs):
        links = links_of(graph)
        step = 1 if graph.size <= SOURCES_MOST else graph.size // SOURCES_MOST
        sources = [0] if graph.symmetric else list(range(0, graph.size, step))

        def bounds(links: list[tuple[int, ...]] = links, sources: list[int] = sources) -> list[int]:
            found = [broadcast_steps(links, source) for source in sources]
            return [sum(each.least for each in found), sum(each.most for each in found)]

        least, most = run.resumed(f"{family} {graph.size}", bounds)
        count = len(sources)
        yield family, graph.size, count, least / count, most / count, (graph.size - 1).bit_length()
        run.progress(number + 1, len(graphs), f"{family} of {graph.size}")


def _beside(rows: Rows, column: str) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Each row of another topology, and the binomial graph's value at the same size."""
    own = {row["size"]: row[column] for row in rows if row["topology"] == BINOMIAL}
    for row in rows:
        if row["topology"] != BINOMIAL and row["size"] in own:
            yield row, own[row["size"]]


def _never_above(rows: Rows, column: str) -> bool:
    pairs = list(_beside(rows, column))
    return bool(pairs) and all(value <= row[column] for row, value in pairs)


def _below_from(rows: Rows, column: str, size: int) -> bool:
    """Whether the binomial graph is strictly below all but Chord, from a size on."""
    return all(
        value < row[column]
        for row, value in _beside(rows, column)
        if row["topology"] != "Chord, undirected" and row["size"] >= size
    )


def _same_as_chord(rows: Rows, column: str) -> bool:
    pairs = [(r, v) for r, v in _beside(rows, column) if r["topology"] == "Chord, undirected"]
    return bool(pairs) and all(row[column] == value for row, value in pairs)


def _formula_holds(rows: Rows, column: str) -> bool:
    return all(
        abs(row[column] - row["formula"]) < 1e-9 for row in rows if row["formula"] is not None
    )


_COLUMNS: Final = (Column("topology", text="which"), Column("size", "nodes", "how many nodes"))


def _claim_checks(column: str, what: str) -> tuple[Check, ...]:
    return (
        Check(
            f"the binomial graph's {what} is never above another's of the same size",
            lambda rows: _never_above(rows, column),
        ),
        Check(
            "and strictly below, from 64 nodes on, but for undirected Chord",
            lambda rows: _below_from(rows, column, 64),
        ),
        Check(
            "undirected Chord on a full circle has exactly that of the binomial graph",
            lambda rows: _same_as_chord(rows, column),
        ),
        Check(
            "each closed formula is what the search finds",
            lambda rows: _formula_holds(rows, column),
        ),
    )


EXPERIMENTS: Final = (
    Experiment(
        name="ispa07-figure-2a",
        paper="ISPA07",
        section="§3.2, figure 2(a)",
        title="The diameter of the binomial graph and of six other topologies",
        explanation=(
            "The most hops between any two nodes, found by breadth-first search, over the number of "
            "nodes. The paper claims that the binomial graph has the lowest.\n\n" + NOTE
        ),
        columns=(
            *_COLUMNS,
            Column("diameter", "hops", "searched"),
            Column("formula", "hops", "the closed formula of its own paper, where there is one"),
        ),
        checks=_claim_checks("diameter", "diameter"),
        run=_figure_2a,
        plot=Plot(x="size", ys=("diameter",), by="topology", log_x=True, x_label="nodes"),
    ),
    Experiment(
        name="ispa07-figure-2b",
        paper="ISPA07",
        section="§3.3, figure 2(b)",
        title="The average distance in the binomial graph and in six other topologies",
        explanation=(
            "The mean number of hops over all ordered pairs of different nodes, equation (3). The "
            "paper claims that the binomial graph has the lowest.\n\n" + NOTE
        ),
        columns=(
            *_COLUMNS,
            Column("average", "hops", "searched"),
            Column("formula", "hops", "the closed formula of its own paper, where there is one"),
        ),
        checks=_claim_checks("average", "average distance"),
        run=_figure_2b,
        plot=Plot(x="size", ys=("average",), by="topology", log_x=True, x_label="nodes"),
    ),
    Experiment(
        name="ispa07-figure-2c",
        paper="ISPA07",
        section="§3.3, figure 2(c)",
        title="How many steps a broadcast takes",
        explanation=(
            "In a step each node sends to one neighbor, or receives from one. The least number of "
            "steps is hard to find, so it is held between two bounds: below, the distance to the "
            "farthest node and the doubling of the informed; above, the best of three schedules that "
            "are built. Where they meet the number is exact, as it is for the binomial graph at every "
            "size: its broadcast doubles the informed in every step. The average is over the nodes "
            "that send, all of them in small graphs and some in large ones.\n\n"
            "The paper's figure draws the binomial graph only, as log2(n): that is rounded up."
        ),
        columns=(
            *_COLUMNS,
            Column("sources", "nodes", "how many nodes the average is over; 1 where all are alike"),
            Column("least", "steps", "no broadcast takes fewer, averaged over the sources"),
            Column("most", "steps", "a schedule that was built takes these"),
            Column("log2", "steps", "log2 of the size, rounded up: no topology can do with fewer"),
        ),
        checks=(
            Check(
                "a broadcast in the binomial graph takes exactly log2(n) steps, rounded up",
                lambda rows: all(
                    r["least"] == r["most"] == r["log2"] for r in rows if r["topology"] == BINOMIAL
                ),
            ),
            Check(
                "so it does in the hypercube",
                lambda rows: all(
                    r["least"] == r["most"] == r["log2"]
                    for r in rows
                    if r["topology"] == "hypercube"
                ),
            ),
            Check(
                "no topology takes fewer steps than the binomial graph of its size",
                lambda rows: _never_above(rows, "least") and _never_above(rows, "most"),
            ),
        ),
        run=_figure_2c,
        plot=Plot(x="size", ys=("most",), by="topology", log_x=True, x_label="nodes"),
    ),
)
