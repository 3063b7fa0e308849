"""Small experiments for the tests of the laboratory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from bmgd.lab.experiment import Check, Column, Experiment, Plot, Row, Run


def squares(run: Run) -> Iterator[Row]:
    for i in range(1, 4 if run.quick else 9):
        yield i, i * i, float(i * i) if i % 2 else None, "odd" if i % 2 else "even"


def ends_at_once(run: Run) -> Iterator[Row]:
    yield from squares(run)
    os._exit(7)


def sample(
    name: str = "sample",
    run: Callable[[Run], Iterator[Row]] = squares,
    plot: Plot | None = None,
    alone: bool = False,
    least: int = 1,
) -> Experiment:
    """An experiment of squares, whose first check wants each to be at least `least`."""
    return Experiment(
        name=name,
        paper="bmgd",
        section="§0",
        title="Squares & <their> roots",
        explanation="One paragraph.\n\nAnother.",
        columns=(
            Column("root"),
            Column("square", "things", "the root times itself"),
            Column("published"),
            Column("parity"),
        ),
        checks=(
            Check(f"squares are at least {least}", lambda rows: rows[0]["square"] >= least),
            Check("eight rows", lambda rows: len(rows) == 8, whole=True),
        ),
        run=run,
        plot=plot,
        alone=alone,
    )
