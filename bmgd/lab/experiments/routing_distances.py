"""Average distance and diameter beside related topologies: Routing figure 2."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import Final

from bmgd.lab.compared import BINOMIAL, NOTE, binomials, compared
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import Topology
from bmgd.topology.measures.distances import Distances, distances

FROM: Final = 64
"""From this size on the approximation of the average is held to a tenth."""


def _found(run: Run) -> Iterator[tuple[str, int, Distances]]:
    graphs: list[tuple[str, Topology]] = [*binomials(run.quick), *compared(run.quick)]
    total = sum(graph.size for _, graph in graphs)
    done = 0
    for family, graph in graphs:
        yield family, graph.size, distances(graph)
        done += graph.size
        run.progress(done, total, f"{family} of {graph.size}")


def _averages(run: Run) -> Iterator[Row]:
    for family, size, found in _found(run):
        yield family, size, found.average, log2(size) / 3 if family == BINOMIAL else None


def _diameters(run: Run) -> Iterator[Row]:
    for family, size, found in _found(run):
        bound = ceil(ceil(log2(size)) / 2) if family == BINOMIAL else None
        yield family, size, found.diameter, bound


def _is_lowest(rows: Rows, column: str) -> bool:
    own = {r["size"]: r[column] for r in rows if r["topology"] == BINOMIAL}
    others = [r for r in rows if r["topology"] != BINOMIAL]
    return len(others) > 20 and all(own[r["size"]] <= r[column] for r in others)


def _own(rows: Rows) -> Rows:
    return [r for r in rows if r["topology"] == BINOMIAL]


EXPERIMENTS: Final = (
    Experiment(
        name="routing-figure-2a",
        paper="Routing",
        section="§1, figure 2(a)",
        title="The average distance of the binomial graph is about a third of log2(n)",
        explanation=(
            "The mean number of hops between two nodes, equation (2), by breadth-first search: of the "
            "binomial graph beside its approximation log2(n)/3, and of related topologies. The paper "
            "claims that the binomial graph has the lowest; ispa07-figure-2b says more of the others."
            f"\n\n{NOTE}"
        ),
        columns=(
            Column("topology", "", "which"),
            Column("size", "nodes", "n"),
            Column("average", "hops", "searched"),
            Column("third_of_log2", "hops", "log2(n)/3, the paper's approximation"),
        ),
        checks=(
            Check(
                "no related topology of the same size has a lower average distance",
                lambda rows: _is_lowest(rows, "average"),
            ),
            Check(
                "from 64 nodes on it is log2(n)/3 to within a tenth",
                lambda rows: all(
                    abs(r["average"] / r["third_of_log2"] - 1) < 0.1
                    for r in _own(rows)
                    if r["size"] >= FROM
                ),
            ),
        ),
        run=_averages,
        plot=Plot(
            x="size",
            ys=("average",),
            by="topology",
            log_x=True,
            x_label="nodes n",
            y_label="average distance, hops",
        ),
    ),
    Experiment(
        name="routing-figure-2b",
        paper="Routing",
        section="§1, figure 2(b)",
        title="The diameter of the binomial graph is at most half of log2(n)",
        explanation=(
            "The most hops between two nodes, by breadth-first search: of the binomial graph beside "
            "its bound log2(n)/2, both rounded up, and of related topologies. The paper claims that "
            f"the binomial graph has the lowest.\n\n{NOTE}"
        ),
        columns=(
            Column("topology", "", "which"),
            Column("size", "nodes", "n"),
            Column("diameter", "hops", "searched"),
            Column("half_of_log2", "hops", "log2(n) rounded up, halved and rounded up"),
        ),
        checks=(
            Check(
                "no related topology of the same size has a lower diameter",
                lambda rows: _is_lowest(rows, "diameter"),
            ),
            Check(
                "it is never above log2(n)/2, rounded up",
                lambda rows: all(r["diameter"] <= r["half_of_log2"] for r in _own(rows)),
            ),
            Check(
                "it reaches that at every power of two",
                lambda rows: all(
                    r["diameter"] == r["half_of_log2"]
                    for r in _own(rows)
                    if r["size"].bit_count() == 1
                ),
            ),
        ),
        run=_diameters,
        plot=Plot(
            x="size",
            ys=("diameter",),
            by="topology",
            log_x=True,
            x_label="nodes n",
            y_label="diameter, hops",
        ),
    ),
)
