"""Which share of small changes of the C code is found by its golden, property and unit tests.

    python -m benchmarks.c_mutants [--count 150] [--jobs 2]   what has no result yet, then the page
    python -m benchmarks.c_mutants --report                   the page, of what there is

The mutants are those of `mutating.py`, sampled evenly over the files of the daemon's extensions by a
seeded choice. Each is compiled on its own, put in the extension's place in a process of its own, and the
tests of that extension run until one fails, then its seeded fuzzer against a build under the sanitizers,
or its CPU time is over. Results are kept, a line of JSON each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.c_mutants.mutating import CMutant, c_mutants_of
from benchmarks.c_mutants.report import RESULTS, ROOT, Row, read_rows, report

BUILD: Final = ROOT / "build" / "c-mutants"
REPORT: Final = ROOT / "docs" / "c-mutants.md"
TESTS: Final[dict[str, tuple[str, ...]]] = {
    "bmgd._fastroute": (
        *("tests/golden", "tests/unit/routing", "tests/property/test_forwarding_backends.py"),
        *("tests/unit/test_healing.py", "tests/unit/topology/test_distance.py"),
        "tests/paper/test_routing_optimal.py",
    ),
    "bmgd._engine": (
        *("tests/unit/linklayer", "tests/property/test_link_engines.py"),
        *("tests/property/test_engines.py", "tests/property/test_engine_turns.py"),
        "tests/sim/test_engine_in_c.py",
    ),
}
"""The tests that use each extension, those that take little time first."""
FUZZERS: Final[dict[str, tuple[str, ...]]] = {
    "bmgd._fastroute": ("tests.property.fuzz_split", "--rounds", "400"),
    "bmgd._engine": ("tests.property.fuzz_engine", "--rounds", "60", "--engine", "c"),
}
OF_THE_LABORATORY: Final = "bmgd._labroutes"
SANITIZED: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""As `.ci/sanitize` builds. What is written beside an array may be noticed by nothing else."""
CPU_S: Final = 150
"""What a test run or a fuzzer may take; without a mutant each takes less than 30."""
TRIAL_S: Final = 1800.0
"""For what waits and does nothing: long, as others may use the same machine."""
EXT_SUFFIX: Final[str] = sysconfig.get_config_var("EXT_SUFFIX")
SAMPLE_SEED: Final = 15
COUNT: Final = 150
"""Mutants of the whole sample."""


def extensions() -> dict[str, tuple[str, list[str]]]:
    """For each C file of the daemon the extension that it is part of, and that one's sources."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, tuple[str, list[str]]] = {}
    for extension in project["tool"]["setuptools"]["ext-modules"]:
        if extension["name"] == OF_THE_LABORATORY:
            continue
        for path in (*extension["sources"], *extension.get("depends", ())):
            found.setdefault(Path(path).name, (extension["name"], extension["sources"]))
    return found


def sample(count: int) -> list[CMutant]:
    """As many mutants as asked for and a third more, for those that do not compile."""
    random = Random(SAMPLE_SEED)
    waiting = {file: c_mutants_of(file, _source(file)) for file in sorted(extensions())}
    for mutants in waiting.values():
        random.shuffle(mutants)
    chosen: list[CMutant] = []
    while len(chosen) < count + count // 3 and any(waiting.values()):
        for mutants in waiting.values():
            if mutants:
                chosen.append(mutants.pop())
    return chosen


def _source(file: str) -> str:
    return (ROOT / "bmgd" / file).read_text(encoding="utf-8")


def _text(mutant: CMutant) -> str:
    return hashlib.blake2b(_source(mutant.file).encode(), digest_size=6).hexdigest()


def compiled(mutant: CMutant, *more: str) -> Path | None:
    """The extension with the mutant in it; None when the compiler, given `more` flags, refuses it."""
    module, sources = extensions()[mutant.file]
    place = BUILD / mutant.name.replace(":", "-")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(
        ROOT / "bmgd", place / "bmgd", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    changed = place / "bmgd" / mutant.file
    changed.write_text(mutant.applied_to(_source(mutant.file)), encoding="utf-8")
    target = place / (module.rpartition(".")[2] + EXT_SUFFIX)
    words = [_compiler(), "-shared", "-fPIC", "-O1", "-w", "-std=gnu11", "-pthread", *more]
    words += [f"-I{sysconfig.get_path('include')}", *sources, "-o", str(target)]
    done = subprocess.run(words, cwd=place, capture_output=True, check=False)
    shutil.rmtree(place / "bmgd", ignore_errors=True)
    return target if done.returncode == 0 else None


def _compiler() -> str:
    return os.environ.get("CC", "gcc")


def try_one(mutant: CMutant) -> Row:
    """Compile a mutant, and run the tests against it."""
    row: Row = {
        "name": mutant.name,
        "text": _text(mutant),
        "file": mutant.file,
        "line": mutant.line,
        "operator": mutant.operator,
        "change": mutant.change,
    }
    path = compiled(mutant)
    if path is None:
        return row | {"compiles": False, "killed": False, "by": "the compiler"}
    began = time.monotonic()
    by = _found_by_tests(mutant, path) or _found_by_fuzzer(mutant)
    shutil.rmtree(path.parent, ignore_errors=True)
    return row | {
        "compiles": True,
        "killed": bool(by),
        "by": by,
        "s": round(time.monotonic() - began, 1),
    }


def _found_by_tests(mutant: CMutant, path: Path) -> str:
    """The test that fails with a mutant; empty when none does."""
    module, _ = extensions()[mutant.file]
    words = ["pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.c_mutants.plugin"]
    done = _run([*words, *TESTS[module]], _variables(module, path))
    if done is None:
        return "its time"
    if not done.returncode:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ")[1] if failed else f"the process ended with {done.returncode}"


def _found_by_fuzzer(mutant: CMutant) -> str:
    """The name of the extension's fuzzer if it, or a sanitizer, fails with a mutant; else empty."""
    module, _ = extensions()[mutant.file]
    path = compiled(mutant, *SANITIZED)
    if path is None:
        raise RuntimeError(f"{mutant.name} compiles, but not with {' '.join(SANITIZED)}")
    name, *arguments = FUZZERS[module]
    done = _run(
        ["benchmarks.c_mutants.plugin", name, *arguments],
        _variables(module, path) | _sanitizing(),
    )
    if done is None:
        return "its time"
    return name if done.returncode else ""


def _variables(module: str, path: Path) -> dict[str, str]:
    """The environment of a process in which a file is in an extension's place."""
    return {
        "BMGD_C_MUTANT": f"{module} {path}",
        "BMGD_BACKEND": "c",
        "BMGD_C_MUTANT_CPU_S": str(CPU_S),
    }


def _sanitizing() -> dict[str, str]:
    """What an interpreter needs that loads an extension built under the sanitizers."""
    libraries = (
        subprocess.run(
            [_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    )
    return {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }


def _run(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a module with a mutant in place; None when it does not end in time."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env=dict(os.environ) | variables,
            timeout=TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode == -signal.SIGXCPU else done


def run(count: int, jobs: int) -> None:
    """Try mutants until `count` of them have compiled, and keep each result at once.

    Results of mutants that are not of the present sources, or not of the sample, are left out.
    """
    chosen = sample(count)
    texts = {mutant.name: _text(mutant) for mutant in chosen}
    rows = {name: row for name, row in read_rows().items() if texts.get(name) == row["text"]}
    missing = [m for m in chosen if rows.get(m.name, {}).get("text") != _text(m)]
    has = sum(1 for m in chosen if m not in missing and rows[m.name]["compiles"])
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        while missing and has < count:
            part, missing = missing[:jobs], missing[jobs:]
            for row in pool.map(try_one, part):
                rows[row["name"]] = row
                has += row["compiles"]
                print(f"{row['name']} ({row['change']}): {row['by'] or 'no test'}", flush=True)
            lines = [json.dumps(row) for _, row in sorted(rows.items())]
            RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.c_mutants")
    parser.add_argument("--count", type=int, default=COUNT, help="how many that compile")
    parser.add_argument("--jobs", type=int, default=2, help="tried at a time")
    parser.add_argument("--report", action="store_true", help="write the page, run nothing")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.count, arguments.jobs)
    REPORT.write_text(report(COUNT), encoding="utf-8")
