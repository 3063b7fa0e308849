"""Which share of all small changes of the core, the link layer, the wire and healing is found.

    python -m benchmarks.mutants [--count 800] [--seeds 100] [--jobs 2]   what has no result yet
    python -m benchmarks.mutants --report                                 the page, of what there is
    python -m benchmarks.mutants --show NAME                              one mutant as a difference

The mutants are those of `mutating.py`, sampled evenly over the modules of `MODULES` by a seeded choice.
Each is tried twice, in processes of their own, whatever the first try gave:

    (a) the unit and property tests of the room that it is in, until one fails
    (b) the simulator with all its checkers, until one fires, or an error ends it, 100 seeds at most

Tests that fail, and seeds that fire, without any mutant do not count. A mutant that does not end in
`TRIAL_S` is killed by its time. Results are kept, a line of JSON each, so that the campaign can be ended
and begun again; a mutant of a module whose text has changed since is tried again. Survivors that no run
can tell from the original are explained in docs/mutants-explained.toml.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.mutating import ROOT, Mutant, mutants_of

RESULTS: Final = ROOT / "docs" / "results" / "mutants.jsonl"
REPORT: Final = ROOT / "docs" / "mutants.md"
EXPLAINED: Final = ROOT / "docs" / "mutants-explained.toml"
ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "bmgd/core": ("tests/unit/core", "tests/property"),
    "bmgd/linklayer": ("tests/unit/linklayer", "tests/property"),
    "bmgd/wire": ("tests/unit/wire", "tests/golden"),
    "bmgd/healing.py": ("tests/unit/test_healing.py", "tests/paper/test_healing_links.py"),
    "bmgd/routing/reference.py": ("tests/unit/routing", "tests/golden"),
}
"""Where mutants are made, and the tests of each."""
TRIAL_S: Final = 900.0
SAMPLE_SEED: Final = 15

Row = dict[str, Any]


# --- which mutants --------------------------------------------------------------------------------------


def modules() -> list[str]:
    """The modules that mutants are made of, sorted."""
    found = []
    for room in ROOMS:
        path = ROOT / room
        files = [path] if path.is_file() else sorted(path.glob("*.py"))
        found += [
            ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for file in files
            if file.name != "__init__.py"
        ]
    return sorted(found)


def sample(count: int) -> list[Mutant]:
    """As many mutants, the same number of each module as far as it has them, in a mixed order."""
    random = Random(SAMPLE_SEED)
    waiting = {module: mutants_of(module) for module in modules()}
    for mutants in waiting.values():
        random.shuffle(mutants)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(waiting.values()):
        for module in sorted(waiting):
            if waiting[module] and len(chosen) < count:
                chosen.append(waiting[module].pop())
    return chosen


def tests_of(mutant: Mutant) -> tuple[str, ...]:
    """The tests of what a mutant changes."""
    path = str(mutant.path.relative_to(ROOT))
    return next(tests for room, tests in ROOMS.items() if path.startswith(room))


def text_of(mutant: Mutant) -> str:
    """A short hash of the module's text: a result holds for it alone."""
    return hashlib.blake2b(mutant.path.read_bytes(), digest_size=6).hexdigest()


# --- trying one -----------------------------------------------------------------------------------------


def by_tests(mutant: Mutant) -> Row:
    """Whether the tests of its room fail with the mutant, and which one."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "benchmarks.mutant_plugin"]
    words += ["-p", "no:cacheprovider", *tests_of(mutant)]
    environment = _environment(mutant) | {"BMGD_MUTANT": f"{mutant.module} {mutant.number}"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=TRIAL_S
        )
    except subprocess.TimeoutExpired:
        return {"killed": True, "by": "its time", "s": round(TRIAL_S)}
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0].split(" ")[1] if failed else ""
    if done.returncode not in (0, 1) and not by:
        by = "an error while tests were read"
    return {
        "killed": done.returncode != 0,
        "by": by,
        "s": round(time.monotonic() - began, 1),
    }


def by_simulator(mutant: Mutant, seeds: int) -> Row:
    """Which checker of the simulator finds the mutant, and after how many seeds."""
    words = [sys.executable, "-m", "benchmarks.mutants", "--in-process"]
    words += [f"{mutant.module} {mutant.number}", "--seeds", str(seeds)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=_environment(mutant),
            timeout=TRIAL_S,
        )
    except subprocess.TimeoutExpired:
        return {"killed": True, "by": "its time", "seeds": 0, "s": round(TRIAL_S)}
    spent = {"s": round(time.monotonic() - began, 1)}
    if done.returncode:
        by = (done.stderr.strip().splitlines() or ["an error"])[-1][:100]
        return {"killed": True, "by": f"an error: {by}", "seeds": 0} | spent
    row: Row = json.loads(done.stdout)
    return row | spent


def _environment(mutant: Mutant) -> dict[str, str]:
    """Where the mutant's module has a twin in C, the Python one must be what runs."""
    environment = dict(os.environ, BMGD_ENGINE="python")
    if mutant.module.startswith("bmgd.routing"):
        environment["BMGD_BACKEND"] = "python"
    return environment


def in_process(name: str, seeds: int) -> Row:
    """Plant the mutant here, and run seeds until one finds it."""
    from benchmarks.planted import run_seed
    from benchmarks.planting import plant

    module, number = name.split()
    plant(mutants_of(module)[int(number)])
    for tried, seed in enumerate(range(seeds), 1):
        found = run_seed(seed)
        if found:
            return {"killed": True, "by": found[0], "seeds": tried}
    return {"killed": False, "by": "", "seeds": seeds}


def try_one(mutant: Mutant, seeds: int) -> Row:
    """Both tries of one mutant."""
    return {
        "name": mutant.name,
        "text": text_of(mutant),
        "module": mutant.module,
        "number": mutant.number,
        "line": mutant.line,
        "operator": mutant.operator,
        "change": mutant.change,
        "simulator": by_simulator(mutant, seeds),
        "tests": by_tests(mutant),
    }


# --- all of them ----------------------------------------------------------------------------------------


def read_rows() -> dict[str, Row]:
    """The results until now, by the mutant's name."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def _keep(rows: dict[str, Row]) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for _, row in sorted(rows.items())]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(count: int, seeds: int, jobs: int) -> None:
    """Try what has no result for the present text, and keep each result at once."""
    rows = read_rows()
    missing = [m for m in sample(count) if rows.get(m.name, {}).get("text") != text_of(m)]
    print(f"{len(missing)} of {count} mutants to try", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda mutant: try_one(mutant, seeds), missing):
            rows[row["name"]] = row
            _keep(rows)
            print(_line(row), flush=True)


def _line(row: Row) -> str:
    simulator, tests = row["simulator"], row["tests"]
    by = simulator["by"] or "no checker"
    return f"{row['name']} ({row['change']}): {by}; {tests['by'] or 'no test'}"


# --- the page -------------------------------------------------------------------------------------------


def read_explained() -> dict[str, str]:
    """Why no run can tell a mutant from the original, by `module: change`."""
    if not EXPLAINED.exists():
        return {}
    rows = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("mutant", [])
    return {f"{row['module']}: {row['change']}": row["why"] for row in rows}


def report() -> str:
    """The results as a page of the documentation."""
    rows, explained = list(read_rows().values()), read_explained()
    survivors = [
        row for row in rows if not row["tests"]["killed"] and not row["simulator"]["killed"]
    ]
    by_a = sum(row["tests"]["killed"] for row in rows)
    by_b = sum(row["simulator"]["killed"] for row in rows)
    known = sum(_key(row) in explained for row in survivors)
    lines = [
        "# Mutants",
        "",
        "Small changes of the code, made by the ordinary operators (`benchmarks/mutating.py`) and",
        "sampled evenly over the modules. `python -m benchmarks.mutants` tries them and writes this.",
        "",
        f"{len(rows)} mutants were tried: the tests of their room find {_share(by_a, rows)},",
        f"the simulator alone {_share(by_b, rows)}, either {_share(len(rows) - len(survivors), rows)}.",
        f"Of {len(survivors)} survivors {known} are explained.",
        "",
        "| module | mutants | by tests | by the simulator | survive |",
        "|---|---|---|---|---|",
        *_by_module(rows),
        "",
        "| found first by | mutants | median seeds |",
        "|---|---|---|",
        *_by_checker(rows),
        "",
        "## Survivors",
        "",
        "| module and line | operator | change | why |",
        "|---|---|---|---|",
    ]
    for row in sorted(survivors, key=lambda row: (row["module"], row["line"])):
        why = explained.get(_key(row), "not explained")
        change = row["change"].replace("|", "\\|")
        lines.append(f"| {row['module']}:{row['line']} | {row['operator']} | `{change}` | {why} |")
    return "\n".join(lines) + "\n"


def _key(row: Row) -> str:
    return f"{row['module']}: {row['change']}"


def _share(count: int, rows: list[Row]) -> str:
    return f"{count} ({100 * count / max(1, len(rows)):.1f} %)"


def _by_module(rows: list[Row]) -> Iterator[str]:
    for module in sorted({row["module"] for row in rows}):
        own = [row for row in rows if row["module"] == module]
        by_a = sum(row["tests"]["killed"] for row in own)
        by_b = sum(row["simulator"]["killed"] for row in own)
        alive = sum(not row["tests"]["killed"] and not row["simulator"]["killed"] for row in own)
        yield f"| {module} | {len(own)} | {by_a} | {by_b} | {alive} |"


def _by_checker(rows: list[Row]) -> Iterator[str]:
    killed = [row["simulator"] for row in rows if row["simulator"]["killed"]]
    for by, count in Counter(
        one["by"].split(" (")[0].split(":")[0] for one in killed
    ).most_common():
        seeds = sorted(one["seeds"] for one in killed if one["by"].startswith(by))
        yield f"| {by} | {count} | {seeds[len(seeds) // 2]} |"


def show(name: str) -> str:
    """One mutant as a difference of sources without comments."""
    module = name.split(":")[0]
    mutant = next(m for m in mutants_of(module) if m.name == name)
    source = mutant.path.read_text(encoding="utf-8")
    before = ast.unparse(ast.parse(source)).splitlines()
    after = mutant.applied_to(source).splitlines()
    return "\n".join(difflib.unified_diff(before, after, "original", "mutant", lineterm=""))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--count", type=int, default=800, help="how many mutants")
    parser.add_argument("--seeds", type=int, default=100, help="tried at most for each")
    parser.add_argument("--jobs", type=int, default=2, help="tried at a time")
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    parser.add_argument("--show", default="", metavar="NAME", help="one mutant as a difference")
    parser.add_argument("--in-process", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_process:
        print(json.dumps(in_process(arguments.in_process, arguments.seeds)))
        return
    if arguments.show:
        print(show(arguments.show))
        return
    if not arguments.report:
        run(arguments.count, arguments.seeds, arguments.jobs)
    Path(REPORT).write_text(report(), encoding="utf-8")


if __name__ == "__main__":
    main()
