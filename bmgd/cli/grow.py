"""Add daemons to a local cluster that runs, and wait until they are members."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli.output import id_ranges, print_json
from bmgd.cli.target import count
from bmgd.launcher.rundir import default_run_dir


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("count", type=count, metavar="K", help="how many daemons")
    parser.add_argument(
        "--run-dir", metavar="DIR", default=default_run_dir(), help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Ask the launcher."""
    return grow(args.run_dir, args.count, as_json=args.json)


def grow(run_dir: str, joiners: int, *, as_json: bool) -> int:
    """Let the launcher of a run directory start joiners.

    Raises:
        NoDaemonError: no launcher runs there.
        SilentDaemonError: the launcher does not answer in time.
        RequestError: they are too many, or not all of them joined.
    """
    from bmgd.launcher.requests import ask_grow

    answer = ask_grow(run_dir, joiners)
    if as_json:
        print_json(answer)
    else:
        nodes = "node" if len(answer["ids"]) == 1 else "nodes"
        print(f"{nodes} {id_ranges(answer['ids'])} joined in {answer['seconds']:.3f} s")
    return 0
