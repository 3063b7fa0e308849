"""Show what a daemon knows of itself and the cluster."""

from __future__ import annotations

from argparse import Namespace

from bmgd.cli.output import id_ranges, life, print_json
from bmgd.cli.target import add_target, address_of, run_async

configure = add_target


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
        links = [row["id"] for row in status["links"]]
        print(f"node {status['id']} is {status['state']} (rank {status['rank']})")
        print(f"  incarnation  {life(status['incarnation'])}, version {status['version']}")
        print(
            f"  cluster      {status['founding_size']} founders, {status['layout_size']} in the layout"
        )
        print(f"  alive        {id_ranges(status['alive'])}")
        print(f"  dead         {id_ranges(status['dead'])}")
        print(f"  left         {id_ranges(status['left'])}")
        print(f"  neighbors    {id_ranges(status['neighbors'])}")
        awaited = sorted(set(status["neighbors"]) - set(links) - set(status["dead"]))
        quorum = status["quorum"]
        if not quorum["holds"]:
            print(f"  quorum       lost: {quorum['living']} of {quorum['of']} live; stands aside")
        if awaited:
            print(f"  awaited      {id_ranges(awaited)}")
        print(f"  links        {id_ranges(links)}")
        if status["older"]:
            print(
                f"  older        {id_ranges(status['older'])}: what they do not know is not used yet"
            )
        print(f"  digest       {status['digest']}")
        print(f"  process      {status.get('pid')}, {status['backend']}, {status['loop']}")
        print(f"  costs        {_costs(status.get('pid'))}")
        return 0

    return run_async(main)


def _costs(pid: int | None) -> str:
    """What the daemon's process costs, as this machine sees it."""
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            spent_s = sum(process.cpu_times()[:2])
            return f"{process.memory_info().rss / 1e6:.1f} MB resident, {spent_s:.2f} s of CPU"
    except psutil.Error:
        return "not to be seen from here"
