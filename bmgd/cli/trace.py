"""Show the path to a node: the nodes that a real probe went through."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, node_id, seconds


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("destination", type=node_id, metavar="DEST", help="a node id")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="give up after S seconds (default: 10)",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Send one probe that is written on by every node that it passes."""
    address = address_of(args)

    async def main() -> int:
        async with connect_within(address, args.timeout) as daemon:
            trace = await daemon.trace(args.destination, timeout=args.timeout)
        if args.json:
            print_json({"path": list(trace.path), "rtt_ms": trace.seconds * 1e3})
        else:
            way = " -> ".join(map(str, trace.path))
            hops = len(trace.path) - 1
            print(f"{way}  ({hops} hop{'' if hops == 1 else 's'}, {trace.seconds * 1e3:.3f} ms)")
        return 0

    return run_async(main)
