"""Links that healing touches when one node dies: Healing figure 5."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from bmgd.healing import link_diff
from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.topology import BinomialGraph

SIZE_MIN: Final = 16
SIZE_MAX: Final = 4096
EVERY_SIZE_TO: Final = 256
"""A quick run takes each size to here, and then one of `STRIDE`."""

STRIDE: Final = 199


def link_counts(size: int) -> tuple[int, int, int, int]:
    """The links that the two methods close and open when one node of a graph dies.

    A link is counted once, and those of the dead node not at all: they are gone already. Which node
    dies makes no difference.

    Args:
        size: the size of the graph before the death, 3 or more.

    Returns:
        Naive closed, naive opened, adaptive closed, adaptive opened.

    Source: Healing §3.1.
    """
    before, after = BinomialGraph(size), BinomialGraph(size - 1)
    dead = size - 1
    closed = opened = 0
    for node in range(size - 1):
        diff = link_diff(size, node, (dead,))
        opened += len(diff.added)
        closed += sum(1 for other in diff.removed if other != dead)
    naive_closed = before.degree * size // 2 - before.degree
    return naive_closed, after.degree * (size - 1) // 2, closed // 2, opened // 2


def _sizes(run: Run) -> list[int]:
    if not run.quick:
        return list(range(SIZE_MIN, SIZE_MAX + 1))
    powers = {1 << k for k in range(4, 13)}
    beside = {size + 1 for size in powers} | {3 << k for k in range(3, 11)}
    strided = range(EVERY_SIZE_TO, SIZE_MAX, STRIDE)
    some = {*range(SIZE_MIN, EVERY_SIZE_TO), *strided, *powers, *beside}
    return sorted(size for size in some if size <= SIZE_MAX)


def _counted(run: Run) -> Iterator[tuple[int, list[int]]]:
    sizes = _sizes(run)
    total = sum(sizes)
    done = 0
    for start in range(0, len(sizes), 64):
        part = sizes[start : start + 64]

        def count(part: list[int] = part, done: int = done) -> list[list[int]]:
            found = []
            for size in part:
                found.append(list(link_counts(size)))
                done += size
                run.progress(done, total, f"N = {size}")
            return found

        counted = run.resumed(f"sizes {part[0]}..{part[-1]}", count)
        done += sum(part)
        yield from zip(part, counted, strict=True)


def _figure_5a(run: Run) -> Iterator[Row]:
    for size, counts in _counted(run):
        yield (size, *counts)


def _figure_5b(run: Run) -> Iterator[Row]:
    for size, (naive_closed, naive_opened, closed, opened) in _counted(run):
        naive, adaptive = naive_closed + naive_opened, closed + opened
        # A band, so its ends are drawn at a few sizes only.
        published = (10, 30) if size.bit_count() == 1 else (None, None)
        yield size, naive, adaptive, 100 * adaptive / naive, *published


def _falls(rows: Rows, beyond: int) -> bool:
    """Whether the ratio falls from each power of two to the next; or from each size beyond one."""
    ratios = [r["ratio"] for r in rows if (r["size"] - beyond).bit_count() == 1]
    return len(ratios) > 1 and all(a > b for a, b in itertools.pairwise(ratios))


def _imbalances(rows: Rows, keeps_degree: bool) -> list[float]:
    """How many times the adaptive method does more of the one than of the other: opening, closing.

    Args:
        rows: of all sizes.
        keeps_degree: of the sizes N at which the graph of N - 1 has the same degree; else of the others.
    """
    return [
        max(r["adaptive_closed"], r["adaptive_opened"])
        / min(r["adaptive_closed"], r["adaptive_opened"])
        for r in rows
        if keeps_degree == (BinomialGraph(r["size"]).degree == BinomialGraph(r["size"] - 1).degree)
    ]


def _is_uneven(rows: Rows, size: int) -> bool:
    """Whether the adaptive method opens more than three times as many links as it closes."""
    return all(r["adaptive_opened"] > 3 * r["adaptive_closed"] for r in rows if r["size"] == size)


EXPERIMENTS: Final = (
    Experiment(
        name="healing-figure-5a",
        paper="Healing",
        section="§3.1, figure 5(a)",
        title="How many links are closed and opened when one node dies",
        explanation=(
            "A node of a graph of N has died, and the other N − 1 form the graph of their number "
            "again. The naive method closes every link and opens all of the new graph. The adaptive "
            "method, which bmgd uses, touches only those that differ. A link is counted once, and "
            "the links of the dead node are not counted: nobody has to close them.\n\n"
            "The paper's figure has no numbers beside it; it says that each method closes roughly as "
            "many links as it opens. The adaptive method does not where the degree changes with the "
            "death: where N or N − 1 is a power of two or the sum of two, as a rule."
        ),
        columns=(
            Column("size", "nodes", "N, before the death"),
            Column("naive_closed", "links", "by the naive method: every link between survivors"),
            Column(
                "naive_opened", "links", "by the naive method: every link of the graph of N − 1"
            ),
            Column("adaptive_closed", "links", "links that the graph of N − 1 has no more"),
            Column("adaptive_opened", "links", "links that only the graph of N − 1 has"),
        ),
        checks=(
            Check(
                "the naive method closes every link but the dead node's: δN/2 − δ",
                lambda rows: all(
                    r["naive_closed"] == BinomialGraph(r["size"]).degree * (r["size"] - 2) // 2
                    for r in rows
                ),
            ),
            Check(
                "closed and opened links balance in both methods: the difference is that of the graphs",
                lambda rows: all(
                    r["naive_opened"] - r["naive_closed"]
                    == r["adaptive_opened"] - r["adaptive_closed"]
                    for r in rows
                ),
            ),
            Check(
                "the adaptive method closes and opens fewer links than the naive one at every size",
                lambda rows: all(
                    r["adaptive_closed"] < r["naive_closed"]
                    and r["adaptive_opened"] < r["naive_opened"]
                    for r in rows
                ),
            ),
            Check(
                "the naive method closes as many links as it opens to within a quarter",
                lambda rows: all(
                    4 * abs(r["naive_opened"] - r["naive_closed"])
                    <= max(r["naive_opened"], r["naive_closed"])
                    for r in rows
                ),
            ),
            Check(
                "the adaptive method does so to within a third where the graphs of N and of N − 1 have "
                "one degree",
                lambda rows: max(_imbalances(rows, True)) < 1.5,
            ),
            Check(
                "where they have not, it opens or closes more than 1.6 times as many as the other",
                lambda rows: min(_imbalances(rows, False)) > 1.6,
            ),
            Check(
                "where N is 3·2^k it opens more than three times as many",
                lambda rows: all(_is_uneven(rows, 3 << k) for k in range(3, 11)),
            ),
        ),
        run=_figure_5a,
        plot=Plot(
            x="size",
            ys=("naive_closed", "naive_opened", "adaptive_closed", "adaptive_opened"),
            log_x=True,
            log_y=True,
            x_label="nodes N",
            y_label="links",
        ),
    ),
    Experiment(
        name="healing-figure-5b",
        paper="Healing",
        section="§3.1, figure 5(b)",
        title="How much less the adaptive method touches than the naive one",
        explanation=(
            "The links that the adaptive method closes and opens after one death, as a percentage of "
            "those that the naive method does; counted as in figure 5(a), of which this is the ratio."
            "\n\n"
            "The paper reads 10 to 30 % from its figure, and 'reduces the overhead up to 90 %'. The "
            "upper end is right; from 256 nodes on it falls below 10 %, and goes on falling as "
            "1/log2 N does: the adaptive method touches about as many links as there are nodes, the "
            "naive one log2 N times as many. The size at which it is highest, 38, is exceeded by no "
            "other."
        ),
        columns=(
            Column("size", "nodes", "N, before the death"),
            Column("naive", "links", "closed and opened by the naive method"),
            Column("adaptive", "links", "closed and opened by the adaptive method"),
            Column("ratio", "%", "adaptive of naive"),
            Column("published_least", "%", "the lower end of what the paper reads off"),
            Column("published_most", "%", "the upper end"),
        ),
        checks=(
            Check(
                "the ratio is never above 30 %", lambda rows: all(r["ratio"] <= 30 for r in rows)
            ),
            Check(
                "it is between 10 % and 30 % at every size below 256",
                lambda rows: all(10 <= r["ratio"] <= 30 for r in rows if r["size"] < 256),
            ),
            Check(
                "it is below 10 % at some sizes from 256 on: the adaptive method saves more than 90 %",
                lambda rows: any(r["ratio"] < 10 for r in rows if r["size"] >= 256),
            ),
            Check(
                "at the powers of two, and at those plus one, each size has a lower ratio than the "
                "one of half as many",
                lambda rows: _falls(rows, 0) and _falls(rows, 1),
            ),
        ),
        run=_figure_5b,
        plot=Plot(
            x="size",
            ys=("ratio", "published_least", "published_most"),
            log_x=True,
            x_label="nodes N",
            y_label="adaptive of naive, %",
        ),
    ),
)
