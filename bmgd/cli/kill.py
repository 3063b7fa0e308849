"""End a daemon: let it leave the cluster gracefully, or with --hard kill its process."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli import leave
from bmgd.cli.target import address_of


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--hard", action="store_true", help="SIGKILL, without a goodbye")
    leave.configure(parser)


def run(args: Namespace) -> int:
    """End it, and wait until its process is gone."""
    return leave.end(address_of(args), hard=args.hard, timeout_s=args.timeout, as_json=args.json)
