"""Run a cluster in virtual time, inject faults, and check that nothing forbidden happens."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bmgd.cli.history_file import opened, written
from bmgd.cli.output import print_json

if TYPE_CHECKING:
    from bmgd.chaos.plan import Plan
    from bmgd.sim.campaign import Progress, Row
    from bmgd.sim.simulation import Outcome

NODES_MAX = 100_000
JOBS_MAX = 256
REPORT_EVERY_S = 10.0


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--seed", type=_natural, metavar="S", help="the source of all random choices"
    )
    parser.add_argument(
        "--nodes", type=_span, metavar="N", help="how many daemons (16); in a campaign LOW..HIGH"
    )
    parser.add_argument("--faults", type=Path, metavar="PLAN", help="a fault plan to carry out")
    parser.add_argument("--time", type=_positive, metavar="T", help="T seconds with faults (20)")
    parser.add_argument("--history", metavar="FILE", help="write what happened to FILE")
    parser.add_argument("--no-shrink", action="store_true", help="show a failing scenario as it is")
    campaign = parser.add_argument_group("campaigns of many seeds, which can be continued")
    campaign.add_argument("--campaign", type=_span, metavar="FIRST..LAST", help="the seeds")
    campaign.add_argument("--out", type=Path, metavar="FILE", help="append results to FILE")
    campaign.add_argument(
        "--hours", type=_positive, metavar="H", help="end after H simulated hours"
    )
    campaign.add_argument(
        "--jobs", type=_natural, metavar="J", help="processes to work with, 1 to 256 (2)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "Without --faults the seed decides what happens: faults, settings, the network. "
        "Exit code 1 means that something was violated; then a scenario is printed that replays it."
    )


def run(args: Namespace) -> int:
    """Run one scenario, or a campaign."""
    from bmgd.cli import DONE, FAILED

    if args.campaign is not None:
        return _run_campaign(args)
    _refuse(
        args, ("--out", "--hours", "--jobs"), "a single run has no {flag}: that is for --campaign"
    )
    from bmgd.sim.checkers import inspect
    from bmgd.sim.simulation import Simulation

    plan = _plan_of(args)
    with opened(args.history) as history:
        outcome = Simulation(plan, [inspect]).run()
        lost = "" if history is None else written(history, outcome.history)
    shrunken = None
    if not outcome.passed:
        shrunken = plan if args.no_shrink else _shrink(outcome)
    if args.json:
        row = outcome.to_row()
        if shrunken is not None:
            row["plan"] = _as_json(shrunken)
        print_json(row)
    else:
        _print_outcome(outcome, shrunken)
    if lost:
        print(f"bmgd sim: --history {args.history}: {lost}", file=sys.stderr)
    return DONE if outcome.passed and not lost else FAILED


def _refuse(args: Namespace, flags: Iterable[str], text: str) -> None:
    """Raise a PlanError where a flag was given that would have no effect."""
    from bmgd.errors import PlanError

    for flag in flags:
        if getattr(args, flag.removeprefix("--").replace("-", "_")) is not None:
            raise PlanError(text.format(flag=flag))


def _plan_of(args: Namespace) -> Plan:
    """The plan of the file, or one by chance; flags that are given have the last word."""
    from dataclasses import replace

    from bmgd.chaos.plan import Plan
    from bmgd.errors import PlanError

    if args.faults is None:
        from bmgd.sim.options import random_scenario

        nodes = _within(args.nodes) or (16, 16)
        if nodes[0] != nodes[1]:
            raise PlanError("--nodes LOW..HIGH is for campaigns")
        return random_scenario(args.seed or 0, nodes[0], args.time or 20.0)
    try:
        plan = Plan.parse(args.faults.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot read {args.faults}: {error}") from None
    changes: dict[str, object] = {}
    if args.seed is not None:
        changes["seed"] = args.seed
    if (span := _within(args.nodes)) is not None:
        changes["nodes"] = span[0]
    if args.time is not None:
        changes["seconds"] = args.time
    plan = replace(plan, **changes)  # type: ignore[arg-type]
    plan.check()
    return plan


def _within(nodes: tuple[int, int] | None) -> tuple[int, int] | None:
    """What --nodes says, if it is a cluster that this machine can simulate."""
    from bmgd.errors import PlanError

    if nodes is not None and not 1 <= nodes[0] <= nodes[1] <= NODES_MAX:
        raise PlanError(f"--nodes must be in 1..{NODES_MAX}, not {nodes[0]}..{nodes[1]}")
    return nodes


def _shrink(outcome: Outcome) -> Plan:
    """The smallest scenario found that fails by the same checker."""
    from bmgd.sim.checkers import inspect
    from bmgd.sim.shrinking import Shrinker
    from bmgd.sim.simulation import Simulation

    checker = outcome.violations[0].checker

    def fails(plan: Plan) -> bool:
        found = Simulation(plan, [inspect], traces=False).run().violations
        return bool(found) and found[0].checker == checker

    print("a violation; shrinking the scenario ...", file=sys.stderr)
    shrinker = Shrinker(fails)
    plan = shrinker.shrink(outcome.plan)
    steps = f"{len(outcome.plan.steps)} steps became {len(plan.steps)}"
    nodes = f"{outcome.plan.nodes} nodes {plan.nodes}"
    print(f"{steps}, {nodes}, after {shrinker.runs} runs", file=sys.stderr)
    return plan


def _as_json(plan: Plan) -> object:
    import json

    return json.loads(plan.to_json())


def _print_outcome(outcome: Outcome, shrunken: Plan | None) -> None:
    row = outcome.to_row()
    rest = "never" if outcome.rest_s is None else f"{outcome.rest_s:.2f} s after the last fault"
    print(f"seed {row['seed']}, {row['nodes']} nodes, {len(outcome.plan.steps)} faults")
    print(
        f"{outcome.virtual_s:.1f} s simulated in {outcome.real_s:.1f} s, {outcome.events} events,"
        f" {row['messages_per_node']} messages and {row['bytes_per_node']} bytes per node"
    )
    print(f"at rest: {rest}; digest {outcome.digest}")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print("pass" if outcome.passed else "fail")
    if shrunken is not None:
        print("\nThis scenario replays it (bmgd sim --faults FILE):\n")
        print(shrunken.to_json(), end="")


# --- campaigns ------------------------------------------------------------------------------------


def _run_campaign(args: Namespace) -> int:
    from bmgd.cli import DONE, FAILED
    from bmgd.errors import PlanError
    from bmgd.sim.campaign import Campaign, run_campaign

    if args.out is None:
        raise PlanError("a campaign needs --out FILE")
    _refuse(args, ("--faults", "--seed", "--history"), "a campaign has no {flag}")
    jobs = 2 if args.jobs is None else args.jobs
    if not 1 <= jobs <= JOBS_MAX:
        raise PlanError(f"--jobs must be in 1..{JOBS_MAX}, not {jobs}")
    try:
        args.out.open("a").close()
    except OSError as error:
        raise PlanError(f"--out {args.out}: {error.strerror}") from None
    nodes = _within(args.nodes) or (2, 33)
    first, last = args.campaign
    campaign = Campaign(
        first, last, nodes[0], nodes[1], seconds=args.time or 20.0, hours=args.hours or 0.0
    )
    total = last - first + 1
    progress = run_campaign(campaign, args.out, jobs, _Reporter(total))
    summary = {
        "seeds": progress.seeds,
        "failed": progress.failed,
        "virtual_hours": round(progress.virtual_s / 3600, 3),
    }
    if args.json:
        print_json(summary)
    else:
        print(
            f"{progress.seeds} seeds, {summary['virtual_hours']} simulated hours,"
            f" {progress.failed} with a violation"
        )
    return FAILED if progress.failed else DONE


class _Reporter:
    """Shows how far a campaign is, now and then, and every violation."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown_s = 0.0

    def __call__(self, progress: Progress, row: Row | None) -> None:
        if row is not None and row["verdict"] != "pass":
            found = row["violations"][0]
            print(
                f"seed {row['seed']}, {row['nodes']} nodes: {found['checker']}: {found['text']}",
                file=sys.stderr,
            )
        if time.monotonic() - self._shown_s >= REPORT_EVERY_S:
            self._shown_s = time.monotonic()
            print(
                f"{progress.seeds} of {self._total} seeds, {progress.failed} with a violation,"
                f" {progress.virtual_s / 3600:.2f} simulated hours",
                file=sys.stderr,
            )


# --- arguments ------------------------------------------------------------------------------------


def _natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise ArgumentTypeError(f"not a natural number: {text!r}")
    return int(text)


def _span(text: str) -> tuple[int, int]:
    """``LOW..HIGH``, or one number for both."""
    low, dots, high = text.partition("..")
    first, last = _natural(low), _natural(high if dots else low)
    if first > last:
        raise ArgumentTypeError(f"not of the form LOW..HIGH: {text!r}")
    return first, last


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ArgumentTypeError(f"not a positive number: {text!r}")
    return value
