"""Show a daemon's links that are up."""

from __future__ import annotations

from argparse import Namespace

from bmgd.cli.output import life, print_json, print_table
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of

configure = add_target


def run(args: Namespace) -> int:
    """Print the links."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            links = await daemon.links()
        if args.json:
            print_json(links)
        else:
            rows = [{**row, "incarnation": life(row.get("incarnation"))} for row in links]
            print_table(rows, ("id", "state", "dialled_by", "incarnation", "key", "silent_ms"))
        return 0

    return run_async(main)
