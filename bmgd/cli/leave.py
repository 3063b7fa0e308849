"""Let a daemon leave the cluster gracefully: it drains, tells everybody, and ends."""

from __future__ import annotations

import asyncio
import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, seconds
from bmgd.config import control_path
from bmgd.errors import SilentDaemonError
from bmgd.launcher.listening import ListeningProcess


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="wait S seconds for its end (default: 10)",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Ask it, and wait until its process is gone."""
    return end(address_of(args), hard=False, timeout_s=args.timeout, as_json=args.json)


def end(address: str, *, hard: bool, timeout_s: float, as_json: bool) -> int:
    """End the daemon at a control address, and wait until its process is gone.

    Args:
        hard: SIGKILL instead of a request to leave.

    Raises:
        NoDaemonError: no daemon is there.
        SilentDaemonError: its process has not ended in time.
    """
    until = time.monotonic() + timeout_s
    with ListeningProcess(control_path(address)) as process:
        if hard:
            process.kill()
        else:
            run_async(lambda: _leave(address, timeout_s, until))
        if not process.wait(max(until - time.monotonic(), 0.0)):
            raise SilentDaemonError(
                f"process {process.pid} has not ended in {timeout_s:g} s: wait longer with"
                " --timeout, or end it with bmgd kill --hard"
            )
    if as_json:
        print_json({"pid": process.pid, "hard": hard})
    else:
        print(f"process {process.pid} {'was killed' if hard else 'left and ended'}")
    return 0


async def _leave(address: str, timeout_s: float, until: float) -> None:
    """Ask it, until a time of the monotonic clock; then its process shows whether it has ended."""
    async with connect_within(address, timeout_s) as daemon:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await daemon.leave()
