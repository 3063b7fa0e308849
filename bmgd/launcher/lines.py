"""The lines that a launcher prints, for a reader who may be slow, stopped, or none at all.

A launcher that waited for its reader would not hear its daemons meanwhile, nor Ctrl-C. So nothing is
written that would have to wait: the rest stays here, `LEFT_BYTES_MAX` of it.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Final

LEFT_BYTES_MAX: Final = 4 << 20
"""Beyond it lines are left out, and counted, but for those that must be told."""

FINISH_S: Final = 2.0
"""So long the end of a launch waits for a reader."""

_PIECE_BYTES: Final = select.PIPE_BUF
"""What is ready to be written to takes so much at once: a pipe surely does."""


class Lines:
    """Lines on their way to a descriptor, in order.

    Args:
        descriptor: where they go.
        left_out: the line that stands where so many are missing.
    """

    def __init__(self, descriptor: int, left_out: Callable[[int], str]) -> None:
        self._descriptor = descriptor
        self._left_out = left_out
        self._missing = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def add(self, line: str, *, must: bool = False) -> None:
        """Print a line, as soon as it can be; without `must` only if not too much waits."""
        if self._bytes >= LEFT_BYTES_MAX and not must:
            self._missing += 1
            return
        if self._missing:
            missing, self._missing = self._missing, 0
            self._put(self._left_out(missing))
        self._put(line)

    def flush(self) -> bool:
        """Write what can be written at once.

        Returns:
            Whether something is left; call again later.

        Raises:
            BrokenPipeError: nobody will ever read it.
        """
        return self._flush(0)

    def finish(self) -> None:
        """Write all, as far as somebody reads it within `FINISH_S`."""
        end_s = time.monotonic() + FINISH_S
        while self._flush(max(0.0, end_s - time.monotonic()) * 1000):
            if time.monotonic() >= end_s:
                return

    def _put(self, line: str) -> None:
        data = line.encode(errors="surrogateescape") + b"\n"
        self._waiting.append(data)
        self._bytes += len(data)

    def _flush(self, wait_ms: float) -> bool:
        while (self._waiting or self._missing) and self._poll.poll(wait_ms):
            if not self._waiting:
                missing, self._missing = self._missing, 0
                self._put(self._left_out(missing))
            try:
                written = os.write(self._descriptor, self._piece())
            except BlockingIOError:
                break
            except OSError as error:
                # A full disk or a terminal that is gone loses lines, and no cluster.
                self._drop(self._bytes)
                if error.errno == errno.EPIPE:
                    raise
                return False
            self._drop(written)
        return bool(self._waiting or self._missing)

    def _piece(self) -> bytes:
        """The first bytes that wait, made one piece."""
        piece = self._waiting.popleft()
        while self._waiting and len(piece) < _PIECE_BYTES:
            piece += self._waiting.popleft()
        self._waiting.appendleft(piece)
        return piece[:_PIECE_BYTES]

    def _drop(self, count: int) -> None:
        self._bytes -= count
        if not self._bytes:
            self._waiting.clear()
        elif count:
            self._waiting[0] = self._waiting[0][count:]
