"""Send a message, a file or many lines to a node, and wait until its daemon has taken them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bmgd.cli.output import Detailed, print_json
from bmgd.cli.payloads import KEPT_BYTES_MAX, file_payload, payload_of
from bmgd.cli.progress import bytes_gone, with_progress
from bmgd.cli.running import run_async
from bmgd.cli.standard_input import standard_input
from bmgd.cli.target import add_target, add_topic, address_of, connect_within, node_id, seconds
from bmgd.errors import BmgdError, ConfigError, RequestError, Ungrouped

if TYPE_CHECKING:
    from bmgd.client import Daemon, Writer
    from bmgd.client.arguments import Payload, Quality
    from bmgd.client.file_payload import FilePayload

_READ_BYTES: Final = 1 << 16


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("destination", type=node_id, metavar="DEST", help="a node id")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("payload", nargs="?", default="-", help="the message; - reads it from stdin")
    what.add_argument("--file", type=Path, metavar="F", help="send what this file holds")
    what.add_argument(
        "--lines", action="store_true", help="send each line of stdin as a message, in order"
    )
    add_topic(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="give up after S seconds; with --lines: so long after the last line (default: 10)",
    )
    parser.add_argument(
        "--priority",
        choices=("high", "normal", "bulk"),
        default="normal",
        help="which messages go first when many wait for a link (default: normal)",
    )
    parser.add_argument(
        "--best-effort",
        action="store_true",
        help="not confirmed, and dropped where there is no room",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Send it."""
    address = address_of(args)
    if args.lines:
        return run_async(lambda: _send_lines(args, address))
    with _payload(args) as payload:
        return run_async(lambda: _send_one(args, address, payload))


async def _send_one(args: Namespace, address: str, payload: Payload | FilePayload) -> int:
    async with connect_within(address, args.timeout) as daemon:
        gone = bytes_gone(daemon, len(payload))
        await with_progress("send", _send(daemon, args, payload), gone)
    if args.json:
        print_json({"destination": args.destination, "topic": args.topic, "bytes": len(payload)})
    return 0


async def _send(daemon: Daemon, args: Namespace, payload: Payload | FilePayload) -> None:
    await daemon.send(
        args.destination,
        payload,
        topic=args.topic,
        timeout=args.timeout,
        priority=args.priority,
        quality="best-effort" if args.best_effort else "reliable",
    )


async def _send_lines(args: Namespace, address: str) -> int:
    from bmgd.client import connect

    lines = _Lines()
    quality: Quality = "best-effort" if args.best_effort else "reliable"
    async with (
        connect(address) as daemon,
        daemon.stream(
            args.destination, args.topic, priority=args.priority, quality=quality
        ) as stream,
    ):
        try:
            await with_progress("send", lines.send(stream, args.timeout), lines.gone)
        except BmgdError as error:
            if not lines.count or args.best_effort:
                raise
            _tell_confirmed(stream.confirmed, lines.count)
            told = {"messages": lines.count, "confirmed": stream.confirmed}
            raise Detailed(error, told) from None
    if args.json:
        fields = {"destination": args.destination, "topic": args.topic}
        print_json({**fields, "messages": lines.count, "bytes": lines.bytes})
    return 0


def _tell_confirmed(confirmed: int, read: int) -> None:
    """Whoever sends the rest again wants to know where to begin."""
    print(f"bmgd send: the first {confirmed:,} of {read:,} lines are confirmed", file=sys.stderr)


class _Lines:
    """The lines of stdin, on their way to a stream."""

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self._told = 0
        self._is_read = False

    async def send(self, stream: Writer, timeout_s: float) -> None:
        """Send them all; returns when they are confirmed.

        Raises: as `Writer.write`, also while no line comes.
        """
        with Ungrouped():
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(stream.until_failed())
                await self._send(stream, timeout_s)
                watching.cancel()

    async def _send(self, stream: Writer, timeout_s: float) -> None:
        async for line in _lines(standard_input().fileno()):
            await stream.write(line)
            self.count += 1
            self.bytes += len(line)
        self._is_read = True
        await stream.flush(timeout_s)

    def gone(self) -> str:
        """How much has gone; "" while none comes, and where somebody types them."""
        if standard_input().isatty() or (self.count == self._told and not self._is_read):
            return ""
        self._told = self.count
        rest = ", all read" if self._is_read else ""
        return f"{self.count:,} lines, {self.bytes:,} bytes{rest}"


async def _lines(source: int) -> AsyncIterator[bytes]:
    """The lines of a descriptor without their ends; other tasks run while it has none.

    Raises:
        ConfigError: it cannot be read.
        RequestError: a line has more than `KEPT_BYTES_MAX` bytes.
    """
    begun: list[bytes] = []
    begun_bytes = 0
    while data := await _read(source):
        first, *more = data.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > KEPT_BYTES_MAX:
            raise RequestError(f"a line has more than {KEPT_BYTES_MAX} bytes")
        for line in more:
            yield b"".join(begun)
            begun, begun_bytes = [line], len(line)
    if last := b"".join(begun):
        yield last


async def _read(source: int) -> bytes:
    """What a descriptor has next; b"" at its end.

    Raises:
        ConfigError: it cannot be read.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def tell(data: bytes | OSError | MemoryError) -> None:
        if found.done():
            return
        if isinstance(data, bytes):
            found.set_result(data)
        else:
            found.set_exception(data)

    def read() -> None:
        try:
            data: bytes | OSError | MemoryError = os.read(source, _READ_BYTES)
        except (OSError, MemoryError) as error:
            data = error
        # Nobody may wait for it any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, data)

    # Ctrl-C would wait for a thread of the loop's executor, until the descriptor has something.
    threading.Thread(target=read, daemon=True).start()
    try:
        return await found
    except OSError as error:
        raise ConfigError(f"standard input cannot be read: {error.strerror}") from None


@contextmanager
def _payload(args: Namespace) -> Iterator[Payload | FilePayload]:
    if args.file is None:
        yield payload_of(args.payload)
    else:
        with file_payload(args.file) as payload:
            yield payload
