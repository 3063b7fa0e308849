"""Let a command of the shell answer a request, and see that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bmgd.cli.output import print_json
from bmgd.cli.payloads import KEPT_BYTES_MAX
from bmgd.errors import DeliveryError, RequestError
from bmgd.printable import printable

if TYPE_CHECKING:
    from bmgd.client import Message

_READ_BYTES: Final = 1 << 16
OUTPUT_S: Final = 1.0
"""So long the end of a command that was killed, and of its output, is waited for."""


async def answer(command: str, message: Message, *, as_json: bool) -> None:
    """Let a command answer a request; of another message what it prints is printed.

    A command that prints more than an answer may have, or than this process should hold, is ended.

    Args:
        command: gets the message as its stdin; its environment has MESSAGE_SOURCE and MESSAGE_TOPIC.
        message: from another program.
        as_json: how the output is printed.
    """
    from bmgd.client.requesting import MAX_ANSWER

    about = {"MESSAGE_SOURCE": str(message.source), "MESSAGE_TOPIC": message.topic}
    pipe = subprocess.PIPE
    starting = asyncio.create_task(
        asyncio.create_subprocess_shell(
            command, stdin=pipe, stdout=pipe, process_group=0, env={**os.environ, **about}
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
    except (DeliveryError, RequestError) as error:
        # Also where nobody waits for it any more.
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
