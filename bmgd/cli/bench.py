"""Measure a cluster: latency, throughput, fan-out, and with --kill the time until a death is known.

It is safe on a cluster in use: it sends to a topic of its own, for a bounded time, a bounded number
of bytes, 64 messages at a time. Throughput and fan-out need readers at the other nodes, so they need a
cluster of this machine (--run-dir). With --control only probes are sent.
"""

from __future__ import annotations

import secrets
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from bmgd.cli.output import print_json, print_table
from bmgd.cli.running import run_async
from bmgd.cli.target import add_target, node_id
from bmgd.errors import ConfigError, NoDaemonError
from bmgd.launcher.rundir import default_run_dir, read_members
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from bmgd.cli.bench_parts import Scene, Table

SECONDS_MAX: Final = 60.0
DAEMONS_MAX: Final = 64
PARTS: Final = ("latency", "throughput", "fan-out")
_TITLES: Final = {
    "latency": "latency: round trips from node {own}, in milliseconds",
    "throughput": "throughput: confirmed messages of {size} bytes",
    "fan-out": "fan-out: a broadcast of {size} bytes from node {own}, in milliseconds",
    "kill-to-told": "a death: from SIGKILL until a survivor knows, in milliseconds",
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_target(parser)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"{', '.join(PARTS)} (default: all that are possible)",
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=2.0, metavar="S", help="seconds for each throughput (2)"
    )
    parser.add_argument(
        "--size", type=_size, default=1024, metavar="B", help="bytes of a payload (1024)"
    )
    parser.add_argument(
        "--kill", type=node_id, metavar="I", help="kill node I, time the news, start it again"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= SECONDS_MAX:
        raise ArgumentTypeError(f"not a number of seconds above 0, at most {SECONDS_MAX:.0f}")
    return value


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 8 <= int(text) <= PAYLOAD_BYTES_MAX):
        raise ArgumentTypeError(f"not a number of bytes in 8..{PAYLOAD_BYTES_MAX}: {text!r}")
    return int(text)


def run(args: Namespace) -> int:
    """Measure, and print tables or JSON."""
    for part in args.parts:
        if part not in PARTS:
            raise ConfigError(f"no part {part!r}: there are {', '.join(PARTS)}")
    is_remote = args.control is not None
    if is_remote and (args.run_dir is not None or args.id is not None):
        raise ConfigError("give either --control or --run-dir and --id")
    if is_remote and (args.kill is not None or set(args.parts) - {"latency"}):
        raise ConfigError("with --control only latency can be measured: the others need --run-dir")
    wanted = args.parts or (["latency"] if is_remote else list(PARTS))

    async def main() -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            scene = await _open(args, stack)
            return await _measure(args, scene, wanted)

    results = run_async(main)
    if args.json:
        print_json(results)
    return 0


async def _open(args: Namespace, stack: AsyncExitStack) -> Scene:
    """Connect to the daemons that can be reached."""
    from bmgd.cli.bench_parts import Scene
    from bmgd.client import connect

    topic = f"bmgd-bench-{secrets.token_hex(6)}"
    if args.control is not None:
        daemon = await stack.enter_async_context(connect(args.control))
        own_id = (await daemon.status())["id"]
        return Scene(own_id, {own_id: daemon}, topic, args.size, args.seconds)
    members = [m for m in read_members(args.run_dir or default_run_dir()) if m.pid is not None]
    own_id = members[0].id if args.id is None else args.id
    if own_id not in {member.id for member in members}:
        raise NoDaemonError(f"node {own_id} is not running")
    if args.kill == own_id:
        raise ConfigError("--kill is another node than the one that measures (--id)")
    if args.kill is not None and args.kill not in {member.id for member in members}:
        raise NoDaemonError(f"node {args.kill} is not running: it cannot be killed")
    chosen = [m for m in members if m.id == own_id]
    chosen += [m for m in members if m.id != own_id][: DAEMONS_MAX - 1]
    daemons = {m.id: await stack.enter_async_context(connect(m.control)) for m in chosen}
    return Scene(own_id, daemons, topic, args.size, args.seconds)


async def _measure(args: Namespace, scene: Scene, wanted: list[str]) -> dict[str, Any]:
    from bmgd.cli import bench_parts

    results: dict[str, Any] = {
        "from": scene.own_id,
        "daemons": len(scene.daemons),
        "size_bytes": scene.size_bytes,
    }
    parts = {
        "latency": bench_parts.latency,
        "throughput": bench_parts.throughput,
        "fan-out": bench_parts.fan_out,
    }
    if len(scene.daemons) < 2 and set(wanted) - {"latency"}:
        raise ConfigError("throughput and fan-out need two daemons at least")
    for part in wanted:
        results[part] = await parts[part](scene)
        _show(args, scene, part, results[part])
    if args.kill is not None:
        run_dir = args.run_dir or default_run_dir()
        results["kill-to-told"] = await bench_parts.kill_to_told(scene, args.kill, run_dir)
        _show(args, scene, "kill-to-told", results["kill-to-told"])
    return results


def _show(args: Namespace, scene: Scene, part: str, table: Table) -> None:
    if args.json or not table:
        return
    print(_TITLES[part].format(own=scene.own_id, size=scene.size_bytes))
    shown = [{key: "-" if value is None else value for key, value in row.items()} for row in table]
    print_table(shown, list(table[0]))
    print(flush=True)
