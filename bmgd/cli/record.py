"""Write the last minutes of a daemon, which its flight recorder keeps, to a file for bmgd replay."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from typing import Final

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, seconds
from bmgd.errors import ConfigError, SilentDaemonError

POLL_S: Final = 0.05
PART: Final = ".part"
"""Behind the name of a recording that is not yet whole."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--out", metavar="FILE", help="copy the recording there; - writes it to stdout"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="S",
        help="wait S seconds for the file (default: 60)",
    )
    add_target(parser)
    parser.epilog = (
        "The daemon writes the file on its own machine, into its --flight-dir, its --state-dir, or the"
        " directory of its control socket. Payloads are in it as lengths only, unless the daemon was"
        " started with --flight-payloads."
    )


def run(args: Namespace) -> int:
    """Ask for it, and wait until the file is whole."""
    address = address_of(args)

    async def main() -> dict[str, object]:
        async with connect_within(address, args.timeout) as daemon:
            return await daemon.record()

    answer = run_async(main)
    path = str(answer["path"])
    wait_for(path, args.timeout)
    if args.out is not None:
        path = _copy(path, args.out)
        if path == "-":
            return 0
    if args.json:
        print_json({**answer, "path": path})
    else:
        print(f"{path}: {answer['steps']} steps of the last {answer['seconds']} s")
    return 0


def wait_for(path: str, timeout_s: float) -> None:
    """Wait until a recording is whole.

    Raises:
        SilentDaemonError: it is not in time, or nobody writes it any more.
    """
    deadline_s = time.monotonic() + timeout_s
    while not os.path.exists(path):
        if not os.path.exists(path + PART) and not os.path.exists(path):
            raise SilentDaemonError(f"{path} was not written: the daemon's log says why")
        if time.monotonic() > deadline_s:
            text = f"{path} is not there after {timeout_s:g} s: the daemon's log says why"
            raise SilentDaemonError(text)
        time.sleep(POLL_S)


def _copy(source: str, target: str) -> str:
    import shutil
    import sys

    try:
        with open(source, "rb") as file:
            if target == "-":
                shutil.copyfileobj(file, sys.stdout.buffer)
            else:
                with open(target, "wb") as copy:
                    shutil.copyfileobj(file, copy)
    except OSError as error:
        raise ConfigError(f"cannot copy {source} to {target}: {error.strerror}") from None
    return target
