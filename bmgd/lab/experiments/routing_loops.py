"""How many loops around the ring shortest paths need: beyond Routing figure 10."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Rows, Run
from bmgd.routing.papers.survey import loops_needed
from bmgd.topology import diameter_bound

EVERY_SIZE_TO: Final = 4096
SEARCHED_TO: Final = 2**24
QUICK_SEARCHED_TO: Final = 2**18
"""To here all distances are tried; beyond, chosen ones."""

SIZES_PER_POWER: Final = 12
CHOSEN_DISTANCES: Final = 40_000
QUICK_CHOSEN_DISTANCES: Final = 1_500
LOOPS_TRIED: Final = 14
SEED: Final = 310


def sample_sizes() -> list[int]:
    """Sizes above 4096, ascending: the one of the findings, random ones, powers of two and besides."""
    random = Random(SEED)
    sizes = {16_728, 16_729, 34_631, 2**31}
    for exponent in range(12, 31):
        low = 1 << exponent
        sizes |= {random.randrange(low + 1, 2 * low) for _ in range(SIZES_PER_POWER)}
        sizes |= {2 * low - 1, 2 * low, low + 1}
    return sorted(size for size in sizes if size > EVERY_SIZE_TO)


def chosen_distances(n: int, count: int) -> Iterator[int]:
    """Distances that are near, by few jumps, after some loops: where a loop can be worth its price.

    A walk of l loops has about l * n / 2**K jumps of 2**K, the longest. It is the lightest of its
    distance only if few other jumps complete it, so those are what is drawn.
    """
    random = Random(n)
    top = n.bit_length() - 1
    for _ in range(count):
        loops = random.randint(1, LOOPS_TRIED)
        longest_jumps = (loops * n >> top) + random.randint(0, 1 + (n >> top))
        length = longest_jumps << top
        for _ in range(random.randint(0, 4)):
            length += random.choice((1, -1)) << random.randrange(top)
        if 0 < length - loops * n < n:
            yield length - loops * n


def by_chosen(n: int, count: int) -> tuple[int, int]:
    """The most loops that one of the chosen distances needs, and the first distance that does."""
    most, at = 0, 1
    for distance in chosen_distances(n, count):
        loops, _ = loops_needed(n, distance, distance)
        if loops > most:
            most, at = loops, distance
    return most, at


def _listed(n: int, count: int) -> list[int]:
    return list(by_chosen(n, count))


def _loops(run: Run) -> Iterator[Row]:
    for n in range(2, EVERY_SIZE_TO + 1):
        # The way back needs as many as the way there.
        yield n, *loops_needed(n, 1, max(1, n // 2)), "every distance", None
    sizes = sample_sizes()
    count = QUICK_CHOSEN_DISTANCES if run.quick else CHOSEN_DISTANCES
    for done, n in enumerate(sizes):
        run.progress(done, len(sizes), f"N = {n}")
        chosen, at = run.resumed(f"chosen {n}", partial(_listed, n, count))
        if n <= (QUICK_SEARCHED_TO if run.quick else SEARCHED_TO):
            yield n, *loops_needed(n, 1, n // 2), "every distance", chosen
        else:
            yield n, chosen, at, "chosen distances", chosen


def _first_size(rows: Rows, loops: int) -> int:
    return min(int(r["size"]) for r in rows if r["loops"] >= loops)


def _chosen_find_nearly_all(rows: Rows) -> bool:
    both = [
        r for r in rows if r["tried"] == "every distance" and r["by_chosen_distances"] is not None
    ]
    missed = [r["loops"] - r["by_chosen_distances"] for r in both]
    return set(missed) <= {0, 1} and sum(missed) <= len(both) / 20


EXPERIMENTS: Final = (
    Experiment(
        name="bmgd-loops",
        paper="bmgd",
        section="Routing §3.3, figure 10, continued",
        title="How many loops around the ring a shortest path can need",
        explanation=(
            "A message of distance d may as well travel d + l·n: l times around the ring and then d. "
            "Routing's equivalence class method tries l up to 4. Drawn is, for each size, the smallest l "
            "with which every distance gets a shortest path: the most that any distance needs.\n\n"
            "Every size to 4096 is tried with every distance, and so are the samples to 2^24. Beyond "
            "that the distances are chosen: those that a few jumps reach after some loops. What such a "
            "search finds is needed; that no more is needed it does not show. Where both were done the "
            "last column tells what the chosen distances alone find.\n\n"
            "The number grows with the size, so bmgd has no fixed one: it tries loops outwards until "
            "their longest jumps alone weigh as much as the best way found."
        ),
        columns=(
            Column("size", "nodes", "n"),
            Column("loops", "", "the smallest l that is optimal for all distances tried"),
            Column("distance", "ranks", "the first that needs so many"),
            Column("tried", "", "which distances"),
            Column("by_chosen_distances", "", "the l that chosen distances alone find"),
        ),
        checks=(
            Check(
                "to 4096 nodes three loops suffice, one fewer than the paper takes",
                lambda rows: max(r["loops"] for r in rows if r["size"] <= EVERY_SIZE_TO) == 3,
            ),
            Check(
                "one loop is first needed at 35 nodes, two at 269, three at 2073",
                lambda rows: [_first_size(rows, loops) for loops in (1, 2, 3)] == [35, 269, 2073],
            ),
            Check(
                "at 34,631 nodes four loops are not enough",
                lambda rows: [r["loops"] for r in rows if r["size"] == 34_631] == [5],
            ),
            Check(
                "some size needs at least eight loops",
                lambda rows: max(r["loops"] for r in rows) >= 8,
            ),
            Check(
                "no size needs as many loops as the bound of its diameter has hops",
                lambda rows: all(
                    r["loops"] < diameter_bound(r["size"]) for r in rows if r["size"] > 2
                ),
            ),
            Check(
                "a power of two needs none",
                lambda rows: all(r["loops"] == 0 for r in rows if r["size"].bit_count() == 1),
            ),
            Check(
                "where every distance was tried, the chosen ones alone miss at most one loop, and "
                "none at 19 of 20 sizes",
                _chosen_find_nearly_all,
                whole=True,
            ),
        ),
        run=_loops,
        plot=Plot(
            x="size",
            ys=("loops",),
            by="tried",
            kind="scatter",
            log_x=True,
            x_label="nodes n",
            y_label="loops needed",
        ),
    ),
)
