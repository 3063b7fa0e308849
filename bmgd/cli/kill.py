"""End a daemon: let it leave the cluster gracefully, or with --hard kill its process."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli.output import print_json
from bmgd.cli.target import add_target, address_of, run_async, seconds
from bmgd.config import control_path
from bmgd.errors import SilentDaemonError
from bmgd.launcher.listening import ListeningProcess


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--hard", action="store_true", help="SIGKILL, without a goodbye")
    parser.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="wait S seconds for its end"
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """End it, and wait until its process is gone."""
    address = address_of(args)
    with ListeningProcess(control_path(address)) as process:
        if args.hard:
            process.kill()
        else:
            run_async(lambda: _leave(address))
        if not process.wait(args.timeout):
            raise SilentDaemonError(f"process {process.pid} has not ended in {args.timeout:g} s")
    if args.json:
        print_json({"pid": process.pid, "hard": args.hard})
    else:
        print(f"process {process.pid} {'was killed' if args.hard else 'left and ended'}")
    return 0


async def _leave(address: str) -> None:
    from bmgd.client import connect

    async with connect(address) as daemon:
        await daemon.leave()
