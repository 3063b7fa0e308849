"""Routing figures 3, 4, 6, 9 and 10: the overhead of each algorithm at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.lab.surveyed import overheads, sizes_of
from bmgd.routing.papers.survey import SurveyedAlgorithm

Measure = Literal["average", "diameter"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: its column, and the algorithm that it shows."""

    column: str
    algorithm: SurveyedAlgorithm
    depth: int = 0
    text: str = ""


def _rows(lines: tuple[Line, ...], measure: Measure) -> Callable[[Run], Iterator[Row]]:
    def run_lines(run: Run) -> Iterator[Row]:
        sizes = sizes_of(run)
        columns: list[list[float]] = []
        for place, line in enumerate(lines):
            found = overheads(run, sizes, line.algorithm, line.depth, (place, len(lines)))
            columns.append([getattr(each, measure) for _, each in found])
        for n, *values in zip(sizes, *columns, strict=True):
            yield (n, *values)

    return run_lines


def _figure(
    number: str, measure: Measure, lines: tuple[Line, ...], about: str, checks: tuple[Check, ...]
) -> Experiment:
    """One half of a figure: (a) is the average distance, (b) the diameter."""
    unit, what = {
        "average": ("%", "average distance overhead"),
        "diameter": ("hops", "diameter overhead"),
    }[measure]
    section, subject, names = FIGURES[number]
    half = "a" if measure == "average" else "b"
    return Experiment(
        name=f"routing-figure-{number}{half}",
        paper="Routing",
        section=f"{section}, figure {number}({half})",
        title=f"{subject}: {what} at every size",
        explanation=f"{about}\n\n{HOW_TO_READ[measure]}",
        columns=(
            Column("size", "nodes", "n"),
            *(Column(line.column, unit, f"{what} of {line.text or names}") for line in lines),
        ),
        checks=checks,
        run=_rows(lines, measure),
        plot=Plot(
            x="size",
            ys=tuple(line.column for line in lines),
            log_x=True,
            x_label="nodes n",
            y_label=f"{what}, {unit}",
        ),
    )


FIGURES: Final = {
    "3": ("§1", "Undirected Chord's routing", "undirected Chord's routing"),
    "4": ("§2.3", "The basic and the variant algorithm", ""),
    "6": ("§3.1", "Bit counting", "bit counting"),
    "9": ("§3.2", "Consecutive bit elimination", "the elimination"),
    "10": ("§3.3", "The equivalence class by its loops", ""),
}

HOW_TO_READ: Final[dict[Measure, str]] = {
    "average": (
        "Drawn is the average distance between two nodes by the algorithm, in percent above that by "
        "shortest paths: 0 means that no message takes a detour. Shortest paths are those of a "
        "breadth-first search. The paper prints no numbers with its figure; those of its tables are "
        "the experiments routing-table-1 and routing-table-2."
    ),
    "diameter": (
        "Drawn is how many hops the longest way of the algorithm is longer than the longest shortest "
        "path of the same graph. Negative values cannot occur. The paper prints no numbers with its "
        "figure; those of its tables are the experiments routing-table-1 and routing-table-2."
    ),
}

CHORD: Final = (Line("undirected_chord", "undirected-chord"),)
SIMPLE: Final = (
    Line("basic", "basic", 0, "the neighbor closest to the destination"),
    Line("variant", "variant", 1, "the same, but first a neighbor that links the destination"),
)
BITS: Final = (Line("bit_counting", "bits-table"),)
ELIMINATION: Final = (Line("elimination", "elimination"),)
LOOPS: Final = tuple(
    Line(f"loops_{loops}", "equivalence", loops, f"at most {loops} loops around the ring")
    for loops in range(7)
)

ABOUT_CHORD: Final = (
    "The paper's reason for a routing of its own: what is optimal in undirected Chord, the "
    "non-adjacent form of the shorter way, is so in a binomial graph only at some sizes. It claims "
    "the powers of two and the middle points between them. That is true; there are 24 more sizes to "
    "4096, all sums of two powers of two (17, 18, 20, 34, 36, 40, 68, ...)."
)
ABOUT_SIMPLE: Final = (
    "The basic algorithm sends to the neighbor that is closest to the destination on the ring; the "
    "variant first looks whether some neighbor is linked to the destination."
)
ABOUT_BITS: Final = (
    "Every one bit of the distance is a jump, in the direction that has fewer of them. That cannot "
    "use the links back, and so is the worst of the papers' algorithms."
)
ABOUT_ELIMINATION: Final = (
    "Runs of one bits are turned into one jump ahead and one back, then bits are counted. What is "
    "left of the overhead is that no way may lead around the whole ring. The rule by which the "
    "elimination stops is explained at routing-table-1."
)
ABOUT_LOOPS: Final = (
    "A distance d is as good as d + l·n, that is l loops around the ring and then d. The elimination "
    "is applied to all of them up to some number of loops; without a loop it is that of figure 9. The "
    "paper finds four loops enough below 4096 nodes. They are, and so are three; bmgd-loops shows how "
    "many larger graphs need."
)


def _never_negative(rows: Rows, lines: tuple[Line, ...]) -> bool:
    return all(r[line.column] >= 0 for r in rows for line in lines)


def _zeros(rows: Rows, column: str) -> set[int]:
    return {r["size"] for r in rows if r[column] == 0}


def _largest(rows: Rows, column: str) -> float:
    return float(max(r[column] for r in rows))


NEVER_NEGATIVE: Final = "no algorithm is better than breadth-first search"
POWERS: Final = frozenset(1 << i for i in range(4, 13))
MIDDLES: Final = frozenset(3 << i for i in range(3, 11))

OF_LOOPS: Final = (
    Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, LOOPS)),
    Check(
        "four loops and more are optimal at every size",
        lambda rows: all(r["loops_4"] == r["loops_5"] == r["loops_6"] == 0 for r in rows),
    ),
    Check(
        "three loops are optimal at every size, too",
        lambda rows: all(r["loops_3"] == 0 for r in rows),
    ),
    Check(
        "another loop never makes it worse",
        lambda rows: all(
            r[f"loops_{loops}"] <= r[f"loops_{loops - 1}"] for r in rows for loops in range(1, 7)
        ),
    ),
)

EXPERIMENTS: Final = (
    _figure(
        "3",
        "average",
        CHORD,
        ABOUT_CHORD,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, CHORD)),
            Check(
                "it is optimal at every power of two, and at every middle point between two of them",
                lambda rows: _zeros(rows, "undirected_chord") >= POWERS | MIDDLES,
            ),
            Check(
                "it is optimal at 24 sizes more, all of them sums of two powers of two",
                lambda rows: (
                    len(_zeros(rows, "undirected_chord")) == len(POWERS | MIDDLES) + 24
                    and all(n.bit_count() <= 2 for n in _zeros(rows, "undirected_chord"))
                ),
            ),
        ),
    ),
    _figure(
        "3",
        "diameter",
        CHORD,
        ABOUT_CHORD,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, CHORD)),
            Check(
                "it is 0 at powers of two and the middle points between",
                lambda rows: _zeros(rows, "undirected_chord") >= POWERS | MIDDLES,
            ),
            Check(
                "it reaches 2 hops, first at 1367 nodes, and never more",
                lambda rows: (
                    min(r["size"] for r in rows if r["undirected_chord"] >= 2) == 1367
                    and _largest(rows, "undirected_chord") == 2
                ),
                whole=True,
            ),
        ),
    ),
    _figure(
        "4",
        "average",
        SIMPLE,
        ABOUT_SIMPLE,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, SIMPLE)),
            Check(
                "the variant is nowhere worse than the basic algorithm, and somewhere better",
                lambda rows: (
                    all(r["variant"] <= r["basic"] for r in rows)
                    and any(r["variant"] < r["basic"] for r in rows)
                ),
            ),
            Check(
                "both are optimal at every power of two",
                lambda rows: _zeros(rows, "basic") >= POWERS and _zeros(rows, "variant") >= POWERS,
            ),
        ),
    ),
    _figure(
        "4",
        "diameter",
        SIMPLE,
        ABOUT_SIMPLE,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, SIMPLE)),
            Check(
                "the variant is nowhere worse than the basic algorithm, and neither ever above 2",
                lambda rows: all(r["variant"] <= r["basic"] <= 2 for r in rows),
            ),
        ),
    ),
    _figure(
        "6",
        "average",
        BITS,
        ABOUT_BITS,
        (
            Check(
                "it is optimal at 16, 17, 19, 23, 24 and 31 nodes, and at no other size",
                lambda rows: _zeros(rows, "bit_counting") == {16, 17, 19, 23, 24, 31},
            ),
            Check(
                "it is at most 36.232 %, at 2389 nodes",
                lambda rows: (
                    max(rows, key=lambda r: r["bit_counting"])["size"] == 2389
                    and f"{_largest(rows, 'bit_counting'):.5g}" == "36.232"
                ),
                whole=True,
            ),
        ),
    ),
    _figure(
        "6",
        "diameter",
        BITS,
        ABOUT_BITS,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, BITS)),
            Check(
                "it reaches 5 hops, and never more",
                lambda rows: _largest(rows, "bit_counting") == 5,
                whole=True,
            ),
            Check("it stays at most 5", lambda rows: _largest(rows, "bit_counting") <= 5),
        ),
    ),
    _figure(
        "9",
        "average",
        ELIMINATION,
        ABOUT_ELIMINATION,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, ELIMINATION)),
            Check(
                "it is optimal at every power of two and every middle point between two of them",
                lambda rows: _zeros(rows, "elimination") >= POWERS | MIDDLES,
            ),
            Check(
                "it is optimal at 521 of the 4081 sizes, and at most 4.4315 %, at 2253 nodes",
                lambda rows: (
                    len(_zeros(rows, "elimination")) == 521
                    and max(rows, key=lambda r: r["elimination"])["size"] == 2253
                    and f"{_largest(rows, 'elimination'):.5g}" == "4.4315"
                ),
                whole=True,
            ),
        ),
    ),
    _figure(
        "9",
        "diameter",
        ELIMINATION,
        ABOUT_ELIMINATION,
        (
            Check(NEVER_NEGATIVE, lambda rows: _never_negative(rows, ELIMINATION)),
            Check(
                "it reaches 2 hops at 2389 and 2731 nodes only, and never more",
                lambda rows: (
                    {r["size"] for r in rows if r["elimination"] >= 2} == {2389, 2731}
                    and _largest(rows, "elimination") == 2
                ),
                whole=True,
            ),
            Check("it is at most 2", lambda rows: _largest(rows, "elimination") <= 2),
        ),
    ),
    _figure(
        "10",
        "average",
        LOOPS,
        ABOUT_LOOPS,
        (
            *OF_LOOPS,
            Check(
                "two loops are not optimal at 22 sizes, the first of them 2073",
                lambda rows: (
                    sum(r["loops_2"] > 0 for r in rows) == 22
                    and min(r["size"] for r in rows if r["loops_2"] > 0) == 2073
                ),
                whole=True,
            ),
        ),
    ),
    _figure(
        "10",
        "diameter",
        LOOPS,
        ABOUT_LOOPS,
        (
            *OF_LOOPS,
            Check(
                "for the diameter alone two loops are enough",
                lambda rows: all(r["loops_2"] == 0 for r in rows),
            ),
        ),
    ),
)
