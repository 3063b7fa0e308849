"""Mutants: what the operators change, and what they leave alone."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from benchmarks.mutants import mutating
from benchmarks.mutants.command import modules, sample
from benchmarks.mutants.mutating import mutants_of

SOURCE = textwrap.dedent(
    '''
    """A module."""
    LIMIT = 3

    class Thing:
        payload: bytes = field(repr=False)

        def move(self, a: int, b: int) -> None:
            """Words with 7 in them."""
            if a < b and self.ready:
                self.count += min(a, b)
            else:
                self.give(a, b)
            self.context.observe("moved", a)
            while not a:
                del self.table[a]
            if not b:
                raise ValueError("no b < 3")
    '''
)


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    monkeypatch.setattr(mutating, "ROOT", tmp_path)
    (tmp_path / "thing.py").write_text(SOURCE, encoding="utf-8")
    return [(m.operator, m.applied_to(SOURCE)) for m in mutants_of("thing")]


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("constant", "LIMIT = 4"),
        ("boundary", "if a <= b and self.ready:"),
        ("condition", "if not (a < b and self.ready):"),
        ("condition", "if a < b and True:"),
        ("extreme", "self.count += max(a, b)"),
        ("arguments", "self.give(b, a)"),
        ("variable", "if b < b and self.ready:"),
        ("statement", "while not a:\n            pass"),
        ("condition", "while not not a:"),
        ("return", "def move(self, a: int, b: int) -> None:\n        return"),
    ],
)
def test_mutants_have_each_operator(
    changes: list[tuple[str, str]], operator: str, text: str
) -> None:
    assert any(kind == operator and text in source for kind, source in changes)


def test_mutants_leave_words_for_people_alone(changes: list[tuple[str, str]]) -> None:
    for _, source in changes:
        if "def move(self, a: int, b: int) -> None:\n        return" not in source:
            assert "no b < 3" in source
            assert "self.context.observe('moved', a)" in source
            assert "field(repr=False)" in source


def test_mutants_are_all_different_from_their_module(changes: list[tuple[str, str]]) -> None:
    plain = ast.unparse(ast.parse(SOURCE))
    assert len(changes) > 15
    assert all(source != plain for _, source in changes)


def test_sample_is_even_over_the_modules_and_the_same_each_time() -> None:
    chosen = sample(len(modules()) * 2)
    assert [m.name for m in chosen] == [m.name for m in sample(len(modules()) * 2)]
    assert {m.module for m in chosen} == {module for module in modules() if mutants_of(module)}
