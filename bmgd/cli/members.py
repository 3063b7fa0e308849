"""Show the state of every node as one daemon knows it, and since when."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from bmgd.cli.output import clock, life, print_json, print_table
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of

configure = add_target

_WORDS = {
    "expected": "alive, not met",
    "dead": "dead, still in the graph",
    "excluded": "dead",
}
"""What a person is told where the protocol has a word of its own; --json keeps the protocol's."""


def run(args: Namespace) -> int:
    """Print the members."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            members = await daemon.members()
        if args.json:
            print_json(members)
        else:
            rows = [_row(member, time.time()) for member in members]
            print_table(rows, ("id", "is", "since", "incarnation", "version", "address"))
        return 0

    return run_async(main)


def _row(member: dict[str, Any], now_s: float) -> dict[str, Any]:
    """One member in the words of a person."""
    status = member["status"]
    since = "" if "for_ms" not in member else clock(now_s - member["for_ms"] / 1e3)
    return {
        **member,
        "is": _WORDS.get(status, status),
        "since": since,
        "incarnation": life(member["incarnation"]),
    }
