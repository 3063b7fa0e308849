"""The page docs/c-mutants.md: what the mutants that have been tried show."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "results" / "c-mutants.jsonl"
EXPLAINED: Final = ROOT / "docs" / "mutants-explained.toml"

Row = dict[str, Any]
Place = tuple[str, int, str]
"""The file, the line and the change of a mutant: what an explanation names it by."""


def read_rows() -> dict[str, Row]:
    """The results until now, by the mutant's name."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def read_explained() -> dict[Place, str]:
    """Why no run can tell a mutant from the original."""
    table = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("c_mutant", [])
    return {place_of(row): row["why"] for row in table}


def place_of(row: Row) -> Place:
    """Where a mutant is, and what it changes."""
    return row["file"], row["line"], row["change"]


def is_survivor(row: Row) -> bool:
    """Whether a mutant compiles, and nothing found it."""
    return row["compiles"] and not row["killed"]


def report(count: int) -> str:
    """The results as a page of the documentation.

    Args:
        count: how many mutants the whole sample has.
    """
    explained = read_explained()
    rows = [row for row in read_rows().values() if row["compiles"]]
    alive = [row for row in rows if is_survivor(row)]
    known = sum(place_of(row) in explained for row in alive)
    found = len(rows) - len(alive)
    lines = [
        "# Mutants of the C code",
        "",
        "Small changes of tokens (`benchmarks/c_mutants/mutating.py`), sampled evenly over the files of",
        "the daemon's extensions; `python -m benchmarks.c_mutants` tries them and writes this page.",
        "",
        f"**{len(rows)} of the {count} mutants of the sample have been tried**; it goes from file to",
        "file, so those are spread evenly too.",
        "",
        f"{found} ({_share(found, len(rows))}) are found. Of the {len(alive)} others {known} cannot be",
        "told from the original by any run, as explained below: of those that can be told",
        f"{_share(found, len(rows) - known)} are found.",
        "",
        "| survivor | operator | change | why |",
        "|---|---|---|---|",
    ]
    for row in alive:
        change = row["change"].replace("|", "\\|")
        why = explained.get(place_of(row), "not explained")
        lines.append(f"| {row['file']}:{row['line']} | {row['operator']} | `{change}` | {why} |")
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"
