"""Ask a program at a node, and print its answer."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.payloads import payload_of
from bmgd.cli.progress import bytes_gone, with_progress
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, add_topic, address_of, connect_within, node_id, seconds


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("destination", type=node_id, metavar="DEST", help="a node id")
    parser.add_argument(
        "payload", nargs="?", default="-", help="the question; - reads it from stdin"
    )
    add_topic(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="give up after S seconds, with exit code 4 (default: 10)",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Ask, and print the answer."""
    address = address_of(args)
    asked = payload_of(args.payload)

    async def main() -> int:
        async with connect_within(address, args.timeout) as daemon:
            asking = daemon.request(args.destination, asked, topic=args.topic, timeout=args.timeout)
            answer = await with_progress("request", asking, bytes_gone(daemon, len(asked)))
        if args.json:
            fields = {"destination": args.destination, "topic": args.topic}
            print_json({**fields, "answer": answer})
        else:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
        return 0

    return run_async(main)
