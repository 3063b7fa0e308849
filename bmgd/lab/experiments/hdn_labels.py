"""Table 4 of the HDN paper: which label of one level is which of the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Row, Run
from bmgd.lab.experiments.hdn_tables import BASE
from bmgd.topology import (
    HierarchicalDualNet,
)
from bmgd.topology.hierarchical_dual_net import Label

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
