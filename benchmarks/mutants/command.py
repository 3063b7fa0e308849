"""Which share of all small changes of the core, the link layer, the wire and healing is found.

    python -m benchmarks.mutants [--count 800] [--seeds 100] [--jobs 2]   what has no result yet
    python -m benchmarks.mutants --again                                  what older checkers did not find
    python -m benchmarks.mutants --report                                 the page, of what there is
    python -m benchmarks.mutants --only TEXT                              those named so, in the simulator
    python -m benchmarks.mutants --only TEXT --tests FILE...              those named so, in these tests
    python -m benchmarks.mutants --show NAME                              one mutant as a difference
    python -m benchmarks.mutants --unreached [MODULE...]                  statements that no seed comes to

The mutants are those of `mutating.py`, sampled evenly over the modules of `MODULES` by a hash of their
names. Each is tried in processes of its own:

    1. the simulator with all its checkers, until one fires, or an error ends it: 100 seeds at most of
       2 to 12 nodes and 2 s of faults, those that take the least time first, up to a time in all
       (`hunting.py`); in every third one all bounds are narrow
    2. where that found nothing, the unit and property tests of the room that it is in, until one fails:
       those of files that name its module first, then the others, each by its time (`plugin.py`)

Seeds and tests that never come to the changed statement would be the same as without the change, and are
left out (`reached.py`). Those that fail without any mutant do not count. A mutant whose seed or tests
take far more CPU than without it is killed by its time. Results are kept, a line of JSON each, so that
the campaign can be ended and begun again; a mutant of a function whose text has changed since is tried
again. What the simulator did not find, it tries again only with `--again`, when any source has changed
since: there may be a checker for it now. Survivors that no run can tell from the original are explained
in docs/mutants-explained.toml.

Tests that are named are all run, until one fails; if none does, that is no result, as others might.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import accumulate
from typing import Any, Final

from benchmarks.mutants import hunting, reached
from benchmarks.mutants.mutating import ROOT, Mutant, mutants_of, path_of
from benchmarks.mutants.reached import Reached
from benchmarks.mutants.report import report

RESULTS: Final = ROOT / "docs" / "results" / "mutants.jsonl"
REPORT: Final = ROOT / "docs" / "mutants.md"
ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "bmgd/core": ("tests/unit/core", "tests/property"),
    "bmgd/linklayer": ("tests/unit/linklayer", "tests/property"),
    "bmgd/wire": ("tests/unit/wire", "tests/golden"),
    "bmgd/healing.py": ("tests/unit/test_healing.py", "tests/paper/test_healing_links.py"),
    "bmgd/routing/reference.py": ("tests/unit/routing", "tests/golden"),
}
"""Where mutants are made, and the tests of each."""
SAMPLE_SEED: Final = 15
COUNT: Final = 800
"""Mutants of the whole sample."""
SEED_CPU_S: Final = (5.0, 3.0)
"""What a seed may take: so much, and so many times what it took when it was looked at."""
TESTS_CPU_S: Final = (60.0, 3.0)
"""What all tests may take, in the same way."""
NAMED_TESTS_CPU_S: Final = 900.0
"""What tests may take that were chosen by hand."""
TESTS_S: Final = 6_000.0
"""For tests that wait and do nothing: long, as others may use the same machine."""

Row = dict[str, Any]
Trial = Callable[[Mutant], Row]


# --- which mutants --------------------------------------------------------------------------------------


def modules() -> list[str]:
    """The modules that mutants are made of, sorted."""
    found = []
    for room in ROOMS:
        path = ROOT / room
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        found += [
            ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for file in files
            if file.name != "__init__.py"
        ]
    return sorted(found)


def sample(count: int) -> list[Mutant]:
    """As many mutants, the same number of each module as far as it has them, from module to module.

    Those that have a result come first, so that moving a function to another module, which gives its
    mutants other names, does not take them out of the sample.
    """
    tried = _read_results()
    waiting = {
        module: sorted(
            mutants_of(module), key=lambda mutant: (_fits(mutant, tried), _place(mutant))
        )
        for module in modules()
    }
    chosen: list[Mutant] = []
    while len(chosen) < count and any(waiting.values()):
        for mutants in waiting.values():
            if mutants and len(chosen) < count:
                chosen.append(mutants.pop())
    return chosen


def _place(mutant: Mutant) -> bytes:
    """Of the name alone: so a sample changes little where sources change little."""
    return hashlib.blake2b(f"{SAMPLE_SEED} {mutant.name}".encode(), digest_size=8).digest()


def room_of(mutant: Mutant) -> tuple[str, ...]:
    """The places of the tests of what a mutant changes."""
    path = str(mutant.path.relative_to(ROOT))
    return next(tests for room, tests in ROOMS.items() if path.startswith(room))


# --- trying one -----------------------------------------------------------------------------------------


def by_simulator(mutant: Mutant, seeds: Reached, found: Counter[int]) -> Row:
    """Which checker of the simulator finds the mutant, and after how many seeds.

    Args:
        mutant: the change.
        seeds: what comes to which lines.
        found: how many mutants each seed has found until now; such ones are tried sooner.
    """
    names = list(seeds.cpu_s) if hunting.has_twin_in_c(mutant) else seeds.by(mutant)
    names.sort(key=lambda name: seeds.cpu_s[name])
    spent_s = accumulate(seeds.cpu_s[name] for name in names)
    names = [
        name
        for name, so_far_s in zip(names, spent_s, strict=True)
        if so_far_s <= hunting.SEEDS_CPU_S
    ]
    names.sort(key=lambda name: seeds.cpu_s[name] / (1 + found[int(name)]))
    least_s, times = SEED_CPU_S
    limited = [(int(name), least_s + times * seeds.cpu_s[name]) for name in names]
    row = hunting.hunt_in_fork(mutant, limited, seeds.is_replaceable(mutant))
    return row | {"reached_by": len(names)}


def by_tests(mutant: Mutant, tests: Reached) -> Row:
    """Whether the tests of its room fail with the mutant, and which one."""
    names = list(tests.cpu_s) if hunting.has_twin_in_c(mutant) else tests.by(mutant)
    names = [name for name in names if name.startswith(room_of(mutant))]
    near = {file for file in {_file(name) for name in names} if _is_named_in(mutant, file)}
    names.sort(key=lambda name: (_file(name) not in near, tests.cpu_s[name]))
    if not names:
        return {"killed": False, "by": "", "tests": 0, "cpu_s": 0.0}
    least_s, times = TESTS_CPU_S
    cpu_s = least_s + times * sum(tests.cpu_s[name] for name in names)
    return _by_tests(mutant, names, sorted({_file(name) for name in names}), cpu_s)


def by_named_tests(mutant: Mutant, files: list[str]) -> Row:
    """Whether one of all tests in some files fails with the mutant."""
    return _by_tests(mutant, [], files, NAMED_TESTS_CPU_S)


def _by_tests(mutant: Mutant, names: list[str], files: list[str], cpu_s: float) -> Row:
    """Run tests, all of the files where none is named, in so much CPU time."""
    reached.BUILD.mkdir(parents=True, exist_ok=True)
    chosen = reached.BUILD / f"tests-{os.getpid()}.json"
    order = {"module": mutant.module, "number": mutant.number, "cpu_s": cpu_s, "tests": names}
    chosen.write_text(json.dumps(order), encoding="utf-8")
    environment = hunting.environment_of(mutant) | {"BMGD_MUTANT": str(chosen)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    by = _run_tests(files, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    chosen.unlink()
    return {"killed": bool(by), "by": by, "tests": len(names), "cpu_s": round(spent_s, 1)}


def _file(name: str) -> str:
    return name.split("::")[0]


def _is_named_in(mutant: Mutant, file: str) -> bool:
    return mutant.module in (ROOT / file).read_text(encoding="utf-8")


def _run_tests(files: list[str], environment: dict[str, str]) -> str:
    """Run the tests that the plugin is told of; the first one that fails, or what else ended them."""
    words = ["-x", "-q", "-p", "benchmarks.mutants.plugin", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=TESTS_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "its time"
    if done.returncode == -signal.SIGXCPU:
        return "its time"
    if "no tests ran" in done.stdout or not done.stdout:
        raise RuntimeError(f"no test was run: {done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0].split(" ")[1]
    return f"an error: pytest ends with {done.returncode}" if done.returncode else ""


# --- all of them ----------------------------------------------------------------------------------------


def read_rows(chosen: list[Mutant]) -> dict[str, Row]:
    """The results of mutants of the sample for the present texts, by the mutant's name."""
    tried = _read_results()
    return {
        mutant.name: tried[mutant.name] | {"line": mutant.line}
        for mutant in chosen
        if _fits(mutant, tried)
    }


def _read_results() -> dict[str, Row]:
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {row["name"]: row for row in rows}


def _fits(mutant: Mutant, tried: dict[str, Row]) -> bool:
    """Whether a mutant has a result, and of its present text."""
    return mutant.name in tried and tried[mutant.name]["text"] == mutant.text


def _keep(rows: dict[str, Row]) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for _, row in sorted(rows.items())]
    RESULTS.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(chosen: list[Mutant], seeds: int, jobs: int, *, again: bool) -> None:
    """Try what has no result for the present text, and keep each result at once.

    Args:
        chosen: the sample.
        seeds: tried at most for each.
        jobs: tried at a time.
        again: try instead what the simulator did not find when other sources were there.
    """
    os.environ["BMGD_ENGINE"] = "python"
    rows = read_rows(chosen)
    sources = reached.text_of_all("seeds")
    missing = [mutant for mutant in chosen if mutant.name not in rows]
    if again:
        tried = [mutant for mutant in chosen if mutant.name in rows]
        missing = [mutant for mutant in tried if _is_missed(rows[mutant.name], sources)]
    print(f"{len(missing)} of {len(chosen)} mutants to try", flush=True)
    if missing:
        found = Counter(row["simulator"]["seed"] for row in rows.values())
        trial = partial(try_simulator, seeds=_look("seeds", seeds, jobs), found=found)
        hunting.import_all()
        for row in _try_all(trial, missing, jobs):
            tests = rows.get(row["name"], row)["tests"]
            rows[row["name"]] = row | {"tests": tests, "sources": sources}
            _keep(rows)
    left = [m for m in chosen if m.name in rows and _needs_tests(rows[m.name])]
    print(f"{len(left)} of them to be tried by tests", flush=True)
    if left:
        for row in _try_all(partial(try_tests, tests=_look("tests", seeds)), left, jobs):
            rows[row["name"]] |= {"tests": row["tests"]}
            _keep(rows)


def run_only(chosen: list[Mutant], text: str, seeds: int, files: list[str]) -> None:
    """Try mutants again whose names have a text in them: by the simulator, or by all tests of files."""
    os.environ["BMGD_ENGINE"] = "python"
    rows = read_rows(chosen)
    named = [mutant for mutant in chosen if text in mutant.name]
    if not files:
        trial = partial(try_simulator, seeds=_look("seeds", seeds), found=Counter())
        hunting.import_all()
        sources = reached.text_of_all("seeds")
        for row in _try_all(trial, named, 1):
            tests = rows.get(row["name"], row)["tests"]
            rows[row["name"]] = row | {"tests": tests, "sources": sources}
            _keep(rows)
        return
    for mutant in [mutant for mutant in named if mutant.name in rows]:
        tests = by_named_tests(mutant, files)
        print(f"{mutant.name}: {tests['by'] or 'NO TEST'} ({tests['cpu_s']} s)", flush=True)
        if tests["killed"]:
            rows[mutant.name] |= {"tests": tests}
            _keep(rows)


def _try_all(trial: Trial, mutants: list[Mutant], jobs: int) -> Iterator[Row]:
    """The rows of mutants as they come, from processes that have imported what this one has."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        for done in as_completed([pool.submit(trial, mutant) for mutant in mutants]):
            row = done.result()
            print(_line(row), flush=True)
            yield row


def _look(name: str, seeds: int, jobs: int = 1) -> Reached:
    """What comes to which lines: what is known, or found in a process of its own."""
    known = reached.read(name)
    if known is None:
        print(f"looking which {name} come to which lines", flush=True)
        if name == "seeds":
            words = ["benchmarks.mutants", "--look", "--seeds", str(seeds), "--jobs", str(jobs)]
        else:
            places = sorted({place for room in ROOMS.values() for place in room})
            words = ["pytest", "-q", "-p", "benchmarks.mutants.plugin", *places]
        variables = dict(os.environ, BMGD_MUTANT="")
        subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=variables, check=False)
        known = reached.read(name)
    if known is None:
        sys.exit(f"it was not found which {name} come to which lines")
    return known


def try_simulator(mutant: Mutant, seeds: Reached, found: Counter[int]) -> Row:
    """The row of a mutant that has not been tried by tests."""
    return {
        "name": mutant.name,
        "text": mutant.text,
        "module": mutant.module,
        "line": mutant.line,
        "operator": mutant.operator,
        "change": mutant.change,
        "simulator": by_simulator(mutant, seeds, found),
        "tests": None,
    }


def try_tests(mutant: Mutant, tests: Reached) -> Row:
    """What is to be added to a mutant's row."""
    return {"name": mutant.name, "tests": by_tests(mutant, tests)}


def _needs_tests(row: Row) -> bool:
    return not row["simulator"]["killed"] and row["tests"] is None


def _is_missed(row: Row, sources: str) -> bool:
    """Whether the simulator did not find it, with other sources than these."""
    return not row["simulator"]["killed"] and row.get("sources") != sources


def _line(row: Row) -> str:
    if row["tests"] is not None:
        tests = row["tests"]
        return f"{row['name']}: {tests['by'] or 'NO TEST'} ({tests['tests']} tests, {tests['cpu_s']} s)"
    simulator = row["simulator"]
    of_seeds = f"{simulator['seeds']} of {simulator['reached_by']} seeds, {simulator['cpu_s']} s"
    return f"{row['name']}: {simulator['by'] or 'NO CHECKER'} ({of_seeds})"


def show(name: str) -> str:
    """One mutant as a difference of sources without comments."""
    module = name.split(":")[0]
    mutant = next(m for m in mutants_of(module) if m.name == name)
    source = mutant.path.read_text(encoding="utf-8")
    before = ast.unparse(ast.parse(source)).splitlines()
    after = mutant.applied_to(source).splitlines()
    return "\n".join(difflib.unified_diff(before, after, "original", "mutant", lineterm=""))


def show_unreached(names: list[str], seeds: int) -> None:
    """Print the statements that no seed comes to.

    Args:
        names: of modules; all where there are none, in the order of how much they miss.
        seeds: as many as a mutant is tried against.
    """
    found = _look("seeds", seeds)
    missed = {module: found.missed(module) for module in names or modules()}
    for module, lines in sorted(missed.items(), key=lambda item: len(item[1])):
        source = path_of(module).read_text(encoding="utf-8").splitlines()
        for line in lines:
            print(f"{module}:{line}: {source[line - 1].strip()}")
    print(f"{sum(map(len, missed.values()))} statements of {len(missed)} modules")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants")
    parser.add_argument("--seeds", type=int, default=100, help="tried at most for each")
    parser.add_argument("--jobs", type=int, default=2, help="tried at a time")
    parser.add_argument(
        "--again", action="store_true", help="what the simulator did not find before"
    )
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    parser.add_argument("--show", default="", metavar="NAME", help="one mutant as a difference")
    parser.add_argument(
        "--unreached", nargs="*", metavar="MODULE", help="statements that no seed comes to"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="those with a text in their name"
    )
    parser.add_argument("--tests", nargs="+", default=[], metavar="FILE", help="of --only: these")
    parser.add_argument("--look", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.show:
        print(show(arguments.show))
        return
    if arguments.unreached is not None:
        show_unreached(arguments.unreached, arguments.seeds)
        return
    if arguments.look:
        reached.find_seeds(modules(), arguments.seeds, arguments.jobs)
        return
    missing = [file for file in arguments.tests if not (ROOT / file.split("::")[0]).exists()]
    if missing:
        parser.error(f"there is no file {missing[0]}")
    if arguments.only:
        run_only(sample(arguments.count), arguments.only, arguments.seeds, arguments.tests)
    elif not arguments.report:
        chosen = sample(arguments.count)
        run(chosen, arguments.seeds, arguments.jobs, again=arguments.again)
    chosen = sample(COUNT)
    rows = list(read_rows(chosen).values())
    text = report(rows, len(chosen), modules(), reached.text_of_all("seeds"))
    REPORT.write_text(text, encoding="utf-8")
