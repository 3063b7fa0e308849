"""Carry out a fault plan on a cluster of bmgd launch, or of docker-compose.yml, and judge it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from bmgd.cli.history_file import opened, written
from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import seconds, seed
from bmgd.errors import ConfigError
from bmgd.launcher.rundir import default_run_dir

if TYPE_CHECKING:
    from bmgd.chaos.plan import Plan, Workload
    from bmgd.trials.cluster import TrialCluster

FAILED = 1
INTERRUPTED = 130
REST_S = 75.0


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--run-dir", metavar="DIR", default=default_run_dir(), help="default: %(default)s"
    )
    where.add_argument("--compose", metavar="PROJECT", help="a Compose project's containers")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", metavar="FILE", help="a fault plan, see docs/fault-plans.md")
    what.add_argument(
        "--random", action="store_true", help="a random plan of faults that are possible here"
    )
    parser.add_argument(
        "--seed", type=seed, metavar="S", help="of the random plan (default: a random one)"
    )
    parser.add_argument(
        "--for", dest="seconds", type=seconds, metavar="T", help="faults go on for T seconds"
    )
    parser.add_argument(
        "--kinds", metavar="K,K", help="with --random: each of these faults, and no others"
    )
    parser.add_argument(
        "--workload", metavar="JSON", help="with --random: the messages meanwhile, as in a plan"
    )
    parser.add_argument(
        "--rest",
        type=seconds,
        default=REST_S,
        metavar="T",
        help="the cluster must be at rest T seconds after them",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, do nothing")
    parser.add_argument("--history", metavar="FILE", help="write every fact to FILE, one a line")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")


def run(args: Namespace) -> int:
    """Carry it out."""
    import asyncio

    from bmgd.trials.feasible import check_feasible
    from bmgd.trials.priority import hurrying
    from bmgd.trials.runner import run_trial
    from bmgd.trials.verdict import judge, lines

    cluster = _cluster(args)
    plan = _plan(args, cluster)
    if args.dry_run:
        check_feasible(plan, cluster)
        print(plan.to_json(), end="")
        return 0
    progress = sys.stderr if args.json else sys.stdout

    def show(line: str) -> None:
        print(line, file=progress, flush=True)

    with opened(args.history) as history:
        try:
            with hurrying():
                outcome = run_async(lambda: run_trial(cluster, plan, show, rest_within_s=args.rest))
        except asyncio.CancelledError:
            print("bmgd chaos: interrupted; everything was undone", file=sys.stderr)
            return INTERRUPTED
        lost = "" if history is None else written(history, outcome.history)
    document = judge(outcome)
    if args.json:
        print_json(document)
    else:
        print("\n".join(lines(document)))
    if lost:
        print(f"bmgd chaos: --history {args.history}: {lost}", file=sys.stderr)
    return 0 if document["verdict"] == "pass" and not lost else FAILED


def _cluster(args: Namespace) -> TrialCluster:
    if args.compose is not None:
        from bmgd.trials.composed import ComposedTrial

        return ComposedTrial(args.compose)
    from bmgd.trials.cluster import LaunchedTrial

    return LaunchedTrial(args.run_dir)


def _plan(args: Namespace, cluster: TrialCluster) -> Plan:
    from dataclasses import replace

    from bmgd.chaos.plan import Plan
    from bmgd.trials.feasible import possible_random_plan

    if args.plan is not None:
        if (args.seed, args.kinds, args.workload) != (None, None, None):
            raise ConfigError("--seed, --kinds and --workload go with --random")
        try:
            with open(args.plan, encoding="utf-8") as file:
                plan = Plan.parse(file.read())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {args.plan}: {error}") from None
        return plan if args.seconds is None else replace(plan, seconds=args.seconds)
    if args.seconds is None:
        raise ConfigError("how long? give --for T with --random")
    import secrets

    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    kinds = None if args.kinds is None else tuple(args.kinds.split(","))
    plan = possible_random_plan(cluster, seed, args.seconds, kinds)
    return plan if args.workload is None else replace(plan, workload=_workload(args.workload))


def _workload(text: str) -> Workload:
    import json

    from bmgd.chaos.plan import read_workload

    try:
        return read_workload(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--workload: not JSON: {error}") from None
