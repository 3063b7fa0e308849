"""The second list of bounds and defaults has all that there are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType

import bmgd
import bmgd.types
from bmgd.sim.witness.numbers import BEGINNINGS, DEFAULTS, MEMBERS, NUMBERS

PACKAGE = Path(bmgd.__file__).parent
OF_DEFAULTS = ("core.commands", "core.effects", "core.events", "core.settings")


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for pattern in ("core/**/*.py", "linklayer/*.py", "wire/*.py", "healing.py"):
        for path in sorted(PACKAGE.glob(pattern)):
            if path.name != "__init__.py":
                name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
                yield name, import_module(f"bmgd.{name}")


def _assigned(module: ModuleType) -> Iterator[str]:
    """The names that a module itself gives to something, imported ones left out."""
    for node in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                yield name


def test_every_public_number_of_core_links_and_wire_is_stated() -> None:
    there = {
        name: {
            each
            for each in _assigned(module)
            if each.isupper()
            and not each.startswith("_")
            and type(getattr(module, each)) in (int, float)
        }
        for name, module in _modules()
    }
    assert {name: set(numbers) for name, numbers in NUMBERS.items()} == {
        name: names for name, names in there.items() if names
    }


def test_every_default_of_commands_events_effects_settings_and_messages_is_stated() -> None:
    there: dict[str, dict[str, set[str]]] = {}
    for name, module in _modules():
        if name not in OF_DEFAULTS and not name.startswith("wire."):
            continue
        for kind in vars(module).values():
            if not (isinstance(kind, type) and is_dataclass(kind)):
                continue
            if kind.__module__ != module.__name__ or kind.__name__.startswith("_"):
                continue
            with_default = {f.name for f in fields(kind) if f.init and f.default is not MISSING}
            if with_default:
                there.setdefault(name, {})[kind.__name__] = with_default
    assert {
        module: {kind: set(defaults) for kind, defaults in kinds.items()}
        for module, kinds in DEFAULTS.items()
    } == there


def test_every_enumeration_in_frames_is_stated() -> None:
    modules = [("types", bmgd.types), *_modules()]
    there = {
        (name, kind.__name__)
        for name, module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, IntEnum)
        if kind.__module__ == module.__name__
    }
    assert {(module, kind) for module, kinds in MEMBERS.items() for kind in kinds} == there


def test_every_stated_beginning_is_of_a_field_that_does_not_begin_with_nothing() -> None:
    for module, kinds in BEGINNINGS.items():
        for kind, stated in kinds.items():
            there = {
                f.name: f.default for f in fields(getattr(import_module(f"bmgd.{module}"), kind))
            }
            for name, value in stated.items():
                assert there[name] == value
                assert value not in (0, False)
