"""An interrupted run goes on where it was, and never with results of something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmgd.lab import journal
from bmgd.lab.journal import Journal


def test_journal_gives_back_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.jsonl"
    first = Journal(path, quick=True)
    first.keep("one", [1, 2.5, None, "x"])
    first.keep("two", {"a": 1})
    assert Journal(path, quick=True).kept == {"one": [1, 2.5, None, "x"], "two": {"a": 1}}


def test_journal_of_another_kind_of_run_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path, quick=True).keep("one", 1)
    whole = Journal(path, quick=False)
    assert whole.kept == {}
    whole.keep("two", 2)
    assert Journal(path, quick=False).kept == {"two": 2}


def test_journal_of_other_code_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path, quick=True).keep("one", 1)
    monkeypatch.setattr(journal, "code_digest", lambda: "other")
    assert Journal(path, quick=True).kept == {}


@pytest.mark.parametrize("cut", range(1, 12))
def test_journal_survives_a_line_cut_off_anywhere(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.jsonl"
    first = Journal(path, quick=True)
    first.keep("one", 1)
    first.keep("two", 22)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path, quick=True)
    assert again.kept == {"one": 1}
    again.keep("three", 3)
    assert Journal(path, quick=True).kept == {"one": 1, "three": 3}


def test_journal_cut_off_in_its_first_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path, quick=True).keep("one", 1)
    path.write_bytes(path.read_bytes()[:9])
    assert Journal(path, quick=True).kept == {}
