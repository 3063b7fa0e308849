"""What came of an experiment: its rows, and whether its checks hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bmgd.lab.experiment import Experiment, Row, Value

Verdict = Literal["holds", "fails", "not checked"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one experiment.

    Args:
        name: the experiment's.
        quick: whether it was a quick run.
        seconds: how long it took; what an interrupted run has spent is not in it.
        rows: what it yielded; named by the experiment's columns.
        verdicts: one per check, in order.
        error: why there is nothing, "" if there is.
    """

    name: str
    quick: bool
    seconds: float
    rows: tuple[Row, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ended and no check fails."""
        return not self.error and "fails" not in self.verdicts

    def describe(self, experiment: Experiment) -> dict[str, Any]:
        """Itself as JSON can hold it, for `bmgd lab run --json`."""
        found: dict[str, Any] = {
            "name": self.name,
            "paper": experiment.paper,
            "section": experiment.section,
            "quick": self.quick,
            "seconds": round(self.seconds, 3),
            "passed": self.passed,
            "columns": list(experiment.column_names),
            "rows": experiment.named(self.rows),
            "checks": [
                {"text": check.text, "verdict": verdict}
                for check, verdict in zip(experiment.checks, self.verdicts, strict=False)
            ],
        }
        return found | ({"error": self.error} if self.error else {})


def judge(experiment: Experiment, rows: Sequence[Row], quick: bool) -> tuple[Verdict, ...]:
    """Put every check of an experiment to its rows."""
    named: list[dict[str, Value]] = experiment.named(rows)

    def verdict(whole: bool, holds: bool) -> Verdict:
        if whole and quick:
            return "not checked"
        return "holds" if holds else "fails"

    return tuple(
        verdict(check.whole, (check.whole and quick) or check.holds(named))
        for check in experiment.checks
    )
