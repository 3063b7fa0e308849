"""How the work of healing is spread over the nodes: Healing figures 6(b) and 6(c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from random import Random
from typing import Final

from bmgd.healing import LinkDiff, link_diff
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.routing import id_of, rank_of
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId

SIZES: Final = (*(1 << k for k in range(4, 13)), *(3 << k for k in range(3, 11)), 100, 1000)
SIZES_QUICK: Final = tuple(size for size in SIZES if size <= 1024)
FAILED: Final = (1, 4)

NAIVE: Final = "naive"
ADAPTIVE: Final = "adaptive"


def naive_diff(size: int, node: int, dead: Sequence[int]) -> LinkDiff:
    """What one survivor closes and opens by the naive method: all that it had and will have.

    Args:
        size: the size of the graph before the deaths.
        node: the survivor.
        dead: the dead, ascending.

    Source: Healing §3.1.
    """
    after = BinomialGraph(size - len(dead)).neighbors(rank_of(node, dead))
    opened = tuple(id_of(rank, dead) for rank in after)
    closed = tuple(NodeId(rank) for rank in BinomialGraph(size).neighbors(node))
    return LinkDiff(opened, closed)


def _spread(counts: Sequence[int]) -> tuple[float, float]:
    """The mean and the standard deviation."""
    mean = sum(counts) / len(counts)
    return mean, sqrt(sum((count - mean) ** 2 for count in counts) / len(counts))


def _connections(run: Run, others: Callable[[LinkDiff], tuple[int, ...]]) -> Iterator[Row]:
    sizes = sorted(SIZES_QUICK if run.quick else SIZES)
    total = sum(sizes) * len(FAILED)
    done = 0
    for size in sizes:
        for failed in FAILED:
            dead = sorted(Random(f"{size} {failed}").sample(range(size), failed))
            gone = set(dead)
            survivors = [node for node in range(size) if node not in gone]
            for method, diff in ((NAIVE, naive_diff), (ADAPTIVE, link_diff)):
                both, high = [], []
                for node in survivors:
                    ends = [o for o in others(diff(size, node, dead)) if o not in gone]
                    both.append(len(ends))
                    high.append(sum(1 for other in ends if other < node))
                yield size, failed, method, *_spread(both), *_spread(high)
            done += size
            run.progress(done, total, f"N = {size}, {failed} dead")


def _opened(run: Run) -> Iterator[Row]:
    return _connections(run, lambda diff: diff.added)


def _closed(run: Run) -> Iterator[Row]:
    return _connections(run, lambda diff: diff.removed)


def _pairs(rows: Rows) -> list[tuple[dict[str, float], dict[str, float]]]:
    """The rows of both methods, side by side."""
    of = {(r["size"], r["failed"], r["method"]): dict(r) for r in rows}
    return [
        (row, of[size, failed, ADAPTIVE])
        for (size, failed, method), row in of.items()
        if method == NAIVE
    ]


_COLUMNS: Final = (
    Column("size", "nodes", "N, before the deaths"),
    Column("failed", "nodes", "how many have died, chosen at random"),
    Column("method"),
    Column("mean", "links", "per survivor, both ends of a link counted"),
    Column("deviation", "links", "their standard deviation"),
    Column("mean_initiated", "links", "per survivor, counted at the higher id only: it initiates"),
    Column("deviation_initiated", "links", "their standard deviation"),
)

_COUNTING: Final = (
    "The paper does not say whether a link is counted at both of its ends or only at the one that "
    "initiates it, which is the higher id; both are here. Links to the dead are not counted."
)

_MEAN_CHECK: Final = Check(
    "the mean of the naive method is more than three times that of the adaptive one, for one death",
    lambda rows: all(
        naive["mean"] > 3 * adaptive["mean"]
        for naive, adaptive in _pairs(rows)
        if naive["failed"] == 1
    ),
)

_INITIATED_CHECK: Final = Check(
    "counted where links are initiated, the adaptive method deviates less: for one death at every "
    "size, for four from 128 nodes on",
    lambda rows: all(
        adaptive["deviation_initiated"] < naive["deviation_initiated"]
        for naive, adaptive in _pairs(rows)
        if naive["failed"] == 1 or naive["size"] >= 128
    ),
)

_PLOT: Final = Plot(
    x="size",
    ys=("mean_initiated", "deviation_initiated"),
    by="method",
    log_x=True,
    x_label="nodes N",
    y_label="links per node",
    where=("failed", 1),
)

EXPERIMENTS: Final = (
    Experiment(
        name="healing-figure-6b",
        paper="Healing",
        section="§4, figure 6(b)",
        title="How many connections each node opens while the graph heals",
        explanation=(
            "The mean over the survivors of the links that each opens, and the standard deviation, for "
            f"one and for four deaths; the plot draws one. {_COUNTING}\n\n"
            "The paper finds the naive mean much higher: it is. From the deviation it concludes that "
            "the adaptive method balances its load better. That holds where links are counted at "
            "the node that initiates them, since in a graph built anew the lowest ids initiate none and "
            "the highest all of theirs. Counted at both ends the naive method is perfectly even, "
            "each node opening δ links, and the adaptive one is not."
        ),
        columns=_COLUMNS,
        checks=(
            _MEAN_CHECK,
            _INITIATED_CHECK,
            Check(
                "counted at both ends, the naive method opens δ links at every node",
                lambda rows: all(
                    naive["deviation"] == 0
                    and naive["mean"] == BinomialGraph(int(naive["size"] - naive["failed"])).degree
                    for naive, _ in _pairs(rows)
                ),
            ),
            Check(
                "the adaptive one opens more at some nodes than at others",
                lambda rows: all(adaptive["deviation"] > 0 for _, adaptive in _pairs(rows)),
            ),
        ),
        run=_opened,
        plot=_PLOT,
    ),
    Experiment(
        name="healing-figure-6c",
        paper="Healing",
        section="§4, figure 6(c)",
        title="How many connections each node closes while the graph heals",
        explanation=(
            "As figure 6(b), for the links that each survivor closes. "
            f"{_COUNTING}\n\n"
            "The naive method closes all that is left: δ links at every node but the neighbors of the "
            "dead. The paper's conclusions hold as they do for figure 6(b)."
        ),
        columns=_COLUMNS,
        checks=(
            _MEAN_CHECK,
            _INITIATED_CHECK,
            Check(
                "the naive mean is that of all links between survivors: for one death δ − δ/(N−1)",
                lambda rows: all(
                    abs(naive["mean"] - degree * (1 - 1 / (naive["size"] - 1))) < 1e-9
                    for naive, _ in _pairs(rows)
                    if naive["failed"] == 1
                    for degree in [BinomialGraph(int(naive["size"])).degree]
                ),
            ),
        ),
        run=_closed,
        plot=_PLOT,
    ),
)
