"""Read the messages of a topic."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from bmgd.cli.output import print_json
from bmgd.cli.target import add_target, address_of, count, run_async, seconds


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--topic", default="default", help="1 to 255 bytes (default: default)")
    parser.add_argument("--count", type=count, metavar="K", help="end after K messages")
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", help="end after S seconds, with exit code 4"
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Print each message as it is taken."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import Message, Missed, connect

        def show(message: Message | Missed) -> None:
            if isinstance(message, Missed):
                show_missed(message)
            elif args.json:
                fields = {"source": message.source, "topic": message.topic}
                print_json({**fields, "payload": message.payload})
            else:
                sys.stdout.flush()
                sys.stdout.buffer.write(message.payload + b"\n")
                sys.stdout.buffer.flush()

        def show_missed(missed: Missed) -> None:
            if args.json:
                print_json({"missed": asdict(missed)})
            else:
                span = f"{missed.first} to {missed.last}"
                print(f"bmgd recv: missed {span} of node {missed.source}", file=sys.stderr)

        taken = 0
        # No more credit than will be printed: a message that is handed over and not printed
        # would be lost for the next reader.
        credit = min(args.count or 64, 64)
        try:
            async with (
                asyncio.timeout(args.timeout),
                connect(address) as daemon,
                daemon.subscribe(args.topic, credit=credit) as messages,
            ):
                async for message in messages:
                    show(message)
                    taken += not isinstance(message, Missed)
                    if taken == args.count:
                        break
        except TimeoutError:
            got = f"{taken} of {args.count}" if args.count else str(taken)
            print(f"bmgd recv: {got} messages within {args.timeout:g} s", file=sys.stderr)
            return 4
        return 0

    return run_async(main)
