"""Rows as text: a table for a terminal, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from bmgd.lab.experiment import Experiment, Row, Value


def shown(value: Value) -> str:
    """A value as a reader wants it: six digits, yes and no, nothing for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return format(value, ".6g")
    return str(value)


def text_table(experiment: Experiment, rows: Sequence[Row], most: int) -> list[str]:
    """The lines of a table, numbers to the right.

    Args:
        experiment: whose columns they are.
        rows: what it yielded.
        most: how many rows are shown; of more, those in the middle are left out, and counted.
    """
    heads = [f"{c.name} [{c.unit}]" if c.unit else c.name for c in experiment.columns]
    cut = len(rows) > most
    first = rows[: most - most // 4] if cut else rows
    last = rows[len(rows) - most // 4 :] if cut else ()
    cells = [[shown(value) for value in row] for row in (*first, *last)]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    left = [any(isinstance(row[i], str) for row in rows) for i in range(len(heads))]

    def line(values: Sequence[str]) -> str:
        return "  ".join(
            f"{value:{'<' if to_left else '>'}{width}}"
            for value, width, to_left in zip(values, widths, left, strict=True)
        ).rstrip()

    lines = [line(heads), *(line(row) for row in cells)]
    if cut:
        lines.insert(1 + len(first), f"... {len(rows) - most} more ...")
    return lines


def csv_text(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The rows as CSV: a line of column names, then one line per row, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(experiment.column_names)
    writer.writerows(rows)
    return text.getvalue()
