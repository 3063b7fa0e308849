"""The second list of waits has every purpose for which a core sets deadlines, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import bmgd
from bmgd.sim.witness.waits import OF_LIVES, OF_NOBODY, OF_ONE

CORE = Path(bmgd.__file__).parent / "core"
ONLY_AT_BOOT = {"start"}


def _purposes() -> set[str]:
    """The values of all constants of the core whose names end with TIMER."""
    found = set()
    for path in CORE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(value)))
                    | ast.AnnAssign(target=ast.Name(name), value=ast.Constant(str(value)))
                ) if name.endswith("TIMER"):
                    found.add(value)
    return found


def test_every_purpose_of_a_deadline_is_stated() -> None:
    stated = [*OF_NOBODY, *OF_ONE, *OF_LIVES]
    assert len(stated) == len(set(stated))
    assert {*stated, *ONLY_AT_BOOT} == _purposes()
