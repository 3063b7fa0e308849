"""Mutants: which runs come to a change, and how it is put into a module that is loaded."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.mutants import mutating, reached
from benchmarks.mutants.mutating import Mutant, mutants_of
from benchmarks.mutants.reached import Reached, Tracer
from benchmarks.mutants.replacing import replace_code

NAME = "reached_thing"
SOURCE = textwrap.dedent(
    '''
    """A module."""
    LIMIT = 3

    def early(number: int) -> int:
        return number + 5

    FIVE = early(0)

    def adder(step: int = 7):
        def add(number: int) -> int:
            return number + step
        return add

    add_two = adder(2)

    class Thing:
        def sign(self, number: int) -> int:
            if number < 0:
                return -1
            return 11

        def note(self, found: list[int]) -> None:
            found.append(1)
    '''
)


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(mutating, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    importlib.invalidate_caches()
    yield importlib.import_module(NAME)
    del sys.modules[NAME]
    reached._tree.cache_clear()


def mutant(function: str, change: str) -> Mutant:
    return next(m for m in mutants_of(NAME) if (m.function, m.change) == (function, change))


def test_mutant_of_a_method_is_put_into_the_loaded_module(thing: ModuleType) -> None:
    made_before = thing.Thing()
    assert replace_code(mutant("Thing.sign", "number < 0: Lt to LtE"))
    assert made_before.sign(0) == -1
    assert made_before.sign(1) == 11


def test_mutant_of_an_inner_function_reaches_those_that_were_made_before(thing: ModuleType) -> None:
    assert replace_code(mutant("adder", "number + step to Sub"))
    assert thing.add_two(5) == 3
    assert thing.adder(1)(5) == 4


@pytest.mark.parametrize(("function", "change"), [("", "3 to 4"), ("adder", "7 to 8")])
def test_mutant_outside_of_bodies_is_not_put_into_a_loaded_module(
    thing: ModuleType, function: str, change: str
) -> None:
    assert not replace_code(mutant(function, change))
    assert thing.LIMIT == 3


@pytest.fixture
def looked(thing: ModuleType) -> Reached:
    """What two runs come to: one of numbers below 0, one of others."""
    tracer = Tracer([NAME])
    del sys.modules[NAME]
    tracer.start()
    fresh = importlib.import_module(NAME)
    imported = tracer.take()
    found = []
    for number in (-4, 4):
        tracer.start()
        fresh.Thing().sign(number)
        found.append(tracer.take())
    bits = dict.fromkeys(found[0][NAME], 1)
    for line in found[1][NAME]:
        bits[line] = bits.get(line, 0) | 2
    return Reached({"below": 2.0, "above": 1.0}, {NAME: bits}, imported)


@pytest.mark.parametrize(
    ("function", "change", "runs"),
    [
        ("Thing.sign", "number < 0: Lt to LtE", ["above", "below"]),
        ("Thing.sign", "1 to 2", ["below"]),
        ("Thing.sign", "11 to 12", ["above"]),
        ("Thing.note", "drop found.append(1)", []),
        ("Thing.note", "note returns at once", []),
    ],
)
def test_change_is_tried_by_the_runs_that_come_to_it(
    looked: Reached, function: str, change: str, runs: list[str]
) -> None:
    assert looked.by(mutant(function, change)) == runs
    assert looked.is_replaceable(mutant(function, change))


def test_statements_that_no_run_comes_to_are_named(looked: Reached, thing: ModuleType) -> None:
    lines = SOURCE.splitlines()
    missed = [lines[line - 1].strip() for line in looked.missed(NAME)]
    # The adder's ran when the module was read, all but what nobody has called.
    assert missed == ["return number + step", "found.append(1)"]


def test_whole_functions_count_where_that_is_enough(thing: ModuleType) -> None:
    tracer = Tracer([NAME], whole=True)
    tracer.start()
    thing.Thing().sign(4)
    lines = tracer.take()[NAME]
    found = Reached({"above": 1.0}, {NAME: dict.fromkeys(lines, 1)}, {})
    assert found.by(mutant("Thing.sign", "1 to 2")) == ["above"]
    assert found.by(mutant("Thing.note", "drop found.append(1)")) == []


@pytest.mark.parametrize(
    ("function", "change"), [("", "3 to 4"), ("early", "number + 5 to Sub"), ("adder", "7 to 8")]
)
def test_change_that_shows_while_a_module_is_read_is_tried_by_all(
    looked: Reached, function: str, change: str
) -> None:
    assert looked.by(mutant(function, change)) == ["above", "below"]
    assert not looked.is_replaceable(mutant(function, change))


def test_what_was_kept_holds_for_the_same_sources_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reached, "ROOT", tmp_path)
    monkeypatch.setattr(reached, "BUILD", tmp_path / "build")
    (tmp_path / "bmgd").mkdir()
    (tmp_path / "bmgd" / "core.py").write_text("a = 1\n", encoding="utf-8")
    reached.keep("seeds", {"0": 1.5, "1": 0.5}, [{"m": {1, 2}}, {"m": {2}}], {"m": {7}})
    kept = reached.read("seeds")
    assert kept == Reached({"0": 1.5, "1": 0.5}, {"m": {1: 1, 2: 3}}, {"m": {7}})
    (tmp_path / "bmgd" / "core.py").write_text("a = 2\n", encoding="utf-8")
    assert reached.read("seeds") is None
