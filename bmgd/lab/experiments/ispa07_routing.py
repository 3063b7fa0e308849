"""The basic and the variant routing algorithm: ISPA07 figure 6, and the variant's extension."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.lab.surveyed import overheads, sizes_of
from bmgd.routing.papers.survey import hop_counts, overhead
from bmgd.topology import BinomialGraph
from bmgd.topology.levels import ranks_per_level

PART: Final = 256
LEVELS: Final = (0, 1, 2, 3)
EXTENDED_SIZES: Final = (23, 64, 100, 256, 365, 777, 1000, 1024, 1365, 2389, 2987, 4096)
EXTENDED_SIZES_QUICK: Final = (23, 64, 100, 256, 365)


def _distances(counts: tuple[int, ...]) -> list[float]:
    """The average over the other ranks, and the maximum."""
    return [
        sum(hops * count for hops, count in enumerate(counts)) / (sum(counts) - 1),
        len(counts) - 1,
    ]


def _figure_6a(run: Run) -> Iterator[Row]:
    sizes = sizes_of(run)
    for start in range(0, len(sizes), PART):
        part = sizes[start : start + PART]

        def measure(part: tuple[int, ...] = part, start: int = start) -> list[list[float]]:
            found = []
            for done, n in enumerate(part, start):
                run.progress(done, len(sizes), f"N = {n}")
                surveyed = (ranks_per_level(n), hop_counts(n, "basic"), hop_counts(n, "variant", 1))
                found.append([value for counts in surveyed for value in _distances(counts)])
            return found

        key = f"{len(sizes)} sizes, {part[0]}..{part[-1]}"
        for n, values in zip(part, run.resumed(key, measure), strict=True):
            yield (n, *values)


def _overheads(run: Run, measure: Literal["average", "diameter"]) -> Iterator[Row]:
    sizes = sizes_of(run)
    basic = overheads(run, sizes, "basic", 0, (0, 2))
    variant = overheads(run, sizes, "variant", 1, (1, 2))
    for (n, plain), (_, better) in zip(list(basic), variant, strict=True):
        yield n, getattr(plain, measure), getattr(better, measure)


def _mean(rows: Rows, column: str) -> float:
    return float(sum(r[column] for r in rows) / len(rows))


def _averages_are(rows: Rows, basic: str, variant: str) -> bool:
    """Whether the averages over all sizes, cut off after as many digits, are these."""
    found = (_mean(rows, "basic"), _mean(rows, "variant"))
    wanted = (basic, variant)
    return all(f"{each:.6f}".startswith(text) for each, text in zip(found, wanted, strict=True))


def _of_levels(n: int, levels: int) -> list[float]:
    return list(overhead(n, "variant", levels))


def _extension(run: Run) -> Iterator[Row]:
    sizes = EXTENDED_SIZES_QUICK if run.quick else EXTENDED_SIZES
    for done, n in enumerate(sizes):
        graph = BinomialGraph(n)
        for levels in LEVELS:
            run.progress(done, len(sizes), f"N = {n}, {levels} levels")
            found = run.resumed(f"{n} {levels}", partial(_of_levels, n, levels))
            yield n, levels, graph.diameter, found[0], int(found[2]), graph.degree ** (levels + 1)


def _more_levels_never_worse(rows: Rows) -> bool:
    by_size: dict[int, list[float]] = {}
    for r in rows:
        by_size.setdefault(r["size"], []).append(r["average"])
    return all(values == sorted(values, reverse=True) for values in by_size.values())


_NOWHERE_WORSE: Final = Check(
    "the variant is nowhere worse than the basic algorithm, and somewhere better",
    lambda rows: (
        all(r["variant"] <= r["basic"] for r in rows)
        and any(r["variant"] < r["basic"] for r in rows)
    ),
)

EXPERIMENTS: Final = (
    Experiment(
        name="ispa07-figure-6a",
        paper="ISPA07",
        section="§5.1, figure 6(a)",
        title="How far messages travel by the basic, the variant and the optimal routing",
        explanation=(
            "The average and the most hops of a message, over all pairs of nodes: by shortest paths, by "
            "the basic algorithm (to the neighbor closest to the destination on the ring) and by the "
            "variant (but first to a neighbor that links the destination). Their differences are the "
            "figures 6(b) and 6(c)."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("optimal_average", "hops", "by shortest paths"),
            Column("optimal_maximum", "hops", "by shortest paths: the diameter"),
            Column("basic_average", "hops", "by the basic algorithm"),
            Column("basic_maximum", "hops", "by the basic algorithm"),
            Column("variant_average", "hops", "by the variant"),
            Column("variant_maximum", "hops", "by the variant"),
        ),
        checks=(
            Check(
                "optimal is at most the variant, and that at most the basic algorithm, at every size",
                lambda rows: all(
                    r[f"optimal_{of}"] <= r[f"variant_{of}"] <= r[f"basic_{of}"]
                    for r in rows
                    for of in ("average", "maximum")
                ),
            ),
            Check(
                "at 23 nodes, the paper's example, the variant is better than the basic algorithm",
                lambda rows: all(
                    r["variant_average"] < r["basic_average"] for r in rows if r["size"] == 23
                ),
            ),
        ),
        run=_figure_6a,
        plot=Plot(
            x="size",
            ys=(
                "optimal_average",
                "variant_average",
                "basic_average",
                "optimal_maximum",
                "variant_maximum",
                "basic_maximum",
            ),
            log_x=True,
            x_label="nodes n",
            y_label="hops",
        ),
    ),
    Experiment(
        name="ispa07-figure-6b",
        paper="ISPA07",
        section="§5.1, figure 6(b)",
        title="What the variant saves of the maximum distance",
        explanation=(
            "The overhead of the maximum distance at every size, by the basic algorithm and the variant, "
            "against breadth-first search. The paper's text prints the averages over 16 to 4096 nodes: "
            "0.454 hops for the basic algorithm, 0.449 hops for the variant. "
            "Routing draws the same as its figure 4, and prints more digits in its tables."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("basic", "hops", "maximum distance overhead of the basic algorithm"),
            Column("variant", "hops", "maximum distance overhead of the variant"),
        ),
        checks=(
            Check(
                "averaged over all sizes it is 0.454 hops and 0.449 hops, as the paper prints",
                lambda rows: _averages_are(rows, "0.454", "0.449"),
                whole=True,
            ),
            _NOWHERE_WORSE,
        ),
        run=lambda run: _overheads(run, "diameter"),
        plot=Plot(
            x="size",
            ys=("basic", "variant"),
            log_x=True,
            x_label="nodes n",
            y_label="maximum distance overhead, hops",
        ),
    ),
    Experiment(
        name="ispa07-figure-6c",
        paper="ISPA07",
        section="§5.1, figure 6(c)",
        title="What the variant saves of the average distance",
        explanation=(
            "The overhead of the average distance at every size, by the basic algorithm and the variant, "
            "against breadth-first search. The paper's text prints the averages over 16 to 4096 nodes: "
            "5.55 % for the basic algorithm, 4.69 % for the variant (cut off, "
            "not rounded: the first is 5.555). Routing draws the same as its figure 4, and prints more "
            "digits in its tables."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("basic", "%", "average distance overhead of the basic algorithm"),
            Column("variant", "%", "average distance overhead of the variant"),
        ),
        checks=(
            Check(
                "averaged over all sizes it is 5.55 % and 4.69 %, as the paper prints",
                lambda rows: _averages_are(rows, "5.55", "4.69"),
                whole=True,
            ),
            _NOWHERE_WORSE,
        ),
        run=lambda run: _overheads(run, "average"),
        plot=Plot(
            x="size",
            ys=("basic", "variant"),
            log_x=True,
            x_label="nodes n",
            y_label="average distance overhead, %",
        ),
    ),
    Experiment(
        name="ispa07-variant-levels",
        paper="ISPA07",
        section="§5.1, the recursive extension",
        title="How many levels of neighbors the variant has to ask to become optimal",
        explanation=(
            "The paper extends the variant 'by recursively finding if the destination is directly "
            "connected to the neighbor of a neighbor and so on', at a cost of δ^(r+1) for r levels, and "
            "shows no measurement. Level 0 is the basic algorithm, level 1 the variant. With diameter - "
            "1 levels every shortest path is found, and no sooner at most sizes."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("levels", "", "r"),
            Column("graph_diameter", "hops", "of the graph"),
            Column("average", "%", "average distance overhead"),
            Column("diameter", "hops", "diameter overhead"),
            Column("asked", "neighbors", "δ^(r+1), looked at for one next hop at most"),
        ),
        checks=(
            Check(
                "from diameter - 1 levels on it is optimal",
                lambda rows: all(
                    r["average"] == 0 for r in rows if r["levels"] >= r["graph_diameter"] - 1
                ),
            ),
            Check("another level never makes it worse", _more_levels_never_worse),
            Check(
                "with 3 levels it is within 2 % of optimal at every size tried",
                lambda rows: all(r["average"] < 2 for r in rows if r["levels"] == 3),
            ),
        ),
        run=_extension,
        plot=Plot(
            x="size",
            ys=("average",),
            by="levels",
            log_x=True,
            x_label="nodes n",
            y_label="average distance overhead, %",
        ),
    ),
)
