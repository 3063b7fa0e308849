"""Take a node out of the cluster: everybody is told that it left, and its daemon ends."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, node_id, seconds


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("evicted", type=node_id, metavar="ID", help="the node to be evicted")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="wait S seconds for its end (default: 10)",
    )
    add_target(parser)
    parser.epilog = "--id and --run-dir, or --control, name the daemon that is asked to do it."


def run(args: Namespace) -> int:
    """Evict it; 4 when everybody was told, but its end could not be confirmed in time."""
    from bmgd.cli import DONE, PARTIAL

    address = address_of(args)

    async def main() -> bool:
        async with connect_within(address, args.timeout) as daemon:
            return await daemon.evict(args.evicted, timeout=args.timeout)

    ended = run_async(main)
    if args.json:
        print_json({"id": args.evicted, "ended": ended})
    elif ended:
        print(f"node {args.evicted} was evicted; its daemon has ended, or was held dead before")
    else:
        print(
            f"node {args.evicted} was evicted; its end is not confirmed after {args.timeout:g} s",
            file=sys.stderr,
        )
    return DONE if ended else PARTIAL
