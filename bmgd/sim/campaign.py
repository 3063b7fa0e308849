"""Many seeds, one after the other, with progress that survives: each result is a line of a file.

A campaign that is begun again reads its file first and runs only what is missing, so it can be ended
at any time. Workers are processes of their own; the file is written by one.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from random import Random
from typing import Any, Final

from bmgd.errors import BmgdError, PlanError
from bmgd.sim.checkers import inspect
from bmgd.sim.options import random_scenario
from bmgd.sim.simulation import Outcome, Simulation

Row = dict[str, Any]
_BEGINNING: Final = b'{"seed":'
"""Of every line of a campaign's file."""
_ASKED: Final[dict[str, tuple[type, ...]]] = {
    "seed": (int,),
    "nodes": (int,),
    "seconds": (int, float),
    "virtual_s": (int, float),
    "verdict": (str,),
}
"""What is asked of a line, and of which type it is."""
OBJECTS_UNTIL_COLLECTED: Final = 20_000
"""A run makes few cycles of objects: they are looked for less often than Python would."""
SEEDS_PER_WORKER: Final = 50
"""Compiled classes leave cycles behind that are never freed, and each look for cycles passes them all."""
SECONDS_PER_WORKER: Final = 10_000.0
"""Of simulated time, for the same reason: what seeds of an hour leave behind is much sooner."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is to be run.

    Args:
        first, last: the seeds, both included.
        nodes_min, nodes_max: a seed decides how many nodes it has.
        seconds: how long faults go on in each.
        hours: enough when so many simulated hours have been run in all; 0 for no such end.
    """

    first: int
    last: int
    nodes_min: int = 2
    nodes_max: int = 33
    seconds: float = 20.0
    hours: float = 0.0

    def nodes_of(self, seed: int) -> int:
        """How many nodes a seed has."""
        return Random(f"size {seed}").randint(self.nodes_min, self.nodes_max)

    def run_seed(self, seed: int) -> Outcome:
        """Run one seed."""
        return Simulation(random_scenario(seed, self.nodes_of(seed), self.seconds), [inspect]).run()

    def has(self, row: Row) -> bool:
        """Whether a result is one of this campaign's."""
        seed = row["seed"]
        is_within = self.first <= seed <= self.last
        return is_within and (row["nodes"], row["seconds"]) == (self.nodes_of(seed), self.seconds)


@dataclass(slots=True)
class Progress:
    """What was run until now, earlier beginnings included."""

    seeds: int = 0
    failed: int = 0
    virtual_s: float = 0.0

    def add(self, row: Row) -> None:
        """Count one result."""
        self.seeds += 1
        self.failed += row["verdict"] != "pass"
        self.virtual_s += row["virtual_s"]


def row_of(campaign: Campaign, seed: int, outcome: Outcome) -> Row:
    """A result as a line of the file has it; a failing one has its whole plan.

    Its seconds are those that were asked for; a plan with much traffic may have more.
    """
    row: Row = outcome.to_row()
    row.pop("options")
    if not outcome.passed:
        row["plan"] = json.loads(outcome.plan.to_json())
    return {"seed": seed, "seconds": campaign.seconds} | row


def read_rows(path: Path) -> Iterator[Row]:
    """The results in a campaign's file; a last line that was cut off is left out.

    What is no regular file (/dev/null) has none.

    Raises:
        PlanError: the file is not one of a campaign.
    """
    if not path.is_file():
        return
    data = path.read_bytes()
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not _is_row(row):
            is_cut_off = number == len(lines) and not data.endswith(b"\n")
            if is_cut_off and line.startswith(_BEGINNING[: len(line)]):
                return
            raise PlanError(f"{path}, line {number}: not a result of a campaign")
        yield row


def _is_row(row: object) -> bool:
    """Whether a line has what a campaign asks of its results."""
    if not isinstance(row, dict):
        return False
    return all(
        isinstance(row.get(name), types) and not isinstance(row[name], bool)
        for name, types in _ASKED.items()
    )


def seeds_per_worker(campaign: Campaign) -> int:
    """How many seeds one process runs before another takes its place."""
    return min(SEEDS_PER_WORKER, 1 + int(SECONDS_PER_WORKER / max(1.0, campaign.seconds)))


def run_campaign(
    campaign: Campaign, path: Path, jobs: int, report: Callable[[Progress, Row | None], None]
) -> Progress:
    """Run what is missing.

    Args:
        campaign: the seeds.
        path: results are appended here.
        jobs: how many processes, 1 or more.
        report: called after each result, and once before the first (with None).

    Raises:
        PlanError: the file is not one of a campaign, or one of another campaign.
    """
    progress, done = Progress(), set()
    rows = list(read_rows(path))
    for number, row in enumerate(rows, 1):
        if not campaign.has(row):
            raise PlanError(f"{path}, line {number}: of a campaign with other seeds, nodes or time")
        progress.add(row)
        done.add(row["seed"])
    _mend(path, rows)
    report(progress, None)
    missing = (seed for seed in range(campaign.first, campaign.last + 1) if seed not in done)
    with path.open("a", encoding="utf-8") as file:
        for row in _results(campaign, missing, jobs, progress):
            file.write(_line(row))
            file.flush()
            progress.add(row)
            report(progress, row)
    return progress


def _mend(path: Path, rows: list[Row]) -> None:
    """Let a line go that was cut off by the end of an earlier campaign; the others are never at risk."""
    if not path.is_file() or path.read_bytes()[-1:] in (b"", b"\n"):
        return
    whole = path.with_name(f"{path.name}.whole")
    whole.write_text("".join(_line(row) for row in rows), encoding="utf-8")
    whole.replace(path)


def _line(row: Row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def _results(
    campaign: Campaign, seeds: Iterable[int], jobs: int, progress: Progress
) -> Iterator[Row]:
    """Results as they come, with at most two seeds per worker underway.

    Raises:
        BmgdError: a worker was ended by somebody else.
    """
    enough_s = campaign.hours * 3600 or float("inf")
    context = multiprocessing.get_context("spawn")
    waiting = iter(seeds)
    underway: set[Future[Row]] = set()
    pool = ProcessPoolExecutor(
        jobs, context, initializer=begin_worker, max_tasks_per_child=seeds_per_worker(campaign)
    )
    with pool as workers, _ended_early():
        while True:
            while len(underway) < 2 * jobs and progress.virtual_s < enough_s:
                seed = next(waiting, None)
                if seed is None:
                    break
                underway.add(workers.submit(run_row, campaign, seed))
            if not underway:
                return
            ended, underway = wait(underway, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()


@contextmanager
def _ended_early() -> Iterator[None]:
    """Where the block is left before its end (Ctrl-C), the workers do not finish their seeds.

    Raises:
        BmgdError: a worker was ended by somebody else.
    """
    is_whole = False
    try:
        yield
        is_whole = True
    except BrokenProcessPool:
        raise BmgdError(
            "a worker of the campaign was killed (is there enough memory?): the same command goes on"
        ) from None
    finally:
        if not is_whole:
            for worker in multiprocessing.active_children():
                worker.kill()


def begin_worker() -> None:
    """What a process needs before its first seed."""
    gc.set_threshold(OBJECTS_UNTIL_COLLECTED)
    end_with_parent()


def end_with_parent() -> None:
    """Let this worker end as soon as the campaign does, whatever seed it has in its hands."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent.sentinel,), daemon=True).start()


def _outlive(sentinel: int) -> None:
    wait_for_any([sentinel])
    os._exit(1)


def run_row(campaign: Campaign, seed: int) -> Row:
    """Run one seed in a worker."""
    return row_of(campaign, seed, campaign.run_seed(seed))
