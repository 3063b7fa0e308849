"""Sets of ids as runs: a million ids that follow each other cost as much as one.

A `Runs` is also a sorted sequence of its ids, so it serves wherever the ids outside a layout are asked
for one by one (`ranks.py`); `pairs` are what `Snapshot.of_runs` takes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import overload


class Runs(Sequence[int]):
    """A set of ids, kept as sorted runs that do not touch.

    Args:
        pairs: (first, last) of each run, in any order, overlapping or not.
    """

    __slots__ = ("_before", "_ends", "_starts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] | None = None
        for first, last in pairs:
            self.add(first, last)

    def copy(self) -> Runs:
        """Another set of the same ids. O(runs)."""
        return Runs(self.pairs)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(first, last) of each run, ascending."""
        return [(start, end - 1) for start, end in zip(self._starts, self._ends, strict=True)]

    @property
    def run_count(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    def __len__(self) -> int:
        return self._sums()[-1]

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int):
            return False
        at = bisect_right(self._starts, item) - 1
        return at >= 0 and item < self._ends[at]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(map(range, self._starts, self._ends))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Runs):
            return self._starts == other._starts and self._ends == other._ends
        if isinstance(other, Sequence):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        """The id at a position. O(log(runs)) for one."""
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        sums = self._sums()
        if not 0 <= at < sums[-1]:
            raise IndexError("no id at that position")
        run = bisect_right(sums, at) - 1
        return self._starts[run] + at - sums[run]

    def _sums(self) -> list[int]:
        """How many ids are in the runs before each, and in all."""
        if self._before is None:
            lengths = (e - s for s, e in zip(self._starts, self._ends, strict=True))
            self._before = list(accumulate(lengths, initial=0))
        return self._before

    def add(self, first: int, last: int) -> None:
        """Enter the ids first..last, last included. O(runs)."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, last + 1)
        start, end = first, last + 1
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]
        self._before = None

    def discard(self, item: int) -> None:
        """Take out one id, if it is there. O(runs)."""
        at = bisect_right(self._starts, item) - 1
        if at < 0 or item >= self._ends[at]:
            return
        start, end = self._starts[at], self._ends[at]
        left = [(s, e) for s, e in ((start, item), (item + 1, end)) if s < e]
        self._starts[at : at + 1] = [s for s, _ in left]
        self._ends[at : at + 1] = [e for _, e in left]
        self._before = None

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts (first, last) of the runs between two ids, both included."""
        low, high = bisect_right(self._ends, first), bisect_right(self._starts, last)
        return [
            (max(self._starts[i], first), min(self._ends[i] - 1, last)) for i in range(low, high)
        ]

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The runs (first, last) of the ids between two, both included, that are not in this set."""
        gaps, at = [], first
        for start, end in self.within(first, last):
            if at < start:
                gaps.append((at, start - 1))
            at = end + 1
        if at <= last:
            gaps.append((at, last))
        return gaps
