"""Let a daemon finish what it has, take nothing new, leave the cluster, and end."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of, connect_within, seconds
from bmgd.config import control_path
from bmgd.errors import SilentDaemonError
from bmgd.launcher.listening import ListeningProcess

if TYPE_CHECKING:
    from bmgd.client.draining import Drained, LeftOver

END_S = 10.0
"""How long its process may take to end once it has left."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="S",
        help="give up after S seconds (default: 30)",
    )
    add_target(parser)


def run(args: Namespace) -> int:
    """Drain it, wait until its process is gone, and say what is left over: exit code 4."""
    from bmgd.cli import DONE, PARTIAL

    address = address_of(args)

    is_asked = False

    async def main() -> Drained:
        nonlocal is_asked
        async with connect_within(address, args.timeout) as daemon:
            is_asked = True
            return await daemon.drain(args.timeout)

    with ListeningProcess(control_path(address)) as process:
        try:
            drained = run_async(main)
        except KeyboardInterrupt:
            if is_asked:
                text = "the daemon goes on draining, and leaves: it cannot be called back"
                print(f"bmgd drain: {text}", file=sys.stderr)
            raise
        if not process.wait(END_S):
            raise SilentDaemonError(f"process {process.pid} has left, and has not ended")
    if args.json:
        rows = [_row(each) for each in drained.left_over]
        print_json(
            {
                "pid": process.pid,
                "drained": drained.drained,
                "unconfirmed": drained.unconfirmed,
                "unread": drained.unread,
                "left_over": rows,
            }
        )
    else:
        print(f"process {process.pid} {_text(drained)}")
        for each in drained.left_over:
            to = f" to node {each.destination}" if each.destination >= 0 else ""
            print(f"  {each.messages} {each.kind}{to}{f', {each.topic!r}' if each.topic else ''}")
    return DONE if drained.drained else PARTIAL


def _text(drained: Drained) -> str:
    if drained.drained:
        return "drained, left and ended"
    return f"left and ended: {drained.unconfirmed} unconfirmed and {drained.unread} unread messages"


def _row(each: LeftOver) -> dict[str, object]:
    row: dict[str, object] = {"kind": each.kind, "messages": each.messages}
    if each.topic:
        row["topic"] = each.topic
    if each.destination >= 0:
        row["destination"] = each.destination
    return row
