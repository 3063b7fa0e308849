"""Messages to many: broadcasts against as many unicasts, and what each pattern costs as N grows.

    python -m benchmarks.many once   [--sizes 16,64] [--rounds 20]   64 bytes to all, on real processes
    python -m benchmarks.many long   [--size 16] [--mib 64] [--rounds 3]
    python -m benchmarks.many growth docs/many.md, by counting; no process is started
    python -m benchmarks.many frames [--sizes 16,64]  frames of one broadcast, one multicast, N-1 unicasts

`once` and `long` measure from the source's start until the last program has taken it: a reliable
broadcast, a reliable multicast (`once` only), and N-1 unicasts at the same time, in turns; shown are
medians, their ratio, and the daemons' CPU time. All programs are tasks of this process.

`growth` walks the way of every message by the next hops that daemons take, in a cluster where nobody is
missing, and counts on which links it goes; a star sends each message to a broker and on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.forked import Forked
from bmgd.client import Daemon, connect
from bmgd.core.commands import BroadcastTo, MulticastTo, SendTo, Subscribe
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event
from bmgd.errors import BmgdError
from bmgd.frameheader import flow_of
from bmgd.launcher.ports import choose_base_port
from bmgd.routing import Snapshot
from bmgd.routing.id_sets import id_set
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.topology import BinomialGraph
from bmgd.types import NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast, Stable, Watermark
from bmgd.wire.stream_messages import Segment, SegmentAck, SharedSegment

REPORT = Path(__file__).parent.parent / "docs" / "many.md"
TOPIC = "many"
LIMIT_S = 600.0
POLL_S = 0.02
SIZES = (8, 16, 32, 64, 128)
MESSAGES = 20_000
Pair = tuple[int, int]
Way = Callable[[bytes], Awaitable[object]]


# --- on real processes --------------------------------------------------------------------------------


class Cluster:
    """Daemons, and a program at each that reads one topic.

    Attributes:
        taken: how many messages each program has taken.
    """

    def __init__(self, daemons: Forked, stack: AsyncExitStack) -> None:
        self._daemons = daemons
        self._stack = stack
        self._pids: list[int] = []
        self._changed = asyncio.Event()
        self.programs: list[Daemon] = []
        self.taken: Counter[int] = Counter()

    async def start(self, max_message: int) -> None:
        """All run, are linked, and read."""
        size = self._daemons.size
        self._pids = [self._daemons.start(number) for number in range(size)]
        self.programs = [await self._connect(number) for number in range(size)]
        while True:
            shown = [await program.status() for program in self.programs]
            if all(each["state"] == "ready" and len(each["alive"]) == size for each in shown):
                break
            await asyncio.sleep(POLL_S)
        for number, program in enumerate(self.programs):
            subscription = program.subscribe(TOPIC, credit_bytes=1 << 20, max_message=max_message)
            messages = await self._stack.enter_async_context(subscription)
            task = asyncio.create_task(self._read(number, messages))
            self._stack.callback(task.cancel)

    async def _connect(self, number: int) -> Daemon:
        while True:
            try:
                return await self._stack.enter_async_context(connect(self._daemons.control(number)))
            except BmgdError:
                await asyncio.sleep(POLL_S)

    async def _read(self, number: int, messages: Any) -> None:
        async for message in messages:
            if message.is_long:
                async for _ in message.parts():
                    pass
            self.taken[number] += 1
            self._changed.set()

    async def time(self, way: Way, payload: bytes, takers: Sequence[int]) -> tuple[float, float]:
        """Seconds until the last program has taken it, and of the daemons' CPU time."""
        before, used = dict(self.taken), self._cpu_s()
        began = time.perf_counter()
        sending = asyncio.ensure_future(way(payload))
        while not all(self.taken[each] > before.get(each, 0) for each in takers):
            self._changed.clear()
            async with asyncio.timeout(LIMIT_S):
                await self._changed.wait()
        took = time.perf_counter() - began
        await sending
        return took, self._cpu_s() - used

    def _cpu_s(self) -> float:
        paths = (Path(f"/proc/{pid}/schedstat") for pid in self._pids)
        return sum(int(path.read_text().split()[0]) for path in paths) / 1e9

    def ways(self) -> dict[str, Way]:
        """How node 0 tells all others."""
        source, others = self.programs[0], range(1, len(self.programs))

        async def unicasts(payload: bytes) -> None:
            await asyncio.gather(
                *(source.send(to, payload, topic=TOPIC, timeout=LIMIT_S) for to in others)
            )

        return {
            "broadcast": lambda payload: source.broadcast(payload, topic=TOPIC, timeout=LIMIT_S),
            "multicast": lambda payload: source.multicast(
                [others], payload, topic=TOPIC, timeout=LIMIT_S
            ),
            "unicasts": unicasts,
        }


async def measure(size: int, payload_bytes: int, rounds: int, names: Sequence[str]) -> None:
    """Rounds of each way in turns, the first one not counted."""
    payload = os.urandom(payload_bytes)
    with tempfile.TemporaryDirectory(prefix="bmgd-bench-") as place:
        daemons = Forked(size, choose_base_port(size, 23_000 + 10 * size), Path(place))
        try:
            async with AsyncExitStack() as stack:
                cluster = Cluster(daemons, stack)
                await cluster.start(1 << 20)
                ways = cluster.ways()
                took: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
                for number in range(rounds + 1):
                    for name in names:
                        found = await cluster.time(ways[name], payload, range(1, size))
                        if number:
                            took[name].append(found)
        finally:
            daemons.stop()
    wall, cpu = ({n: median(row[at] for row in took[n]) for n in names} for at in (0, 1))
    for name in names:
        print(
            f"N={size:<4} {payload_bytes:>9} B  {name:<10} {wall[name] * 1e3:9.2f} ms"
            f" {wall[name] / wall['unicasts']:5.2f} x   CPU of all daemons"
            f" {cpu[name] * 1e3:9.2f} ms {cpu[name] / cpu['unicasts']:5.2f} x",
            flush=True,
        )


# --- by counting --------------------------------------------------------------------------------------


class Frames(Watcher):
    """Counts the frames that cores write; what the data plane relays is not among them."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            kinds = ReliableBroadcast | Watermark | Stable | Segment | SegmentAck | SharedSegment
            if isinstance(effect, Send) and isinstance(effect.message, kinds):
                self.sent[type(effect.message).__name__] += 1


def frames(size: int) -> Iterator[str]:
    """The frames that cores write for one message to all."""
    for name in ("broadcast", "multicast", "unicasts"):
        network = Network(size)
        network.run(5)
        for number in range(size):
            network.issue(number, Subscribe(TOPIC, 64))
        counted = Frames()
        network.watchers.append(counted)
        others = id_set(range(1, size))
        if name == "broadcast":
            network.issue(0, BroadcastTo(TOPIC, bytes(64), True, 10**10))
        elif name == "multicast":
            network.issue(0, MulticastTo(others, TOPIC, bytes(64), True, 10**10))
        else:
            for number in range(1, size):
                network.issue(0, SendTo(NodeId(number), TOPIC, bytes(64), 10**10))
        network.run(0.05)
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.sent.items()))
        yield f"N={size:<4} {name:<10} {shown}"


def pairs(pattern: str, size: int, random: Random, count: int = MESSAGES) -> Iterator[Pair]:
    """Who sends to whom, of so many messages."""
    for at in range(count):
        if pattern == "uniform":
            source, to = random.sample(range(size), 2)
        elif pattern == "all to one":
            source, to = 1 + at % (size - 1), 0
        elif pattern == "one to all":
            source, to = 0, 1 + at % (size - 1)
        else:
            source = at % size
            near = BinomialGraph(size).neighbors(source)
            to = near[(at // size) % len(near)]
        yield source, to


def snapshots(size: int) -> list[Snapshot]:
    """What each daemon routes by where nobody is missing; a link's id is 1 + the peer's."""
    graph = BinomialGraph(size)
    return [
        Snapshot(1, NodeId(i), size, [], [(NodeId(p), p + 1) for p in graph.neighbors(i)])
        for i in range(size)
    ]


def crossings(pattern: str, size: int) -> Counter[Pair]:
    """How often each link was crossed, in each direction."""
    found: Counter[Pair] = Counter()
    tables = snapshots(size)
    for source, to in pairs(pattern, size, Random(size)):
        at, came = source, -1
        flow = flow_of(NodeId(source), NodeId(to))
        while at != to:
            linked = to in BinomialGraph(size).neighbors(at)
            onward = to if linked else tables[at].next_hop(NodeId(to), came, flow) - 1
            found[at, onward] += 1
            at, came = onward, at
    return found


def in_a_star(pattern: str, size: int) -> Counter[Pair]:
    """The same over a broker, which is node -1 here."""
    found: Counter[Pair] = Counter()
    for source, to in pairs(pattern, size, Random(size)):
        found[source, -1] += 1
        found[-1, to] += 1
    return found


def shares(found: Counter[Pair]) -> tuple[float, float, float]:
    """Crossings of a message; the busiest link's share of all messages; the busiest node's."""
    total = sum(found.values())
    nodes: Counter[int] = Counter()
    for (a, b), count in found.items():
        nodes[a] += count
        nodes[b] += count
    busiest = max(nodes.values()) / 2
    return total / MESSAGES, max(found.values()) / MESSAGES, busiest / MESSAGES


def growth() -> str:
    """The page."""
    lines = [
        "# What patterns of messages cost, by counting",
        "",
        "Written by `python -m benchmarks.many growth`. 20,000 messages of each pattern, each on the",
        "way that daemons give it where nobody is missing (the next hops of the data plane), against a",
        "star in which every message goes to a broker and on. *Crossings*: links that a message takes.",
        "*Busiest link*: the share of all messages that the busiest link carries, in one direction; its",
        "bytes are that share. *Busiest node*: half of what it reads and writes, so one that relays",
        "everything has 1. Acknowledgements go the same ways back, and are not counted.",
        "",
        "| pattern | N | crossings | busiest link | busiest node | star | its busiest link | broker |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pattern in ("uniform", "all to one", "one to all", "neighbors"):
        for size in SIZES:
            mesh, star = shares(crossings(pattern, size)), shares(in_a_star(pattern, size))
            cells = [f"{mesh[0]:.2f}", f"{mesh[1]:.4f}", f"{mesh[2]:.3f}"]
            cells += [f"{star[0]:.0f}", f"{star[1]:.4f}", f"{star[2]:.2f}"]
            lines.append("| " + " | ".join([pattern, str(size), *cells]) + " |")
    lines += [
        "",
        "A reliable broadcast, and a reliable multicast to all, cross N-1 links, not those of *one to",
        "all* times N-1; the source writes it to its log2(N) children, or to its neighbors, only.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, or count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("once", "long", "growth", "frames"))
    parser.add_argument("--sizes", default="16,64")
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    sizes = [int(each) for each in options.sizes.split(",")]
    if options.what == "growth":
        REPORT.write_text(growth(), encoding="utf-8")
        print(REPORT.read_text(encoding="utf-8"))
    elif options.what == "frames":
        for size in sizes:
            print(*frames(size), sep="\n", flush=True)
    elif options.what == "once":
        for size in sizes:
            every = ("broadcast", "multicast", "unicasts")
            asyncio.run(measure(size, 64, options.rounds or 20, every))
    else:
        two = ("broadcast", "unicasts")
        asyncio.run(measure(options.size, options.mib << 20, options.rounds or 3, two))


if __name__ == "__main__":
    main()
