"""What TLS costs: a link, a start of a cluster, messages through a relay, with it and without, in turn.

    python -m benchmarks.tls link  [--links 200]    [--repetitions 3]
    python -m benchmarks.tls start [--size 64] [--repetitions 3]
    python -m benchmarks.tls relay [--messages 400] [--repetitions 3]
    python -m benchmarks.tls nats  [--messages 400] [--repetitions 3]

All print a row for each repetition, and the ratio of the medians. CPU time is the kernel's
(`/proc/PID/schedstat`), so it means something on a machine that others use too; seconds do not.
`link` makes links one after the other (`link.py`): the median time from the dial until it is up, and
the CPU time of both ends. `start` counts the CPU time of all daemons until all have joined. `relay`
counts what the one daemon on the way from node 0 to node 3 of nine uses for a message of 60,000 bytes,
and what all nine use. `nats` counts what nats-server uses for one, from one connection to another;
nothing is confirmed there.
Certificates are made by `openssl`, before anything is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.launched import Launched, launched
from benchmarks.tls.link import link
from bmgd.client import connect
from bmgd.launcher.ports import choose_base_port
from bmgd.launcher.rundir import read_members

RELAY_SIZE = 9
SOURCE, DESTINATION = 0, 3
PAYLOAD_BYTES = 60_000
UNDERWAY = 16
TIMEOUT_S = 120.0

Row = dict[str, Any]


def certified(place: Path, size: int) -> tuple[str, ...]:
    """Make a root and a certificate for each node; the flags that use them."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    root = ("-keyout", f"{place}/ca.key", "-out", f"{place}/ca.pem", "-subj", "/CN=ca")
    _openssl("req", "-x509", *curve, *root, "-addext", "basicConstraints=critical,CA:TRUE")
    for i in range(size):
        stem = f"{place}/node-{i}"
        Path(f"{stem}.ext").write_text(f"subjectAltName=URI:bmgd:bmgd/{i}\n")
        _openssl(
            *("req", *curve, "-subj", f"/CN=node-{i}"),
            *("-keyout", f"{stem}.key", "-out", f"{stem}.csr"),
        )
        _openssl(
            *("x509", "-req", "-in", f"{stem}.csr", "-CA", f"{place}/ca.pem"),
            *("-CAkey", f"{place}/ca.key", "-CAcreateserial", "-out", f"{stem}.pem"),
            *("-extfile", f"{stem}.ext"),
        )
        Path(f"{stem}.key").chmod(0o600)
    files = ("--tls-cert", f"{place}/node-{{id}}.pem", "--tls-key", f"{place}/node-{{id}}.key")
    return (*files, "--tls-ca", f"{place}/ca.pem", "--tls-ids", "required")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def start(flags: tuple[str, ...], size: int) -> Row:
    """Start a cluster."""
    with launched(size, ("--profile", "oversubscribed", *flags)) as cluster:
        used = sum(cpu_s(pid) for pid in cluster.pids().values())
        return {"up_s": round(cluster.up_s, 2), "cpu_s": round(used, 3)}


def relay(flags: tuple[str, ...], messages: int) -> Row:
    """Send through a relay."""
    with launched(RELAY_SIZE, ("--profile", "oversubscribed", *flags)) as cluster:
        return asyncio.run(_relayed(cluster, messages))


async def _relayed(cluster: Launched, messages: int) -> Row:
    members = read_members(str(cluster.run_dir))
    pids = cluster.pids()
    payload, came = bytes(PAYLOAD_BYTES), asyncio.Event()

    async def read() -> None:
        path = members[DESTINATION].control
        async with connect(path) as daemon, daemon.subscribe("much") as taken:
            came.set()
            async for _ in taken:
                pass

    async with connect(members[SOURCE].control) as sender:
        reading = asyncio.create_task(read())
        await came.wait()
        way = (await sender.trace(DESTINATION, timeout=TIMEOUT_S)).path
        assert len(way) == 3, f"no relay on {way}"
        gate = asyncio.Semaphore(UNDERWAY)

        async def send() -> None:
            async with gate:
                await sender.send(DESTINATION, payload, topic="much", timeout=TIMEOUT_S)

        await send()
        before = {i: cpu_s(pid) for i, pid in pids.items()}
        await asyncio.gather(*(send() for _ in range(messages)))
        used = {i: cpu_s(pid) - before[i] for i, pid in pids.items()}
        reading.cancel()
    return {
        "relay_us": round(used[way[1]] / messages * 1e6, 1),
        "all_us": round(sum(used.values()) / messages * 1e6, 1),
    }


# --- a broker with TLS, for comparison ------------------------------------------------------------------


def broker(flags: tuple[str, ...], messages: int) -> Row:
    """The same payloads through one nats-server, published and read by one connection each."""
    with tempfile.TemporaryDirectory(prefix="bmgd-nats-") as place:
        port = choose_base_port(1, 20_000)
        words = ["nats-server", "-a", "127.0.0.1", "-p", str(port)]
        context = None
        if flags:
            stem = str(Path(flags[1]).parent / "node-0")
            words += ["--tls", "--tlscert", f"{stem}.pem", "--tlskey", f"{stem}.key"]
            context = ssl.create_default_context(cafile=flags[5])
            context.check_hostname = False
        with (Path(place) / "log").open("wb") as log:
            process = subprocess.Popen(words, stderr=log)
        try:
            with _to_nats(port, context) as sink, _to_nats(port, context) as source:
                return _through_nats(process.pid, sink, source, messages)
        finally:
            process.kill()
            process.wait()


def _to_nats(port: int, context: ssl.SSLContext | None) -> socket.socket:
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
            break
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)
    info = b""
    while not info.endswith(b"\r\n"):
        # Byte by byte: what follows may belong to the handshake.
        info += sock.recv(1)
    if context is not None:
        sock = context.wrap_socket(sock)
    hello = json.dumps({"verbose": False, "tls_required": context is not None})
    sock.sendall(b"CONNECT %s\r\nPING\r\n" % hello.encode())
    answer = b""
    while b"PONG" not in answer:
        answer += sock.recv(4096)
    return sock


def _through_nats(pid: int, sink: socket.socket, source: socket.socket, messages: int) -> Row:
    frame = b"PUB much %d\r\n%s\r\n" % (PAYLOAD_BYTES, bytes(PAYLOAD_BYTES))
    coming = len(frame) + len(b"MSG much 1 ") - len(b"PUB much ")
    sink.sendall(b"SUB much 1\r\nPING\r\n")
    while b"PONG" not in sink.recv(4096):
        pass
    before = cpu_s(pid)
    # No more is underway than through the relay.
    for _ in range(0, messages, UNDERWAY):
        source.sendall(frame * UNDERWAY)
        left = coming * UNDERWAY
        while left:
            left -= len(sink.recv(min(left, 1 << 18)))
    return {"relay_us": round((cpu_s(pid) - before) / messages * 1e6, 1)}


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(prog="benchmarks.tls")
    parser.add_argument("what", choices=("link", "start", "relay", "nats"))
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--links", type=int, default=200)
    parser.add_argument("--messages", type=int, default=400)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    size = options.size if options.what == "start" else RELAY_SIZE
    rows: dict[str, list[Row]] = {"plain": [], "tls": []}
    with tempfile.TemporaryDirectory(prefix="bmgd-tls-") as place:
        flags = certified(Path(place), size)
        for _ in range(options.repetitions):
            for name, extra in (("plain", ()), ("tls", flags)):
                match options.what:
                    case "link":
                        row = link(extra, options.links)
                    case "start":
                        row = start(extra, size)
                    case "nats":
                        row = broker(extra, options.messages)
                    case _:
                        row = relay(extra, options.messages)
                rows[name].append(row)
                print(json.dumps({"what": options.what, "links": name, **row}), flush=True)
    for key in rows["plain"][0]:
        plain, tls = (median(row[key] for row in rows[name]) for name in ("plain", "tls"))
        print(f"{options.what} {key}: plain {plain}, tls {tls}, ratio {tls / plain:.2f}")
    return 0
