"""One direction of a connection through the fault proxy: bytes, each with the time when it may go on.

A cut holds the queue and what is behind it, the end of the connection included, as a network without a
way holds packets. Once mended all of it arrives, as retransmissions would. While the queue is full
nothing more is read, and the sender's kernel waits.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

READ_BYTES: Final = 1 << 17
QUEUE_BYTES_MAX: Final = 1 << 20
"""What one direction holds at most."""


class Flow:
    """One direction: reads from one socket, and writes to the other what may pass.

    Args:
        source, target: non-blocking sockets.
        on_read_end: called when the source's end was read, before it is passed on.
        on_ended: called once it has been passed on.
        on_broken: called when either socket failed and the other end may know.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        target: socket.socket,
        on_read_end: Callable[[], None],
        on_ended: Callable[[], None],
        on_broken: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._source, self._target = source, target
        self._on_read_end, self._on_ended, self._on_broken = on_read_end, on_ended, on_broken
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._free_at_s = 0.0
        self._reading = self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.held = False
        self.delay_s = 0.0
        self.bytes_per_second = 0.0
        self.read_end = self.ended = self._broken = False

    # --- what is allowed ----------------------------------------------------------------------

    def allow(self, *, held: bool, delay_s: float, bytes_per_second: float) -> None:
        """Follow new rules; where they are easier, what was late by the former is not late any more."""
        if delay_s < self.delay_s or _is_less(self.bytes_per_second, bytes_per_second):
            self._queue = deque((0.0, data) for _, data in self._queue)
            self._free_at_s = 0.0
        self.held, self.delay_s, self.bytes_per_second = held, delay_s, bytes_per_second
        self.pump()

    def start(self, first: bytes = b"") -> None:
        """Begin to read; `first` was read already."""
        if first:
            self._put(first)
        self._watch_source()

    def stop(self) -> None:
        """Touch neither socket any more."""
        if self._reading:
            self._loop.remove_reader(self._source.fileno())
        if self._writing:
            self._loop.remove_writer(self._target.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._reading = self._writing = False
        self._stopped = True
        self._queue.clear()

    # --- reading ------------------------------------------------------------------------------

    def _watch_source(self) -> None:
        if self._stopped:
            return
        wanted = not self.read_end and not self._broken and self._queued_bytes < QUEUE_BYTES_MAX
        if wanted and not self._reading:
            self._loop.add_reader(self._source.fileno(), self._on_readable)
        elif self._reading and not wanted:
            self._loop.remove_reader(self._source.fileno())
        self._reading = wanted

    def _on_readable(self) -> None:
        try:
            data = self._source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        if data:
            self._put(data)
        else:
            self.read_end = True
            self._on_read_end()
        self._watch_source()
        self.pump()

    def _put(self, data: bytes) -> None:
        now_s = self._loop.time()
        due_s = 0.0
        if self.delay_s or self.bytes_per_second:
            begins_s = max(now_s, self._free_at_s)
            if self.bytes_per_second:
                self._free_at_s = begins_s + len(data) / self.bytes_per_second
            due_s = begins_s + self.delay_s
        self._queue.append((due_s, data))
        self._queued_bytes += len(data)

    def _break(self) -> None:
        """A socket failed: the other end learns it when nothing holds the news."""
        self._broken = True
        self._watch_source()
        self._on_read_end()
        self.pump()

    # --- writing ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Write what is due."""
        if self.held or self._writing or self.ended or self._stopped:
            return
        if self._broken:
            self.ended = True
            self._on_broken()
            return
        while self._queue:
            due_s, data = self._queue[0]
            if due_s > self._loop.time():
                self._pump_at(due_s)
                return
            if not self._write(data):
                return
        if self.read_end:
            self._pass_end_on()

    def _write(self, data: bytes) -> bool:
        try:
            sent = self._target.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._break()
            return False
        self._queued_bytes -= sent
        if sent == len(data):
            self._queue.popleft()
            if not self._reading:
                self._watch_source()
            return True
        self._queue[0] = (0.0, data[sent:])
        self._writing = True
        self._loop.add_writer(self._target.fileno(), self._on_writable)
        return False

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._target.fileno())
        self._writing = False
        self.pump()

    def _pump_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self.pump)

    def _pass_end_on(self) -> None:
        self.ended = True
        try:
            self._target.shutdown(socket.SHUT_WR)
        except OSError:
            self._on_broken()
            return
        self._on_ended()


def _is_less(former: float, present: float) -> bool:
    """Whether one bound of bytes per second is below another; 0 is none."""
    return former > 0 and (present == 0 or former < present)
