"""How many distances take how many hops, by each of the papers' algorithms.

Everything that the papers draw of an algorithm (average distance, diameter, their overheads) follows
from these counts. In C where the extension was built, else by the modules beside this one, which is
some hundred times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

from bmgd.errors import GraphError
from bmgd.routing import backend
from bmgd.routing.papers import (
    basic,
    bit_counting,
    bit_elimination,
    equivalence_class,
    undirected_chord,
    variant,
)
from bmgd.topology.levels import ranks_per_level

SurveyedAlgorithm = Literal[
    "basic", "variant", "bits-table", "elimination", "equivalence", "undirected-chord"
]

ALGORITHMS: Final[tuple[SurveyedAlgorithm, ...]] = get_args(SurveyedAlgorithm)

SURVEYED_SIZE_MAX: Final = 2**24
"""The largest size that is counted; by the faster algorithms in about a second."""

_REFERENCE: Final[dict[SurveyedAlgorithm, Callable[[int, int, int], int]]] = {
    "basic": lambda n, d, _: basic.hop_count(n, d),
    "variant": variant.hop_count,
    "bits-table": lambda n, d, _: bit_counting.hop_count(n, d),
    "elimination": lambda n, d, _: bit_elimination.hop_count(n, d),
    "equivalence": equivalence_class.hop_count,
    "undirected-chord": lambda n, d, _: undirected_chord.hop_count(n, d),
}


def hop_counts(n: int, algorithm: SurveyedAlgorithm, depth: int = 0) -> tuple[int, ...]:
    """How many of the distances 0..n-1 take 0, 1, 2, ... hops.

    Args:
        n: the size of the graph, 2..2**24.
        algorithm: by which.
        depth: the levels of `variant`, 0..3, or the loops of `equivalence`, 0..64.

    Returns:
        One number per number of hops, up to the most hops of any distance.

    Raises:
        GraphError: n is out of its range, or a message goes in circles.

    O(n) times the cost of the algorithm.
    """
    if not 2 <= n <= SURVEYED_SIZE_MAX:
        raise GraphError(f"size {n} is not within 2..{SURVEYED_SIZE_MAX}")
    if backend.BACKEND == "c":
        from bmgd import _labroutes

        return _labroutes.paper_hop_counts(n, algorithm, depth)
    return counted(n, algorithm, depth)


class Overhead(NamedTuple):
    """What an algorithm costs more than shortest paths, over all pairs of ranks of one size.

    Args:
        average: its average distance beyond the optimal one, in percent of that.
        printed_average: the same from average distances of six digits, as a program that prints
            them by default would write them to a file: the papers' maxima come from such numbers.
        diameter: its most hops beyond the optimal diameter.
    """

    average: float
    printed_average: float
    diameter: int


def overhead(n: int, algorithm: SurveyedAlgorithm, depth: int = 0) -> Overhead:
    """The overhead at one size, against breadth-first search; arguments and errors as `hop_counts`.

    Source: Routing §1, figure 3, for the definition.
    """
    optimal, found = ranks_per_level(n), hop_counts(n, algorithm, depth)
    least, average = _mean(optimal), _mean(found)
    return Overhead(
        100 * (average / least - 1),
        100 * (_printed(average) / _printed(least) - 1),
        len(found) - len(optimal),
    )


def _mean(counts: tuple[int, ...]) -> float:
    """The average distance to another rank, equation (2)."""
    return sum(hops * count for hops, count in enumerate(counts)) / (sum(counts) - 1)


def _printed(number: float) -> float:
    return float(f"{number:.6g}")


def counted(n: int, algorithm: SurveyedAlgorithm, depth: int = 0) -> tuple[int, ...]:
    """The same by the reference, whatever the extension."""
    hop_count = _REFERENCE[algorithm]
    counts = [0] * 65
    for d in range(n):
        counts[hop_count(n, d, depth)] += 1
    while not counts[-1]:
        counts.pop()
    return tuple(counts)


def loops_needed(n: int, first: int, last: int) -> tuple[int, int]:
    """How many loops around the ring the lightest walks of some distances need.

    Args:
        n: the size of the graph, 2..2**31.
        first, last: the distances, both included; 1..n-1.

    Returns:
        The most loops, and the first distance that needs so many.

    Raises:
        GraphError: a number is out of its range, or there is no distance.

    O((last - first) * log n). Source: Routing §3.3.
    """
    if backend.BACKEND == "c":
        from bmgd import _labroutes

        return _labroutes.paper_loops(n, first, last)
    if not 1 <= first <= last < n:
        raise GraphError(f"distances {first}..{last} are not within 1..{n - 1}")
    loops, distance = max(
        (equivalence_class.loops_needed(n, d), -d) for d in range(first, last + 1)
    )
    return loops, -distance
