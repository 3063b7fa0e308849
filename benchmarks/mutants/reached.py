"""Which seeds of the simulator, and which tests, come to each line of the modules of the mutants.

A run that never comes to the changed statement is the same as without the change, so it need not be
tried. What was found is kept in build/mutants, for one text of all sources; it is found anew when any of
them has changed.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import IO, Any, Final

from benchmarks.mutants.mutating import ROOT, Mutant, path_of

BUILD: Final = ROOT / "build" / "mutants"
Lines = dict[str, set[int]]
"""Line numbers by module."""


# --- while something runs -------------------------------------------------------------------------------


class Tracer:
    """Notes the lines of some modules that run.

    Args:
        modules: their dotted names.
        whole: all lines of a function count that is entered; it costs half of the time.
    """

    def __init__(self, modules: Iterable[str], *, whole: bool = False) -> None:
        self._whole = whole
        self._modules = {str(path_of(module)): module for module in modules}
        self._wanted: dict[CodeType, set[int]] = {}
        self._seen: dict[CodeType, set[int]] = {}

    def start(self) -> None:
        """Note lines from now on."""
        sys.settrace(self._on_call)

    def take(self) -> Lines:
        """Note no more; what was noted."""
        sys.settrace(None)
        lines: Lines = defaultdict(set)
        for code, seen in self._seen.items():
            lines[self._modules[code.co_filename]] |= seen
        self._seen = {}
        return lines

    def _on_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self._modules:
            return None
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = {line for *_, line in code.co_lines() if line}
        if self._whole:
            self._seen[code] = wanted
            return None
        seen = self._seen.setdefault(code, set())
        if seen >= wanted:
            return None

        def on_line(frame: FrameType, _event: str, _argument: object) -> Any:
            seen.add(frame.f_lineno)
            return on_line

        return on_line(frame, "", None)


def forget_caches() -> None:
    """Empty what `functools` keeps: who comes later shall reach what who came first did."""
    for one in gc.get_objects():
        if type(one).__name__ == "_lru_cache_wrapper" and one.__module__.startswith("bmgd"):
            one.cache_clear()


# --- what was found -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reached:
    """What comes to which lines.

    Args:
        cpu_s: the CPU time of each seed or test, while it was looked at, by its name.
        lines: which of them come to a line, a bit each in that order, by module and line.
        imported: lines that run while modules are imported, by module.
    """

    cpu_s: dict[str, float]
    lines: dict[str, dict[int, int]]
    imported: Lines

    def by(self, mutant: Mutant) -> list[str]:
        """The names of what comes to a mutant's change, that of least CPU time first."""
        lines = _lines_of(mutant)
        found = list(self.cpu_s)
        if lines is not None and not self._runs_early(mutant, lines):
            of_module = self.lines.get(mutant.module, {})
            bits = 0
            for line in lines:
                bits |= of_module.get(line, 0)
            found = [name for at, name in enumerate(found) if bits >> at & 1]
        return sorted(found, key=lambda name: self.cpu_s[name])

    def missed(self, module: str) -> list[int]:
        """The statements in functions of a module that nothing comes to: their first lines, ascending."""
        reached = {*self.lines.get(module, ()), *self.imported.get(module, ())}
        return sorted(_statements(module) - reached)

    def is_replaceable(self, mutant: Mutant) -> bool:
        """Whether the change is in a function, at a place that did not run while it was imported."""
        lines = _lines_of(mutant)
        return lines is not None and not self._runs_early(mutant, lines)

    def _runs_early(self, mutant: Mutant, lines: range) -> bool:
        return any(line in lines for line in self.imported.get(mutant.module, ()))


def _lines_of(mutant: Mutant) -> range | None:
    """The lines of the statement of a function that is changed; None outside of functions."""
    found: range | None = None
    inside: list[ast.stmt] = _tree(mutant.module).body
    while statement := next((one for one in inside if mutant.line in _range(one)), None):
        if isinstance(statement, ast.ClassDef):
            found = None
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            body = range(statement.body[0].lineno, _range(statement).stop)
            if mutant.operator == "return" and mutant.line == statement.lineno:
                return body
            found = body if mutant.line in body else None
        elif found is not None:
            found = _range(statement)
        inside = [one for one in ast.walk(statement) if isinstance(one, ast.stmt)][1:]
    return found


def _statements(module: str) -> set[int]:
    """The first lines of what stands in functions; errors that are raised and docstrings do not count."""
    return {
        statement.lineno
        for function in ast.walk(_tree(module))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt) and statement is not function
        if not isinstance(statement, ast.Raise) and not _is_docstring(statement)
    }


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _range(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


# --- kept ---------------------------------------------------------------------------------------------


def text_of_all(name: str) -> str:
    """A hash of all sources, and of the tests too unless it is for seeds."""
    found = hashlib.blake2b(digest_size=8)
    for place in ("bmgd",) if name == "seeds" else ("bmgd", "tests"):
        for path in sorted((ROOT / place).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


def keep(name: str, cpu_s: Mapping[str, float], found: Sequence[Lines], imported: Lines) -> None:
    """Keep what was found of seeds, or of tests.

    Args:
        name: of the file.
        cpu_s: see `Reached`.
        found: the lines of each, in the same order.
        imported: see `Reached`.
    """
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for at, of_one in enumerate(found):
        for module, numbers in of_one.items():
            for number in numbers:
                lines[module][number] |= 1 << at
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = {
        "text": text_of_all(name),
        "cpu_s": dict(cpu_s),
        "lines": {m: {str(n): f"{bits:x}" for n, bits in of.items()} for m, of in lines.items()},
        "imported": {module: sorted(numbers) for module, numbers in imported.items()},
    }
    (BUILD / f"{name}.json").write_text(json.dumps(kept), encoding="utf-8")


def read(name: str) -> Reached | None:
    """What was kept, if it is of the present sources."""
    path = BUILD / f"{name}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["text"] != text_of_all(name):
        return None
    return Reached(
        kept["cpu_s"],
        {m: {int(n): int(bits, 16) for n, bits in of.items()} for m, of in kept["lines"].items()},
        {module: set(numbers) for module, numbers in kept["imported"].items()},
    )


# --- seeds ----------------------------------------------------------------------------------------------


def find_seeds(modules: Sequence[str], seeds: int, jobs: int) -> None:
    """Run every seed, each in a process forked before the first, and keep what they come to."""
    tracer = Tracer(modules)
    tracer.start()
    from benchmarks.mutants.hunting import import_all

    import_all()
    imported = tracer.take()
    cpu_s: dict[str, float] = {}
    found: list[Lines] = []
    underway: deque[tuple[int, int, IO[str]]] = deque()
    for seed in range(seeds + jobs):
        if len(underway) == jobs or seed >= seeds:
            name, child, reader = underway.popleft()
            with reader:
                row = json.load(reader)
            os.waitpid(child, 0)
            if not row["fired"]:
                cpu_s[str(name)] = row["cpu_s"]
                found.append({module: set(numbers) for module, numbers in row["lines"].items()})
        if seed < seeds:
            underway.append((seed, *_look_in_fork(tracer, seed)))
    keep("seeds", cpu_s, found, imported)


def _look_in_fork(tracer: Tracer, seed: int) -> tuple[int, IO[str]]:
    """Run a seed in a process of its own; the process, and where it tells what it came to."""
    from benchmarks.mutants.hunting import run_one

    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, os.fdopen(reader, encoding="utf-8")
    began = time.process_time()
    tracer.start()
    fired = run_one(seed)
    lines = {module: sorted(numbers) for module, numbers in tracer.take().items()}
    row = {"fired": fired, "cpu_s": round(time.process_time() - began, 2), "lines": lines}
    with os.fdopen(writer, "w", encoding="utf-8") as file:
        json.dump(row, file)
    os._exit(0)
