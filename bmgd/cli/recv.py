"""Read the messages of a topic."""

from __future__ import annotations

import asyncio
import codecs
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bmgd.cli.answering import answer
from bmgd.cli.output import print_json
from bmgd.cli.received_file import ReceivedFile, received_file
from bmgd.cli.running import run_async, until_ended
from bmgd.cli.target import add_target, add_topic, address_of, count, seconds
from bmgd.errors import ConfigError, DeliveryError
from bmgd.printable import printable

if TYPE_CHECKING:
    from bmgd.client import Message, Missed


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_topic(parser)
    parser.add_argument(
        "--count",
        type=count,
        metavar="K",
        help="end after K messages, or with an error at one that does not come whole",
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", help="end after S seconds, with exit code 4"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--file",
        type=Path,
        metavar="F",
        help="write one message to F, byte for byte, and end; F is there when the message is whole",
    )
    what.add_argument(
        "--reply",
        metavar="CMD",
        help="run CMD in a shell for each message, with the message as its stdin, and MESSAGE_SOURCE and "
        "MESSAGE_TOPIC in its environment; its stdout is the answer to a request, and if it fails, the "
        "request fails",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Print each message as it is taken."""
    if sys.__stdout__ is None:
        raise ConfigError("standard output is closed")
    if args.file is not None:
        if args.count not in (None, 1):
            raise ConfigError("--file takes one message, and --count names more")
        args.count = 1
    address = address_of(args)

    async def main() -> int:
        # A file that cannot be written is refused before a message is taken.
        with nullcontext() if args.file is None else received_file(args.file) as file:
            return await _receive(address, args, file)

    is_plain = args.reply is None and args.file is None
    return run_async(main if is_plain else lambda: until_ended(main()))


async def _receive(address: str, args: Namespace, file: ReceivedFile | None) -> int:
    from bmgd.client import Missed, connect

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
            # One at a time: the daemon hears of each when it is written out, not before.
            while taken != args.count and (items := await messages.take()):
                message = items[0]
                finished = False
                try:
                    if isinstance(message, Missed):
                        show_missed(message, as_json=args.json)
                    elif file is not None:
                        await save(message, file, as_json=args.json)
                    else:
                        await take(message, args.reply, as_json=args.json)
                    finished = True
                except DeliveryError as error:
                    finished = True
                    if args.count:
                        # Whoever waits for so many would take a part for a whole.
                        raise
                    _tell_part(error)
                finally:
                    if not finished:
                        messages.put_back()
                taken += not isinstance(message, Missed)
    except TimeoutError:
        got = f"{taken} of {args.count}" if args.count else str(taken)
        print(f"bmgd recv: {got} messages within {args.timeout:g} s", file=sys.stderr)
        return 4
    return 0


async def take(message: Message, command: str | None, *, as_json: bool) -> None:
    """Print a message or have it answered.

    Raises:
        DeliveryError: its source has given it up; a part of it may be printed.
    """
    if command is None:
        await show(message, as_json=as_json)
    else:
        await answer(command, message, as_json=as_json)


def _tell_part(error: DeliveryError) -> None:
    print(f"bmgd recv: not the whole message: {printable(str(error))}", file=sys.stderr)


async def show(message: Message, *, as_json: bool) -> None:
    """Print a message; one that is longer than this process should hold, in parts as they come."""
    if as_json and not message.is_long:
        print_json({**_about(message), "payload": message.payload})
    elif as_json:
        at = 0
        async for part in _whole_characters(message.parts()):
            print_json({**_about(message), "bytes": message.size, "at": at, "part": part})
            at += len(part)
    else:
        sys.stdout.flush()
        async for part in message.parts():
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def _about(message: Message) -> dict[str, Any]:
    """Whose message it is, and what is not so of most."""
    about = {"source": message.source, "topic": message.topic}
    unusual = {
        "request": message.is_request,
        "broadcast": message.broadcast,
        "redelivered": message.redelivered,
    }
    return about | {name: True for name, holds in unusual.items() if holds}


async def _whole_characters(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes; where they are text, no part ends within a character."""
    begun = b""
    async for part in parts:
        whole = begun + part
        try:
            _, used = codecs.utf_8_decode(whole, "strict", False)
        except UnicodeDecodeError:
            used = len(whole)
        begun = whole[used:]
        if used:
            yield whole[:used]
    if begun:
        yield begun


async def save(message: Message, file: ReceivedFile, *, as_json: bool) -> None:
    """Write a message to a file, and say so.

    Raises:
        DeliveryError: its source has given it up; there is no file.
        RequestError: the file cannot be written.
    """
    async for part in message.parts():
        file.write(part)
    file.keep()
    if as_json:
        print_json({**_about(message), "file": str(file.path), "bytes": message.size})


def show_missed(missed: Missed, *, as_json: bool) -> None:
    """Print which broadcasts did not come."""
    if as_json:
        print_json({"missed": asdict(missed)})
    else:
        span = f"{missed.first} to {missed.last}"
        print(f"bmgd recv: missed {span} of node {missed.source}", file=sys.stderr)
