"""What it costs to heal later: Healing §3.2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any, Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import BinomialGraph
from bmgd.topology.faults import survivors_by_hops

SAMPLES: Final = {64: 200, 256: 60, 1024: 20}
SAMPLES_QUICK: Final = {64: 40, 256: 8}

SOURCES: Final = 64
"""Of larger graphs, so many sources of each sample."""


def waits(size: int) -> list[int]:
    """The numbers of deaths that rows are about: few, δ − 1, δ, and shares up to half."""
    degree = BinomialGraph(size).degree
    shares = {size * percent // 100 for percent in (10, 20, 30, 40, 50)}
    return sorted({1, 2, 4, degree - 1, degree} | shares)


def _measured(size: int, failed: int, samples: int) -> dict[str, Any]:
    """Sums over random sets of the dead: pairs reached, their hops, and the worst of each kind."""
    graph = BinomialGraph(size)
    reached = hops = asked = most_hops = most_dead = 0
    for sample in range(samples):
        random = Random(f"{size} {failed} {sample}")
        dead = random.sample(range(size), failed)
        gone = set(dead)
        survivors = [node for node in range(size) if node not in gone]
        for node in survivors:
            most_dead = max(most_dead, sum(1 for o in graph.neighbors(node) if o in gone))
        for source in random.sample(survivors, min(SOURCES, len(survivors))):
            levels = survivors_by_hops(size, dead, source)
            asked += len(survivors) - 1
            reached += sum(levels) - 1
            hops += sum(h * nodes for h, nodes in enumerate(levels))
            most_hops = max(most_hops, len(levels) - 1)
    return {
        "asked": asked,
        "reached": reached,
        "hops": hops,
        "most_hops": most_hops,
        "most_dead": most_dead,
    }


def _waiting(run: Run) -> Iterator[Row]:
    samples_of = SAMPLES_QUICK if run.quick else SAMPLES
    steps = [(size, failed) for size in samples_of for failed in waits(size)]
    for done, (size, failed) in enumerate(steps):
        run.progress(done, len(steps), f"N = {size}, {failed} dead")
        samples = samples_of[size]

        def measure(
            size: int = size, failed: int = failed, samples: int = samples
        ) -> dict[str, Any]:
            return _measured(size, failed, samples)

        found = run.resumed(f"{size} nodes, {failed} dead, {samples} samples", measure)
        healed = BinomialGraph(size - failed)
        unhealed_hops = found["hops"] / found["reached"]
        yield (
            *(size, BinomialGraph(size).degree, failed, samples),
            *(unhealed_hops, healed.average_distance),
            100 * (unhealed_hops / healed.average_distance - 1),
            *(found["most_hops"], healed.diameter, found["most_dead"]),
            100 * (1 - found["reached"] / found["asked"]),
        )


def _ways_grow(rows: Rows) -> bool:
    """Whether, at each size, more of a tenth and more of the nodes dead mean longer ways."""
    for size in {r["size"] for r in rows}:
        hops = sorted(
            (r["failed"], r["hops_unhealed"])
            for r in rows
            if r["size"] == size and r["failed"] >= size // 10
        )
        if not all(a < b for (_, a), (_, b) in pairwise(hops)):
            return False
    return True


EXPERIMENTS: Final = (
    Experiment(
        name="healing-section-3-2",
        paper="Healing",
        section="§3.2, self-healing frequency",
        title="Waiting with healing costs a few per cent of hops, until many have died",
        explanation=(
            "Random nodes have died and nobody has healed yet: how long the shortest ways among the "
            "survivors are, beside those of the graph that healing would make of them. The difference "
            "is the overhead that Healing §3.2 weighs against the cost of healing often; it may be "
            "used as a threshold.\n\n"
            "Until δ − 1 have died, the latest that is safe for certain, it is a few per cent; a part of "
            "that is no loss but a gain that healing would bring, as many smaller sizes have "
            "shorter ways than a power of two. "
            "'Most dead neighbors' is how near any survivor came to being cut off; the paper wants "
            "healing to begin before that is δ. See reliability-directed for why that is not enough. "
            "Ways are those from 64 random survivors in each sample; a quick run leaves out 1024 nodes."
        ),
        columns=(
            Column("size", "nodes", "N, before the deaths"),
            Column("degree", "links", "δ"),
            Column("failed", "nodes", "deaths that nobody has healed"),
            Column("samples", "", "random sets of the dead"),
            Column("hops_unhealed", "hops", "average way among survivors"),
            Column("hops_healed", "hops", "average distance of the graph of N − F"),
            Column("overhead_percent", "%", "by which the first exceeds the second"),
            Column("worst_unhealed", "hops", "the longest way met"),
            Column("diameter_healed", "hops", "of the graph of N − F"),
            Column("most_dead_neighbors", "nodes", "of any survivor in any sample"),
            Column("unreachable_percent", "%", "of pairs of survivors"),
        ),
        checks=(
            Check(
                "with fewer than δ deaths every survivor is reached",
                lambda rows: all(
                    r["unreachable_percent"] == 0 for r in rows if r["failed"] < r["degree"]
                ),
            ),
            Check(
                "with fewer than δ deaths the overhead is below 12 %",
                lambda rows: all(
                    r["overhead_percent"] < 12 for r in rows if r["failed"] < r["degree"]
                ),
            ),
            Check("from a tenth of the nodes to a half, ways grow with every step", _ways_grow),
            Check(
                "with half of the nodes dead the overhead is above 15 %",
                lambda rows: all(
                    r["overhead_percent"] > 15 for r in rows if 2 * r["failed"] == r["size"]
                ),
            ),
            Check(
                "with half of the nodes dead the longest way exceeds the healed graph's diameter",
                lambda rows: all(
                    r["worst_unhealed"] > r["diameter_healed"]
                    for r in rows
                    if 2 * r["failed"] == r["size"]
                ),
            ),
        ),
        run=_waiting,
        plot=Plot(
            x="failed",
            ys=("overhead_percent",),
            by="size",
            log_x=True,
            x_label="deaths before healing",
            y_label="more hops than healed, %",
        ),
    ),
)
