"""Planted bugs: mutations of the core as data, put in place while it is imported.

The files are never touched. `plant` must be called in a fresh process, before anything of the core is
imported: it sets a finder before all others that compiles the changed source of one module.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Protocol

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests" / "sim" / "planted.toml"


class Change(Protocol):
    """A changed source of one module: a planted bug, or a mutant."""

    @property
    def module(self) -> str:
        """The module's name."""

    @property
    def path(self) -> Path:
        """The module's file."""

    def applied_to(self, source: str) -> str:
        """The module's source with the change in it."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One deliberate mutation.

    Args:
        module: the module's name, below `bmgd.core`.
        changes: texts that stand in it exactly once, each with what replaces it.
        breaks: the rule that it breaks.
    """

    name: str
    module: str
    changes: tuple[tuple[str, str], ...]
    breaks: str

    @property
    def path(self) -> Path:
        """The module's file."""
        return ROOT.joinpath(*self.module.split(".")).with_suffix(".py")

    def applied_to(self, source: str) -> str:
        """The module's source with the bug in it.

        Raises:
            ValueError: a text does not stand in it exactly once.
        """
        for original, replacement in self.changes:
            if source.count(original) != 1:
                times = source.count(original)
                raise ValueError(f"{self.name}: stands {times} times in {self.module}: {original}")
            source = source.replace(original, replacement)
        return source


def read_bugs(path: Path = PLANTED) -> list[Bug]:
    """The planted bugs, in the file's order."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["bug"]
    return [
        Bug(
            row["name"],
            row["module"],
            ((row["original"], row["replacement"]), *(tuple(pair) for pair in row.get("also", ()))),
            row["breaks"],
        )
        for row in rows
    ]


class _Loader(SourceLoader):
    def __init__(self, bug: Change) -> None:
        self._bug = bug

    def get_filename(self, fullname: str) -> str:
        return str(self._bug.path)

    def get_data(self, path: str | bytes) -> bytes:
        # Asked for the source only: without `path_stats` no compiled file is looked for or written.
        return self._bug.applied_to(Path(str(path)).read_text(encoding="utf-8")).encode()


class _Finder(MetaPathFinder):
    def __init__(self, bug: Change) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._bug.module:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        return importlib.util.spec_from_loader(fullname, _Loader(self._bug), origin=found.origin)


def plant(bug: Change) -> None:
    """Let a bug be in its module from its first import on.

    Raises:
        RuntimeError: the module was imported already.
    """
    if bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} was imported before the bug was planted")
    sys.meta_path.insert(0, _Finder(bug))
