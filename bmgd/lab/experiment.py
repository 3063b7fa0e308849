"""What an experiment is: data about itself, a generator of rows, and checks on the rows.

An experiment regenerates one table or figure, or measures what a paper claims in its text. Its rows
are the whole truth: the table, the CSV, the plot and the checks are all made from them. A value that
the paper prints stands in a column `published` (None where it prints none) beside the measured one.
A check states what is *true*, not what the paper wishes: where a claim is refuted, the check says
what holds instead, and docs/findings.md has the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from bmgd.errors import InvariantError

Value = int | float | str | bool | None
Row = tuple[Value, ...]
Rows = Sequence[Mapping[str, Any]]
"""The rows as the checks see them: each a mapping from the columns' names."""

T = TypeVar("T")

PAPERS: Final = {
    "ISPA07": "Binomial Graph: A Scalable and Fault-Tolerant Logical Network Topology",
    "Routing": "Optimal Routing in Binomial Graph Networks",
    "Healing": "Self-Healing in Binomial Graph Networks",
    "HDN": "Hierarchical Dual-Net",
    "bmgd": "Beyond the papers",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        name: a snake_case identifier, unique in its experiment.
        unit: of its numbers, such as ``%`` or ``hops``; "" for none.
        text: what it is, for a reader of the report.
    """

    name: str
    unit: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """What must be true of the rows.

    Args:
        text: what is checked, in words.
        holds: the test on the rows.
        whole: it needs the whole range: a quick run does not try it, and says so.
    """

    text: str
    holds: Callable[[Rows], bool]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """How the rows are drawn.

    Args:
        x: the column along the horizontal axis; text there makes categories.
        ys: the columns drawn; rows without a value leave their point out.
        by: the column whose values make lines of their own; None for none.
        kind: how; `published` is always drawn as hollow points.
        log_x, log_y: a logarithmic axis; what is not above 0 is left out.
        x_label, y_label: the axes' names; "" takes the columns'.
        where: draw only the rows that have this value in this column; None draws all.
    """

    x: str
    ys: tuple[str, ...]
    by: str | None = None
    kind: Literal["line", "bar", "scatter"] = "line"
    log_x: bool = False
    log_y: bool = False
    x_label: str = ""
    y_label: str = ""
    where: tuple[str, Value] | None = None


class Run:
    """One run of one experiment, as its generator sees it.

    Args:
        quick: smaller ranges; the same columns and checks.
        kept: results of slow parts by key, from an interrupted run.
        keep: takes each new result; None keeps nothing.
        tell: takes each report of progress; None drops it.
    """

    def __init__(
        self,
        quick: bool,
        kept: Mapping[str, Any] | None = None,
        keep: Callable[[str, Any], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.quick = quick
        self._kept = dict(kept or {})
        self._keep = keep
        self._tell = tell

    def progress(self, done: float, total: float, what: str = "") -> None:
        """Say how far it is; cheap, so call it as often as you like.

        Args:
            done, total: in any unit, such as sizes or fault sets; `total` above 0.
            what: what is worked on, such as ``N = 24, 12 failed``.
        """
        if self._tell is not None:
            self._tell(f"{100 * done / total:3.0f} %  {what}".rstrip())

    def resumed(self, key: str, compute: Callable[[], T]) -> T:
        """The result of a slow part, computed once even if the run is interrupted.

        Args:
            key: names the part, and everything that its result depends on.
            compute: makes the result: what JSON can hold, with lists and not tuples.

        Returns:
            The result.

        Raises:
            InvariantError: JSON gives something else back; a tuple, or a key that is no text.
        """
        if key not in self._kept:
            result = compute()
            if json.loads(json.dumps(result)) != result:
                raise InvariantError(f"the result {key!r} does not survive JSON")
            self._kept[key] = result
            if self._keep is not None:
                self._keep(key, result)
        found: T = self._kept[key]
        return found


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment.

    Args:
        name: paper, kind and number, such as ``routing-table-1``; beyond the papers a subject.
        paper: a key of `PAPERS`.
        section: where in the paper, such as ``§3.3, table 1``.
        title: one line, for a reader who knows only the abstract.
        explanation: a paragraph, or several parted by empty lines: what is drawn, how to read it,
            what it checks, where it differs from the paper and why.
        columns: in the order of the rows' values.
        checks: what must be true of the rows.
        run: yields the rows.
        plot: how they are drawn; None for a table only.
        alone: it measures time, so nothing may run beside it.
    """

    name: str
    paper: str
    section: str
    title: str
    explanation: str
    columns: tuple[Column, ...]
    checks: tuple[Check, ...]
    run: Callable[[Run], Iterator[Row]]
    plot: Plot | None = None
    alone: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.columns)

    def named(self, rows: Sequence[Row]) -> list[dict[str, Value]]:
        """The rows as mappings from the columns' names.

        Raises:
            InvariantError: a row has not one value per column.
        """
        names = self.column_names
        for row in rows:
            if len(row) != len(names):
                raise InvariantError(f"{self.name}: {len(row)} values for {len(names)} columns")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def describe(self) -> dict[str, Any]:
        """Itself as JSON can hold it, for `bmgd lab list --json`."""
        return {
            "name": self.name,
            "paper": self.paper,
            "section": self.section,
            "title": self.title,
            "explanation": self.explanation,
            "columns": [
                {"name": column.name, "unit": column.unit, "text": column.text}
                for column in self.columns
            ],
            "checks": [check.text for check in self.checks],
        }
