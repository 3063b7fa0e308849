"""Send a message to one reader of a topic at each of some nodes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from bmgd.cli.progress import bytes_gone, with_progress
from bmgd.cli.running import run_async
from bmgd.cli.sending import add_message, message_of, show_report
from bmgd.cli.target import add_target, address_of, connect_within, node_id


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "destinations", type=id_list, metavar="IDS", help="node ids and ranges: 1,8-15"
    )
    add_message(parser)
    add_target(parser)


def id_list(text: str) -> list[range]:
    """An argument of ids and ranges of them, such as ``1,8-15``."""
    found = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = node_id(first)
        high = node_id(last) if dash else low
        if high < low:
            raise ArgumentTypeError(f"not a range of ids: {part!r}")
        found.append(range(low, high + 1))
    return found


def run(args: Namespace) -> int:
    """Send it, and show who has it."""
    address = address_of(args)
    payload = message_of(args)

    async def main() -> int:
        from bmgd.client.arguments import id_ranges
        from bmgd.errors import PartialError

        async with connect_within(address, args.timeout) as daemon:
            try:
                runs = id_ranges(args.destinations)
                copies = sum(last + 1 - first for first, last in runs)
                sending = daemon.multicast(
                    args.destinations,
                    payload,
                    topic=args.topic,
                    quality=args.quality,
                    timeout=args.timeout,
                )
                gone = bytes_gone(daemon, len(payload), copies)
                report = await with_progress("multicast", sending, gone)
            except PartialError as error:
                report = error.report
        return show_report(report, as_json=args.json, quality=args.quality)

    return run_async(main)
