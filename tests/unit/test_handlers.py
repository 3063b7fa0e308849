"""What the package catches: named errors, so that a bug and a cancellation pass through."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bmgd

BROAD = {"Exception", "BaseException"}
SOURCES = sorted(Path(bmgd.__file__).parent.rglob("*.py"))


def broad_in(source: str) -> list[int]:
    """The lines of what catches or suppresses every error."""

    def is_broad(names: ast.expr | None) -> bool:
        return names is None or any(
            isinstance(node, ast.Name) and node.id in BROAD for node in ast.walk(names)
        )

    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
            found.append(node.lineno)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            found += [node.lineno for argument in node.args if is_broad(argument)]
    return found


@pytest.mark.parametrize(
    "caught", ["except:", "except Exception:", "except (OSError, BaseException) as error:"]
)
def test_handlers_that_catch_everything_are_found(caught: str) -> None:
    assert broad_in(f"try:\n    pass\n{caught}\n    raise") == [3]
    assert broad_in("with contextlib.suppress(Exception):\n    pass") == [1]
    assert broad_in("try:\n    pass\nexcept (OSError, ValueError):\n    pass") == []


def test_handlers_name_what_they_catch() -> None:
    found = {str(path): broad_in(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}
