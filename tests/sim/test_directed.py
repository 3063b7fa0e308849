"""Chosen faults, a small set; `python -m benchmarks.directed` runs them all (docs/directed.md)."""

from __future__ import annotations

import pytest

from benchmarks.directed.cases import (
    every_set,
    half_told,
    halves,
    neighborhoods,
    one_way,
    parted,
    random_sets,
    second_deaths,
    silent,
)
from benchmarks.directed.command import Group, run_group

GROUPS = [
    (Group("every set of d-1", 7, every_set, 15.0), 1),
    (Group("every set of d-1", 10, every_set, 15.0), 19),
    (Group("random sets of d-1", 24, random_sets(40), 15.0), 8),
    (Group("neighborhoods", 9, neighborhoods, 15.0), 1),
    (Group("neighborhoods", 33, neighborhoods, 15.0), 11),
    (Group("halves", 16, halves, 15.0), 1),
    (Group("second deaths", 8, second_deaths, 15.0), 37),
    (Group("half-told notices", 9, half_told, 15.0), 2),
    (Group("parted halves", 9, parted, 10.0), 1),
    (Group("parted halves", 20, parted, 10.0), 1),
    (Group("silent nodes", 9, silent, 2.5), 7),
    (Group("one-way cuts", 3, one_way, 10.0), 3),
]


@pytest.mark.parametrize(("group", "every"), GROUPS, ids=[group.key for group, _ in GROUPS])
def test_chosen_faults_end_in_rest(group: Group, every: int) -> None:
    row = run_group(group, every=every)
    assert row["cases"] > 2
    assert row["failures"] == []
