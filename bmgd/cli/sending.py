"""What the commands that send to many nodes have in common: their message, and their report."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from bmgd.cli.output import id_ranges, print_json
from bmgd.cli.payloads import KEPT_BYTES_MAX, payload_of
from bmgd.cli.target import add_topic, seconds
from bmgd.printable import printable
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from bmgd.errors import Report

PARTIAL = 4


def add_message(parser: ArgumentParser) -> None:
    """Declare the payload, its topic, and how it is sent."""
    parser.add_argument(
        "payload", nargs="?", default="-", help="the message; - reads it from stdin"
    )
    add_topic(parser)
    parser.add_argument(
        "--best-effort",
        dest="quality",
        action="store_const",
        const="best-effort",
        default="reliable",
        help="send at most once, and wait for no confirmation",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="report after S seconds (default: 10)",
    )


def message_of(args: Namespace) -> bytes:
    """The message that `add_message` declares.

    Raises:
        ConfigError: stdin cannot be read.
        RequestError: it has more than a message of that quality holds.
    """
    bytes_max = KEPT_BYTES_MAX if args.quality == "reliable" else PAYLOAD_BYTES_MAX
    return payload_of(args.payload, bytes_max)


def show_report(report: Report, *, as_json: bool, quality: str) -> int:
    """Print who has a message and who has not; returns the exit code, 4 when somebody has not."""
    confirmed = sorted(report.confirmed)
    failed = sorted(report.failed.items())
    if as_json:
        reasons = {
            str(node_id): {"error": type(error).__name__, "sent": error.sent}
            for node_id, error in failed
        }
        print_json({"confirmed": confirmed, "failed": reasons})
    elif quality == "reliable":
        print(f"confirmed: {id_ranges(confirmed)}")
        for _, error in failed:
            print(f"failed: {printable(str(error))}", file=sys.stderr)
    return PARTIAL if failed else 0
