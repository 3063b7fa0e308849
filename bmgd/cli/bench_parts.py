"""What `bmgd bench` measures: each part a coroutine over the daemons that it can reach.

Every part is bounded: by a time, by a number of bytes, and by how many messages are underway; and it
sends to a topic that only this run has, so no program gets any of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bmgd.errors import DeliveryError, RequestError
from bmgd.launcher.requests import ask_restart
from bmgd.launcher.rundir import find_member

if TYPE_CHECKING:
    from bmgd.client import Daemon

PROBES: Final = 20
"""Probes, and messages, to each destination."""
DESTINATIONS_MAX: Final = 32
UNDERWAY: Final = 64
BYTES_MAX: Final = 256 * 2**20
"""What one part sends at most."""
FAN_OUT_ROUNDS: Final = 20
TOLD_S: Final = 30.0
_TIMEOUT_S: Final = 10.0

Table = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Scene:
    """What the parts work with.

    Args:
        own_id: of the node that sends.
        daemons: connections by node id, `own_id` among them.
        topic: of this run alone.
        size_bytes: of a payload.
        seconds: how long a throughput is measured.
    """

    own_id: int
    daemons: Mapping[int, Daemon]
    topic: str
    size_bytes: int
    seconds: float

    @property
    def own(self) -> Daemon:
        """The daemon that sends."""
        return self.daemons[self.own_id]

    @property
    def others(self) -> list[int]:
        """The other daemons that can be reached, sorted."""
        return [i for i in sorted(self.daemons) if i != self.own_id]


def percentile(values: Sequence[float], percent: int) -> float:
    """The least value that so many percent do not pass: the nearest rank, of at least one value."""
    ordered = sorted(values)
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


def spread(ids: Sequence[int], most: int) -> list[int]:
    """At most so many of the ids, evenly over them."""
    if len(ids) <= most:
        return list(ids)
    return [ids[i * len(ids) // most] for i in range(most)]


# --- latency --------------------------------------------------------------------------------------


async def latency(scene: Scene) -> Table:
    """Round trips of probes, and of confirmed messages where a reader can be put, by hops."""
    status = await scene.own.status()
    ids = [i for i in status["alive"] if i != scene.own_id]
    probes: dict[int, list[float]] = defaultdict(list)
    sends: dict[int, list[float]] = defaultdict(list)
    nodes: dict[int, int] = defaultdict(int)
    for node_id in spread(ids, DESTINATIONS_MAX):
        hops = len((await scene.own.trace(node_id)).path) - 1
        nodes[hops] += 1
        for _ in range(PROBES):
            probes[hops].append(await scene.own.ping(node_id))
        if node_id in scene.daemons:
            sends[hops] += await _confirmed(scene, node_id)
    return [
        {
            "hops": hops,
            "nodes": nodes[hops],
            "probe_p50_ms": _ms(probes[hops], 50),
            "probe_p99_ms": _ms(probes[hops], 99),
            "send_p50_ms": _ms(sends[hops], 50),
            "send_p99_ms": _ms(sends[hops], 99),
        }
        for hops in sorted(nodes)
    ]


async def _confirmed(scene: Scene, node_id: int) -> list[float]:
    """Seconds of messages that were confirmed, one after the other."""
    took_s = []
    async with _draining(scene, [node_id]):
        for _ in range(PROBES):
            began_s = time.perf_counter()
            await scene.own.send(node_id, bytes(scene.size_bytes), topic=scene.topic)
            took_s.append(time.perf_counter() - began_s)
    return took_s


def _ms(seconds: Sequence[float], percent: int) -> float | None:
    return round(percentile(seconds, percent) * 1e3, 3) if seconds else None


# --- throughput -----------------------------------------------------------------------------------


async def throughput(scene: Scene) -> Table:
    """Confirmed messages in a second: to a neighbor, to the farthest node, and between all pairs."""
    near, far = await _near_and_far(scene)
    rows = []
    for name, pairs in (
        (f"{scene.own_id} to {near}, a neighbor", [(scene.own_id, near)]),
        (f"{scene.own_id} to {far}, the farthest", [(scene.own_id, far)]),
        ("every node to the one across", _across(sorted(scene.daemons))),
    ):
        rows.append({"what": name, **await _flow(scene, pairs)})
    return rows


async def _near_and_far(scene: Scene) -> tuple[int, int]:
    hops = {i: len((await scene.own.trace(i)).path) - 1 for i in spread(scene.others, 8)}
    return min(hops, key=lambda i: hops[i]), max(hops, key=lambda i: hops[i])


def _across(ids: Sequence[int]) -> list[tuple[int, int]]:
    senders = spread(ids, DESTINATIONS_MAX)
    return [(a, ids[(ids.index(a) + len(ids) // 2) % len(ids)]) for a in senders]


async def _flow(scene: Scene, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Send between these pairs for the time, about `UNDERWAY` at once in all, one at least for each."""
    until_s = time.perf_counter() + scene.seconds
    budget = [BYTES_MAX // max(1, scene.size_bytes)]
    sent, failed = [0], [0]

    async def sender(source: int, destination: int) -> None:
        daemon = scene.daemons[source]
        while time.perf_counter() < until_s and budget[0] > 0:
            budget[0] -= 1
            try:
                await daemon.send(destination, bytes(scene.size_bytes), topic=scene.topic)
            except (DeliveryError, RequestError):
                failed[0] += 1
                await asyncio.sleep(0.01)
            else:
                sent[0] += 1

    began_s = time.perf_counter()
    async with _draining(scene, sorted({b for _, b in pairs})), asyncio.TaskGroup() as tasks:
        for source, destination in pairs:
            for _ in range(max(1, UNDERWAY // len(pairs))):
                tasks.create_task(sender(source, destination))
    took_s = time.perf_counter() - began_s
    return {
        "messages_per_s": round(sent[0] / took_s),
        "mb_per_s": round(sent[0] * scene.size_bytes / took_s / 1e6, 2),
        "not_taken": failed[0],
    }


@asynccontextmanager
async def _draining(scene: Scene, ids: Sequence[int]) -> AsyncIterator[None]:
    """Readers of the topic at these nodes, which throw away what comes."""

    async def drain(daemon: Daemon, opened: asyncio.Event) -> None:
        async with daemon.subscribe(scene.topic, credit=1024) as messages:
            opened.set()
            async for _ in messages:
                pass

    events = [asyncio.Event() for _ in ids]
    async with asyncio.TaskGroup() as tasks:
        readers = [
            tasks.create_task(drain(scene.daemons[i], event))
            for i, event in zip(ids, events, strict=True)
        ]
        for event in events:
            await event.wait()
        try:
            yield
        finally:
            for reader in readers:
                reader.cancel()


# --- fan-out --------------------------------------------------------------------------------------


async def fan_out(scene: Scene) -> Table:
    """One message to every node: until the last reader has it, and until the report is there."""
    ids = sorted(scene.daemons)
    arrived: dict[bytes, dict[int, float]] = defaultdict(dict)
    changed = asyncio.Event()

    async def read(node_id: int, opened: asyncio.Event) -> None:
        async with scene.daemons[node_id].subscribe(scene.topic, credit=1024) as messages:
            opened.set()
            async for message in messages:
                payload = getattr(message, "payload", b"")
                arrived[payload[:8]].setdefault(node_id, time.perf_counter())
                changed.set()

    events = [asyncio.Event() for _ in ids]
    rows = []
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read(i, event)) for i, event in zip(ids, events, strict=True)]
        for event in events:
            await event.wait()
        for quality in ("reliable", "best-effort"):
            rows.append(await _broadcasts(scene, quality, arrived, changed, len(ids)))
        for reader in readers:
            reader.cancel()
    return rows


async def _broadcasts(
    scene: Scene,
    quality: Any,
    arrived: Mapping[bytes, Mapping[int, float]],
    changed: asyncio.Event,
    wanted: int,
) -> dict[str, Any]:
    last_s, reported_s, missing = [], [], 0
    for number in range(FAN_OUT_ROUNDS):
        mark = b"%c%07d" % (quality[0].encode(), number)
        payload = mark.ljust(scene.size_bytes, b".")
        began_s = time.perf_counter()
        await scene.own.broadcast(payload, topic=scene.topic, quality=quality, timeout=_TIMEOUT_S)
        reported_s.append(time.perf_counter() - began_s)
        try:
            async with asyncio.timeout(_TIMEOUT_S if quality == "reliable" else 1.0):
                while len(arrived[mark]) < wanted:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            missing += wanted - len(arrived[mark])
        if arrived[mark]:
            last_s.append(max(arrived[mark].values()) - began_s)
    return {
        "quality": quality,
        "nodes": wanted,
        "last_reader_p50_ms": _ms(last_s, 50),
        "last_reader_p99_ms": _ms(last_s, 99),
        "report_p50_ms": _ms(reported_s, 50),
        "not_arrived": missing,
    }


# --- a death --------------------------------------------------------------------------------------


async def kill_to_told(scene: Scene, victim: int, run_dir: str) -> Table:
    """Kill a daemon of a local cluster, time until the others know, and start it again.

    Raises:
        RequestError: not all were told in time.
        NoDaemonError: the victim does not run.
    """
    survivors = [i for i in sorted(scene.daemons) if i != victim]
    told_s: dict[int, float] = {}
    done = asyncio.Event()

    async def watch(node_id: int, opened: asyncio.Event) -> None:
        async with scene.daemons[node_id].membership() as changes:
            async for change in changes:
                opened.set()
                if change.id == victim and change.status in ("dead", "excluded"):
                    told_s.setdefault(node_id, time.perf_counter())
                    if len(told_s) == len(survivors):
                        done.set()

    pid = find_member(run_dir, victim).pid
    if pid is None:
        raise RequestError(f"node {victim} does not run")
    events = [asyncio.Event() for _ in survivors]
    async with asyncio.TaskGroup() as tasks:
        watchers = [
            tasks.create_task(watch(i, event)) for i, event in zip(survivors, events, strict=True)
        ]
        for event in events:
            await event.wait()
        told_s.clear()
        killed_s = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(TOLD_S):
                await done.wait()
        except TimeoutError:
            missing = sorted(set(survivors) - set(told_s))
            raise RequestError(f"nodes {missing} were not told in {TOLD_S:.0f} s") from None
        for watcher in watchers:
            watcher.cancel()
    again = await asyncio.to_thread(ask_restart, run_dir, victim)
    after_ms = sorted((at_s - killed_s) * 1e3 for at_s in told_s.values())
    return [
        {
            "victim": victim,
            "told": len(after_ms),
            "first_ms": round(after_ms[0], 2),
            "p50_ms": round(percentile(after_ms, 50), 2),
            "last_ms": round(after_ms[-1], 2),
            "joined_again_ms": round(float(again["seconds"]) * 1e3, 1),
        }
    ]
