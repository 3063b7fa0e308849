"""Which checker finds each planted bug of the core, and after how many seeds.

    python -m benchmarks.planted                  all without a result on this core, then the report
    python -m benchmarks.planted --only NAME      one of them, again; "none" for the core without a bug
    python -m benchmarks.planted --jobs 4         so many bugs at a time
    python -m benchmarks.planted --report         the report alone

Each bug is planted in a process of its own. There it is first tried whether it shows without checkers: a
cluster of 16 joins, loses one node, heals; then seeds are run, with all checkers, until one finds it.
Seeds in which a checker fires without any bug do not count. Results are kept, one JSON line each, so
that the command can be ended and begun again; a bug whose text has changed is run again, and so is
what was run on another core (`benchmarks.core_sources`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.core_sources import digest
from benchmarks.planted.planting import ROOT, Bug, plant, read_bugs

RESULTS = ROOT / "docs" / "results" / "planted.jsonl"
REPORT = ROOT / "docs" / "planted-bugs.md"
NODES = (3, 16)
SECONDS = 8.0
REST_LIMIT_S = 30.0
NONE = "none"

Row = dict[str, Any]


# --- in the process of a bug ------------------------------------------------------------------------


def passes_by_eye(size: int = 16) -> bool:
    """Whether a cluster joins, loses a node and heals, as far as its links and digests show."""
    from bmgd.errors import BmgdError
    from bmgd.sim import Network
    from bmgd.sim.rest import unrest

    try:
        network = Network(size)
        for victim in (None, 3):
            if victim is not None:
                network.kill(victim)
            network.run(0.2)
            network.run_until(lambda: not unrest(network), REST_LIMIT_S)
            network.run(3)
            if unrest(network):
                return False
    except (BmgdError, TimeoutError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


def run_seed(
    seed: int,
    nodes: tuple[int, int] = NODES,
    seconds: float = SECONDS,
    messages_max: float = inf,
    narrow_percents: tuple[int, int] | None = None,
) -> list[str]:
    """The names of the checkers that a seed makes fire, the first one first.

    Args:
        seed: decides the scenario.
        nodes: least and most founders.
        seconds: how long faults go on.
        messages_max: so many are sent in a second at most.
        narrow_percents: how many bounds are narrow, and how many of those at which something is refused;
            None for as many as the seed says.
    """
    from bmgd.errors import BmgdError
    from bmgd.sim.checkers import inspect
    from bmgd.sim.options import narrow, random_scenario
    from bmgd.sim.simulation import Simulation

    size = Random(f"size {seed}").randint(*nodes)
    plan = random_scenario(seed, size, seconds)
    per_second = min(plan.workload.messages_per_second, messages_max)
    workload = replace(plan.workload, messages_per_second=per_second)
    plan = replace(plan, workload=workload)
    if narrow_percents is not None:
        plan = narrow(plan, *narrow_percents)
    simulation = Simulation(plan, [inspect], traces=False)
    try:
        violations = simulation.run().violations
    except (BmgdError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return [f"no-bug-is-met ({type(error).__name__})"]
    in_time = sorted(violations, key=lambda violation: violation.at_ns)
    return list(dict.fromkeys(violation.checker for violation in in_time))


def run_bug(bug: Bug | None, seeds: int, clean: set[int]) -> Row:
    """Plant a bug, and run seeds until a checker finds it."""
    began = time.monotonic()
    if bug is not None:
        plant(bug)
    row: Row = {"name": bug.name if bug else NONE, "changes": list(bug.changes) if bug else []}
    row["passes_by_eye"] = passes_by_eye()
    if bug is None:
        row["fired"] = {str(seed): found for seed in range(seeds) if (found := run_seed(seed))}
        row["tried"] = seeds
    else:
        row |= _hunt(seeds, clean)
    return row | {"real_s": round(time.monotonic() - began, 1)}


def _hunt(seeds: int, clean: set[int]) -> Row:
    tried = 0
    for seed in range(seeds):
        if seed not in clean:
            continue
        tried += 1
        found = run_seed(seed)
        if found:
            return {"found_by": found, "seed": seed, "tried": tried}
    return {"found_by": [], "tried": tried}


# --- all of them ----------------------------------------------------------------------------------------


def read_rows() -> dict[str, Row]:
    """The results until now, by the bug's name."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def write_rows(rows: dict[str, Row]) -> None:
    """Keep the results, by name."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row) for _, row in sorted(rows.items())]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _in_own_process(name: str, seeds: int) -> Row:
    command = [sys.executable, "-m", "benchmarks.planted", "--in-process", name]
    done = subprocess.run(
        [*command, "--seeds", str(seeds)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}")
    row: Row = json.loads(done.stdout)
    return row


def run_all(bugs: Iterable[Bug], seeds: int, only: str, jobs: int) -> None:
    """Run what has no result yet, so many bugs at a time, and keep each result at once."""
    rows, core = read_rows(), digest()
    none = rows.get(NONE, {})
    if only == NONE or none.get("tried", 0) < seeds or none.get("core") != core:
        rows[NONE] = _in_own_process(NONE, seeds) | {"core": core}
        write_rows(rows)
        print(f"without a bug, {seeds} seeds: {rows[NONE]['fired'] or 'nothing fires'}", flush=True)
    chosen = [
        bug.name
        for bug in bugs
        if (bug.name == only if only else not _is_found(rows.get(bug.name), bug, core))
    ]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed(
                [pool.submit(_in_own_process, name, seeds) for name in chosen]
            ):
                row = done.result()
                rows[row["name"]] = row | {"core": core}
                write_rows(rows)
                print(_line(row), flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _line(row: Row) -> str:
    found = f"{row['found_by'][0]}, seed {row['seed']}" if row["found_by"] else "NOT FOUND"
    by_eye = "hidden" if row["passes_by_eye"] else "visible"
    return f"{row['name']}: {by_eye}; {found}; {row['real_s']} s"


def _is_found(row: Row | None, bug: Bug, core: str) -> bool:
    """Whether a result says that this bug's present text was found on this core."""
    changes = [list(pair) for pair in bug.changes]
    return (
        row is not None
        and row["changes"] == changes
        and row.get("core") == core
        and bool(row["found_by"])
    )


def report(bugs: list[Bug]) -> str:
    """The results as a page of the documentation."""
    rows = read_rows()
    done = [(bug, rows[bug.name]) for bug in bugs if bug.name in rows]
    found = [row for _, row in done if row["found_by"]]
    hidden = sum(1 for _, row in done if row["passes_by_eye"])
    cores = Counter(str(row.get("core")) for _, row in done).most_common()
    none = rows.get(NONE, {"tried": 0, "fired": {}})
    tried = sorted(row["tried"] for row in found)
    lines = [
        "# Planted bugs",
        "",
        "Deliberate mutations of the core ([tests/sim/planted.toml](../tests/sim/planted.toml)), each",
        "planted in a process of its own by `python -m benchmarks.planted`, which writes this page.",
        "",
        f"{len(done)} of {len(bugs)} were run: {', '.join(f'{n} on core {core}' for core, n in cores)}",
        f"(`python -m benchmarks.core_sources` prints the digest of the present one, {digest()}).",
        f"{len(found)} are found by a checker, half of them within",
        f"{tried[len(tried) // 2] if tried else 0} seeds, all within {tried[-1] if tried else 0}. "
        f"{hidden} of them are hidden: a cluster of 16",
        "still joins, loses a node and heals, and looks in order. A seed is a random scenario of",
        f"{NODES[0]} to {NODES[1]} nodes and {SECONDS:g} simulated seconds of faults. Without a bug, a",
        f"checker fires in {len(none['fired'])} of {none['tried']} seeds; those are left out.",
        "",
        "| bug | breaks the rule that | hidden | found by | seeds |",
        "|---|---|---|---|---|",
    ]
    for bug, row in done:
        eye = "yes" if row["passes_by_eye"] else "no"
        by = ", ".join(row["found_by"]) or "**nobody**"
        lines.append(f"| {bug.name} | {bug.breaks} | {eye} | {by} | {row['tried']} |")
    first = Counter(row["found_by"][0] for row in found)
    lines += ["", "| checker | finds first |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in first.most_common()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted")
    parser.add_argument("--seeds", type=int, default=120, help="tried at most for each bug")
    parser.add_argument("--only", default="", help="the name of one bug, to be run again; or none")
    parser.add_argument("--report", action="store_true", help="write the report, run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="bugs at a time")
    parser.add_argument("--in-process", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    bugs = read_bugs()
    if arguments.in_process:
        bug = next((b for b in bugs if b.name == arguments.in_process), None)
        fired = read_rows().get(NONE, {}).get("fired", {})
        clean = {seed for seed in range(arguments.seeds) if str(seed) not in fired}
        print(json.dumps(run_bug(bug, arguments.seeds, clean)))
        return
    if not arguments.report:
        run_all(bugs, arguments.seeds, arguments.only, arguments.jobs)
    Path(REPORT).write_text(report(bugs), encoding="utf-8")
