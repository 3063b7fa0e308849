"""What many joins and leaves in a cluster's life cost those who stay: memory, bytes, time.

    python -m benchmarks.turnover [--joins 1000000] [--out turnover.jsonl] [--every 50000]
    python -m benchmarks.turnover --real 2000 [--size 4] [--every 256]

Two members' cores in virtual time: one gives out all ids, both hear of all. Joiners come in batches, are
given an id, and leave; one in a batch fetches all records as a joiner does. Every so many joins a line is
written: seconds since the line before, the memory of the process, records and runs that the members have,
whether their digests are equal, and what a new joiner and a restarted founder, which has forgotten
everything, fetch. With `--out` what is known is kept beside the lines; the next call goes on from there.

`--real` does the same with daemons on this machine: joiners are started and leave again, and the lines
tell how long a batch takes to join, the bytes on loopback meanwhile for each joiner, headers and all that
daemons say to each other included, and what memory the founders have.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.launched import launched, loopback_bytes
from bmgd.client import connect
from bmgd.core.effects import Dial, Effect, Grant, Send
from bmgd.core.events import (
    DeadlineReached,
    DialFailed,
    Event,
    JoinAsked,
    LinkDown,
    LinkUp,
    Received,
)
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
)
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Notice, RecordPage

FOUNDERS = 2
BATCH = 128
ROUND_NS = 200_000_000
MS = 1_000_000
PEERS = PeerList(template="host{id}:7400")
LINK = LinkId(1)


class Pair:
    """Two members with a link between them that loses nothing.

    Args:
        told: records and runs of retired ids that they begin with.
        now_ns: virtual time.
    """

    def __init__(self, told: RecordPage, now_ns: int) -> None:
        self.now_ns = now_ns
        self.bytes = 0
        self._joins = 0
        self._grants: list[Grant] = []
        self.nodes = [_member(i, told, now_ns) for i in range(FOUNDERS)]
        for me, node in enumerate(self.nodes):
            self.step(me, DeadlineReached())
            other = NodeId(1 - me)
            life = self.nodes[other].incarnation
            address = PEERS.address_of(other)
            self._do(
                me, node.step(now_ns, LinkUp(LINK, other, life, address, UNKNOWN_INCARNATION, 1))
            )
        self.pass_time(3000 * MS)

    def step(self, me: int, event: Event) -> None:
        """One event for one of them, and all that follows at both."""
        self._do(me, self.nodes[me].step(self.now_ns, event))

    def _do(self, me: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link, message) if link == LINK:
                    self.bytes += len(encode(message))
                    self.step(1 - me, Received(LINK, message))
                case Dial(peer):
                    self.step(me, DialFailed(peer, Evidence.OWN_LACK))
                case Grant():
                    self._grants.append(effect)

    def pass_time(self, duration_ns: int) -> None:
        """Reach every deadline of both, 5 ms apart at least."""
        until_ns = self.now_ns + duration_ns
        while self.now_ns < until_ns:
            due = [node.deadline_ns for node in self.nodes if node.deadline_ns is not None]
            self.now_ns = min(until_ns, max(self.now_ns + 5 * MS, min(due, default=until_ns)))
            for me, node in enumerate(self.nodes):
                while node.deadline_ns is not None and node.deadline_ns <= self.now_ns:
                    self.step(me, DeadlineReached())

    def turn_over(self, count: int, random: Random) -> None:
        """So many daemons join through the first one, and leave again."""
        self._grants.clear()
        asked: dict[LinkId, Incarnation] = {}
        for _ in range(count):
            self._joins += 1
            link = LinkId(1 + self._joins)
            asked[link] = Incarnation(1 << 32 | random.getrandbits(32))
            self.step(0, JoinAsked(link, None, asked[link], f"joiner{self._joins}:7400"))
        self.pass_time(ROUND_NS // 2)
        if len(self._grants) != count:
            raise SystemExit(f"{len(self._grants)} of {count} joiners were given an id")
        rows = []
        for grant in self._grants:
            rows.append((grant.id, Record(asked[grant.link], 0, Status.LEFT, "joiner:7400")))
            self.step(0, LinkDown(grant.link, Evidence.GOODBYE))
        self.step(0, Received(LINK, Notice(tuple(sorted(rows)))))
        self.step(1, Received(LINK, Notice(tuple(sorted(rows)))))
        self.pass_time(ROUND_NS // 2)

    def everything(self) -> tuple[RecordPage, int, int, float]:
        """What one of them tells a joiner; with its bytes, pages, and seconds of CPU."""
        began_s = time.process_time()
        records: list[tuple[NodeId, Record]] = []
        retired: list[tuple[NodeId, NodeId]] = []
        after: NodeId | None = NodeId(0)
        bytes_, pages = 0, 0
        while after is not None:
            page = self.nodes[0].page(after)
            bytes_, pages, after = bytes_ + len(encode(page)), pages + 1, page.following
            records += page.records
            retired += page.retired
        told = RecordPage(tuple(records), tuple(retired))
        _member(9, told, self.now_ns)
        return told, bytes_, pages, time.process_time() - began_s


def _member(number: int, told: RecordPage, now_ns: int) -> Node:
    node_id = NodeId(number)
    settings = Settings(node_id, FOUNDERS, PEERS, PEERS.address_of(node_id), relayout_ns=50 * MS)
    life = Incarnation(1 << 32 | number + 1)
    return Node(settings, life, Random(number), now_ns, told.records, told.retired)


def simulate(options: argparse.Namespace) -> None:
    """Joins and leaves in virtual time, from where the last call has ended."""
    out = Path(options.out) if options.out else None
    kept = out.with_suffix(".state") if out else None
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    done, told, now_ns = 0, RecordPage(()), 0
    if kept is not None and kept.exists():
        state = json.loads(kept.read_text())
        done, now_ns = state["joins"], state["now_ns"]
        records = tuple(
            (NodeId(i), Record(a, b, Status(c), d)) for i, a, b, c, d in state["records"]
        )
        told = RecordPage(records, tuple((NodeId(a), NodeId(b)) for a, b in state["retired"]))
    pair, random = Pair(told, now_ns), Random(done)
    began_s = time.process_time()
    while done < options.joins:
        before, pair.bytes = done, 0
        while done - before < options.every and done < options.joins:
            pair.turn_over(min(BATCH, options.joins - done), random)
            done += BATCH
        told, bytes_, pages, fetch_s = pair.everything()
        memberships = [node.show()["status"] for node in pair.nodes]
        row: dict[str, Any] = {
            "joins": done,
            "cpu_s": round(time.process_time() - began_s, 1),
            "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
            "records": len(told.records),
            "runs": len(told.retired),
            "retired": memberships[0]["retired"],
            "digests_equal": len({m["digest"] for m in memberships}) == 1,
            "told_bytes_per_join": round(pair.bytes / (done - before), 1),
            "joiner_fetches_bytes": bytes_,
            "joiner_fetches_pages": pages,
            "joiner_fetches_cpu_ms": round(fetch_s * 1e3, 2),
        }
        began_s = time.process_time()
        print(json.dumps(row), flush=True)
        if out is not None and kept is not None:
            with out.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            state = {
                "joins": done,
                "now_ns": pair.now_ns,
                "records": [(i, *record) for i, record in told.records],
                "retired": told.retired,
            }
            kept.write_text(json.dumps(state))


def run_real(options: argparse.Namespace) -> None:
    """Joins and leaves of real daemons on this machine, some at a time."""
    with launched(options.size) as cluster:
        founders = [psutil.Process(pid) for pid in cluster.pids().values()]
        grow = [sys.executable, "-m", "bmgd", "launch", "--run-dir", str(cluster.run_dir), "--grow"]
        done, gone = 0, set(range(options.size))
        while done < options.real:
            began_s, bytes_before = time.monotonic(), loopback_bytes()
            subprocess.run([*grow, str(options.at_once)], check=True, capture_output=True)
            joined_s = time.monotonic() - began_s
            joined_bytes = loopback_bytes() - bytes_before
            nodes = json.loads((cluster.run_dir / "cluster.json").read_text())["nodes"]
            fresh = {n["id"]: n["control"] for n in nodes if n["id"] not in gone}
            asyncio.run(_leave_all(fresh.values()))
            gone |= set(fresh)
            done += len(fresh)
            if done % options.every < options.at_once or done >= options.real:
                row = {
                    "joins": done,
                    "highest_id": max(gone),
                    "batch": options.at_once,
                    "batch_joined_s": round(joined_s, 2),
                    "joining_kb_each": round(joined_bytes / len(fresh) / 1e3, 1),
                    "batch_left_s": round(time.monotonic() - began_s - joined_s, 2),
                    "founder_uss_mb": round(
                        max(p.memory_full_info().uss for p in founders) / 1e6, 2
                    ),
                }
                print(json.dumps(row), flush=True)


async def _leave_all(controls: Iterable[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for control in controls:
            tasks.create_task(_leave(control))


async def _leave(control: str) -> None:
    async with connect(control) as daemon:
        await daemon.leave()


def main() -> None:
    """Simulate, or do it for real."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--joins", type=int, default=1_000_000)
    parser.add_argument(
        "--every", type=int, help="a line for so many joins: 50,000, or 256 real ones"
    )
    parser.add_argument("--out", help="append lines to this file, and go on from it")
    parser.add_argument("--real", type=int, default=0, help="so many real daemons instead")
    parser.add_argument("--size", type=int, default=4, help="founders of the real cluster")
    parser.add_argument("--at-once", type=int, default=32, help="real joiners at a time")
    options = parser.parse_args()
    options.every = options.every or (256 if options.real else 50_000)
    if options.real:
        run_real(options)
    else:
        simulate(options)


if __name__ == "__main__":
    main()
