"""The commands of benchmarks/ that pages name are there, and nothing else stands beside them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SHARED: Final = {"arbitrary", "commits", "forked", "launched"}
"""What several commands use."""


def pages() -> list[Path]:
    """Every page, and what is read beside the code."""
    named = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run"))
    return [*named, *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "sim" / "planted.toml"]


def commands() -> set[str]:
    """The names of what ``python -m benchmarks.NAME`` runs."""
    rooms = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    files = (ROOT / "benchmarks").glob("*.py")
    return rooms | {path.stem for path in files if 'if __name__ == "__main__"' in path.read_text()}


def test_benchmarks_that_pages_name_can_be_run() -> None:
    texts = (path.read_text(encoding="utf-8") for path in pages())
    named = set(chain(*(re.findall(r"\bpython -m benchmarks\.(\w+)", text) for text in texts)))
    assert {"relay", "cluster", "mutants", "seeds"} <= named
    assert named - commands() == set()


def test_benchmarks_are_each_one_file_or_one_directory() -> None:
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"__init__"}
    rooms = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__init__.py")}
    assert files & rooms == set()
    assert (files | rooms) - commands() <= SHARED


def test_benchmarks_of_a_directory_have_their_command_in_it() -> None:
    for path in (ROOT / "benchmarks").glob("*/__main__.py"):
        assert find_spec(f"benchmarks.{path.parent.name}.command") is not None
