"""The figures of `bmgd bench`."""

from __future__ import annotations

import pytest

from bmgd.cli.bench_parts import percentile


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [
        *((1, 50, 1), (4, 50, 2), (5, 50, 3), (61, 50, 31)),
        *((1, 99, 1), (20, 99, 20), (60, 99, 60), (100, 99, 99), (640, 99, 634)),
    ],
)
def test_percentile_is_the_least_value_that_so_many_percent_do_not_pass(
    count: int, percent: int, rank: int
) -> None:
    assert percentile(range(count, 0, -1), percent) == rank
