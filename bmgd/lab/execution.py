"""Running experiments: each in a process of its own, several at once, timed ones alone.

A process that ends without an outcome (an error, out of memory) fails its experiment only; what it
says is on stderr. Outcomes come in the order in which experiments end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from bmgd.lab.experiment import Experiment, Run
from bmgd.lab.journal import Journal, journal_of
from bmgd.lab.outcome import Outcome, judge
from bmgd.lab.progress import ProgressLine

ROWS_KEY: Final = "rows"
"""The journal's key for all rows of an experiment that has ended."""

_processes = get_context("fork")


@dataclass(frozen=True, slots=True)
class Order:
    """How experiments are to be run.

    Args:
        quick: smaller ranges.
        jobs: how many at once, at least 1.
        journals: the directory for what an interrupted run leaves; None keeps nothing.
    """

    quick: bool
    jobs: int = 1
    journals: Path | None = None


def perform(experiment: Experiment, order: Order) -> Outcome:
    """Run one experiment here, with its progress line."""
    began_s = time.perf_counter()
    if order.journals is None:
        kept, keep = {}, None
    else:
        journal = Journal(journal_of(order.journals, experiment.name), order.quick)
        kept, keep = journal.kept, journal.keep
    with ProgressLine(experiment.name) as line:
        run = Run(order.quick, kept, keep, line.tell)
        rows = run.resumed(ROWS_KEY, lambda: [list(row) for row in experiment.run(run)])
        as_tuples = tuple(tuple(row) for row in rows)
        verdicts = judge(experiment, as_tuples, order.quick)
    seconds = time.perf_counter() - began_s
    return Outcome(experiment.name, order.quick, seconds, as_tuples, verdicts)


def perform_all(experiments: Sequence[Experiment], order: Order) -> Iterator[Outcome]:
    """Run experiments, and yield each outcome when it is there.

    When the iterator is closed, or an exception passes through it, what still runs is ended.
    """
    together = [each for each in experiments if not each.alone]
    yield from _perform_some(together, order, order.jobs)
    yield from _perform_some([each for each in experiments if each.alone], order, 1)


def _perform_some(experiments: Sequence[Experiment], order: Order, jobs: int) -> Iterator[Outcome]:
    waiting = list(reversed(experiments))
    running: dict[Connection, tuple[Experiment, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                experiment = waiting.pop()
                here, there = _processes.Pipe(duplex=False)
                process: BaseProcess = _processes.Process(
                    target=_work, args=(experiment, order, there), name=experiment.name, daemon=True
                )
                process.start()
                there.close()
                running[here] = (experiment, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                yield _outcome(ready, *running.pop(ready), order)
    finally:
        for connection, (_, process) in running.items():
            process.terminate()
            process.join()
            connection.close()


def _outcome(
    connection: Connection, experiment: Experiment, process: BaseProcess, order: Order
) -> Outcome:
    try:
        outcome = connection.recv()
        assert isinstance(outcome, Outcome)
    except EOFError:
        process.join()
        error = f"its process ended with exit code {process.exitcode} and no outcome"
        return Outcome(experiment.name, order.quick, 0.0, error=error)
    finally:
        connection.close()
    process.join()
    return outcome


def _work(experiment: Experiment, order: Order, answer: Connection) -> None:
    # Ctrl-C is the parent's matter: it ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer.send(perform(experiment, order))
    answer.close()
