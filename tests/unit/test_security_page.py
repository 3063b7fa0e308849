"""Every row of the table in SECURITY.md promises something and names what shows it: these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


def rows() -> list[list[str]]:
    """The cells of the table, without its head."""
    found = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in found[2:]]


def test_security_page_names_a_test_for_every_promise() -> None:
    assert len(rows()) >= 13
    for actor, _, promised, _, shown in rows():
        assert promised, actor
        assert re.search(r"`(tests/[\w/.]+|test_\w+|benchmarks/[\w/.]+)`", shown), actor


def test_security_page_names_tests_that_exist() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", PAGE)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    tests = re.findall(r"`(test_\w+)`", PAGE)
    assert [name for name in tests if f"def {name}(" not in sources] == []
