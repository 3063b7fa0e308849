"""The experiments themselves: a quick run of each yields its columns, and its checks hold.

Those in `SLOW` take longer than a second or measure time; `bmgd lab run all --quick` runs them too.
"""

from __future__ import annotations

from typing import Final

import pytest

from bmgd.lab.execution import Order, perform
from bmgd.lab.experiment import Experiment
from bmgd.lab.registry import experiments
from bmgd.lab.svg import draw

SLOW: Final = {
    "bmgd-loops",
    "hdn-figure-9",
    "hdn-table-1",
    "hdn-table-3",
    "hdn-theorem-2",
    "healing-figure-2a",
    "healing-figure-2b",
    "healing-figure-2c",
    "healing-figure-3b",
    "healing-figure-5b",
    "healing-figure-6a",
    "healing-figure-6c",
    "healing-section-3-2",
    "ispa07-figure-2c",
    "ispa07-figure-4a",
    "ispa07-figure-4b",
    "ispa07-figure-4c",
    "ispa07-figure-5a",
    "ispa07-figure-5b",
    "ispa07-figure-7",
    "reliability-first-break",
    "reliability-random",
    "routing-figure-10a",
    "routing-figure-10b",
    "routing-figure-11",
    "routing-load-spreading",
    "routing-quality-of-service",
    "routing-table-1",
    "routing-table-2",
}

FAST: Final = [each for name, each in experiments().items() if name not in SLOW]


def test_slow_experiments_are_registered() -> None:
    assert set(experiments()) >= SLOW


@pytest.mark.parametrize("experiment", FAST, ids=lambda each: each.name)
def test_experiment_yields_its_columns_and_its_checks_hold(experiment: Experiment) -> None:
    outcome = perform(experiment, Order(quick=True))
    assert outcome.rows
    assert all(isinstance(v, int | float | str | None) for row in outcome.rows for v in row)
    verdicts = zip(experiment.checks, outcome.verdicts, strict=True)
    assert [check.text for check, verdict in verdicts if verdict == "fails"] == []
    assert "holds" in outcome.verdicts
    if experiment.plot is not None:
        assert "no values to draw" not in draw(experiment, experiment.named(outcome.rows))
