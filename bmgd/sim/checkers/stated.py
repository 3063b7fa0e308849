"""Bounds, times and defaults are those that pages state, of which there is a second list.

Most of them do not show in a short run: a bound of thousands is not reached, and a default is given by
whoever calls. A run in which some bounds are narrow has those in place of the stated ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import ClassVar, Final

from bmgd.core.membership.allowance import Allowance
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.narrowing import ALL
from bmgd.sim.witness.numbers import BEGINNINGS, DEFAULTS, IDS, MEMBERS, NUMBERS

_NOTHING: Final[dict[type, object]] = {int: 0, bool: False}


class NumbersAreAsStated(Checker):
    """A bound, a time, a default or a number in a frame is as a page states it, or as a run makes it."""

    name: ClassVar[str] = "numbers-are-as-stated"
    events: ClassVar[Kinds] = ()
    before_events: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._has_looked = False

    def on_boot(self, journal: Journal) -> None:
        if not self._has_looked:
            self._has_looked = True
            self._look(journal)

    def at_rest(self, journals: Sequence[Journal]) -> None:
        for journal in journals[:1]:
            self._look(journal)

    def _look(self, journal: Journal) -> None:
        for name, stated, there in (
            *_numbers(),
            *_members(),
            *_defaults(),
            *_beginnings(),
            *_unlimited(),
        ):
            if (type(stated), stated) != (type(there), there):
                self.violate(journal, f"{name} is {there}, stated is {stated}")


def _numbers() -> Iterator[tuple[str, object, object]]:
    """The names of constants, what is stated, and what is there."""
    narrow = {(module, name): value for modules, name, value in ALL for module in modules}
    for module, names in NUMBERS.items():
        place = import_module(f"bmgd.{module}")
        for name, stated in names.items():
            there = getattr(place, name)
            if there != narrow.get((module, name), stated):
                yield f"{module}.{name}", stated, there


def _members() -> Iterator[tuple[str, object, object]]:
    """The names of enumerations, what numbers they are stated to have, and which they have."""
    for module, kinds in MEMBERS.items():
        place = import_module(f"bmgd.{module}")
        for kind, stated in kinds.items():
            members = getattr(place, kind).__members__.items()
            yield f"{module}.{kind}", stated, tuple(f"{name} {int(each)}" for name, each in members)


def _defaults() -> Iterator[tuple[str, object, object]]:
    """The names of fields, what each is stated to be where it is not given, and what it is."""
    for module, classes in DEFAULTS.items():
        place = import_module(f"bmgd.{module}")
        for kind, stated in classes.items():
            there = {field.name: field.default for field in fields(getattr(place, kind))}
            for name, value in stated.items():
                yield f"{module}.{kind}.{name}", value, there[name]


def _unlimited() -> Iterator[tuple[str, object, object]]:
    """Before there is a rate, every id may become known."""
    allowance = Allowance()
    for name in ("skips", "retired"):
        there = getattr(allowance, name)
        yield f"core.membership.allowance.Allowance.{name}", IDS, there


def _beginnings() -> Iterator[tuple[str, object, object]]:
    """The names of fields of what a core and its links remember, with what each is to begin and begins.

    A number begins at 0, and nothing is true yet, unless another beginning is stated.
    """
    for module in sorted(sys.modules):
        if not module.startswith(("bmgd.core.", "bmgd.linklayer.")):
            continue
        name = module.removeprefix("bmgd.")
        for kind in list(vars(sys.modules[module]).values()):
            is_own = isinstance(kind, type) and kind.__module__ == module and is_dataclass(kind)
            if not is_own or kind.__name__ in DEFAULTS.get(name, {}):
                continue
            stated = BEGINNINGS.get(name, {}).get(kind.__name__, {})
            for field in fields(kind):
                nothing = _NOTHING.get(type(field.default))
                # Classes that were made into C do not tell their defaults.
                if field.default is not MISSING and (field.name in stated or nothing is not None):
                    of_field = stated.get(field.name, nothing)
                    yield f"{name}.{kind.__name__}.{field.name}", of_field, field.default
