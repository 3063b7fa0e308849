"""Which share of all small changes of the core, the link layer, the wire and healing is found.

    python -m benchmarks.mutants [--count 800] [--seeds 100] [--jobs 2]   what has no result yet
    python -m benchmarks.mutants --report                                 the page, of what there is
    python -m benchmarks.mutants --show NAME                              one mutant as a difference

The mutants are those of `mutating.py`, sampled evenly over the modules of `MODULES` by a seeded choice.
Each is tried twice, in processes of their own, whatever the first try gave:

    (a) the unit and property tests of the room that it is in, until one fails: those of files that name
        its module first, then the others in a mixed order; what does not fit into `TESTS_CPU_S` is run
        at the end of the campaign, and only if (b) found nothing
    (b) the simulator with all its checkers, until one fires, or an error ends it: 100 seeds at most of
        2 to 12 nodes and 2 s of faults, those that send the least first

Tests that fail, and seeds that fire, without any mutant do not count. A mutant whose tests or seed take
far more CPU than without it is killed by its time. Results are kept, a line of JSON each, so that the
campaign can be ended and begun again; a mutant of a module whose text has changed since is tried again.
Survivors that no run can tell from the original are explained in docs/mutants-explained.toml.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
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
NODES: Final = (2, 12)
SECONDS: Final = 2.0
MESSAGES_MAX: Final = 40.0
"""A second, of single messages and segments: a scenario may want five times as many, for five times
the time."""
SEED_CPU_S: Final = 100
"""Bound of one seed's CPU time; the dearest takes less than a tenth without a mutant."""
TESTS_CPU_S: Final = 40
EVERY_TEST_CPU_S: Final = 1_500
"""Bound of all tests' CPU time; they take less than a third without a mutant."""
TRIAL_S: Final = 6_000.0
"""For what waits and does nothing: long, as others may use the same machine."""
SAMPLE_SEED: Final = 15
COUNT: Final = 800
"""Mutants of the whole sample."""

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


def by_tests(mutant: Mutant, *, every: bool) -> Row:
    """Whether the tests of its room fail with the mutant, and which one.

    Args:
        mutant: the change.
        every: all of them, however long that takes.
    """
    words = ["pytest", "-x", "-q", "-p", "benchmarks.mutant_plugin", "-p", "no:cacheprovider"]
    environment = _environment(mutant) | {
        "BMGD_MUTANT": f"{mutant.module} {mutant.number}",
        "BMGD_MUTANT_TESTS": "all" if every else "some",
    }
    began = time.monotonic()
    done = _run([*words, *tests_of(mutant)], environment)
    if done is None:
        return {"killed": True, "by": "its time", "every": every, "s": _since(began)}
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0].split(" ")[1] if failed else ""
    if done.returncode and not by:
        by = "an error while tests were read"
    return {"killed": done.returncode != 0, "by": by, "every": every, "s": _since(began)}


def by_simulator(mutant: Mutant, seeds: int) -> Row:
    """Which checker of the simulator finds the mutant, and after how many seeds."""
    words = ["benchmarks.mutants", "--in-process", f"{mutant.module} {mutant.number}"]
    began = time.monotonic()
    done = _run([*words, "--seeds", str(seeds)], _environment(mutant))
    if done is None:
        row: Row = {"killed": True, "by": "its time", "seeds": 0}
    elif done.returncode:
        by = (done.stderr.strip().splitlines() or ["an error"])[-1][:100]
        row = {"killed": True, "by": f"an error: {by}", "seeds": 0}
    else:
        row = json.loads(done.stdout)
    return row | {"s": _since(began)}


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a module; None when it does not end in its time."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode == -signal.SIGXCPU else done


def _environment(mutant: Mutant) -> dict[str, str]:
    """Where the mutant's module has a twin in C, the Python one must be what runs."""
    environment = dict(os.environ, BMGD_ENGINE="python")
    if mutant.module.startswith("bmgd.routing"):
        environment["BMGD_BACKEND"] = "python"
    return environment


def in_order(seeds: int) -> list[int]:
    """The seeds that are tried, those that send the least first."""
    from bmgd.sim.options import random_scenario

    def sent(seed: int) -> tuple[float, int]:
        size = Random(f"size {seed}").randint(*NODES)
        workload = random_scenario(seed, size, SECONDS).workload
        return min(workload.messages_per_second, MESSAGES_MAX), size

    return sorted(range(seeds), key=sent)


def in_process(name: str, seeds: int) -> Row:
    """Plant the mutant here, and run seeds until one finds it."""
    from benchmarks.planted import run_seed
    from benchmarks.planting import plant

    module, number = name.split()
    plant(mutants_of(module)[int(number)])
    for tried, seed in enumerate(in_order(seeds), 1):
        spent = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (spent + SEED_CPU_S, resource.RLIM_INFINITY))
        found = run_seed(seed, NODES, SECONDS, MESSAGES_MAX)
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
        "tests": by_tests(mutant, every=False),
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
        for future in as_completed([pool.submit(try_one, mutant, seeds) for mutant in missing]):
            row = future.result()
            rows[row["name"]] = row
            _keep(rows)
            print(_line(row), flush=True)
    for mutant in sample(count):
        row = rows[mutant.name]
        if not _is_killed(row) and not row["tests"]["every"]:
            row["tests"] = by_tests(mutant, every=True)
            _keep(rows)
            print(_line(row), flush=True)


def _is_killed(row: Row) -> bool:
    killed: bool = row["tests"]["killed"] or row["simulator"]["killed"]
    return killed


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
    survivors = [row for row in rows if not _is_killed(row)]
    by_a = sum(row["tests"]["killed"] for row in rows)
    by_b = sum(row["simulator"]["killed"] for row in rows)
    known = sum(_key(row) in explained for row in survivors)
    of_modules = len({row["module"] for row in rows})
    lines = [
        "# Mutants",
        "",
        "Small changes of the code, made by the ordinary operators (`benchmarks/mutating.py`) and",
        "sampled evenly over the modules. `python -m benchmarks.mutants` tries them and writes this.",
        f"Each is tried against the tests of its room (for {TESTS_CPU_S} s of CPU, all of them where the",
        "simulator found nothing, at the end) and against the simulator alone: 100 seeds of",
        f"{NODES[0]} to {NODES[1]} nodes and {SECONDS:g} s of faults.",
        "",
        f"**{len(rows)} of the {COUNT} mutants of the sample have been tried**; its order is mixed, so",
        f"those are an even sample too, of {of_modules} of {len(modules())} modules.",
        "",
        f"Of the {len(rows)} the tests of their room find {_share(by_a, rows)},",
        f"the simulator alone {_share(by_b, rows)}, either {_share(len(rows) - len(survivors), rows)}.",
        f"Of {len(survivors)} survivors {known} {'is' if known == 1 else 'are'} explained.",
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
        unexplained = "not explained" if row["tests"]["every"] else "not all tests were run yet"
        why = explained.get(_key(row), unexplained)
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
        alive = sum(not _is_killed(row) for row in own)
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
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants")
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
