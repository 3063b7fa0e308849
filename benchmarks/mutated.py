"""Mutated frames and hellos against live daemons under traffic: what is wrong harms nobody else.

    python -m benchmarks.mutated run [--cases 1000000] [--first 0]
    python -m benchmarks.mutated report        the figures of docs/hostile.md, of what there is

A cluster of eight, of which the nodes 4 to 7 are dead. Four attackers of node 1 say at the same time
that they are new lives of them. The others send to each other all the time, each message confirmed. A
case is one hello or one frame: a sound one (`arbitrary/`) with up to eight changes of its bytes,
sometimes of its length. Frames that a codec still reads as what a member may say in another's name, or
of others (records, joins, lives), are not sent, nor such hellos: they are lies, not broken input:
SECURITY.md, tests/hostile/semantics.toml.

After each four thousands of cases, and at the end: the others hold each other alive and are linked, every
message was confirmed, no link between them was lost, nothing in a log is a traceback; at the end memory
has grown by less than 10 MB since the first of them. The flight recorder's ring, 8 MiB by default, has
1 MiB here, or its filling would be most of that growth. `run` goes on where it ended: a line of
`docs/results/mutated.jsonl` for each thousand, which its number makes again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.arbitrary.messages import Messages
from benchmarks.launched import Launched, launched
from bmgd.client import Daemon, connect
from bmgd.errors import BmgdError, ProtocolError
from bmgd.frameheader import BODY_BYTES_MIN
from bmgd.launcher.rundir import read_members
from bmgd.linklayer.frames import is_routed
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId
from bmgd.wire.ask_messages import Answer, JoinRequest
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.hello import RECORD, Hello, HelloKind, decode_hello, encode_hello
from bmgd.wire.link_messages import Notice, OlderMembers, Ping, RecordPage, Watermarks
from bmgd.wire.messages import LinkMessage, Message

ATTACKERS, TARGET = tuple(map(NodeId, range(4, 8))), NodeId(1)
SIZE = 4 + len(ATTACKERS)
OTHERS = range(ATTACKERS[0])
PAUSE_S = 0.05
FLIGHT_BYTES = 2**20
BATCH = 1_000
HELLOS_IN_TEN = 3
GROUP = 16
PATIENCE_S = 20.0
GROWTH_MAX_BYTES = 10 * 2**20
OUT = Path(__file__).parent.parent / "docs" / "results" / "mutated.jsonl"
MAGIC = b"BMGD"
TELLING = (Notice, RecordPage, Watermarks, JoinRequest, Answer, OlderMembers)
"""Kinds that say something of others."""
EDGES = (0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC4, 0xC6, 0xCF, 0xD9, 0xDC, 0xDD, 0xDF, 0xFF)

Row = dict[str, Any]


# --- cases ------------------------------------------------------------------------------------------


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """Up to eight changes of some bytes; `other` is what a part may be taken from."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randrange(len(found) + 1)
        match random.randrange(8):
            case 0 if found:
                found[at % len(found)] ^= 1 << random.randrange(8)
            case 1 if found:
                found[at % len(found)] = random.choice(EDGES)
            case 2:
                found[at:at] = random.randbytes(random.choice((1, 1, 2, 4, 40)))
            case 3:
                del found[at : at + random.choice((1, 1, 2, 4, 40))]
            case 4:
                del found[at:]
            case 5:
                width = random.choice((2, 4, 8))
                found[at : at + width] = random.choice((0, 1, 2 ** (8 * width) - 1)).to_bytes(
                    width, "big"
                )
            case 6:
                start = random.randrange(len(other) + 1)
                found[at : at + 8] = other[start : start + random.choice((4, 8, 32))]
            case _:
                found[at:at] = found[at : at + random.choice((1, 8, 64))]
    return bytes(found)


def is_lie(message: Message, attacker: NodeId, life: int) -> bool:
    """Whether a frame is sound, and speaks of others, or for another or a later life than this one."""
    if isinstance(message, TELLING):
        return True
    if isinstance(message, LinkMessage):
        return False
    return message.route.source != attacker or message.route.source_incarnation > life


class Cases:
    """The cases of one thousand.

    Args:
        number: of the thousand; decides all of them.
        base_port: of the cluster.
        attacker: for whom they speak.
    """

    def __init__(self, number: int, base_port: int, attacker: NodeId) -> None:
        self.attacker = attacker
        self.random = Random(number)
        self.peers = PeerList.parse(f"127.0.0.1:{{{base_port}+id}}", SIZE)
        self.arbitrary = Messages(self.random, TARGET, SIZE)
        self.lies = 0
        self.life = 1
        self._former = b"\0"

    def hello(self, life: int) -> bytes:
        """A sound hello of the attacker to node 1."""
        body = encode_hello(
            Hello(
                has_secret=False,
                cluster="bmgd",
                founding_size=SIZE,
                fingerprint=self.peers.fingerprint(),
                id=self.attacker,
                expected=TARGET,
                known=Incarnation(0),
                incarnation=Incarnation(life),
                dial_number=1,
                nonce=self.random.randbytes(16),
                address=self.peers.address_of(self.attacker),
            )
        )
        return RECORD.pack(MAGIC, HelloKind.HELLO, len(body)) + body

    def bad_hello(self, life: int) -> bytes:
        """A hello with changes, which sometimes change nothing that matters."""
        while True:
            found = mutated(self.random, self.hello(life), self._former)
            if not self._is_lying_hello(found, life):
                return found
            self.lies += 1

    def _is_lying_hello(self, data: bytes, life: int) -> bool:
        """Whether a hello is sound, and speaks for another, or of lives that are not."""
        if len(data) < RECORD.size or data[:4] != MAGIC:
            return False
        _, kind, length = RECORD.unpack_from(data)
        if kind != HelloKind.HELLO or len(data) < RECORD.size + length:
            return False
        try:
            hello = decode_hello(data[RECORD.size : RECORD.size + length])
        except ProtocolError:
            return False
        sound = hello.id == self.attacker and not hello.known and hello.incarnation <= life
        return not sound or hello.is_joiner

    def bad_frame(self) -> tuple[bytes, bool]:
        """A frame with changes, and whether it must end the link."""
        while True:
            message = self.arbitrary.message()
            if not isinstance(message, LinkMessage):
                life = Incarnation(self.life)
                route = replace(message.route, source=self.attacker, source_incarnation=life)
                message = replace(message, route=route)
            body = encode(message)[LENGTH_BYTES:]
            body, self._former = mutated(self.random, body, self._former), body
            if self.random.random() < 0.03:
                length = self.random.choice((0, 1, 2**31, 2**32 - 1, len(body) + 1, len(body) // 2))
                return struct.pack(">I", length) + body, True
            ends = self._ends(body)
            if ends is not None:
                return struct.pack(">I", len(body)) + body, ends

    def _ends(self, body: bytes) -> bool | None:
        """Whether this body must end the link; None for a lie."""
        try:
            message = decode(body)
        except ProtocolError:
            return len(body) < BODY_BYTES_MIN or not is_routed(body)
        if is_lie(message, self.attacker, self.life):
            self.lies += 1
            return None
        return type(message).__name__ == "Goodbye"


# --- the attack -------------------------------------------------------------------------------------


class Attack:
    """Sends cases to node 1, one connection at a time; counts what came of them."""

    def __init__(self, base_port: int, attacker: NodeId) -> None:
        self._attacker = attacker
        self._port = base_port + TARGET
        self._base_port = base_port
        self._life = time.time_ns()
        self._nonce = 0
        self._sock: socket.socket | None = None
        self._unread = b""
        # Somebody listens where that node was, so that the end of a link alone proves no death.
        self._listener = socket.create_server(("127.0.0.1", base_port + attacker), backlog=512)
        self.outcomes: Counter[str] = Counter()

    def run(self, number: int) -> tuple[Counter[str], int]:
        """Send the cases of one thousand; returns what came of them, and the lies that were not sent."""
        cases = Cases(number, self._base_port, self._attacker)
        self.outcomes = Counter()
        left = BATCH
        while left > 0:
            if cases.random.randrange(10) < HELLOS_IN_TEN:
                self.outcomes[f"hello {self._say_hello(cases.bad_hello(self._life))}"] += 1
                left -= 1
            else:
                left -= self._frames(cases, min(GROUP, left))
        return self.outcomes, cases.lies

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _say_hello(self, data: bytes) -> str:
        """Send bytes as the first ones of a connection, and no more; what comes of them."""
        with self._connect() as sock, suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while (data := sock.recv(65536)) and len(answer) < 4096:
                answer += data
            if answer[4:5] == bytes((HelloKind.REFUSAL,)):
                return "refused"
            return "answered" if answer else "closed"
        return "closed"

    def _link(self, cases: Cases) -> socket.socket:
        """The link that there is, or a new one."""
        while self._sock is None:
            sock = self._connect()
            try:
                cases.life = self._life
                sock.sendall(cases.hello(self._life))
                self._unread = self._welcome(sock)
                self._sock = sock
            except (OSError, EOFError):
                self.outcomes["link refused"] += 1
                sock.close()
        return self._sock

    def _welcome(self, sock: socket.socket) -> bytes:
        data = b""
        while True:
            more = sock.recv(65536)
            if not more:
                raise EOFError
            data += more
            at = 0
            while len(data) - at >= RECORD.size:
                magic, kind, length = RECORD.unpack_from(data, at)
                if magic != MAGIC or len(data) - at < RECORD.size + length:
                    break
                at += RECORD.size + length
                if kind == HelloKind.WELCOME:
                    return data[at:]
                if kind == HelloKind.REFUSAL:
                    # A changed hello may have been welcome, as a later life.
                    known = int.from_bytes(data[at - 8 : at], "big")
                    self._life = max(self._life, known) + (1 << 32)
                    raise EOFError

    def _frames(self, cases: Cases, most: int) -> int:
        """Some frames on the link, the last of which may have to end it; how many were sent."""
        sock = self._link(cases)
        data, sent, ends = b"", 0, False
        while sent < most and not ends:
            frame, ends = cases.bad_frame()
            data += frame
            sent += 1
        self._nonce += 1
        try:
            sock.sendall(data)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            else:
                sock.sendall(encode(Ping(self._nonce)))
            lives = self._answers(sock, self._nonce)
        except TimeoutError:
            self.outcomes["no answer"] += 1
            lives = False
        except OSError:
            # The link was ended before all of it was sent.
            lives = False
        if ends:
            self.outcomes["frame taken or dropped"] += sent - 1
            self.outcomes["frame ended the link"] += 1
        else:
            self.outcomes["frame taken or dropped" if lives else "frame ended the link"] += sent
        if not lives:
            sock.close()
            self._sock = None
        return sent

    def _answers(self, sock: socket.socket, nonce: int) -> bool:
        """Read until the answer to a ping; False at the end of the connection."""
        data = self._unread
        while True:
            while len(data) >= LENGTH_BYTES:
                end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
                if len(data) < end:
                    break
                body, data = data[LENGTH_BYTES:end], data[end:]
                # The header is a bin of 32 bytes behind the array's byte.
                if body[3] == 0x03 and getattr(decode(body), "nonce", None) == nonce:
                    self._unread = data
                    return True
            more = sock.recv(65536)
            if not more:
                return False
            data += more


# --- the cluster meanwhile ----------------------------------------------------------------------------


class Meanwhile:
    """The others of the cluster: they send, and are watched."""

    def __init__(self, cluster: Launched) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.problems: list[str] = []
        self.slowest_s = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S * 3)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(self._watch(i)) for i in OTHERS]
                watching += [tasks.create_task(self._read(i)) for i in OTHERS]
                await asyncio.gather(*(self._talk(i) for i in OTHERS))
                for task in watching:
                    task.cancel()
        except* (BmgdError, OSError) as group:
            self.problems += [repr(error) for error in group.exceptions]

    def _path(self, node_id: int) -> str:
        return read_members(str(self._cluster.run_dir))[node_id].control

    async def _talk(self, node_id: int) -> None:
        async with connect(self._path(node_id)) as daemon:
            while not self._stopping.is_set():
                to = (node_id + 1 + self.sent % 3) % len(OTHERS)
                if to != node_id:
                    await self._send(daemon, to)
                await asyncio.sleep(PAUSE_S)

    async def _send(self, daemon: Daemon, to: int) -> None:
        began_s = time.monotonic()
        await daemon.send(to, b"x" * 100, topic="meanwhile", timeout=60)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        self.sent += 1

    async def _read(self, node_id: int) -> None:
        async with (
            connect(self._path(node_id)) as daemon,
            daemon.subscribe("meanwhile") as messages,
        ):
            async for _ in messages:
                pass

    async def _watch(self, node_id: int) -> None:
        async with connect(self._path(node_id)) as daemon, daemon.monitor() as events:
            async for event in events:
                peer = event.get("peer")
                is_other = peer is not None and peer in OTHERS
                if is_other and event["event"] == "link down":
                    self.problems.append(f"node {node_id} lost its link to {peer}: {event}")
                if (
                    is_other
                    and event["event"] == "record"
                    and event.get("status")
                    not in (
                        "alive",
                        "expected",
                    )
                ):
                    self.problems.append(f"node {node_id} holds {peer} for {event.get('status')}")


def rss_bytes(cluster: Launched) -> list[int]:
    """The memory of each daemon that lives."""
    pids = cluster.pids()
    return [psutil.Process(pids[i]).memory_info().rss for i in OTHERS]


def tracebacks(cluster: Launched) -> list[str]:
    """The logs that have one."""
    logs = sorted(cluster.run_dir.glob("node-*.log"))
    return [
        path.name
        for path in logs
        if any(word in path.read_text(errors="replace") for word in ("Traceback", "a bug in bmgd"))
    ]


# --- the campaign -------------------------------------------------------------------------------------


def rows() -> list[Row]:
    """What has been run."""
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


def run(first: int, cases: int) -> int:
    """Run the thousands that are missing; returns the command's exit code."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    done = {row["batch"] for row in rows() if not row["problems"]}
    missing = [number for number in range(first, first + cases // BATCH) if number not in done]
    # A machine that others use too may not run a daemon for a second: that is no death.
    flags = ("--without-secret", "--profile", "oversubscribed", "--flight-bytes", str(FLIGHT_BYTES))
    with launched(SIZE, flags) as cluster, OUT.open("a") as out:
        base_port = int(read_members(str(cluster.run_dir))[0].address.rpartition(":")[2])
        for attacker in ATTACKERS:
            cluster.kill(attacker)
        time.sleep(2)
        meanwhile = Meanwhile(cluster)
        meanwhile.start()
        attacks = [Attack(base_port, attacker) for attacker in ATTACKERS]
        began_rss: list[int] = []
        for at in range(0, len(missing), len(attacks)):
            found = _batches(missing[at : at + len(attacks)], attacks, meanwhile, cluster)
            began_rss = began_rss or rss_bytes(cluster)
            grown = max(b - a for a, b in zip(began_rss, rss_bytes(cluster), strict=True))
            for row in found:
                out.write(json.dumps({**row, "rss_growth_bytes": grown}) + "\n")
            out.flush()
            if found[0]["problems"]:
                print(f"thousand {missing[at]} and on: {found[0]['problems']}", flush=True)
                return 1
        meanwhile.stop()
        total = [b - a for a, b in zip(began_rss, rss_bytes(cluster), strict=True)]
        print(
            f"{len(missing) * BATCH:,} cases, memory grew by {total}, {meanwhile.sent:,} messages"
        )
        return 1 if meanwhile.problems or (total and max(total) > GROWTH_MAX_BYTES) else 0


def _batches(
    numbers: list[int], attacks: list[Attack], meanwhile: Meanwhile, cluster: Launched
) -> list[Row]:
    """Some thousands at the same time, one for each attacker; the first row has what all share."""
    before, began_s = meanwhile.sent, time.monotonic()
    meanwhile.slowest_s = 0.0
    used = attacks[: len(numbers)]
    with ThreadPoolExecutor(len(attacks)) as pool:
        results = list(pool.map(lambda attack, number: attack.run(number), used, numbers))
    end_s = time.monotonic() + PATIENCE_S
    while meanwhile.sent == before and time.monotonic() < end_s:
        time.sleep(0.01)
    problems = [*meanwhile.problems, *tracebacks(cluster)]
    if meanwhile.sent == before:
        problems.append("nobody's message was confirmed")
    seconds, sent = round(time.monotonic() - began_s, 3), meanwhile.sent - before
    return [
        {
            "batch": number,
            "seconds": 0 if at else seconds,
            "outcomes": dict(sorted(outcomes.items())),
            "lies": lies,
            "sent": 0 if at else sent,
            "slowest_ms": round(meanwhile.slowest_s * 1e3, 1),
            "problems": problems,
        }
        for at, (number, (outcomes, lies)) in enumerate(zip(numbers, results, strict=True))
    ]


def report() -> Iterator[str]:
    """The figures, line by line."""
    kept = rows()
    outcomes: Counter[str] = Counter()
    for row in kept:
        outcomes.update(row["outcomes"])
    seconds = sum(row["seconds"] for row in kept)
    yield f"cases: {len(kept) * BATCH:,} in {seconds:,.0f} s"
    for name, count in sorted(outcomes.items()):
        yield f"{name}: {count:,}"
    yield f"lies left out: {sum(row['lies'] for row in kept):,}"
    yield f"messages confirmed meanwhile: {sum(row['sent'] for row in kept):,}"
    yield f"slowest of them: {max(row['slowest_ms'] for row in kept):,} ms"
    yield f"memory grew by at most: {max(row['rss_growth_bytes'] for row in kept):,} bytes"
    yield f"thousands with a problem: {[row['batch'] for row in kept if row['problems']]}"


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.mutated")
    verbs = parser.add_subparsers(dest="verb", required=True)
    campaign = verbs.add_parser("run")
    campaign.add_argument("--cases", type=int, default=1_000_000)
    campaign.add_argument("--first", type=int, default=0)
    verbs.add_parser("report")
    options = parser.parse_args()
    if options.verb == "run":
        return run(options.first, options.cases)
    print("\n".join(report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
