"""Measure the round trip to a node."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, count, node_id, seconds
from bmgd.printable import printable


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("destination", type=node_id, metavar="DEST", help="a node id")
    parser.add_argument("--count", type=count, default=1, metavar="K", help="how many probes")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="for each probe, in seconds (default: 10)",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Send one probe after the other; exit code 4 when one did not come back."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.errors import UnreachableError

        lost = 0
        async with connect_within(address, args.timeout) as daemon:
            for number in range(1, args.count + 1):
                rtt_ms: float | None = None
                try:
                    rtt_ms = await daemon.ping(args.destination, timeout=args.timeout) * 1e3
                except UnreachableError as error:
                    lost += 1
                    print(f"bmgd ping: {printable(str(error))}", file=sys.stderr)
                if args.json:
                    row = {"destination": args.destination, "number": number}
                    print_json({**row, "rtt_ms": rtt_ms})
                elif rtt_ms is not None:
                    print(f"node {args.destination}: {rtt_ms:.3f} ms", flush=True)
        return 4 if lost else 0

    return run_async(main)
