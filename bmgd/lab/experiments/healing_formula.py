"""How many links the naive method closes after several deaths: the bounds of Healing §3.1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
from bmgd.topology import BinomialGraph

SIZES: Final = (10, 11, 13, 14, 15, 16, 17, 18)
SIZES_QUICK: Final = (10, 11, 13, 16)


def links_among(size: int) -> list[list[int]]:
    """The fewest and the most links among any so many nodes, by their number, 0..N.

    Every set of nodes is tried: O(2**N).
    """
    graph = BinomialGraph(size)
    neighbors = [sum(1 << other for other in graph.neighbors(node)) for node in range(size)]
    links = bytearray(1)
    for node in range(size):
        around = neighbors[node]
        links += bytearray(
            count + (around & chosen).bit_count() for chosen, count in enumerate(links)
        )
    fewest, most = [size * size] * (size + 1), [0] * (size + 1)
    for chosen, count in enumerate(links):
        nodes = chosen.bit_count()
        fewest[nodes] = min(fewest[nodes], count)
        most[nodes] = max(most[nodes], count)
    return [fewest, most]


def _formula(run: Run) -> Iterator[Row]:
    sizes = SIZES_QUICK if run.quick else SIZES
    for done, size in enumerate(sizes):
        run.progress(done, len(sizes), f"N = {size}")
        degree = BinomialGraph(size).degree
        fewest, most = run.resumed(f"{size} nodes", partial(links_among, size))
        for failed in range(1, size - 1):
            links = degree * size // 2
            separated = links - degree * failed
            connected = separated + failed * (failed - 1) // 2
            gone = degree * failed
            least, greatest = links - gone + fewest[failed], links - gone + most[failed]
            yield size, failed, least, greatest, separated, connected


EXPERIMENTS: Final = (
    Experiment(
        name="healing-section-3-1",
        paper="Healing",
        section="§3.1, the naive method",
        title="How many links are left to close when several nodes have died",
        explanation=(
            "The naive method closes every link between survivors. How many these are depends on how "
            "many links join the dead to each other. The paper gives a range: from the dead 'completely "
            "separated', no link between any two (published_separated: δN/2 − δF), to the dead "
            "'connected', a link between every two (published_connected: F(F−1)/2 more).\n\n"
            "Here every set of dead nodes was tried. The range always contains the truth, and both ends "
            "are met by one or two deaths. For more deaths they need dead nodes that are all linked to "
            "each other, or none of them, and a binomial graph has only few such nodes: then the range "
            "is wider than the truth, and its lower end even falls below zero."
        ),
        columns=(
            Column("size", "nodes", "N, before the deaths"),
            Column("failed", "nodes", "F"),
            Column("fewest", "links", "left to close, of all sets of F dead nodes"),
            Column("most", "links"),
            Column("published_separated", "links", "the paper's lower end"),
            Column("published_connected", "links", "its upper end"),
        ),
        checks=(
            Check(
                "the paper's range contains every set of dead nodes",
                lambda rows: all(
                    r["published_separated"] <= r["fewest"]
                    and r["most"] <= r["published_connected"]
                    for r in rows
                ),
            ),
            Check(
                "for one dead node, and for two, both ends are met",
                lambda rows: all(
                    r["published_separated"] == r["fewest"]
                    and r["most"] == r["published_connected"]
                    for r in rows
                    if r["failed"] <= 2
                ),
            ),
            Check(
                "the upper end is met by three dead nodes too, and not by more than N/2 of 13 nodes on",
                lambda rows: all(
                    (r["most"] == r["published_connected"]) == (r["failed"] == 3)
                    for r in rows
                    if r["size"] >= 13 and (r["failed"] == 3 or r["failed"] > r["size"] / 2)
                ),
            ),
            Check(
                "the lower end is not met once more than N/2 have died",
                lambda rows: all(
                    r["published_separated"] < r["fewest"]
                    for r in rows
                    if r["failed"] > r["size"] / 2
                ),
            ),
        ),
        run=_formula,
        plot=Plot(
            x="failed",
            ys=("most",),
            by="size",
            x_label="dead nodes F",
            y_label="links left to close, at most",
        ),
    ),
)
