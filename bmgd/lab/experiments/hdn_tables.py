"""Table 1 of the HDN paper: how many nodes the networks have that its other tables are about."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Row, Run
from bmgd.topology import (
    HierarchicalDualNet,
    RegularTopology,
)
from bmgd.topology.hdn_bounds import degree_formula, size_formula
from bmgd.topology.measures.distances import level_sizes

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
)
