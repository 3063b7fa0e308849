"""Diameter, symmetry and bisection of hierarchical dual-nets: HDN figures 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations, product
from random import Random
from typing import Any, Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import HierarchicalDualNet
from bmgd.topology.hdn_bounds import hops_bound
from bmgd.topology.measures.bisection import (
    EXACT_SIZE_MAX,
    bisection_width,
    cut_links,
    smallest_cut_found,
)
from bmgd.topology.measures.distances import level_sizes, links_of

BASES: Final = ((2,), (3,), (5,), (2, 2), (2, 3), (3, 3), (2, 5), (2, 3, 5))


def networks(bases: tuple[tuple[int, ...], ...], most: int) -> Iterator[HierarchicalDualNet]:
    """Every network of one and two levels over some bases, of `most` nodes or fewer."""
    for base in bases:
        rings = range(len(base))
        choices = [each for count in range(len(base) + 1) for each in combinations(rings, count)]
        for levels in (1, 2):
            for super_nodes in product(choices, repeat=levels):
                net = HierarchicalDualNet(base, super_nodes)
                if net.size <= most:
                    yield net


def views(net: HierarchicalDualNet) -> list[list[int]]:
    """The numbers of nodes by distance that its nodes see, each that occurs once.

    Up to 60 nodes are asked, evenly spread, also where the network is symmetric by proof: a check is
    about that.
    """
    sources = range(0, net.size, 1 + net.size // 60)
    found = {level_sizes(net.neighbors, net.size, source) for source in sources}
    return [list(each) for each in sorted(found)]


def _figure_8(run: Run) -> Iterator[Row]:
    found = list(networks(BASES, 500 if run.quick else 9_000))
    total = sum(net.size for net in found)
    done = 0
    for net in found:
        seen = run.resumed(repr(net), partial(views, net))
        first_is_base = len(net.super_nodes[0]) == len(net.base)
        yield (
            " x ".join(map(str, net.base)),
            str(net.super_nodes),
            net.levels,
            net.size,
            first_is_base,
            net.symmetric,
            len(seen),
            max(map(len, seen)) - 1,
            hops_bound(net),
        )
        done += net.size
        run.progress(done, total, repr(net))


def figure_9_half(net: HierarchicalDualNet) -> int:
    """The left half of figure 9: in both classes the clusters of the lower half of the numbers."""
    lower = net.clusters_per_class // 2 * net.cluster.size
    left = (1 << lower) - 1
    return left | left << net.size // 2


def half_within_a_class(net: HierarchicalDualNet) -> int | None:
    """A half that no cross-edge of the highest level leaves.

    A half of the cluster's network is taken that holds super-nodes as a whole. It has, in class 0,
    the clusters whose numbers are those of its super-nodes, and in class 1, of every cluster, these
    super-nodes. A cross-edge joins super-node V of cluster U to super-node U of cluster V, so both
    its ends are in the half if U is in it. What is cut are the clusters of class 1, each once.

    Returns:
        The half, one bit per node; None if a level 1 of an odd number of clusters, not one, has none.
    """
    if net.levels == 1:
        if net.clusters_per_class == 1:
            return (1 << net.size // 2) - 1
        return None if net.clusters_per_class % 2 else figure_9_half(net)
    inner = half_within_a_class(net.cluster)
    if inner is None:
        return None
    chosen = {
        super_node
        for super_node in range(net.clusters_per_class)
        if inner >> net.cluster_node(super_node, 0) & 1
    }
    half = 0
    for node in range(net.size):
        label = net.label(node)
        half |= ((label.super_node if label.class_id else label.cluster) in chosen) << node
    return half


def _figure_9(run: Run) -> Iterator[Row]:
    nets = list(networks(((2, 2), (2, 3), (4,), (2, 4), (3, 4)), 130 if run.quick else 300))
    for number, net in enumerate(nets):
        links = links_of(net)
        even = net.clusters_per_class % 2 == 0
        divided = cut_links(links, figure_9_half(net)) if even else None
        half = half_within_a_class(net)
        within = None if half is None else cut_links(links, half)
        starts = 5 if run.quick else 40
        found = run.resumed(
            f"{net!r} {starts}", partial(smallest_cut_found, links, Random(net.size), starts)
        )
        exact = None
        if net.size <= EXACT_SIZE_MAX:
            exact = run.resumed(f"{net!r} exact", partial(bisection_width, links))
        smallest = min(cut for cut in (divided, within, found, exact) if cut is not None)
        yield (
            " x ".join(map(str, net.base)),
            str(net.super_nodes),
            net.levels,
            net.size,
            net.clusters_per_class,
            len(net.super_nodes[0]) == len(net.base),
            net.size / 4,
            divided,
            within,
            smallest,
            exact,
        )
        run.progress(number + 1, len(nets), repr(net))


def _even(rows: Rows, levels: int) -> list[Mapping[str, Any]]:
    """The networks of so many levels for which the paper has a formula, none with B for SN 1."""
    return [
        row
        for row in rows
        if row["levels"] == levels and row["clusters"] % 2 == 0 and not row["first_is_base"]
    ]


EXPERIMENTS: Final = (
    Experiment(
        name="hdn-figure-8",
        paper="HDN",
        section="§3, figure 8 and theorem 1",
        title="The diameter of hierarchical dual-nets, and whether all their nodes are alike",
        explanation=(
            "Every choice of super-nodes at one and two levels over small products of rings. The "
            "diameter is searched from up to 60 nodes, and compared with that of theorem 1.\n\nThe "
            "formula is right but for one case: if the super-node of level 1 is the whole base "
            "network, there is one cluster in each class, no way leads from one cluster to another of "
            "the same class, and the diameter is less, by one at one level and by two at two. There "
            "the formula is an upper bound. A super-node of level 2 may be the whole "
            "base.\n\nThe paper also says that the network is symmetric if the base is. It is if the "
            "super-nodes are nested, each within that of the level below. If they are not, nodes see "
            "different numbers of nodes at the same distance: 'views' counts how many different "
            "sights there are."
        ),
        columns=(
            Column("base", text="the rings of the base network"),
            Column("super_nodes", text="the rings of the super-node of each level"),
            Column("levels", "", "k"),
            Column("size", "nodes"),
            Column("first_is_base", "", "whether the super-node of level 1 is the whole base"),
            Column("nested", "", "whether each super-node is within that of the level below"),
            Column("views", "", "how many different sights its nodes have of the others"),
            Column("diameter", "hops", "searched"),
            Column("formula", "hops", "theorem 1"),
        ),
        checks=(
            Check(
                "the formula is right wherever the super-node of level 1 is not the whole base",
                lambda rows: all(
                    r["diameter"] == r["formula"] for r in rows if not r["first_is_base"]
                ),
            ),
            Check(
                "where it is, the formula is too large by one at one level and by two at two",
                lambda rows: all(
                    r["diameter"] == r["formula"] - r["levels"] for r in rows if r["first_is_base"]
                ),
            ),
            Check(
                "all nodes have the same sight of the others just where super-nodes are nested",
                lambda rows: all((r["views"] == 1) == r["nested"] for r in rows),
            ),
        ),
        run=_figure_8,
        plot=Plot(
            x="size",
            ys=("diameter", "formula"),
            kind="scatter",
            log_x=True,
            x_label="nodes",
            y_label="diameter, hops",
        ),
    ),
    Experiment(
        name="hdn-figure-9",
        paper="HDN",
        section="§3, figure 9",
        title="The bisection width of hierarchical dual-nets",
        explanation=(
            "The fewest links between two halves of the nodes. The paper divides the clusters of each "
            "class into two parts and counts N/4 links between the halves, if the number of "
            "super-nodes is even; if it is odd it leaves the question open.\n\nThat division is made "
            "here, and its links counted: there are N/4. At one level no other has fewer (decided by "
            "branch and bound to 32 nodes; beyond, exchange by Kernighan and Lin finds none). At two "
            "levels another has half as many: divide the clusters of one class as the paper does, and "
            "each cluster of the other class into the super-nodes of the same numbers. Then no "
            "cross-edge of the highest level is cut, only the clusters of one class are, and these "
            "have N_(k-1)/4 links in their own division: N/8 in all. Each level more halves it again. "
            "(If the super-node of level 1 is the whole base, the first level has two clusters only, "
            "joined by N/2 links, and two levels have N/4.)"
        ),
        columns=(
            Column("base", text="the rings of the base network"),
            Column("super_nodes", text="the rings of the super-node of each level"),
            Column("levels", "", "k"),
            Column("size", "nodes", "N"),
            Column("clusters", "", "clusters of a class: super-nodes of a cluster"),
            Column("first_is_base", "", "whether the super-node of level 1 is the whole base"),
            Column("published", "links", "N/4, for an even number of super-nodes"),
            Column("divided", "links", "between the halves of figure 9, where the number is even"),
            Column("within", "links", "between halves that divide the clusters of one class"),
            Column("smallest", "links", "the smallest cut that was found"),
            Column("exact", "links", "the bisection width, where it is decided"),
        ),
        checks=(
            Check(
                "the division of figure 9 has N/4 links",
                lambda rows: all(
                    r["divided"] == r["published"] for r in rows if r["clusters"] % 2 == 0
                ),
            ),
            Check(
                "at one level no smaller cut is found, and to 32 nodes there is none",
                lambda rows: all(
                    r["smallest"] == r["published"] and r["exact"] in (None, r["published"])
                    for r in _even(rows, 1)
                ),
            ),
            Check(
                "at two levels, N/8 links suffice if a cluster of level 1 has an even number of "
                "super-nodes, against the paper",
                lambda rows: (
                    any(r["within"] is not None for r in _even(rows, 2))
                    and all(
                        r["within"] == r["size"] / 8
                        for r in _even(rows, 2)
                        if r["within"] is not None
                    )
                ),
            ),
            Check(
                "where the super-node of level 1 is the whole base, N/2 at one level, N/4 at two",
                lambda rows: all(
                    r["smallest"] == r["within"] == r["size"] / (2 * r["levels"])
                    for r in rows
                    if r["first_is_base"]
                ),
            ),
        ),
        run=_figure_9,
        plot=Plot(
            x="size", ys=("smallest", "published"), kind="scatter", x_label="nodes", y_label="links"
        ),
    ),
)
