"""The planted bugs: each text stands exactly once where it is said to, and what is planted is met."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from benchmarks.planted.planting import ROOT, Bug, plant, read_bugs

BUGS = read_bugs()


def test_planted_bugs_are_many_and_have_names_of_their_own() -> None:
    names = [bug.name for bug in BUGS]
    assert len(names) == len(set(names)) >= 40


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_fits_its_module(bug: Bug) -> None:
    assert bug.module.startswith(("bmgd.core.", "bmgd.linklayer.", "bmgd.linkevents"))
    source = bug.path.read_text(encoding="utf-8")
    assert bug.breaks
    assert ast.dump(ast.parse(bug.applied_to(source))) != ast.dump(ast.parse(source))


def test_planted_bug_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times"):
        Bug("b", "bmgd.core.node", (("no such text", ""),), "").applied_to("source")


def test_planted_bug_comes_too_late_for_what_was_imported() -> None:
    import bmgd.core.node  # noqa: F401

    with pytest.raises(RuntimeError, match="before the bug"):
        plant(Bug("b", "bmgd.core.node", (), ""))


@pytest.mark.parametrize(
    "name",
    [
        "digest-forgets-to-subtract",
        "accused-timer-outlives-its-link",
        pytest.param("begun-frame-is-lost-with-its-link", marks=pytest.mark.long),
    ],
)
def test_planted_bug_is_found_in_a_process_of_its_own(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks.planted", "--in-process", name, "--seeds", "12"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    row = json.loads(done.stdout)
    assert row["found_by"]
    assert row["passes_by_eye"]
