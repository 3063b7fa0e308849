"""Show the registered programs of all nodes, and with --watch every start and end until Ctrl-C."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from bmgd.cli.output import life, print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of
from bmgd.printable import printable

if TYPE_CHECKING:
    from bmgd.client.programs import Program, ProgramEnd


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--watch", action="store_true", help="follow starts and ends")
    add_target(parser)


def run(args: Namespace) -> int:
    """Print those that run; with --watch, what starts and ends."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            running = await daemon.running_programs()
            if not args.watch:
                _show_all(running, as_json=args.json)
                return 0
            async with daemon.programs() as programs:
                async for each in programs:
                    _show(each, as_json=args.json)
        return 0

    return run_async(main)


def _show_all(running: list[Program], *, as_json: bool) -> None:
    if as_json:
        print_json([each._asdict() for each in running])
        return
    for each in running:
        print(f"{each.id:6} {life(each.incarnation):>12} {printable(each.name)}")


def _show(each: Program | ProgramEnd, *, as_json: bool) -> None:
    from bmgd.client.programs import ProgramEnd

    has_ended = isinstance(each, ProgramEnd)
    if as_json:
        print_json({"event": "end" if has_ended else "start", **each._asdict()})
        return
    line = (
        f"{'end' if has_ended else 'start':5} {each.id:6} {life(each.incarnation):>12}"
        f" {printable(each.name)}"
    )
    if isinstance(each, ProgramEnd):
        line += " (exit unknown)" if each.exit is None else f" (exit {each.exit})"
    print(line, flush=True)
