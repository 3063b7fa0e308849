"""Send a message to a node; done when its daemon has taken it."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.target import add_target, address_of, node_id, run_async, seconds


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("destination", type=node_id, metavar="DEST", help="a node id")
    parser.add_argument(
        "payload", nargs="?", default="-", help="the message; - reads it from stdin"
    )
    parser.add_argument("--topic", default="default", help="1 to 255 bytes (default: default)")
    parser.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="give up after S seconds"
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Send it."""
    address = address_of(args)
    payload = _payload(args.payload)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            await daemon.send(args.destination, payload, topic=args.topic, timeout=args.timeout)
        if args.json:
            print_json(
                {"destination": args.destination, "topic": args.topic, "bytes": len(payload)}
            )
        return 0

    return run_async(main)


def _payload(text: str) -> bytes:
    if text != "-":
        return os.fsencode(text)
    return sys.stdin.buffer.read()
