"""Read the messages of a topic."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from bmgd.cli.output import print_json
from bmgd.cli.target import add_target, address_of, count, run_async, seconds
from bmgd.errors import DeliveryError

if TYPE_CHECKING:
    from bmgd.client import Message


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--topic", default="default", help="1 to 255 bytes (default: default)")
    parser.add_argument("--count", type=count, metavar="K", help="end after K messages")
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", help="end after S seconds, with exit code 4"
    )
    parser.add_argument(
        "--reply",
        metavar="CMD",
        help="run CMD in a shell for each message, with the message as its stdin; its stdout is the "
        "answer to a request, and if it fails, the request fails",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Print each message as it is taken."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import Missed, connect

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
                    if args.reply is None or isinstance(message, Missed):
                        show(message)
                    else:
                        await answer(args.reply, message)
                    taken += not isinstance(message, Missed)
                    if taken == args.count:
                        break
        except TimeoutError:
            got = f"{taken} of {args.count}" if args.count else str(taken)
            print(f"bmgd recv: {got} messages within {args.timeout:g} s", file=sys.stderr)
            return 4
        return 0

    return run_async(main)


async def answer(command: str, message: Message) -> None:
    """Let a command answer a request; of another message what it prints is printed."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        out, _ = await process.communicate(message.payload)
    finally:
        if process.returncode is None:
            process.kill()
    why = f"{command!r} ended with {process.returncode}" if process.returncode else ""
    if why:
        print(f"bmgd recv: {why}", file=sys.stderr)
    if not message.is_request:
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.flush()
        return
    try:
        await (message.refuse(why) if why else message.reply(out))
    except DeliveryError as error:
        print(f"bmgd recv: the answer is not confirmed: {error}", file=sys.stderr)
