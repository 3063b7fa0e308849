"""docs/findings.md: every claim has a verdict, and what is said to show it exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from bmgd.lab.registry import experiments

ROOT: Final = Path(__file__).parents[3]
VERDICTS: Final = {"confirmed", "confirmed in a range", "refuted"}


def rows() -> list[list[str]]:
    """The cells of every claim."""
    found = []
    for line in (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| claim ")):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            found.append([cell.strip() for cell in cells])
    return found


def test_findings_are_there() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:50])
def test_finding_has_a_verdict_and_what_shows_it(row: list[str]) -> None:
    claim, verdict, finding, shown_by = row
    assert claim
    assert finding
    assert verdict in VERDICTS
    names = re.findall(r"`([^`]+)`", shown_by)
    assert names
    for name in names:
        exists = (ROOT / name).exists() or name.startswith("python -m benchmarks.")
        assert name in experiments() or exists, name
