"""Show what a daemon believes of every node."""

from __future__ import annotations

from argparse import Namespace

from bmgd.cli.output import print_json, print_table
from bmgd.cli.target import add_target, address_of, run_async

configure = add_target


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
            print_table(members, ("id", "status", "incarnation", "version", "address"))
        return 0

    return run_async(main)
