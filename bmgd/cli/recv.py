"""Read the messages of a topic."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bmgd.cli.output import print_json
from bmgd.cli.payloads import KEPT_BYTES_MAX
from bmgd.cli.received_file import ReceivedFile, received_file
from bmgd.cli.running import run_async, until_ended
from bmgd.cli.target import add_target, address_of, count, seconds, topic
from bmgd.errors import ConfigError, DeliveryError
from bmgd.printable import printable

if TYPE_CHECKING:
    from bmgd.client import Message, Missed


_READ_BYTES: Final = 1 << 16
OUTPUT_S: Final = 1.0
"""So long the end of a command that was killed, and of its output, is waited for."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--topic", type=topic, default="default", help="1 to 255 bytes (default: default)"
    )
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
        help="run CMD in a shell for each message, with the message as its stdin; its stdout is the "
        "answer to a request, and if it fails, the request fails",
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
    fields = {"source": message.source, "topic": message.topic}
    if as_json and not message.is_long:
        print_json({**fields, "payload": message.payload})
    elif as_json:
        at = 0
        async for part in message.parts():
            print_json({**fields, "bytes": message.size, "at": at, "part": part})
            at += len(part)
    else:
        sys.stdout.flush()
        async for part in message.parts():
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


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
        about = {"source": message.source, "topic": message.topic}
        print_json({**about, "file": str(file.path), "bytes": message.size})


def show_missed(missed: Missed, *, as_json: bool) -> None:
    """Print which broadcasts did not come."""
    if as_json:
        print_json({"missed": asdict(missed)})
    else:
        span = f"{missed.first} to {missed.last}"
        print(f"bmgd recv: missed {span} of node {missed.source}", file=sys.stderr)


async def answer(command: str, message: Message, *, as_json: bool) -> None:
    """Let a command answer a request; of another message what it prints is printed.

    A command that prints more than an answer may have, or than this process should hold, is ended.
    """
    from bmgd.client.requesting import MAX_ANSWER

    starting = asyncio.create_task(
        asyncio.create_subprocess_shell(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # It runs already, and asyncio would end its shell only.
        process = await starting
        await _end(process, asyncio.create_task(_output(process, 0)))
        raise
    assert process.stdin is not None
    bytes_max = MAX_ANSWER if message.is_request else KEPT_BYTES_MAX
    reading = asyncio.create_task(_output(process, bytes_max))
    try:
        await _feed(process.stdin, message)
        # Its end is waited for below, also by who is cancelled here.
        out = await asyncio.shield(reading)
        await process.wait()
    finally:
        await _end(process, reading)
    why = f"{command!r} ended with {process.returncode}" if process.returncode else ""
    if out is None:
        out, why = b"", f"{command!r} was ended: it has printed more than {bytes_max} bytes"
    if why:
        print(f"bmgd recv: {why}", file=sys.stderr)
    if not message.is_request and as_json:
        print_json({"source": message.source, "topic": message.topic, "output": out})
        return
    if not message.is_request:
        sys.stdout.buffer.write(out)
        sys.stdout.buffer.flush()
        return
    try:
        await (message.refuse(why) if why else message.reply(out))
    except DeliveryError as error:
        print(f"bmgd recv: the answer is not confirmed: {printable(str(error))}", file=sys.stderr)


async def _output(process: asyncio.subprocess.Process, bytes_max: int) -> bytes | None:
    """What a command prints until its end; None where that is more, and the command was killed."""
    assert process.stdout is not None
    parts, size = [], 0
    while part := await process.stdout.read(_READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            _kill(process)
            return None
    return b"".join(parts)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command, and what its shell has started; it may have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process, reading: asyncio.Task[bytes | None]) -> None:
    """End a command, and what its shell has started, and wait until it is gone.

    Args:
        process: the command; it may have ended.
        reading: takes its output. What has left its group may hold that open for ever.
    """
    if process.returncode is None or not reading.done():
        # Where the shell has ended, what it left in the background may hold the output still.
        _kill(process)
    # asyncio says that it has ended when its output is closed, too.
    waiting = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((waiting, reading), timeout=OUTPUT_S)
    finally:
        waiting.cancel()
        reading.cancel()


async def _feed(stdin: asyncio.StreamWriter, message: Message) -> None:
    # A command need not read what it is given.
    with suppress(BrokenPipeError, ConnectionResetError):
        async for part in message.parts():
            stdin.write(part)
            await stdin.drain()
    stdin.close()
