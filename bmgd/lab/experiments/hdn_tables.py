"""The tables of the HDN paper: sizes, properties, cost ratios, re-indexing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
from bmgd.topology import (
    CubeConnectedCycles,
    DualCube,
    HierarchicalDualNet,
    Hypercube,
    RecursiveDualNet,
    RegularTopology,
    Ring,
    Torus,
)
from bmgd.topology.hdn_bounds import degree_formula, hops_bound, size_formula
from bmgd.topology.hierarchical_dual_net import Label
from bmgd.topology.measures.distances import level_sizes
from bmgd.topology.measures.sizes import weighted_cost_ratio

BASE: Final = (2, 3, 5)
"""The base network of the paper's tables: a torus of 2 x 3 x 5."""

SUPER_NODES: Final[tuple[tuple[int, ...], ...]] = (
    (),
    (0,),
    (1,),
    (2,),
    (0, 1),
    (0, 2),
    (1, 2),
    (0, 1, 2),
)
"""The sub-products of the base network, by number of nodes: 1, 2, 3, 5, 6, 10, 15, 30."""

TABLE_1_LEVEL_1: Final = (1_800, 900, 600, 360, 300, 180, 120, 60)
TABLE_1_LEVEL_2: Final = (
    (6_480_000, 3_240_000, 2_160_000, 1_296_000, 1_080_000, 648_000, 432_000, 216_000),
    (1_620_000, 810_000, 540_000, 324_000, 270_000, 162_000, 108_000, 54_000),
    (720_000, 360_000, 240_000, 144_000, 120_000, 72_000, 48_000, 24_000),
    (259_200, 129_600, 86_400, 51_840, 43_200, 25_920, 17_280, 8_640),
    (180_000, 90_000, 60_000, 36_000, 30_000, 18_000, 12_000, 6_000),
    (64_800, 32_400, 21_600, 12_960, 10_800, 6_480, 4_320, 2_160),
    (28_800, 14_400, 9_600, 5_760, 4_800, 2_880, 1_920, 960),
    (7_200, 3_600, 2_400, 1_440, 1_200, 720, 480, 240),
)
"""Table 1 as printed: a row for each super-node of level 1, a column for each of level 2."""

COUNTED_TO: Final = 700_000
COUNTED_TO_QUICK: Final = 12_000
"""Networks to this size are walked and their nodes counted."""


def _published_sizes() -> Iterator[tuple[tuple[tuple[int, ...], ...], int]]:
    for level_1, size in zip(SUPER_NODES, TABLE_1_LEVEL_1, strict=True):
        yield (level_1,), size
    for level_1, sizes in zip(SUPER_NODES, TABLE_1_LEVEL_2, strict=True):
        for level_2, size in zip(SUPER_NODES, sizes, strict=True):
            yield (level_1, level_2), size


def _walked(net: RegularTopology) -> list[int]:
    """The nodes that node 0 reaches, and how many of them have not the degree."""
    odd = 0

    def neighbors(node: int) -> tuple[int, ...]:
        nonlocal odd
        found = net.neighbors(node)
        odd += len(found) != net.degree
        return found

    return [sum(level_sizes(neighbors, net.size, 0)), odd]


def _table_1(run: Run) -> Iterator[Row]:
    limit = COUNTED_TO_QUICK if run.quick else COUNTED_TO
    cases = list(_published_sizes())
    total = sum(size for _, size in cases if size <= limit)
    done = 0
    for super_nodes, published in cases:
        net = HierarchicalDualNet(BASE, super_nodes)
        sizes = [prod(BASE[ring] for ring in level) for level in super_nodes]
        counted = odd = None
        if net.size <= limit:
            counted, odd = run.resumed(f"{super_nodes}", partial(_walked, net))
            done += net.size
            run.progress(done, total, f"s = {sizes}")
        second = sizes[1] if len(sizes) > 1 else None
        yield (
            len(sizes),
            sizes[0],
            second,
            published,
            net.size,
            counted,
            odd,
            size_formula(net),
            net.degree,
            degree_formula(net),
        )


def _instances(quick: bool) -> Iterator[tuple[str, RegularTopology, int, int, int]]:
    """Network, graph, and the formulas of table 2: size, degree, diameter."""
    for x, y, z in ((4, 4, 4), (4, 6, 8), (3, 4, 5), (3, 5, 7), (2, 3, 5), (10, 10, 10)):
        yield "3D torus", Torus((x, y, z)), x * y * z, 6, (x + y + z) // 2
    for n in (3, 6, 10):
        yield "n-cube", Hypercube(n), 2**n, n, n
    for n in (3, 4, 5, 6, 7, 8 if quick else 11):
        yield "CCC(n)", CubeConnectedCycles(n), n * 2**n, 3, 2 * n + n // 2 - 2
    for n in (2, 3, 4, 5, 6 if quick else 8):
        yield "dual-cube(n)", DualCube(n), 2 ** (2 * n - 1), n, 2 * n
    bases: list[tuple[RegularTopology, int]] = [
        (Ring(3), 1),
        (Ring(5), 2),
        (Hypercube(3), 1),
        (Torus((3, 3)), 2),
        (Torus((2, 3)), 1),
    ]
    for base, k in bases:
        net = RecursiveDualNet(base, k)
        d_0 = len(level_sizes(base.neighbors, base.size, 0)) - 1
        diameter = 2**k * d_0 + 2 ** (k + 1) - 2
        yield "RDN(m,k)", net, (2 * base.size) ** 2**k // 2, base.degree + k, diameter
    cases: list[tuple[Sequence[int], Sequence[Sequence[int]]]] = [
        ((3, 5), ((0,),)),
        ((3, 5), ((1,), (1,))),
        ((3, 3), ((0, 1),)),
        ((3, 3), ((0, 1), (0,))),
        ((3, 4), ((0,), (0,))),
        ((2, 3, 5), ((0, 1),)),
        ((2, 3, 5), ((0, 1), (0, 1))),
    ]
    for rings, super_nodes in cases:
        hdn = HierarchicalDualNet(rings, super_nodes)
        yield "HDN(B,k,S)", hdn, size_formula(hdn), degree_formula(hdn), hops_bound(hdn)


def _table_2(run: Run) -> Iterator[Row]:
    cases = list(_instances(run.quick))
    for number, (network, graph, size, degree, diameter) in enumerate(cases):
        levels = level_sizes(graph.neighbors, graph.size, 0)
        found = len(levels) - 1
        yield (
            network,
            repr(graph),
            graph.size,
            size,
            graph.degree,
            degree,
            found,
            diameter,
            (sum(levels), graph.degree, found) == (size, degree, diameter),
        )
        run.progress(number + 1, len(cases), repr(graph))


def _table_3_networks() -> Iterator[tuple[str, RegularTopology, int, int, int, float]]:
    """The rows of table 3 as printed: network, n, d, D, CR."""
    yield "10-cube", Hypercube(10), 1_024, 10, 10, 1.00
    yield "3D-Tori(10)", Torus((10, 10, 10)), 1_000, 6, 15, 1.05
    for s, size, diameter, ratio in ((1, 1_800, 10, 0.79), (2, 900, 9, 0.82), (3, 600, 9, 0.87)):
        net = HierarchicalDualNet(BASE, (_of_size(s),))
        yield f"HDN(B,1,({s}))", net, size, 7, diameter, ratio
    yield "19-cube", Hypercube(19), 524_288, 19, 19, 1.00
    yield "3D-Tori(80)", Torus((80, 80, 80)), 512_000, 6, 120, 3.32
    for (s, t), size, diameter, ratio in (
        ((2, 2), 810_000, 19, 0.69),
        ((2, 5), 324_000, 18, 0.71),
        ((5, 2), 129_600, 17, 0.74),
    ):
        net = HierarchicalDualNet(BASE, (_of_size(s), _of_size(t)))
        yield f"HDN(B,2,({s},{t}))", net, size, 8, diameter, ratio


def _of_size(nodes: int) -> tuple[int, ...]:
    return next(each for each in SUPER_NODES if prod(BASE[ring] for ring in each) == nodes)


def exact_diameter(graph: RegularTopology, bound: int) -> int | None:
    """The diameter, by search from node 0; from more nodes where the graph is not symmetric.

    Args:
        graph: a connected graph.
        bound: an upper bound of the diameter: a search that reaches it ends the matter.

    Returns:
        The diameter; None if it is not symmetric and no search from 40 nodes reached the bound.
    """
    stride = max(1, graph.size // 40)
    for source in range(0, 1 if graph.symmetric else graph.size, stride):
        hops = len(level_sizes(graph.neighbors, graph.size, source)) - 1
        if graph.symmetric or hops == bound:
            return hops
    return None


def _table_3(run: Run) -> Iterator[Row]:
    cases = list(_table_3_networks())
    for number, (name, net, size, degree, diameter, ratio) in enumerate(cases):
        if run.quick and net.size > 200_000:
            continue
        found = run.resumed(name, partial(exact_diameter, net, diameter))
        own = None if found is None else weighted_cost_ratio(net.size, net.degree, found)
        printed = weighted_cost_ratio(size, degree, diameter)
        yield (name, net.size, size, net.degree, degree, found, diameter, own, printed, ratio)
        run.progress(number + 1, len(cases), name)


TABLE_4: Final = (
    (Label(0, 0, 0, 0), 0, (0, 0)),
    (Label(1, 4, 2, 3), 285, (19, 0)),
    (Label(0, 0, 2, 2), 14, (0, 14)),
    (Label(1, 4, 4, 5), 299, (19, 14)),
)
"""Table 4 as printed: the index in HDN(B,1,S), its serial number, the index in HDN(B,2,S)."""


def _table_4(run: Run) -> Iterator[Row]:
    net = HierarchicalDualNet(BASE, ((0, 1), (1, 2)))
    for label, serial, (super_node, place) in TABLE_4:
        node = net.cluster_node(super_node, place)
        printed = net.cluster.node_at(label)
        yield (
            f"({super_node}, {place})",
            str(tuple(label)),
            str(tuple(net.cluster.label(node))),
            str(net.reindexed(printed)),
            serial,
            printed,
            super_node * net.super_node_size + place,
            node == printed,
        )


EXPERIMENTS: Final = (
    Experiment(
        name="hdn-table-1",
        paper="HDN",
        section="§3, table 1",
        title="How many nodes a hierarchical dual-net over a torus of 2 x 3 x 5 has",
        explanation=(
            "HDN(B, k, S) for every choice of super-nodes at level 1, and at levels 1 and 2. The sizes "
            "are those of the networks that are built; those of up to 700,000 nodes (12,000 in a "
            "quick run) are also walked: all nodes are reached from node 0, and have their degree.\n\n"
            "The table is right. The formula of theorem 1, (2|B|)^(2^k) / (2·s1·…·sk), is not, from "
            "two levels on: with N_i = 2·N_(i-1)^2 / s_i, which the paper derives, s_i counts "
            "2^(k-i) times. And the degrees, 7 and 8 in the text, count the link of a ring of two "
            "twice: a graph has it once."
        ),
        columns=(
            Column("levels", "", "k"),
            Column("s1", "nodes", "of a super-node of level 1"),
            Column("s2", "nodes", "of a super-node of level 2"),
            Column("published", "nodes", "as table 1 prints it"),
            Column("size", "nodes", "of the network that is built"),
            Column("reached", "nodes", "from node 0, where it was walked"),
            Column("odd", "nodes", "of them that have not the degree"),
            Column("theorem_1", "nodes", "what the formula of theorem 1 gives"),
            Column("degree", "links", "of every node"),
            Column("published_degree", "links", "which counts a ring of two twice"),
        ),
        checks=(
            Check(
                "all 72 sizes are those that the paper prints",
                lambda rows: len(rows) == 72 and all(r["size"] == r["published"] for r in rows),
            ),
            Check(
                "every network that is walked is connected and regular",
                lambda rows: all(
                    r["reached"] == r["size"] and r["odd"] == 0
                    for r in rows
                    if r["reached"] is not None
                ),
            ),
            Check(
                "theorem 1's formula is right if k = 1 or s1 = 1, and else s1 times too large",
                lambda rows: all(
                    r["theorem_1"] == r["size"] * (1 if r["levels"] == 1 else r["s1"]) for r in rows
                ),
            ),
            Check(
                "the degree is 6 at one level and 7 at two: one less than printed",
                lambda rows: all(
                    r["degree"] == 5 + r["levels"] == r["published_degree"] - 1 for r in rows
                ),
            ),
        ),
        run=_table_1,
    ),
    Experiment(
        name="hdn-table-2",
        paper="HDN",
        section="§3, table 2",
        title="Size, degree and diameter of six networks: the formulas, and what is found",
        explanation=(
            "Table 2 gives a formula for each. (The scan has lost most of the diameters: those of "
            "cube-connected cycles, dual-cube and recursive dual-net are those commonly given, "
            "checked here by search, and that of HDN is from theorem 1.) Each network is built and "
            "searched.\n\n"
            "Where they differ: (x+y+z)/2 is right for even sides only, each side counts half of it "
            "rounded down. 2n + n/2 - 2 is right for cube-connected cycles from n = 4 on, n = 3 has "
            "6. A ring of two has one link per node. Of HDN see hdn-table-1 for the size, hdn- "
            "figure-8 for the diameter. (The text says that the dual-cube is made from an n-cube: of "
            "an (n-1)-cube, for the table to be right.)"
        ),
        columns=(
            Column("network", text="as the table names it"),
            Column("graph", text="the instance"),
            Column("size", "nodes", "built"),
            Column("size_formula", "nodes"),
            Column("degree", "links", "counted"),
            Column("degree_formula", "links"),
            Column("diameter", "hops", "searched"),
            Column("diameter_formula", "hops"),
            Column("equal", "", "whether all three are"),
        ),
        checks=(
            Check(
                "hypercube, dual-cube and recursive dual-net are as the formulas say",
                lambda rows: all(
                    r["equal"]
                    for r in rows
                    if r["network"] in ("n-cube", "dual-cube(n)", "RDN(m,k)")
                ),
            ),
            Check(
                "cube-connected cycles are, but for n = 3",
                lambda rows: (
                    [r["size"] for r in rows if r["network"] == "CCC(n)" and not r["equal"]] == [24]
                ),
            ),
            Check(
                "the diameter of a torus is the formula's or less, and less where a side is odd",
                lambda rows: all(
                    r["diameter"] < r["diameter_formula"]
                    if any(int(side) % 2 for side in r["graph"][7:-2].split(","))
                    else r["diameter"] == r["diameter_formula"]
                    for r in rows
                    if r["network"] == "3D torus"
                ),
            ),
            Check(
                "no network has a larger size, degree or diameter than its formula, but for CCC(3)",
                lambda rows: all(
                    r["size"] <= r["size_formula"]
                    and r["degree"] <= r["degree_formula"]
                    and r["diameter"] <= r["diameter_formula"]
                    for r in rows
                    if r["graph"] != "CubeConnectedCycles(3)"
                ),
            ),
        ),
        run=_table_2,
    ),
    Experiment(
        name="hdn-table-3",
        paper="HDN",
        section="§3, table 3",
        title="The weighted cost ratio: hierarchical dual-nets against hypercubes and tori",
        explanation=(
            "Half of degree and half of diameter, over log2 of the size: a hypercube has 1, and less "
            "is better. The diameters are searched in the networks themselves, of up to 810,000 nodes "
            "(200,000 in a quick run, which leaves the larger out).\n\nWhere a network is not "
            "symmetric, it is searched from several nodes until one is as far from another as theorem "
            "1 allows, which decides it.\n\nSizes, diameters and, from the printed degrees, ratios "
            "are those of the table, to its two digits. With a ring of two counted as the one link "
            "that it is, the degrees of the dual-nets are lower by one, and their ratios still better."
        ),
        columns=(
            Column("network", text="as the table names it"),
            Column("size", "nodes", "built"),
            Column("published_size", "nodes"),
            Column("degree", "links", "counted"),
            Column("published_degree", "links"),
            Column("diameter", "hops", "searched"),
            Column("published_diameter", "hops"),
            Column("ratio", "", "from what is found"),
            Column("recomputed", "", "from the printed size, degree and diameter"),
            Column("published", "", "the printed ratio"),
        ),
        checks=(
            Check(
                "sizes and diameters are those that the paper prints",
                lambda rows: all(
                    r["size"] == r["published_size"] and r["diameter"] == r["published_diameter"]
                    for r in rows
                ),
            ),
            Check(
                "the printed ratios are right to their two digits for the printed degrees",
                lambda rows: all(round(r["recomputed"], 2) == r["published"] for r in rows),
            ),
            Check(
                "the degrees of dual-nets are one less than printed, and their ratios lower",
                lambda rows: all(
                    (r["degree"] == r["published_degree"] - 1 and r["ratio"] < r["recomputed"])
                    if r["network"].startswith("HDN")
                    else (r["degree"], r["ratio"]) == (r["published_degree"], r["recomputed"])
                    for r in rows
                ),
            ),
            Check("all ten networks are searched", lambda rows: len(rows) == 10, whole=True),
        ),
        run=_table_3,
        plot=Plot(x="network", ys=("ratio", "published"), kind="bar", y_label="cost ratio"),
    ),
    Experiment(
        name="hdn-table-4",
        paper="HDN",
        section="§4, table 4",
        title="Re-indexing: which node of a cluster is which place of which super-node",
        explanation=(
            "A node of HDN(B,1,S), in a cluster of HDN(B,2,S), has a label by the super-nodes of level "
            "1 (rings 2 and 3 of the torus) and one by those of level 2 (rings 3 and 5). The text says "
            "how they belong together: the indices of the rings that are in one super-node and not in "
            "the other are moved. The table does not follow it: it keeps the serial number. Two of its "
            "four rows are wrong by the text, and by the serial number super-nodes of level 2 would "
            "not be tori of 3 x 5: nodes 0 to 14 hold two whole tori of 2 x 3 and half of a third."
        ),
        columns=(
            Column("index", text="(SN, N) in HDN(B,2,S), as printed"),
            Column("published", text="(C, U, SN, N) in HDN(B,1,S), as printed"),
            Column("right", text="what it is by the text"),
            Column("published_means", text="the (SN, N) that the printed label has by the text"),
            Column("published_serial", "", "the serial number, as printed"),
            Column("serial_level_1", "", "the serial number of the printed label of level 1"),
            Column("serial_level_2", "", "the serial number of the label of level 2"),
            Column("equal", "", "whether the printed label is right"),
        ),
        checks=(
            Check(
                "both serial numbers are as printed, and so equal, in every row",
                lambda rows: all(
                    r["serial_level_1"] == r["serial_level_2"] == r["published_serial"]
                    for r in rows
                ),
            ),
            Check(
                "the first and the last row are right by the text, the others not",
                lambda rows: [r["equal"] for r in rows] == [True, False, False, True],
            ),
        ),
        run=_table_4,
    ),
)
