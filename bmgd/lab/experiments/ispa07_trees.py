"""The binomial broadcast trees: ISPA07 figure 7."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run
from bmgd.topology import BinomialGraph
from bmgd.topology.broadcast import BroadcastTree, Order

ORDERS: Final[tuple[Order, ...]] = ("closest-first", "closest-last")

EVERY_SIZE_TO: Final = 96
EVERY_SIZE_TO_QUICK: Final = 40
"""To here every size is tried with every source."""

LARGER: Final = (200, 255, 256, 257, 365, 511, 512, 513, 777, 1000, 1024, 1025, 2048, 3000, 4096)
SEED: Final = 7


def arrivals(tree: BroadcastTree) -> dict[int, int]:
    """The step at which each rank has the message, when everybody sends to one child per step.

    Raises:
        ValueError: a rank gets it twice.
    """
    steps = {tree.source: 0}
    queue = [tree.source]
    for rank in queue:
        for place, child in enumerate(tree.children(rank), start=1):
            if child in steps:
                raise ValueError(f"rank {child} gets the message twice")
            steps[child] = steps[rank] + place
            queue.append(child)
    return steps


def uses_links_only(tree: BroadcastTree) -> bool:
    """Whether every branch is a link of the binomial graph."""
    graph = BinomialGraph(tree.size)
    return all(set(tree.children(rank)) <= set(graph.neighbors(rank)) for rank in range(tree.size))


def serves_costliest_first(tree: BroadcastTree) -> bool:
    """Whether every rank's children have costs that descend."""
    for rank in range(tree.size):
        costs = [tree.cost(child) for child in tree.children(rank)]
        if costs != sorted(costs, reverse=True):
            return False
    return True


def _trees(run: Run) -> Iterator[Row]:
    random = Random(SEED)
    every = range(1, (EVERY_SIZE_TO_QUICK if run.quick else EVERY_SIZE_TO) + 1)
    some = {n: sorted({0, n - 1, random.randrange(n)}) for n in LARGER[:: 4 if run.quick else 1]}
    sources = {n: list(range(n)) for n in every} | some
    total = sum(n * len(of) for n, of in sources.items())
    done = 0
    for n, of in sources.items():
        run.progress(done, total, f"N = {n}")
        for order in ORDERS:
            yield (n, order, len(of), *run.resumed(f"{n} {order}", partial(_facts, n, of, order)))
        done += n * len(of)


def _facts(n: int, sources: list[int], order: Order) -> list[int | bool | None]:
    """What the trees of some sources have in common, as the columns from `reached` on have it."""
    trees = [BroadcastTree(n, source, order) for source in sources]
    steps = [arrivals(tree) for tree in trees]
    lasts = [max(each.values()) for each in steps]
    first = trees[0]
    children = first.children(first.source)
    return [
        min(len(each) for each in steps),
        all(uses_links_only(tree) for tree in trees),
        all(serves_costliest_first(tree) for tree in trees),
        (n - 1).bit_length(),
        min(lasts),
        max(lasts),
        max(first.depth(rank) for rank in range(n)),
        len(children),
        max((first.covered(child) for child in children), default=0),
        (children[0] - first.source) % n if children else None,
    ]


EXPERIMENTS: Final = (
    Experiment(
        name="ispa07-figure-7",
        paper="ISPA07",
        section="§5.3, figure 7",
        title="The two binomial trees that a broadcast follows",
        explanation=(
            "A broadcast follows a binomial tree of its source over links of the graph. There are two: "
            "closest first, in which the next rank has the largest part of the others behind it, and "
            "closest last, in which the farthest has, and every branch covers an interval of ranks. A "
            "node sends to one child per step, to the costliest first: the one whose subtree takes the "
            "most steps. The experiment plays every tree step by step, from every source of every size "
            "to 96 and from some of larger ones.\n\n"
            "The paper claims log2(n) steps from any node. That is so, rounded up, for both trees; a "
            "rank gets the message exactly once. Drawn is when the last rank has it."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("order", "", "which of the two trees"),
            Column("sources", "nodes", "from how many ranks it was played"),
            Column("reached", "nodes", "the fewest that a source reached, itself included"),
            Column("over_links", "", "whether every branch is a link of the graph"),
            Column("costliest_first", "", "whether every rank serves its costliest child first"),
            Column("published", "steps", "log2(n), rounded up"),
            Column("least_steps", "steps", "until all have it, from the fastest source"),
            Column("most_steps", "steps", "until all have it, from the slowest source"),
            Column("depth", "hops", "from the source to the deepest rank"),
            Column("children", "nodes", "of the source"),
            Column("largest_branch", "nodes", "behind one child of the source"),
            Column("first_child", "ranks", "how far the child is that the source serves first"),
        ),
        checks=(
            Check(
                "every rank is reached, exactly once, from every source tried",
                lambda rows: all(r["reached"] == r["size"] for r in rows),
            ),
            Check(
                "every branch is a link of the binomial graph",
                lambda rows: all(r["over_links"] for r in rows),
            ),
            Check(
                "it takes log2(n) steps, rounded up, from every source tried",
                lambda rows: all(
                    r["least_steps"] == r["most_steps"] == r["published"] for r in rows
                ),
            ),
            Check(
                "every rank serves its costliest child first",
                lambda rows: all(r["costliest_first"] for r in rows),
            ),
            Check(
                "at powers of two the closest rank is served first in the one tree, the farthest in the "
                "other",
                lambda rows: all(
                    r["first_child"] == (1 if r["order"] == "closest-first" else r["size"] // 2)
                    for r in rows
                    if r["size"].bit_count() == 1 and r["size"] > 1
                ),
            ),
        ),
        run=_trees,
        plot=Plot(
            x="size",
            ys=("published", "most_steps"),
            by="order",
            kind="scatter",
            log_x=True,
            x_label="nodes n",
            y_label="steps until all have the message",
        ),
    ),
)
