"""Random events into one core: nothing that peers and programs can cause makes `Node.step` raise.

    python -m benchmarks.random_events run [--events 1000000] [--first 1] [--jobs 1]
    python -m benchmarks.random_events seed 17      one seed, with its last events when it fails

A seed makes a core and 2,000 events: messages of every kind with arbitrary fields, hellos, links that
come and go, dials that fail in every way, commands of programs, deadlines, pauses. `world.py` gives
only what the shell can give, and checks what the core orders.

`run` goes on where it ended: a line of `build/random-events.jsonl` for each seed.
"""

from __future__ import annotations

import argparse
import json
import signal
import struct
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import Any, get_args

from benchmarks.arbitrary.values import MS
from benchmarks.random_events.world import World
from bmgd.core.events import Event
from bmgd.errors import BmgdError

EVENTS_PER_SEED = 2_000
STUCK_CPU_S = 60.0
"""A seed takes a few seconds; one step that takes this long is a failure too."""
OUT = Path(__file__).parents[2] / "build" / "random-events.jsonl"


class StuckError(Exception):
    """A step does not end."""


RAISED = (
    *(BmgdError, StuckError, AssertionError, ArithmeticError, AttributeError, LookupError),
    *(MemoryError, RuntimeError, TypeError, ValueError, struct.error),
)
"""What a step could raise by mistake."""


def run_seed(seed: int, events: int = EVENTS_PER_SEED) -> dict[str, Any]:
    """What came of one seed: its counts, and the traceback where something was raised."""
    world = World(seed)
    problem = ""
    began_s = time.process_time()
    # Sets of ids are integers of up to 131,072 bits, and are shown where something fails.
    sys.set_int_max_str_digits(0)
    signal.signal(signal.SIGPROF, _on_stuck)
    signal.setitimer(signal.ITIMER_PROF, STUCK_CPU_S)
    try:
        world.run(events)
    except RAISED:
        problem = traceback.format_exc()
        problem += "".join(f"\n  {event!r:.600}" for event in world.last)
    signal.setitimer(signal.ITIMER_PROF, 0)
    slowest_ns, slowest = world.slowest
    return {
        "seed": seed,
        "events": sum(world.counts[name] for name in _EVENT_NAMES),
        "cpu_s": round(time.process_time() - began_s, 3),
        "slowest_ms": round(slowest_ns / MS, 1),
        "slowest": f"{slowest!r:.300}",
        "problem": problem,
        "counts": dict(world.counts),
    }


def _on_stuck(number: int, frame: FrameType | None) -> None:
    raise StuckError(f"more than {STUCK_CPU_S:.0f} s of processor")


_EVENT_NAMES = frozenset(kind.__name__ for kind in get_args(Event))


def run(first: int, events: int, jobs: int) -> int:
    """Run the seeds that are missing; returns the command's exit code."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if OUT.exists():
        done = {row["seed"]: row for row in map(json.loads, OUT.read_text().splitlines())}
    seeds = range(first, first + -(-events // EVENTS_PER_SEED))
    failed = [seed for seed in seeds if seed in done and done[seed]["problem"]]
    missing = [seed for seed in seeds if seed not in done or done[seed]["problem"]]
    with OUT.open("a") as out, ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(run_seed, seed) for seed in missing]):
            row = future.result()
            done[row["seed"]] = row
            out.write(json.dumps(row) + "\n")
            out.flush()
            if row["problem"]:
                print(f"seed {row['seed']}: {row['problem']}", flush=True)
    failed = [seed for seed in seeds if done[seed]["problem"]]
    total = sum(done[seed]["events"] for seed in seeds)
    cpu_s = sum(done[seed]["cpu_s"] for seed in seeds)
    print(f"{total:,} events of {len(seeds):,} seeds, {cpu_s:.0f} s of processor, failed: {failed}")
    return 1 if failed else 0


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_events")
    verbs = parser.add_subparsers(dest="verb", required=True)
    many = verbs.add_parser("run")
    many.add_argument("--events", type=int, default=1_000_000)
    many.add_argument("--first", type=int, default=1)
    many.add_argument("--jobs", type=int, default=1)
    one = verbs.add_parser("seed")
    one.add_argument("number", type=int)
    options = parser.parse_args()
    if options.verb == "run":
        return run(options.first, options.events, options.jobs)
    row = run_seed(options.number)
    print(json.dumps(row["counts"], indent=1), row["problem"], sep="\n")
    return 1 if row["problem"] else 0
