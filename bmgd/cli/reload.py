"""Let a daemon read its secrets and certificates again; it renews links one by one and loses none."""

from __future__ import annotations

from argparse import Namespace

from bmgd.cli.output import print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of

configure = add_target


def run(args: Namespace) -> int:
    """Reload, and print what the daemon uses now."""
    address = address_of(args)

    async def main() -> dict[str, object]:
        from bmgd.client import connect

        async with connect(address) as daemon:
            return await daemon.reload()

    answer = run_async(main)
    if args.json:
        print_json(answer)
    else:
        keys = answer["keys"]
        assert isinstance(keys, list)
        what = "read anew" if answer["changed"] else "nothing differs"
        print(f"{what}: links are made under {', '.join(keys) or 'no key'}")
    return 0
