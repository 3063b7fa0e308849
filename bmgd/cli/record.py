"""Write the last minutes of a daemon, which its flight recorder keeps, to a file for bmgd replay."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, seconds
from bmgd.errors import ConfigError, SilentDaemonError

POLL_S = 0.05


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--out", metavar="FILE", help="copy the recording there; - writes it to stdout"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="wait S seconds for the file"
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
        from bmgd.client import connect

        async with connect(address) as daemon:
            return await daemon.record()

    answer = run_async(main)
    path = str(answer["path"])
    deadline_s = time.monotonic() + args.timeout
    while not os.path.exists(path):
        if time.monotonic() > deadline_s:
            raise SilentDaemonError(
                f"{path} is not there after {args.timeout:g} s: the daemon's log says why"
            )
        time.sleep(POLL_S)
    if args.out is not None:
        path = _copy(path, args.out)
        if path == "-":
            return 0
    if args.json:
        print_json({**answer, "path": path})
    else:
        print(f"{path}: {answer['steps']} steps of the last {answer['seconds']} s")
    return 0


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
