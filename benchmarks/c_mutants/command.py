"""Which share of small changes of the C code is found by its golden, property and unit tests.

    python -m benchmarks.c_mutants [--count 150] [--jobs 2]   what has no result yet, then the page
    python -m benchmarks.c_mutants --report                   the page, of what there is

The mutants are those of `mutating.py`, sampled evenly over the files of the daemon's extensions by a
seeded choice. Each is compiled on its own, put in the extension's place in a process of its own, and the
tests of that extension run until one fails, then its seeded fuzzer, or its CPU time is over. Results are
kept, a line of JSON each.
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
from typing import Any, Final

from benchmarks.c_mutants.mutating import CMutant, c_mutants_of

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "c-mutants"
RESULTS: Final = ROOT / "docs" / "results" / "c-mutants.jsonl"
REPORT: Final = ROOT / "docs" / "c-mutants.md"
EXPLAINED: Final = ROOT / "docs" / "mutants-explained.toml"
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
CPU_S: Final = 150
"""What a test run or a fuzzer may take; without a mutant each takes less than 30."""
TRIAL_S: Final = 1800.0
"""For what waits and does nothing: long, as others may use the same machine."""
EXT_SUFFIX: Final[str] = sysconfig.get_config_var("EXT_SUFFIX")
SAMPLE_SEED: Final = 15
COUNT: Final = 150
"""Mutants of the whole sample."""

Row = dict[str, Any]


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


def compiled(mutant: CMutant) -> Path | None:
    """The extension with the mutant in it; None when the compiler refuses it."""
    module, sources = extensions()[mutant.file]
    place = BUILD / mutant.name.replace(":", "-")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(
        ROOT / "bmgd", place / "bmgd", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    changed = place / "bmgd" / mutant.file
    changed.write_text(mutant.applied_to(_source(mutant.file)), encoding="utf-8")
    target = place / (module.rpartition(".")[2] + EXT_SUFFIX)
    words = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-O1", "-w", "-std=gnu11", "-pthread"]
    words += [f"-I{sysconfig.get_path('include')}", *sources, "-o", str(target)]
    done = subprocess.run(words, cwd=place, capture_output=True, check=False)
    shutil.rmtree(place / "bmgd", ignore_errors=True)
    return target if done.returncode == 0 else None


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
    module = extensions()[mutant.file][0]
    variables = {"BMGD_C_MUTANT": f"{module} {path}", "BMGD_BACKEND": "c"}
    variables["BMGD_C_MUTANT_CPU_S"] = str(CPU_S)
    began = time.monotonic()
    by = _found_by_tests(module, variables) or _found_by_fuzzer(module, variables)
    shutil.rmtree(path.parent, ignore_errors=True)
    return row | {
        "compiles": True,
        "killed": bool(by),
        "by": by,
        "s": round(time.monotonic() - began, 1),
    }


def _found_by_tests(module: str, variables: dict[str, str]) -> str:
    """The test that fails with a mutant of an extension; empty when none does."""
    words = ["pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.c_mutants.plugin"]
    done = _run([*words, *TESTS[module]], variables)
    if done is None:
        return "its time"
    if not done.returncode:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ")[1] if failed else f"the process ended with {done.returncode}"


def _found_by_fuzzer(module: str, variables: dict[str, str]) -> str:
    """The name of the extension's fuzzer if it fails with a mutant; empty when it does not."""
    name, *arguments = FUZZERS[module]
    done = _run(["benchmarks.c_mutants.plugin", name, *arguments], variables)
    if done is None:
        return "its time"
    return name if done.returncode else ""


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


def read_rows() -> dict[str, Row]:
    """The results until now, by the mutant's name."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


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


def report() -> str:
    """The results as a page of the documentation."""
    rows = [row for row in read_rows().values() if row["compiles"]]
    killed = [row for row in rows if row["killed"]]
    explained = {}
    if EXPLAINED.exists():
        table = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("c_mutant", [])
        explained = {_key(row): row["why"] for row in table}
    alive = [row for row in rows if not row["killed"]]
    known = [row for row in alive if _key(row) in explained]
    share = 100 * len(killed) / max(1, len(rows))
    lines = [
        "# Mutants of the C code",
        "",
        "Small changes of tokens (`benchmarks/c_mutants/mutating.py`), sampled evenly over the files of",
        "the daemon's extensions; `python -m benchmarks.c_mutants` tries them and writes this page.",
        "",
        f"**{len(rows)} of the {COUNT} mutants of the sample have been tried**; it goes from file to",
        "file, so those are spread evenly too.",
        "",
        f"{len(killed)} ({share:.1f} %) are found. Of the {len(alive)} others {len(known)} cannot be",
        "told from the original by any run.",
        "",
        "| survivor | operator | change | why |",
        "|---|---|---|---|",
    ]
    for row in alive:
        change = row["change"].replace("|", "\\|")
        why = explained.get(_key(row), "not explained")
        lines.append(f"| {row['file']}:{row['line']} | {row['operator']} | `{change}` | {why} |")
    return "\n".join(lines) + "\n"


def _key(row: Row) -> str:
    return f"{row['file']}: {row['line']}: {row['change']}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.c_mutants")
    parser.add_argument("--count", type=int, default=COUNT, help="how many that compile")
    parser.add_argument("--jobs", type=int, default=2, help="tried at a time")
    parser.add_argument("--report", action="store_true", help="write the page, run nothing")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.count, arguments.jobs)
    REPORT.write_text(report(), encoding="utf-8")
