"""Send a message to every reader of a topic, at every node."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from bmgd.cli.progress import bytes_gone, with_progress
from bmgd.cli.running import run_async
from bmgd.cli.sending import add_message, message_of, show_report
from bmgd.cli.target import add_target, address_of, connect_within


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_message(parser)
    add_target(parser)


def run(args: Namespace) -> int:
    """Send it, and show who has it."""
    address = address_of(args)
    payload = message_of(args)

    async def main() -> int:
        from bmgd.errors import PartialError

        async with connect_within(address, args.timeout) as daemon:
            try:
                sending = daemon.broadcast(
                    payload, topic=args.topic, quality=args.quality, timeout=args.timeout
                )
                gone = bytes_gone(daemon, len(payload))
                report = await with_progress("broadcast", sending, gone)
            except PartialError as error:
                report = error.report
        return show_report(report, as_json=args.json, quality=args.quality)

    return run_async(main)
