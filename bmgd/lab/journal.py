"""What an interrupted run has computed so far, in a file, so that the next one goes on from there.

One JSON line per result. The first line says which code computed them, and how: results of other
code, or of a quick run, are never taken for those of this one. A last line that was cut off when the
process died is left out.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

_ROOMS: Final = ("lab", "topology", "routing")


@cache
def code_digest() -> str:
    """A hash of all code that an experiment can reach."""
    package = Path(__file__).parents[1]
    files = [*package.glob("*.py"), *package.glob("_*.so")]
    files += [path for room in _ROOMS for path in (package / room).rglob("*.py")]
    digest = blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def journal_of(directory: Path, name: str) -> Path:
    """The file of an experiment's results."""
    return directory / f"{name}.jsonl"


class Journal:
    """The results of one experiment so far.

    Args:
        path: the file; it and its directory are made with the first result.
        quick: which kind of run.

    `kept` holds what an earlier run of the same code and kind has left.
    """

    def __init__(self, path: Path, quick: bool) -> None:
        self._path = path
        self._head = {"code": code_digest(), "quick": quick}
        self.kept: dict[str, Any] = self._read()

    def keep(self, key: str, result: Any) -> None:
        """Add a result; it is in the file when this returns."""
        if not self.kept:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._head) + "\n", encoding="utf-8")
        self.kept[key] = result
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, result]) + "\n")

    def _read(self) -> dict[str, Any]:
        try:
            head, *lines = self._path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return {}
        if _parsed(head) != self._head:
            return {}
        # What follows the last line break was cut off.
        results = [json.loads(line) for line in lines[:-1]]
        if lines and lines[-1]:
            whole = "".join(f"{line}\n" for line in (head, *lines[:-1]))
            self._path.write_text(whole, encoding="utf-8")
        return dict(results)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
