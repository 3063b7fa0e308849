"""The simulator as the judge of a mutant: seeds with all checkers, until one fires.

A seed is 2 to 12 nodes and 2 s of faults. Nothing of the core is imported here before `import_all`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.mutants.mutating import Mutant
from benchmarks.mutants.replacing import replace_code
from benchmarks.planted.command import run_seed
from benchmarks.planted.planting import plant
from bmgd.errors import BmgdError

NODES: Final = (2, 12)
SECONDS: Final = 2.0
SEEDS_CPU_S: Final = 100.0
"""After so much, as they took when they were looked at, no further seed is tried: the slowest two fifths
would take four times as long as all others, for every mutant that is not found."""
MESSAGES_MAX: Final = 40.0
"""A second, of single messages and segments: a scenario may want five times as many, for five times
the time."""
NARROW_EVERY: Final = 3
"""In every so many'th seed all bounds are narrow, and most of those at which something is refused."""
NARROW_PERCENTS: Final = (100, 60)
MEMORY_BYTES: Final = 3 << 30
"""What a mutant may take: one that collects without end is found by that."""
UNCAUGHT: Final = (AttributeError, MemoryError, NameError, OSError, RuntimeError, BmgdError)
"""What a mutant may raise and the simulation does not take for a bug; another error ends the process."""
FAILED: Final = 3
"""The exit code of a process that did not come to its first seed."""

Row = dict[str, Any]


def import_all() -> None:
    """Import what a seed needs, so that processes forked afterwards have it."""
    import bmgd.sim.checkers
    import bmgd.sim.options
    import bmgd.sim.simulation  # noqa: F401


def run_one(seed: int) -> list[str]:
    """The names of the checkers that a seed makes fire, the first one first."""
    percents = None if seed % NARROW_EVERY else NARROW_PERCENTS
    return run_seed(seed, NODES, SECONDS, MESSAGES_MAX, percents)


def limit_cpu(seconds: float) -> None:
    """End this process when it has used so much more CPU time."""
    limit = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def hunt(seeds: Sequence[tuple[int, float]]) -> Row:
    """Run seeds until one finds something.

    Args:
        seeds: each with the CPU time that it may take.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for tried, (seed, cpu_s) in enumerate(seeds, 1):
        limit_cpu(cpu_s)
        print(f"{tried} {seed}", flush=True)
        try:
            found = run_one(seed)
        except UNCAUGHT as error:
            found = [f"an error: {type(error).__name__}"]
        if found:
            return {"killed": True, "by": found[0], "seeds": tried, "seed": seed}
    return {"killed": False, "by": "", "seeds": len(seeds), "seed": None}


def hunt_in_fork(mutant: Mutant, seeds: Sequence[tuple[int, float]], is_replaceable: bool) -> Row:
    """Run seeds with a mutant, in a process of its own; everything must have been imported here.

    Args:
        mutant: the change.
        seeds: as in `hunt`.
        is_replaceable: whether it may be put into what is imported.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(writer, 1)
        _hunt_here(mutant, seeds, is_replaceable)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        lines = file.read().splitlines()
    _, status, usage = os.wait4(child, 0)
    return _outcome(lines, status) | {"cpu_s": round(usage.ru_utime + usage.ru_stime, 1)}


def _hunt_here(mutant: Mutant, seeds: Sequence[tuple[int, float]], is_replaceable: bool) -> None:
    """Replace the code and hunt; or begin a process anew that plants the mutant before it imports."""
    code = FAILED
    try:
        if is_replaceable and not has_twin_in_c(mutant) and replace_code(mutant):
            code = 1
            print(json.dumps(hunt(seeds)), flush=True)
            code = 0
        else:
            words = [sys.executable, "-m", "benchmarks.mutants.hunting"]
            words += [mutant.module, str(mutant.number)]
            os.execve(sys.executable, [*words, json.dumps(seeds)], environment_of(mutant))
    finally:
        # Whatever was raised: a fork must not go on as its parent.
        if code:
            traceback.print_exc()
        os._exit(code)


def has_twin_in_c(mutant: Mutant) -> bool:
    """Whether the simulator and the tests take the extension instead, unless told otherwise."""
    return mutant.module.startswith("bmgd.routing")


def environment_of(mutant: Mutant) -> dict[str, str]:
    """Where the mutant's module has a twin in C, the Python one must be what runs."""
    environment = dict(os.environ, BMGD_ENGINE="python")
    if has_twin_in_c(mutant):
        environment["BMGD_BACKEND"] = "python"
    return environment


def _outcome(lines: list[str], status: int) -> Row:
    """What a process tells: a line for each seed that it begins, and at last what it found."""
    last = lines[-1] if lines else ""
    if last.startswith("{"):
        row: Row = json.loads(last)
        return row
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == FAILED:
        raise RuntimeError("a process did not come to its first seed; its traceback stands above")
    tried, seed = (int(word) for word in last.split()) if last else (0, None)
    by = f"an error that ends the process: {status}"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        by = "its time"
    return {"killed": True, "by": by, "seeds": tried, "seed": seed}


def main() -> None:
    """In a process of its own: plant the mutant, then import."""
    module, number, seeds = sys.argv[1:]
    from benchmarks.mutants.mutating import mutants_of

    plant(mutants_of(module)[int(number)])
    import_all()
    print(json.dumps(hunt(json.loads(seeds))), flush=True)


if __name__ == "__main__":
    main()
