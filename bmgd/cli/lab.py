"""Compute the tables and figures of the papers again, and check their claims."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bmgd.cli.output import print_json, print_table

if TYPE_CHECKING:
    from bmgd.lab.experiment import Experiment
    from bmgd.lab.outcome import Outcome

ROWS_SHOWN: Final = 48
"""Of a longer table the rows in the middle are left out on a terminal."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|run")
    listing = verbs.add_parser("list", help="name every experiment", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="with columns and checks, as JSON")
    running = verbs.add_parser("run", help="run experiments", allow_abbrev=False)
    running.add_argument(
        "names", nargs="+", metavar="NAME", help="an experiment, a pattern such as 'hdn-*', or all"
    )
    running.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write CSV, plots and a report there; an interrupted run goes on from there",
    )
    running.add_argument("--quick", action="store_true", help="smaller ranges")
    running.add_argument(
        "--json", action="store_true", help="print one JSON object per experiment and line"
    )
    running.add_argument(
        "--jobs",
        type=_at_least_one,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="how many run at once (default: one per core); timed ones run alone",
    )


def run(args: Namespace) -> int:
    """List or run experiments; 1 if a check fails."""
    return _list(args) if args.verb == "list" else _run(args)


def _list(args: Namespace) -> int:
    from bmgd.lab.registry import experiments

    described = [experiment.describe() for experiment in experiments().values()]
    if args.json:
        print_json(described)
    else:
        print_table(described, ("name", "paper", "section", "title"))
    return 0


def _run(args: Namespace) -> int:
    from bmgd.lab.directory import Directory
    from bmgd.lab.execution import Order, perform_all
    from bmgd.lab.registry import chosen

    experiments = {experiment.name: experiment for experiment in chosen(args.names)}
    directory = None if args.out is None else Directory(args.out)
    order = Order(args.quick, args.jobs, None if directory is None else directory.journals)
    outcomes: dict[str, Outcome] = {}
    for outcome in perform_all(list(experiments.values()), order):
        experiment = experiments[outcome.name]
        outcomes[outcome.name] = outcome
        if args.json:
            print_json(outcome.describe(experiment))
        else:
            _show(experiment, outcome)
        if directory is not None:
            directory.add(experiment, outcome)
    if directory is not None:
        report = directory.finish([(each, outcomes[name]) for name, each in experiments.items()])
        if not args.json:
            print(f"report: {report}")
    failed = [name for name in experiments if not outcomes[name].passed]
    if not args.json:
        print(f"{len(experiments) - len(failed)} of {len(experiments)} experiments passed")
    if failed:
        print(f"bmgd lab: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _show(experiment: Experiment, outcome: Outcome) -> None:
    from bmgd.lab.progress import CLEAR_LINE
    from bmgd.lab.table import text_table

    if sys.stderr.isatty():
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
    print(f"{experiment.name}: {experiment.title}")
    print(f"({experiment.paper} {experiment.section}; {outcome.seconds:.1f} s)\n")
    if outcome.error:
        print(f"failed: {outcome.error}\n")
        return
    for line in text_table(experiment, outcome.rows, ROWS_SHOWN):
        print(f"  {line}")
    print()
    for check, verdict in zip(experiment.checks, outcome.verdicts, strict=True):
        print(f"  {verdict}: {check.text}")
    print(flush=True)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
