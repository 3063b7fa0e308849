"""The overhead of an algorithm over many sizes, for the experiments on routing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bmgd.lab.experiment import Run
from bmgd.routing.papers.survey import Overhead, SurveyedAlgorithm, overhead

SIZE_MIN: Final = 16
SIZE_MAX: Final = 4096
EVERY_SIZE: Final = tuple(range(SIZE_MIN, SIZE_MAX + 1))
"""The sizes of the routing paper."""

PART: Final = 256
"""How many sizes are kept at once for an interrupted run."""


def sizes_of(run: Run) -> tuple[int, ...]:
    """The routing paper's sizes; of a quick run the small ones, every 37th, and all special ones.

    Special are powers of two, the sums of two and the sizes next to these, where figures turn.
    """
    if not run.quick:
        return EVERY_SIZE
    special = {(1 << i) + (1 << j) + k for i in range(13) for j in range(i + 1) for k in (-1, 0, 1)}
    special |= set(range(SIZE_MIN, 128)) | set(range(SIZE_MIN, SIZE_MAX, 37))
    return tuple(n for n in EVERY_SIZE if n in special)


def overheads(
    run: Run,
    sizes: Sequence[int],
    algorithm: SurveyedAlgorithm,
    depth: int = 0,
    place: tuple[int, int] = (0, 1),
) -> Iterator[tuple[int, Overhead]]:
    """The overhead at each size.

    Args:
        run: takes the progress, and keeps the results.
        sizes: which; ascending.
        algorithm, depth: as `bmgd.routing.papers.survey.overhead`.
        place: which of how many such surveys of one experiment this is, for the progress.
    """
    which, surveys = place
    total = sum(sizes)
    done = 0
    for start in range(0, len(sizes), PART):
        part = sizes[start : start + PART]

        def measure(part: Sequence[int] = part, before: int = done) -> list[list[float]]:
            found: list[list[float]] = []
            for n in part:
                found.append(list(overhead(n, algorithm, depth)))
                before += n
                run.progress(which + before / total, surveys, f"{algorithm}, N = {n}")
            return found

        key = f"{algorithm} {depth}: {len(sizes)} sizes, {part[0]}..{part[-1]}"
        for n, (average, printed, diameter) in zip(part, run.resumed(key, measure), strict=True):
            yield n, Overhead(average, printed, int(diameter))
        done += sum(part)
