"""What of the sources is changed before mypyc compiles them: compiled classes differ from plain ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks.compiled import ROOT, modules, with_bounds, with_factories, without_slots
from bmgd.sim.narrowing import NARROW

SOURCES = list(modules(ROOT / "bmgd"))


def test_compiled_dataclasses_do_not_ask_for_slots() -> None:
    source = "@dataclass(frozen=True, slots=True)\n@dataclass(slots=True)\n@dataclass(eq=False)\n"
    assert without_slots(source) == "@dataclass(frozen=True)\n@dataclass()\n@dataclass(eq=False)\n"


def test_value_of_a_field_that_is_no_parameter_comes_from_a_factory() -> None:
    source = (
        "_held: bool = field(default=True, init=False)\nsize: int = field(default=3, repr=False)\n"
    )
    held, size = with_factories(source).splitlines()
    assert held == "_held: bool = field(default_factory=lambda: True, init=False)"
    assert size == source.splitlines()[1]


def test_bounds_of_compiled_modules_can_be_made_narrow() -> None:
    final = re.compile(r"^(\w+): Final\b", re.MULTILINE)
    found = {
        name for path in SOURCES for name in final.findall(with_bounds(path.read_text("utf-8")))
    }
    assert len(found) > 100
    assert found & {name for _, name, _ in NARROW} == set()


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_no_field_of_a_compiled_module_has_its_value_in_the_class(path: Path) -> None:
    source = with_factories(path.read_text(encoding="utf-8"))
    for found in re.finditer(r"\bfield\((.*)\)", source):
        words = found[1]
        assert not ("init=False" in words and re.search(r"\bdefault=", words)), words


@pytest.mark.parametrize("path", SOURCES, ids=[path.stem for path in SOURCES])
def test_no_compiled_module_looks_in_a_tuple_with_a_star(path: Path) -> None:
    """At `x in (a, *b)` mypyc ends with an error of its own."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            within = ast.iter_child_nodes(node.comparators[0])
            assert not any(isinstance(each, ast.Starred) for each in within), ast.unparse(node)
