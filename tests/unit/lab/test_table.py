"""Rows as text."""

from __future__ import annotations

import pytest

from bmgd.lab.experiment import Row
from bmgd.lab.table import csv_text, shown, text_table
from tests.unit.lab.sample import sample

ROWS: list[Row] = [
    (i, i * i, i / 3 if i % 2 else None, "odd" if i % 2 else "even") for i in range(9)
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (2 / 3, "0.666667"),
        (1e-9, "1e-09"),
        (2**40, "1099511627776"),
    ],
)
def test_shown_is_what_a_reader_wants(value: float | None, text: str) -> None:
    assert shown(value) == text


def test_text_table_shows_all_rows_that_fit() -> None:
    lines = text_table(sample(), ROWS, most=9)
    assert lines[0].split() == ["root", "square", "[things]", "published", "parity"]
    assert len(lines) == 10
    assert lines[4].split() == ["3", "9", "1", "odd"]


def test_text_table_leaves_out_the_middle_and_counts_it() -> None:
    lines = text_table(sample(), ROWS, most=4)
    assert [line.split()[0] for line in lines] == ["root", "0", "1", "2", "...", "8"]
    assert lines[4] == "... 5 more ..."


def test_text_table_without_rows_has_its_head() -> None:
    assert len(text_table(sample(), [], most=4)) == 1


def test_csv_text_has_numbers_in_full() -> None:
    lines = csv_text(sample(), [(1, 1, 2 / 3, "a, b"), (2, 4, None, "")]).splitlines()
    assert lines == ["root,square,published,parity", '1,1,0.6666666666666666,"a, b"', "2,4,,"]
