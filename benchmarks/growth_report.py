"""The page docs/growth.md: tables between its markers, and the plots beside the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "growth.md"
Row = dict[str, Any]


def write_report(rows: Sequence[Row], page: Path) -> None:
    """."""
