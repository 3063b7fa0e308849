"""Show what a daemon observes, as it happens, until Ctrl-C."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bmgd.cli.output import clock, life, print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of
from bmgd.printable import printable

configure = add_target


def run(args: Namespace) -> int:
    """Print each event."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon, daemon.monitor() as events:
            async for event in events:
                if args.json:
                    print_json(event)
                else:
                    print(_line(event), flush=True)
        return 0

    return run_async(main)


def _line(event: dict[str, Any]) -> str:
    rest = {k: v for k, v in event.items() if k not in ("event", "time") and v not in (None, "")}
    # `at_ns` orders events of one machine for programs; a person reads the wall clock.
    rest.pop("at_ns", None)
    if "incarnation" in rest:
        rest["incarnation"] = life(rest["incarnation"])
    words = [f"{key}={value}" for key, value in rest.items()]
    when = [] if event.get("time") is None else [clock(event["time"])]
    return printable(" ".join([*when, str(event["event"]), *words]))
