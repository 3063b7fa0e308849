"""The relays that `benchmarks.relay` compares: each a process, with sockets of neighbors around it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.relay.load import Load
from bmgd.types import Incarnation, NodeId
from bmgd.wire.codec import encode
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Segment, SegmentFlag

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "relay"
SOURCE: Final = 1
SIZE: Final = 32
SINKS: Final = (2, 4, 8, 16, 24, 28, 30, 31)
"""With the source, all neighbors of node 0 among 32."""
SETTLE_S: Final = 20.0
# Nothing of the failure detector may fall into a measurement: nobody answers for the other nodes.
TIMING: Final = """\
[timing]
heartbeat_ms = 30000
timeout_ms = 600000
join_ms = 600000
start_ms = 600000
"""


def cpu_ns(pid: int) -> int:
    """The CPU time of all threads of a process, in nanoseconds."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def kernel_ns(pid: int) -> int:
    """Of that, what the kernel took for it, counted in clock ticks."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[12])
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def free_port(count: int) -> int:
    """A port of 127.0.0.1 that is free, with the `count` - 1 above it."""
    for _ in range(100):
        with ExitStack() as stack, suppress(OSError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port: int = first.getsockname()[1]
            for above in range(1, count):
                stack.enter_context(socket.create_server(("127.0.0.1", port + above)))
            return port
    raise RuntimeError(f"no {count} free ports in a row")


@dataclass(frozen=True, slots=True)
class Running:
    """A relay that runs.

    Args:
        pid: its process.
        sockets: of its neighbors, by id.
        frame: what to write for a destination to get so many bytes of payload.
        added_bytes: by how much a frame is longer when it arrives.
    """

    pid: int
    sockets: dict[int, socket.socket]
    frame: Callable[[int, int], bytes]
    added_bytes: int = 0

    def load(self, payload_bytes: int, sinks: int) -> Load:
        """Frames from the source to so many sinks."""
        frames = {sink: self.frame(sink, payload_bytes) for sink in SINKS[:sinks]}
        arriving = len(frames[SINKS[0]]) + self.added_bytes
        to = {sink: self.sockets[sink] for sink in frames}
        return Load(self.sockets[SOURCE], to, frames, arriving, self._cpu)

    def _cpu(self) -> tuple[int, int]:
        return cpu_ns(self.pid), kernel_ns(self.pid)


def _segment(route: Route, payload: bytes) -> Segment:
    return Segment(route, SegmentFlag.OPEN, "t", 0, 1, 1, 0, packed(payload))


def bmgd_frame(sink: int, payload_bytes: int) -> bytes:
    """A message of a program, as the daemons send it."""
    route = Route(NodeId(sink), NodeId(SOURCE), Incarnation(1 << 32), hop_budget=40, priority=1)
    return encode(_segment(route, bytes(payload_bytes)))


@contextmanager
def _process(words: Sequence[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    process: subprocess.Popen[bytes] = subprocess.Popen(words, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


# --- a daemon -------------------------------------------------------------------------------------


@contextmanager
def daemon(python: Path, environment: dict[str, str]) -> Iterator[Running]:
    """One bmgd of the given interpreter between neighbors that are no daemons."""
    port = free_port(SIZE)
    # In no directory that has sources: the interpreter's own bmgd is under test.
    with tempfile.TemporaryDirectory(prefix="bmgd-relay-") as directory, ExitStack() as stack:
        (Path(directory) / "bmgd.toml").write_text(TIMING)
        words = [str(python), "-m", "bmgd", "run", "--id", "0", "--size", str(SIZE)]
        words += ["--peers", f"127.0.0.1:{{{port}+id}}", "--config", "bmgd.toml"]
        words += ["--log-level", "error"]
        environment = {**os.environ, **environment}
        process = stack.enter_context(_process(words, cwd=directory, env=environment))
        sockets = _neighbors(process, python, port, directory)
        for sock in sockets.values():
            stack.enter_context(sock)
        _settle(sockets)
        yield Running(process.pid, sockets, bmgd_frame)


def _neighbors(
    daemon: subprocess.Popen[bytes], python: Path, port: int, directory: str
) -> dict[int, socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ids = (SOURCE, *SINKS)
        script = str(Path(__file__).with_name("hello.py"))
        words = [str(python), script, str(theirs.fileno()), str(port), str(SIZE)]
        words.append(",".join(map(str, ids)))
        linking = subprocess.Popen(words, cwd=directory, pass_fds=[theirs.fileno()])
        theirs.close()
        sockets = {}
        for _ in ids:
            word, fds, _, _ = socket.recv_fds(ours, 16, 1)
            if not fds:
                ended = f"; the daemon ended with {daemon.poll()}" if daemon.poll() else ""
                raise SystemExit(f"the neighbors could not be linked{ended}")
            sockets[int(word)] = socket.socket(fileno=fds[0])
            ours.sendall(b"+")
        linking.wait(10)
    return sockets


def _settle(sockets: dict[int, socket.socket]) -> None:
    """Wait until a frame for each sink comes out."""
    end_s = time.monotonic() + SETTLE_S
    for sink in SINKS:
        mark = os.urandom(16)
        route = Route(NodeId(sink), NodeId(SOURCE), Incarnation(1 << 32), hop_budget=40, priority=1)
        sockets[sink].settimeout(0.2)
        came = b""
        while mark not in came:
            if time.monotonic() > end_s:
                raise SystemExit(f"no frame comes out for node {sink}")
            sockets[SOURCE].sendall(encode(_segment(route, mark)))
            with suppress(TimeoutError):
                came += sockets[sink].recv(65536)


# --- the references -------------------------------------------------------------------------------


@contextmanager
def plain() -> Iterator[Running]:
    """The plain relay in C."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "plain"
    source = Path(__file__).with_name("plain.c")
    command = [os.environ.get("CC", "cc"), "-O3", "-Wall", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    port = free_port(1)
    with ExitStack() as stack:
        words = [str(program), str(port)]
        process = stack.enter_context(_process(words, stdin=subprocess.PIPE))
        sockets = {}
        for node_id in (SOURCE, *SINKS):
            sock = stack.enter_context(_connected(port))
            sock.sendall(node_id.to_bytes(4, "big"))
            if len(sock.recv(4, socket.MSG_WAITALL)) != 4:
                raise SystemExit("the plain relay ended")
            sockets[node_id] = sock
        yield Running(process.pid, sockets, bmgd_frame)


@contextmanager
def nats() -> Iterator[Running]:
    """nats-server, with one subject for each sink."""
    port = free_port(1)
    program = nats_server()
    with ExitStack() as stack:
        words = [str(program), "-a", "127.0.0.1", "-p", str(port)]
        process = stack.enter_context(_process(words, stderr=subprocess.DEVNULL))
        sockets = {}
        for node_id in (SOURCE, *SINKS):
            sock = stack.enter_context(_connected(port))
            subscribe = b"SUB s%02d 1\r\n" % node_id
            sock.sendall(
                b'CONNECT {"verbose":false,"pedantic":false}\r\n' + subscribe + b"PING\r\n"
            )
            came = b""
            while b"PONG" not in came:
                came += sock.recv(4096)
            sockets[node_id] = sock
        yield Running(process.pid, sockets, _nats_frame, len(b"MSG s00 1 ") - len(b"PUB s00 "))


def _nats_frame(sink: int, payload_bytes: int) -> bytes:
    return b"PUB s%02d %d\r\n%s\r\n" % (sink, payload_bytes, bytes(payload_bytes))


def nats_server() -> str | None:
    """Where nats-server is, None where it is not installed."""
    return os.environ.get("NATS_SERVER") or shutil.which("nats-server")


def _connected(port: int) -> socket.socket:
    end_s = time.monotonic() + SETTLE_S
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port), timeout=SETTLE_S)
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
