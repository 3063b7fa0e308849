"""Diameter, symmetry and bisection of hierarchical dual-nets: HDN figures 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from random import Random
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
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

    Up to 60 nodes are asked, evenly spread; one where the network is symmetric by proof.
    """
    sources = range(0, 1 if net.symmetric else net.size, 1 + net.size // 60)
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


def _halves(net: HierarchicalDualNet) -> int:
    """The left half of figure 9: in both classes the clusters of the lower half of the numbers."""
    cluster = net.size // (2 * net.clusters_per_class)
    left = ((1 << net.clusters_per_class // 2 * cluster) - 1) & (1 << net.size) - 1
    return left | left << net.size // 2


def _figure_9(run: Run) -> Iterator[Row]:
    nets = list(networks(((2, 2), (2, 3), (4,), (2, 4), (3, 4)), 100 if run.quick else 300))
    for number, net in enumerate(nets):
        links = links_of(net)
        even = net.clusters_per_class % 2 == 0
        divided = cut_links(links, _halves(net)) if even else None
        starts = 10 if run.quick else 40
        best = run.resumed(
            f"{net!r} {starts}", partial(smallest_cut_found, links, Random(net.size), starts)
        )
        exact = None
        if net.size <= EXACT_SIZE_MAX:
            exact = run.resumed(f"{net!r} exact", partial(bisection_width, links))
            best = min(best, exact)
        yield (
            " x ".join(map(str, net.base)),
            str(net.super_nodes),
            net.size,
            net.clusters_per_class,
            net.size / 4,
            divided,
            best,
            exact,
        )
        run.progress(number + 1, len(nets), repr(net))


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
            "here, and its links counted; the best cut of many found by exchange (Kernighan and Lin) "
            "is an upper bound; and to 32 nodes a branch and bound decides. N/4 is the bisection width "
            "of every small network with an even number of super-nodes, and no better cut was found in "
            "larger ones. With one super-node, that is the whole base, the network is two copies of "
            "the base joined, and can take more: N/2 at most, the links between the two classes. With "
            "three the smallest cut found is a little above N/4."
        ),
        columns=(
            Column("base", text="the rings of the base network"),
            Column("super_nodes", text="the rings of the super-node of each level"),
            Column("size", "nodes", "N"),
            Column("clusters", "", "clusters of a class: super-nodes of a cluster"),
            Column("published", "links", "N/4, for an even number of super-nodes"),
            Column("divided", "links", "between the halves of figure 9, where the number is even"),
            Column("found", "links", "the smallest cut that was found"),
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
                "with an even number of super-nodes, no smaller cut is found, and to 32 nodes none is",
                lambda rows: all(
                    r["found"] == r["published"] and r["exact"] in (None, r["published"])
                    for r in rows
                    if r["clusters"] % 2 == 0
                ),
            ),
            Check(
                "with one or three, the smallest cut found is above N/4 and at most N/2",
                lambda rows: all(
                    r["published"] < r["found"] <= 2 * r["published"]
                    for r in rows
                    if r["clusters"] in (1, 3)
                ),
            ),
        ),
        run=_figure_9,
        plot=Plot(
            x="size", ys=("found", "published"), kind="scatter", x_label="nodes", y_label="links"
        ),
    ),
)
