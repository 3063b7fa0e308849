"""What `benchmarks.relay` sends through a relay, and how it counts what comes out.

A load writes frames to the source's socket and counts bytes at the sinks. The closed loop keeps at
most a window underway, so nothing drops; the open loop writes from a process of its own as fast as the
relay reads. In both the relay's CPU is read before the first byte and after the last one has come
out.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

RECEIVED_AT_ONCE = 1024 * 1024
BATCH_BYTES = 64 * 1024
WINDOW_BYTES = 1024 * 1024
WRITES_WINDOW_BYTES = 64 * 1024
LIMIT_S = 20.0
IDLE_S = 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load.

    Args:
        loop: `closed`, `open`, `writes` (closed, one frame per write) or `one` (one frame underway).
        payload_bytes: of each frame.
        sinks: over how many neighbors the frames go, in turn.
    """

    loop: str
    payload_bytes: int
    sinks: int

    @property
    def name(self) -> str:
        """How the case is called in results."""
        return f"{self.loop}-{self.payload_bytes}-{self.sinks}"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one load gave: frames and their bytes that came out, and the relay's CPU.

    Args:
        kernel_ns: what of `cpu_ns` the kernel took.
    """

    frames: int
    frame_bytes: int
    cpu_ns: int
    kernel_ns: int
    wall_ns: int


class Load:
    """A source, sinks, and frames between them.

    Args:
        source: writes.
        sinks: by destination; read.
        frames: what to write for each destination, all of one length.
        arriving_bytes: the length that such a frame has when it arrives.
        cpu: the relay's CPU so far, all and the kernel's, in nanoseconds.
    """

    def __init__(
        self,
        source: socket.socket,
        sinks: Mapping[int, socket.socket],
        frames: Mapping[int, bytes],
        arriving_bytes: int,
        cpu: Callable[[], tuple[int, int]],
    ) -> None:
        self._source = source
        self._sinks = [sinks[node_id] for node_id in frames]
        self._frames = list(frames.values())
        self._sent_bytes = len(self._frames[0])
        self._arriving_bytes = arriving_bytes
        self._cpu = cpu
        self._buffer = bytearray(RECEIVED_AT_ONCE)
        self._poll = select.poll()
        self._by_fd = {sock.fileno(): sock for sock in self._sinks}
        for sock in (source, *self._sinks):
            sock.setblocking(False)
        for sock in self._sinks:
            self._poll.register(sock, select.POLLIN)
        source_rest(source)

    def run(self, loop: str, seconds: float) -> Sample:
        """Load the relay for a while.

        Raises:
            TimeoutError: what is underway in a closed loop did not come out.
        """
        self._discard()
        began, began_ns = self._cpu(), time.monotonic_ns()
        end_ns = began_ns + int(seconds * 1e9)
        if loop == "open":
            received = self._open(end_ns)
        elif loop == "one":
            received = self._closed(end_ns, 1, 1)
        elif loop == "writes":
            received = self._closed(end_ns, 1, WRITES_WINDOW_BYTES // self._sent_bytes)
        else:
            batch = max(1, BATCH_BYTES // self._sent_bytes)
            received = self._closed(end_ns, batch, max(batch, WINDOW_BYTES // self._sent_bytes))
        wall_ns = time.monotonic_ns() - began_ns
        cpu_ns, kernel_ns = (now - before for now, before in zip(self._cpu(), began, strict=True))
        frames = received // self._arriving_bytes
        return Sample(frames, self._sent_bytes, cpu_ns, kernel_ns, wall_ns)

    def _batches(self, count: int) -> list[bytes]:
        """Batches of `count` frames that take the destinations in turn, as many as make a round."""
        many = len(self._frames)
        rounds = many if count % many else 1
        every = [self._frames[i % many] for i in range(count * rounds)]
        return [b"".join(every[i * count : (i + 1) * count]) for i in range(rounds)]

    def _closed(self, end_ns: int, batch: int, window: int) -> int:
        """Keep at most `window` frames underway, written `batch` at a time."""
        batches = self._batches(batch)
        sent = received = turn = 0
        pending = memoryview(b"")
        while True:
            now_ns = time.monotonic_ns()
            is_over = now_ns >= end_ns
            if (
                not pending
                and not is_over
                and sent - received // self._arriving_bytes <= window - batch
            ):
                pending = memoryview(batches[turn])
                turn = (turn + 1) % len(batches)
                sent += batch
            if pending:
                pending = pending[self._write(pending) :]
                # While there is room, write on: one frame per write means many at once.
                received += self._receive(0 if batch > 1 or pending else None)
            else:
                if received >= sent * self._arriving_bytes and is_over:
                    return received
                underway = sent - received // self._arriving_bytes
                may_write = not is_over and underway <= window - batch
                received += self._receive(0 if may_write else 1000)
            if now_ns > end_ns + LIMIT_S * 1e9:
                lost = sent - received // self._arriving_bytes
                raise TimeoutError(f"{lost} frames of {sent} did not come out")

    def _write(self, pending: memoryview) -> int:
        try:
            return self._source.send(pending)
        except BlockingIOError:
            return 0

    def _receive(self, wait_ms: int | None) -> int:
        """Read what the sinks have, once each; None does not look."""
        if wait_ms is None:
            return 0
        count = 0
        for fd, _ in self._poll.poll(wait_ms):
            read = self._by_fd[fd].recv_into(self._buffer)
            if read == 0:
                raise ConnectionError("the relay closed a link")
            count += read
        return count

    def _open(self, end_ns: int) -> int:
        """Write from a child as fast as the relay reads; the count of what came out until it is idle."""
        child = os.fork()
        if child == 0:
            try:
                self._write_until(end_ns)
            finally:
                os._exit(0)
        received, is_writing = 0, True
        last_ns = time.monotonic_ns()
        while is_writing or time.monotonic_ns() - last_ns < IDLE_S * 1e9:
            count = self._receive(20)
            received += count
            now_ns = time.monotonic_ns()
            last_ns = now_ns if count else last_ns
            if is_writing and now_ns > end_ns + LIMIT_S * 1e9:
                os.kill(child, signal.SIGKILL)
            is_writing = is_writing and os.waitpid(child, os.WNOHANG)[0] == 0
        return received

    def _write_until(self, end_ns: int) -> None:
        self._source.setblocking(True)
        batches = self._batches(max(1, 4 * BATCH_BYTES // self._sent_bytes))
        turn = 0
        while time.monotonic_ns() < end_ns:
            self._source.sendall(batches[turn])
            turn = (turn + 1) % len(batches)

    def _discard(self) -> None:
        """Forget what came between two loads: heartbeats, late frames."""
        while self._receive(30):
            pass
        source_rest(self._source)
        self._source.setblocking(False)


def source_rest(source: socket.socket) -> None:
    """Read away what the relay itself says to the source."""
    source.setblocking(False)
    while True:
        try:
            if not source.recv(RECEIVED_AT_ONCE):
                raise ConnectionError("the relay closed the source's link")
        except BlockingIOError:
            return
