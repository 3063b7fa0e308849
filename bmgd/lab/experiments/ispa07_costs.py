"""Message traffic density and the cost factors beside other topologies: ISPA07 figure 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmgd.lab.compared import BINOMIAL, CHORD_ONE_WAY, NOTE, binomials, compared, extremes
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import BinomialGraph, Topology
from bmgd.topology.measures.distances import distances
from bmgd.topology.measures.sizes import (
    cost_factor,
    degrees,
    message_traffic_density,
    network_cost,
)

ABOVE_A_HALF: Final = [2, 3, 4, 6, 8]
"""The binomial graphs whose message traffic density exceeds the bound that ISPA07 claims."""


def _rows(run: Run, graphs: list[tuple[str, Topology]]) -> Iterator[Row]:
    """Topology, size, largest degree, links, diameter, density, cost factor, cost."""
    total = sum(graph.size for _, graph in graphs)
    done = 0
    for family, graph in graphs:
        counted, found = degrees(graph), distances(graph)
        yield (
            family,
            graph.size,
            counted.most,
            counted.links,
            found.diameter,
            message_traffic_density(found, counted),
            cost_factor(found, counted),
            network_cost(found, counted),
        )
        done += graph.size
        run.progress(done, total, f"{family} of {graph.size}")


def _figure_3a(run: Run) -> Iterator[Row]:
    small: list[tuple[str, Topology]] = [(BINOMIAL, BinomialGraph(size)) for size in range(2, 16)]
    graphs: list[tuple[str, Topology]] = [*small, *binomials(run.quick), *compared(run.quick)]
    for family, size, _, links, _, density, _, _ in _rows(run, graphs):
        yield family, size, links, density


def _one_way(quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """Topology, size, degree and diameter of Chord as its own paper has it: log2 n fingers each."""
    for bits in range(4, 11 if quick else 13):
        # Every neighbor counts, fingers and those whose finger one is, as ISPA07 counts degrees.
        yield CHORD_ONE_WAY, 1 << bits, 2 * bits - 1, bits


def _figure_3b(run: Run) -> Iterator[Row]:
    graphs: list[tuple[str, Topology]] = [
        *binomials(run.quick),
        *compared(run.quick),
        *extremes(run.quick),
    ]
    for family, size, degree, _, diameter, _, factor, _ in _rows(run, graphs):
        yield family, size, degree, diameter, factor
    for family, size, degree, diameter in _one_way(run.quick):
        yield family, size, degree, diameter, degree * diameter


def _figure_3c(run: Run) -> Iterator[Row]:
    graphs: list[tuple[str, Topology]] = [
        *binomials(run.quick),
        *compared(run.quick),
        *extremes(run.quick),
    ]
    for family, size, _, links, diameter, _, _, cost in _rows(run, graphs):
        yield family, size, links, diameter, cost
    for family, size, degree, diameter in _one_way(run.quick):
        yield family, size, size * degree // 2, diameter, size * degree // 2 * diameter


def _ratios(rows: Rows, family: str, column: str) -> list[tuple[int, float]]:
    """The binomial graph's value over another's of the same size, by size."""
    own = {row["size"]: row[column] for row in rows if row["topology"] == BINOMIAL}
    return [
        (row["size"], own[row["size"]] / row[column])
        for row in rows
        if row["topology"] == family and row["size"] in own
    ]


def _at_most(rows: Rows, family: str, column: str, ratio: float, from_size: int = 0) -> bool:
    found = [value for size, value in _ratios(rows, family, column) if size >= from_size]
    return bool(found) and all(value <= ratio for value in found)


def _at_least(rows: Rows, family: str, column: str, ratio: float, from_size: int) -> bool:
    found = [value for size, value in _ratios(rows, family, column) if size >= from_size]
    return bool(found) and all(value >= ratio for value in found)


def _between(rows: Rows, family: str, column: str, low: float, high: float) -> bool:
    found = [value for _, value in _ratios(rows, family, column)]
    return bool(found) and all(low <= value <= high for value in found)


def _has_lowest_density(rows: Rows) -> bool:
    families = {row["topology"] for row in rows} - {BINOMIAL}
    return all(_at_most(rows, family, "density", 1) for family in families)


def _cost_checks(column: str) -> tuple[Check, ...]:
    return (
        Check(
            "lower than the ring's and the complete graph's: below a quarter from 256 nodes on",
            lambda rows: (
                _at_most(rows, "ring", column, 0.25, 256)
                and _at_most(rows, "complete graph", column, 0.25, 256)
            ),
        ),
        Check(
            "comparable to the hypercube's: within 15 %",
            lambda rows: _between(rows, "hypercube", column, 0.85, 1.15),
        ),
        Check(
            "comparable to the 2D torus's to 1,024 nodes, up to 1.5 times it; below it from 400 on",
            lambda rows: (
                _at_most(rows, "2D torus", column, 1.5)
                and _at_most(rows, "2D torus", column, 1, 400)
            ),
        ),
        Check(
            "half of one-way Chord's, to six tenths; exactly that of undirected Chord",
            lambda rows: (
                _between(rows, CHORD_ONE_WAY, column, 0.5, 0.6)
                and _between(rows, "Chord, undirected", column, 1, 1)
            ),
        ),
        Check(
            "higher than the 4-ary Hypertree's where that has 1,365 nodes or more, as the paper says",
            lambda rows: _at_least(rows, "4-ary Hypertree", column, 1.2, 1365),
            whole=True,
        ),
        Check(
            "higher than that of HiC(4,h) from 84 nodes on, against the paper",
            lambda rows: _at_least(rows, "HiC(4,h)", column, 1.01, 84),
        ),
    )


def _cost_columns(name: str, unit: str, text: str) -> tuple[Column, ...]:
    return (
        Column("topology", text="which"),
        Column("size", "nodes", "how many nodes"),
        Column("links" if name == "cost" else "degree", "links", text),
        Column("diameter", "hops", "searched"),
        Column(name, unit, "the product"),
    )


EXPERIMENTS: Final = (
    Experiment(
        name="ispa07-figure-3a",
        paper="ISPA07",
        section="§3.4, figure 3(a)",
        title="Message traffic density: how many messages share a link",
        explanation=(
            "If each node sends one message as far as the average distance, this many lie on each "
            "link: average distance times nodes over links. The paper claims that the binomial graph "
            "has the lowest, and that it never exceeds 0.5.\n\nThe first holds. The second holds "
            "from 9 nodes on: the smallest graphs, which the paper does not draw, are above.\n\n"
            + NOTE
        ),
        columns=(
            Column("topology", text="which"),
            Column("size", "nodes", "how many nodes"),
            Column("links", "links", "counted"),
            Column("density", "messages per link", "average distance * nodes / links"),
        ),
        checks=(
            Check(
                "no topology has a lower density than the binomial graph of its size",
                _has_lowest_density,
            ),
            Check(
                f"the binomial graph's exceeds 0.5 at the sizes {ABOVE_A_HALF} only",
                lambda rows: (
                    [r["size"] for r in rows if r["topology"] == BINOMIAL and r["density"] > 0.5]
                    == ABOVE_A_HALF
                ),
            ),
        ),
        run=_figure_3a,
        plot=Plot(
            x="size", ys=("density",), by="topology", log_x=True, log_y=True, x_label="nodes"
        ),
    ),
    Experiment(
        name="ispa07-figure-3b",
        paper="ISPA07",
        section="§3.5, figure 3(b)",
        title="The cost factor: diameter times degree",
        explanation=(
            "A small diameter can be bought with many links per node; the product of diameter and "
            "degree shows at what price. Where degrees differ it is the largest. The paper has two "
            "figures of cost and defines two costs; which figure is which it does not say.\n\nIt "
            "claims that the binomial graph is comparable to hypercube and torus, dearer than the "
            "4-ary Hypertree, and significantly cheaper than HiC(4,h), Chord, ring and complete "
            "graph. All of it is found but for HiC(4,h), whose diameter is as low as a tree's at a "
            "degree of 8: it is the cheaper one from 84 nodes on; and for Hypertrees of 341 nodes or "
            "fewer, which are as dear as the binomial graph or dearer.\n\n" + NOTE
        ),
        columns=_cost_columns("cost_factor", "hops·links", "of the node that has most"),
        checks=(
            *_cost_checks("cost_factor"),
            Check(
                "not higher than the 4-ary Hypertree's where that has 341 nodes or fewer, against the "
                "paper",
                lambda rows: all(
                    value <= 1
                    for size, value in _ratios(rows, "4-ary Hypertree", "cost_factor")
                    if size <= 341
                ),
            ),
        ),
        run=_figure_3b,
        plot=Plot(
            x="size", ys=("cost_factor",), by="topology", log_x=True, log_y=True, x_label="nodes"
        ),
    ),
    Experiment(
        name="ispa07-figure-3c",
        paper="ISPA07",
        section="§3.5, figure 3(c)",
        title="The cost of a network: diameter times number of links",
        explanation=(
            "As figure 3(b), for graphs whose nodes are not alike: the product of diameter and number "
            "of links, by which all topologies can be compared. The trees, of about three links per "
            "node, gain by it.\n\n" + NOTE
        ),
        columns=_cost_columns("cost", "hops·links", "counted"),
        checks=(
            *_cost_checks("cost"),
            Check(
                "higher than the 4-ary Hypertree's at every size",
                lambda rows: _at_least(rows, "4-ary Hypertree", "cost", 1.3, 0),
            ),
        ),
        run=_figure_3c,
        plot=Plot(x="size", ys=("cost",), by="topology", log_x=True, log_y=True, x_label="nodes"),
    ),
)
