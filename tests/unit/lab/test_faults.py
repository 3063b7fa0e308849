"""Counts over all sets, and Wilson's interval."""

from __future__ import annotations

from math import comb

import pytest

from bmgd.lab import faults
from bmgd.lab.faults import all_fault_sets, wilson


def test_all_fault_sets_have_as_many_pairs_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "SETS_AT_ONCE", 100)
    told: list[int] = []
    counts = all_fault_sets(13, 9, True, told.append)
    assert counts.disconnected == all_fault_sets(13, 9, False).disconnected > 0
    assert counts.measured <= comb(13, 9)
    assert told == [100, 200, 300, 400, 500]


def test_all_fault_sets_without_the_extension_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_extension = [all_fault_sets(11, failed, True) for failed in range(12)]
    orders = faults.fault_orders(11, 9, 1)
    monkeypatch.setattr(faults, "BACKEND", "python")
    assert [all_fault_sets(11, failed, True) for failed in range(12)] == with_extension
    assert faults.fault_orders(11, 9, 1) == orders


def test_wilson_has_the_published_example() -> None:
    """81 of 263 (Newcombe 1998, method 3): 0.2553 to 0.3662."""
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


def test_wilson_is_open_at_neither_end() -> None:
    low, high = wilson(0, 1000)
    assert low == 0.0
    assert 0.0038 < high < 0.0039
    low, high = wilson(1000, 1000)
    assert high == 1.0
    assert 0.9961 < low < 0.9962
