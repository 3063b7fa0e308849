"""Which core it was: a digest of the code that decides what daemons do with each other's bytes.

A campaign of days runs on several machines and goes on over commits that change a page, a command or a
checker. Its results belong together as long as this digest is the same.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent / "bmgd"
PATTERNS: Final = (
    *("core/**/*.py", "wire/*.py", "linklayer/*.py", "linkevents.py", "frameheader.py"),
    *("routing/*.py", "topology/binomial.py", "topology/broadcast.py"),
    *("types.py", "peers.py", "policy.py", "profiles.py", "healing.py", "version.py"),
)
DIGITS: Final = 12


def sources(package: Path = PACKAGE) -> Iterator[Path]:
    """The modules of the core, in a fixed order."""
    for pattern in PATTERNS:
        yield from sorted(package.glob(pattern))


def digest(package: Path = PACKAGE) -> str:
    """The digest of the core in a package; comments and docstrings do not count."""
    hashed = hashlib.sha256()
    for path in sources(package):
        tree = _without_docstrings(ast.parse(path.read_text(encoding="utf-8")))
        hashed.update(f"{path.relative_to(package)}\n{ast.dump(tree)}\n".encode())
    return hashed.hexdigest()[:DIGITS]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a string alone: a docstring, of an attribute too."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


if __name__ == "__main__":
    print(digest())
