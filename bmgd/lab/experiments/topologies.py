"""Every topology with every measure: what the papers compare, in one table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
from bmgd.topology import (
    BinomialGraph,
    CompleteGraph,
    CubeConnectedCycles,
    DualCube,
    HierarchicalCliques,
    HierarchicalDualNet,
    Hypercube,
    Hypertree,
    RecursiveDualNet,
    Ring,
    SiblingTree,
    Topology,
    Torus,
    UndirectedChord,
)
from bmgd.topology.hdn_bounds import hops_bound
from bmgd.topology.measures.bisection import bisection_width
from bmgd.topology.measures.broadcasts import broadcast_steps
from bmgd.topology.measures.connectivity import link_connectivity, node_connectivity
from bmgd.topology.measures.distances import distances, links_of
from bmgd.topology.measures.faults import fault_diameter
from bmgd.topology.measures.sizes import (
    cost_factor,
    degrees,
    message_traffic_density,
    network_cost,
    weighted_cost_ratio,
)

BISECTED_SIZE_MAX: Final = 32
BISECTED_LINKS_MAX: Final = 90


def _graphs(quick: bool) -> Iterator[tuple[str, Topology, int | None]]:
    """Family, graph, and its diameter by the closed formula, where there is one."""
    for size in (12, 16, 23, 32) if quick else (12, 16, 23, 32, 64, 100, 128):
        yield "binomial graph", BinomialGraph(size), None
    for size in (16, 31) if quick else (16, 31, 64):
        yield "ring", Ring(size), size // 2
        yield "complete graph", CompleteGraph(size), 1
    for side in (4, 5) if quick else (4, 5, 8, 10):
        yield "2D torus", Torus((side, side)), 2 * (side // 2)
    for sides in ((2, 3, 5), (3, 3, 3)) if quick else ((2, 3, 5), (3, 3, 3), (4, 4, 4)):
        yield "3D torus", Torus(sides), sum(side // 2 for side in sides)
    for n in (3, 4, 5) if quick else (3, 4, 5, 6, 7):
        yield "hypercube", Hypercube(n), n
    for bits in (4, 5) if quick else (4, 5, 6, 7):
        yield "undirected Chord", UndirectedChord(bits), (bits + 1) // 2
    # One node in four of a circle of 64, the same ones in every run.
    some = (i * i % 61 for i in range(1, 17))
    yield "undirected Chord, sparse", UndirectedChord(6, some), None
    for height in (2,) if quick else (2, 3):
        yield "HiC(4,h)", HierarchicalCliques(4, height), 2 * height - 1
        yield "4-ary Hypertree", Hypertree(4, height), None
        yield "4-ary sibling tree", SiblingTree(4, Hypertree(4, height).size), None
    for n in (3, 4) if quick else (3, 4, 5):
        yield "cube-connected cycles", CubeConnectedCycles(n), 6 if n == 3 else 2 * n + n // 2 - 2
    for n in (2, 3) if quick else (2, 3, 4):
        yield "dual-cube", DualCube(n), 2 * n
    yield "recursive dual-net", RecursiveDualNet(Ring(3), 1), 4
    yield "recursive dual-net", RecursiveDualNet(CompleteGraph(4), 1), 4
    for base, super_nodes in (
        ((2, 2), ((0,),)),
        ((2, 3), ((1,),)),
        ((2, 2), ((0,), (0, 1))),
        ((2, 3), ((0,), (0,))),
    ):
        net = HierarchicalDualNet(base, super_nodes)
        if net.size <= (30 if quick else 150):
            yield "hierarchical dual-net", net, hops_bound(net)


def _is_bisected(graph: Topology) -> bool:
    """Whether the bisection width can be decided in seconds: few nodes, and few links."""
    return graph.size <= BISECTED_SIZE_MAX and degrees(graph).links <= BISECTED_LINKS_MAX


def _slow_measures(graph: Topology) -> dict[str, Any]:
    links = links_of(graph)
    sources = [0] if graph.symmetric else list(range(graph.size))
    steps = [broadcast_steps(links, source) for source in sources]
    return {
        "least": sum(each.least for each in steps) / len(steps),
        "most": sum(each.most for each in steps) / len(steps),
        "kappa": node_connectivity(graph),
        "lambda": link_connectivity(graph),
        "faults": fault_diameter(graph),
        "bisection": bisection_width(links) if _is_bisected(graph) else None,
    }


def _measured(run: Run) -> Iterator[Row]:
    graphs = list(_graphs(run.quick))
    for number, (family, graph, formula) in enumerate(graphs):
        counted, found = degrees(graph), distances(graph)
        slow = run.resumed(repr(graph), partial(_slow_measures, graph))
        yield (
            family,
            repr(graph),
            graph.size,
            counted.least,
            counted.most,
            counted.links,
            found.diameter,
            formula,
            found.average,
            slow["least"],
            slow["most"],
            message_traffic_density(found, counted),
            cost_factor(found, counted),
            network_cost(found, counted),
            slow["kappa"],
            slow["lambda"],
            slow["faults"],
            slow["bisection"],
            weighted_cost_ratio(graph.size, counted.most, found.diameter),
        )
        run.progress(number + 1, len(graphs), repr(graph))


def _is_regular_cube_or_torus(family: str) -> bool:
    return family in (
        "binomial graph",
        "hypercube",
        "complete graph",
        "ring",
        "2D torus",
        "3D torus",
    )


EXPERIMENTS: Final = (
    Experiment(
        name="topologies-measured",
        paper="bmgd",
        section="ISPA07 §3 and §4, HDN §3",
        title="Fourteen topologies side by side, with every measure that the papers use",
        explanation=(
            "Each topology at a few small sizes: degree, links, diameter, average distance, broadcast "
            "steps, message traffic density, cost, connectivity, fault diameter, bisection width and "
            "weighted cost ratio, all by definition. Degrees, links and distances are counted, "
            "connectivities are maximum flows, the fault diameter is exact over all sets of κ - 1 "
            "failed nodes, and the bisection width is decided for graphs of up to 32 nodes and 90 "
            "links. The least number of broadcast steps is between two bounds, averaged over all "
            "sources.\n\nBeside the diameter stands its closed formula where the papers have one; "
            "hdn-table-2 and hdn-figure-8 say where formulas fail."
        ),
        columns=(
            Column("topology", text="which"),
            Column("graph", text="the instance"),
            Column("size", "nodes"),
            Column("least_degree", "links", "of the node that has fewest"),
            Column("most_degree", "links", "of the node that has most"),
            Column("links", "links", "in all"),
            Column("diameter", "hops", "searched"),
            Column("diameter_formula", "hops", "the closed formula"),
            Column("average", "hops", "mean over ordered pairs"),
            Column("broadcast_least", "steps", "no broadcast takes fewer, mean over the sources"),
            Column("broadcast_most", "steps", "a schedule takes these, mean over the sources"),
            Column("density", "messages per link", "message traffic density"),
            Column("cost_factor", "hops·links", "diameter times largest degree"),
            Column("cost", "hops·links", "diameter times links"),
            Column("node_connectivity", "nodes", "κ"),
            Column("link_connectivity", "links", "λ"),
            Column("fault_diameter", "hops", "the largest with κ - 1 failures"),
            Column("bisection", "links", "width, to 32 nodes and 90 links"),
            Column("ratio", "", "weighted cost ratio, half and half"),
        ),
        checks=(
            Check(
                "κ ≤ λ ≤ smallest degree, as in every graph (Whitney)",
                lambda rows: all(
                    r["node_connectivity"] <= r["link_connectivity"] <= r["least_degree"]
                    for r in rows
                ),
            ),
            Check(
                "binomial graph, cube, torus, ring and complete graph are optimally connected",
                lambda rows: all(
                    r["node_connectivity"] == r["most_degree"]
                    for r in rows
                    if _is_regular_cube_or_torus(r["topology"])
                ),
            ),
            Check(
                "each closed formula is the searched diameter",
                lambda rows: all(r["diameter_formula"] in (None, r["diameter"]) for r in rows),
            ),
            Check(
                "no failures shorten the longest way, and the average is at most the diameter",
                lambda rows: all(
                    r["average"] <= r["diameter"] <= r["fault_diameter"] for r in rows
                ),
            ),
            Check(
                "a full circle of undirected Chord has all measures of the binomial graph",
                lambda rows: all(
                    [
                        row[key]
                        for key in row
                        if key not in ("topology", "graph", "diameter_formula")
                    ]
                    == [
                        own[key]
                        for key in own
                        if key not in ("topology", "graph", "diameter_formula")
                    ]
                    for row in rows
                    if row["topology"] == "undirected Chord"
                    for own in rows
                    if (own["topology"], own["size"]) == ("binomial graph", row["size"])
                ),
            ),
            Check(
                "bisection widths are the known ones: half the nodes of a hypercube, two of a ring",
                lambda rows: all(
                    r["bisection"]
                    in (None, {"hypercube": r["size"] // 2, "ring": 2}[r["topology"]])
                    for r in rows
                    if r["topology"] in ("hypercube", "ring")
                ),
            ),
        ),
        run=_measured,
        plot=Plot(
            x="size", ys=("diameter",), by="topology", kind="scatter", log_x=True, log_y=True
        ),
    ),
)
