"""Show what a daemon knows of itself and the cluster."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Final

from bmgd.cli.output import id_ranges, life, print_json
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, address_of
from bmgd.printable import printable

configure = add_target

SHOWN_TOPICS_MAX: Final = 5
NOT_SEEN: Final = "not to be seen from here"


def run(args: Namespace) -> int:
    """Print the status."""
    address = address_of(args)

    async def main() -> int:
        from bmgd.client import connect

        async with connect(address) as daemon:
            status = await daemon.status()
        if args.json:
            print_json(status)
            return 0
        print("\n".join(lines_of(status)))
        return 0

    return run_async(main)


def lines_of(status: dict[str, Any]) -> list[str]:
    """A status in lines for a person.

    Args:
        status: what a daemon of this release or of an older one answers.
    """
    links = [row["id"] for row in status["links"]]
    quorum = status["quorum"]
    awaited = sorted(set(status["neighbors"]) - set(links) - set(status["dead"]))
    # A daemon of an older release does not know of releases.
    older = status.get("older")
    members = f"{status['founding_size']} founders, {status['layout_size']} in the layout"
    rows = [
        ("incarnation", f"{life(status['incarnation'])}, version {status['version']}"),
        ("cluster", members),
        ("alive", id_ranges(status["alive"])),
        ("dead", id_ranges(status["dead"])),
        ("left", id_ranges(status["left"])),
        ("neighbors", id_ranges(status["neighbors"])),
    ]
    if not quorum["holds"]:
        rows.append(("quorum", f"lost: {quorum['living']} of {quorum['of']} live; stands aside"))
    if awaited:
        rows.append(("awaited", id_ranges(awaited)))
    rows.append(("links", id_ranges(links)))
    if older:
        rows.append(("older", f"{id_ranges(older)}: what they do not know is not used yet"))
    if status.get("topics"):
        rows.append(("topics", _topics(status["topics"], status["topics_left_out"])))
    rows.append(("digest", status["digest"]))
    rows.append(("process", f"{status.get('pid')}, {status['backend']}, {status['loop']}"))
    rows.append(("costs", costs_of(status.get("pid"))))
    first = f"node {status['id']} is {status['state']} (rank {status['rank']})"
    return [first, *(f"  {name:<11}  {text}" for name, text in rows)]


def _topics(topics: list[dict[str, Any]], left_out: int) -> str:
    """What waits in topics, those that hold the most first."""
    shown = topics[:SHOWN_TOPICS_MAX]
    words = [
        f"{printable(row['topic'])} {row['waiting']:,} waiting, {row['held_bytes'] / 1e6:.1f} MB held, "
        f"{row['readers'] or 'no'} reader{'' if row['readers'] == 1 else 's'}"
        for row in shown
    ]
    left_out += len(topics) - len(shown)
    return "; ".join([*words, *([f"and {left_out} more"] if left_out else [])])


def costs_of(pid: int | None) -> str:
    """What the daemon's process costs, as this machine sees it."""
    import psutil

    if pid is None:
        return NOT_SEEN
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            spent_s = sum(process.cpu_times()[:2])
            return f"{process.memory_info().rss / 1e6:.1f} MB resident, {spent_s:.2f} s of CPU"
    except psutil.Error:
        return NOT_SEEN
