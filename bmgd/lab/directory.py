"""The directory of a run: a CSV file and a plot per experiment, the report, and what is unfinished."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bmgd.errors import ConfigError
from bmgd.lab.experiment import Experiment
from bmgd.lab.journal import journal_of
from bmgd.lab.outcome import Outcome
from bmgd.lab.report import page
from bmgd.lab.svg import draw
from bmgd.lab.table import csv_text

UNFINISHED: Final = "unfinished"


class Directory:
    """Where a run writes.

    Args:
        path: the directory; made where it is missing.

    Raises:
        ConfigError: it cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / UNFINISHED).mkdir(exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {path}: {error.strerror}") from error

    @property
    def journals(self) -> Path:
        """What an interrupted run leaves, for the next one."""
        return self._path / UNFINISHED

    def add(self, experiment: Experiment, outcome: Outcome) -> None:
        """Write the files of one experiment; nothing for one without rows.

        Raises:
            ConfigError: a file cannot be written.
        """
        if outcome.error:
            return
        self._write(f"{experiment.name}.csv", csv_text(experiment, outcome.rows))
        if experiment.plot is not None:
            drawn = draw(experiment, experiment.named(outcome.rows))
            self._write(f"{experiment.name}.svg", drawn)

    def finish(self, pairs: Sequence[tuple[Experiment, Outcome]]) -> Path:
        """Write the report and forget what was unfinished of these; with an error in one, nothing.

        What other runs have not finished stays.

        Returns:
            The report's file.

        Raises:
            ConfigError: it cannot be written; nothing is forgotten then.
        """
        self._write("index.html", page(pairs))
        if not any(outcome.error for _, outcome in pairs):
            for experiment, _ in pairs:
                journal_of(self.journals, experiment.name).unlink(missing_ok=True)
            with suppress(OSError):
                self.journals.rmdir()
        return self._path / "index.html"

    def _write(self, name: str, text: str) -> None:
        path = self._path / name
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write to {path}: {error.strerror}") from error
