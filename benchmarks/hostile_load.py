"""Load of the hostile kind on one daemon of four: do sound messages still all come, and how late?

    python -m benchmarks.hostile_load [--seconds 10] [--only NAME,...] [--json]

Node 0 sends to node 1, one message after the other, each confirmed; node 1 is under attack by another
process:

    nothing      to compare with
    idle         5,000 connections that say nothing; each again when it is closed
    loris        256 hellos of which one byte comes in a tenth of a second
    refused      as many hellos of another cluster as node 1 answers, at most 1,000 a second
    resets       connections that are reset at once, or within their hello, as fast as it goes
    deaf         a program that asks for everything that happens and reads nothing
    programs     64 programs at node 1 that send as fast as they can
    flood        a member that sends pings and heartbeats as fast as it can

A row for each: messages confirmed and lost, the median, the 99th percentile and the longest time of one,
links lost between sound members, deaths declared, growth of node 1's memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from statistics import median, quantiles
from typing import Any

import psutil

from benchmarks.launched import Launched, launched
from bmgd.client import connect
from bmgd.errors import BmgdError
from bmgd.launcher.rundir import read_members
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId
from bmgd.wire.codec import encode
from bmgd.wire.control import Request
from bmgd.wire.control import encode as encode_control
from bmgd.wire.handshake import Dialer, HelloState
from bmgd.wire.hello import NONCE_BYTES, RECORD, Hello, HelloKind, Identity, encode_hello
from bmgd.wire.link_messages import Heartbeat, Ping

SIZE = 4
SOURCE, TARGET, ATTACKER = 0, 1, 3
IDLE = 5_000
LORIS = 256
REFUSED_PER_S = 1_000
PROGRAMS = 64
TIMEOUT_S = 60.0
NO_LINGER = struct.pack("ii", 1, 0)

Row = dict[str, Any]


def hello(port: int, cluster: str) -> bytes:
    """A hello of node 3 to node 1."""
    peers = PeerList.parse(f"127.0.0.1:{{{port - TARGET}+id}}", SIZE)
    body = encode_hello(
        Hello(
            has_secret=False,
            cluster=cluster,
            founding_size=SIZE,
            fingerprint=peers.fingerprint(),
            id=NodeId(ATTACKER),
            expected=NodeId(TARGET),
            known=Incarnation(0),
            incarnation=Incarnation(time.time_ns()),
            dial_number=1,
            nonce=os.urandom(NONCE_BYTES),
            address=peers.address_of(NodeId(ATTACKER)),
        )
    )
    return RECORD.pack(b"BMGD", HelloKind.HELLO, len(body)) + body


def reached(port: int) -> socket.socket | None:
    """A connection to node 1; None where the kernel has none left."""
    sock = socket.socket()
    sock.settimeout(5)
    try:
        sock.connect(("127.0.0.1", port))
    except OSError:
        sock.close()
        return None
    return sock


# --- attacks: each goes on until it is killed -----------------------------------------------------------


def idle(port: int, control: str) -> None:
    """Thousands of connections that say nothing."""
    held: list[socket.socket] = []
    while True:
        still = []
        for sock in held:
            sock.setblocking(False)
            try:
                closed = sock.recv(1) == b""
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if closed:
                sock.close()
            else:
                still.append(sock)
        held = still
        for _ in range(IDLE - len(held)):
            if (sock_or_none := reached(port)) is not None:
                held.append(sock_or_none)
        time.sleep(0.05)


def loris(port: int, control: str) -> None:
    """Hellos that come byte by byte."""
    slow: list[tuple[socket.socket, bytes]] = []
    while True:
        going = []
        for sock, rest in slow:
            try:
                sock.sendall(rest[:1])
                going.append((sock, rest[1:] or b"\0"))
            except OSError:
                sock.close()
        slow = going
        for _ in range(LORIS - len(slow)):
            if (sock_or_none := reached(port)) is not None:
                slow.append((sock_or_none, hello(port, "bmgd")))
        time.sleep(0.1)


def refused(port: int, control: str) -> None:
    """Hellos of another cluster."""
    began_s, count = time.monotonic(), 0
    while True:
        if (sock := reached(port)) is not None:
            with sock, suppress(OSError):
                sock.sendall(hello(port, "another"))
                sock.recv(64)
        count += 1
        time.sleep(max(0.0, began_s + count / REFUSED_PER_S - time.monotonic()))


def resets(port: int, control: str) -> None:
    """Connections that are reset."""
    data = hello(port, "bmgd")
    while True:
        for length in (0, 7, 60):
            if (sock := reached(port)) is not None:
                with sock, suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                    sock.sendall(data[:length])


def deaf(port: int, control: str) -> None:
    """A program that reads nothing."""
    while True:
        with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
            sock.connect(control.removeprefix("unix:"))
            sock.sendall(encode_control(Request(1, "monitor", {})))
            for number in range(2, 10**9):
                sock.sendall(encode_control(Request(number, "members", {})))


def programs(port: int, control: str) -> None:
    """Programs that send as fast as they can."""

    async def send(number: int) -> None:
        async with connect(control) as daemon:
            while True:
                await asyncio.gather(
                    *(
                        daemon.send(2, bytes(1000), topic=f"noise {number}", timeout=TIMEOUT_S)
                        for _ in range(50)
                    ),
                    return_exceptions=True,
                )

    async def main() -> None:
        await asyncio.gather(*(send(number) for number in range(PROGRAMS)))

    with suppress(BmgdError):
        asyncio.run(main())


def flood(port: int, control: str) -> None:
    """A member that sends what costs the core."""
    peers = PeerList.parse(f"127.0.0.1:{{{port - TARGET}+id}}", SIZE)
    me = Identity(
        "bmgd", SIZE, peers.fingerprint(), NodeId(ATTACKER), peers.address_of(NodeId(ATTACKER))
    )
    frames = b"".join(encode(Ping(n)) + encode(Heartbeat(n, 0, 1, True)) for n in range(1, 200))
    while True:
        life = Incarnation(time.time_ns())
        dialer = Dialer(me, life, NodeId(TARGET), Incarnation(0), 1, os.urandom(NONCE_BYTES))
        sock = reached(port)
        if sock is None:
            continue
        with sock, suppress(OSError):
            while dialer.state is HelloState.WAITING:
                sock.sendall(dialer.take_output())
                dialer.receive(sock.recv(4096))
            sock.setblocking(False)
            while dialer.state is HelloState.UP:
                with suppress(BlockingIOError):
                    sock.send(frames)
                with suppress(BlockingIOError):
                    if not sock.recv(1 << 16):
                        break


def nothing(port: int, control: str) -> None:
    """No attack."""
    time.sleep(3600)


ATTACKS: dict[str, Callable[[int, str], None]] = {
    "nothing": nothing,
    "idle": idle,
    "loris": loris,
    "refused": refused,
    "resets": resets,
    "deaf": deaf,
    "programs": programs,
    "flood": flood,
}


# --- what is measured -----------------------------------------------------------------------------------


async def measured(cluster: Launched, seconds: float) -> Row:
    """Send one message after the other for a while."""
    members = read_members(str(cluster.run_dir))
    times: list[float] = []
    lost, events = 0, {"link down": 0, "verdict": 0}
    taken: list[bytes] = []
    came = asyncio.Event()

    async def watch(node_id: int) -> None:
        async with connect(members[node_id].control) as daemon, daemon.monitor() as seen:
            async for event in seen:
                if event["event"] in events and event.get("peer") in (0, 1, 2):
                    events[event["event"]] += 1

    async def read() -> None:
        path = members[TARGET].control
        async with connect(path) as daemon, daemon.subscribe("sound") as messages:
            async for message in messages:
                taken.append(message.payload)
                came.set()

    tasks = [asyncio.create_task(watch(i)) for i in (0, 1, 2)] + [asyncio.create_task(read())]
    async with connect(members[SOURCE].control) as sender:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            began_s = time.perf_counter()
            try:
                await sender.send(TARGET, b"x" * 100, topic="sound", timeout=TIMEOUT_S)
                times.append(time.perf_counter() - began_s)
            except BmgdError:
                lost += 1
            await asyncio.sleep(0.002)
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            while len(taken) < len(times):
                came.clear()
                await came.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    cuts = quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return {
        "confirmed": len(times),
        "lost": lost + len(times) - len(taken),
        "median_ms": round(median(times) * 1e3, 2) if times else None,
        "p99_ms": round(cuts[98] * 1e3, 2),
        "longest_ms": round(max(times, default=0.0) * 1e3, 2),
        "links_lost": events["link down"],
        "verdicts": events["verdict"],
    }


def run(name: str, seconds: float) -> Row:
    """One attack on a fresh cluster."""
    with launched(SIZE, ("--without-secret",)) as cluster, ExitStack() as stack:
        members = read_members(str(cluster.run_dir))
        port = int(members[TARGET].address.rpartition(":")[2])
        cluster.kill(ATTACKER)
        time.sleep(1)
        target = psutil.Process(cluster.pids()[TARGET])
        before = target.memory_info().rss
        attack = multiprocessing.Process(
            target=ATTACKS[name], args=(port, members[TARGET].control), daemon=True
        )
        attack.start()
        stack.callback(attack.join)
        stack.callback(attack.kill)
        time.sleep(1)
        row = asyncio.run(measured(cluster, seconds))
        return {"attack": name, **row, "rss_growth_kib": (target.memory_info().rss - before) >> 10}


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.hostile_load")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(ATTACKS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    failed = 0
    for name in options.only.split(","):
        row = run(name, options.seconds)
        failed += bool(row["lost"] or row["verdicts"] or row["links_lost"])
        words = (
            [json.dumps(row)] if options.json else [f"{key} {value}" for key, value in row.items()]
        )
        print(", ".join(words), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
