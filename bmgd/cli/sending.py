"""What the commands that send to many nodes have in common: their message, and their report."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Final

from bmgd.cli.output import id_ranges, print_json
from bmgd.cli.standard_input import standard_input
from bmgd.cli.target import seconds, topic
from bmgd.errors import RequestError
from bmgd.printable import printable

if TYPE_CHECKING:
    from bmgd.errors import Report

PARTIAL = 4
WHOLE_BYTES_MAX: Final = 65_536
"""Of a message that goes in one piece."""
LONG_MAX: Final = 1 << 30
"""Of a reliable message read from stdin, which is kept in memory until it is sent."""


def add_message(parser: ArgumentParser) -> None:
    """Declare the payload, its topic, and how it is sent."""
    parser.add_argument(
        "payload", nargs="?", default="-", help="the message; - reads it from stdin"
    )
    parser.add_argument(
        "--topic", type=topic, default="default", help="1 to 255 bytes (default: default)"
    )
    parser.add_argument(
        "--best-effort",
        dest="quality",
        action="store_const",
        const="best-effort",
        default="reliable",
        help="send at most once, and wait for no confirmation",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="report after S seconds"
    )


def payload_of(text: str, quality: str) -> bytes:
    """The message: the argument itself, or what stdin has.

    Raises:
        RequestError: stdin has more than a message of that quality holds.
    """
    if text != "-":
        return os.fsencode(text)
    bytes_max = LONG_MAX if quality == "reliable" else WHOLE_BYTES_MAX
    # One byte more than fits shows that it is too much, however much follows.
    payload = standard_input().buffer.read(bytes_max + 1)
    if len(payload) > bytes_max:
        raise RequestError(f"the payload has more than {bytes_max} bytes")
    return payload


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
