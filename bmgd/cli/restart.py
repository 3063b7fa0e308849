"""Start a daemon of a local cluster again that has ended, and wait until it has joined."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.target import node_id
from bmgd.launcher.rundir import default_run_dir


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("node", type=node_id, metavar="I", help="the daemon's node id")
    parser.add_argument(
        "--run-dir", metavar="DIR", default=default_run_dir(), help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Ask the launcher."""
    return restart(args.run_dir, args.node, as_json=args.json)


def restart(run_dir: str, node: int, *, as_json: bool) -> int:
    """Let the launcher of a run directory start a daemon again.

    Raises:
        NoDaemonError: no launcher runs there.
        SilentDaemonError: the launcher does not answer in time.
        RequestError: the daemon still runs, does not join, or there is none with that id.
    """
    from bmgd.launcher.requests import ask_restart

    answer = ask_restart(run_dir, node)
    if as_json:
        print_json({"id": node, **answer})
    else:
        print(f"node {node} joined again in {answer['seconds']:.3f} s (pid {answer['pid']})")
    return 0
