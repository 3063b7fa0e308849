"""What waits to be written to one link: control before bulk, bounded in bytes.

Control frames overtake bulk ones here, between two runs, which works only while the kernel's own
unsent backlog is kept short (TCP_NOTSENT_LOWAT). At the bound bulk is dropped, best effort or not:
a reliable source sends again. Control is never dropped; a link whose control backlog passes its
bound is a link whose reader is lost, and the caller closes it.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from socket import socket

BULK_BYTES_MAX = 8 * 1024 * 1024
CONTROL_BYTES_MAX = 4 * 1024 * 1024
_GATHER_MAX = 64
_LENGTH_BYTES = 4


class Outbox:
    """The bytes that one link still has to write.

    Attributes:
        backlog_bytes: how many there are.
        dropped_frames: frames of bulk that the bound has cost.
    """

    __slots__ = ("_bulk", "_bulk_bytes", "_control", "_control_bytes", "_head", "dropped_frames")

    def __init__(self) -> None:
        self._head: memoryview | None = None
        self._control: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._control_bytes = 0
        self._bulk_bytes = 0
        self.dropped_frames = 0

    def __bool__(self) -> bool:
        return self._head is not None or bool(self._control) or bool(self._bulk)

    @property
    def backlog_bytes(self) -> int:
        """How many bytes wait."""
        head = 0 if self._head is None else len(self._head)
        return head + self._control_bytes + self._bulk_bytes

    def put_control(self, frame: bytes) -> bool:
        """Add an urgent frame; False when the bound is passed."""
        self._control.append(frame)
        self._control_bytes += len(frame)
        return self._control_bytes <= CONTROL_BYTES_MAX

    def offer_control(self, run: bytes) -> bool:
        """Add urgent frames of others; False when they were dropped.

        They have half of the bound: what strangers send must not cost the link its own control.
        """
        if self._control_bytes + len(run) > CONTROL_BYTES_MAX // 2:
            self.dropped_frames += len(frames_in(run))
            return False
        return self.put_control(run)

    def put_bulk(self, run: bytes) -> bool:
        """Add one or more whole frames; False when they were dropped at the bound."""
        if self._bulk_bytes + len(run) > BULK_BYTES_MAX:
            self.dropped_frames += sum(1 for _ in frames_in(run))
            return False
        self._bulk.append(run)
        self._bulk_bytes += len(run)
        return True

    def write_to(self, sock: socket) -> None:
        """Write as much as the socket takes.

        Raises:
            BlockingIOError: it takes no more for now.
            OSError: the connection is gone.
        """
        while self:
            if self._head is not None:
                buffers: list[bytes | memoryview] = [self._head]
            else:
                buffers = [*islice(self._control, _GATHER_MAX)]
                if not buffers:
                    buffers = [*islice(self._bulk, _GATHER_MAX)]
            written = sock.send(buffers[0]) if len(buffers) == 1 else sock.sendmsg(buffers)
            self._take(written)

    def _take(self, written: int) -> None:
        """Forget `written` bytes from the front, in the order in which they were offered."""
        if self._head is not None:
            rest = self._head[written:]
            self._head = rest if len(rest) else None
            return
        queue = self._control or self._bulk
        is_control = queue is self._control
        while written:
            run = queue.popleft()
            if is_control:
                self._control_bytes -= len(run)
            else:
                self._bulk_bytes -= len(run)
            if written < len(run):
                self._head = memoryview(run)[written:]
                return
            written -= len(run)

    def take_unsent(self) -> list[bytes]:
        """Remove and return the bodies of all frames that were not begun, control first."""
        bodies = [body for run in (*self._control, *self._bulk) for body in frames_in(run)]
        self._control.clear()
        self._bulk.clear()
        self._control_bytes = self._bulk_bytes = 0
        return bodies


def frames_in(run: bytes) -> list[bytes]:
    """The bodies of the whole frames in a run."""
    bodies = []
    at = 0
    while at < len(run):
        end = at + _LENGTH_BYTES + int.from_bytes(run[at : at + _LENGTH_BYTES], "big")
        bodies.append(run[at + _LENGTH_BYTES : end])
        at = end
    return bodies
