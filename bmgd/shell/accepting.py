"""The listener: it hands new connections on, and does not spin when descriptors have run out."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

ACCEPTS_PER_WAKE_MAX = 64
ACCEPT_PAUSE_S = 0.1
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Accepting:
    """Accepts connections while it is started.

    Args:
        loop: the running loop.
        listener: from `bind_listener`; it stays open.
        take: gets each socket, non-blocking, and the address at its other end.
        note: writes a line of log: an event and a text.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        take: Callable[[socket.socket, tuple[object, ...]], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._take = take
        self._note = note
        self._again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to accept."""
        self._loop.add_reader(self._listener.fileno(), self._on_acceptable)

    def stop(self) -> None:
        """Look at the listener no longer; who connects waits in the kernel."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listener.fileno())

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_MAX):
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if error.errno in _NOTHING_LEFT:
                    self._pause(error)
                return
            sock.setblocking(False)
            self._take(sock, address)

    def _pause(self, error: OSError) -> None:
        """Without a free descriptor the listener stays readable."""
        self._note("accept", f"paused for {ACCEPT_PAUSE_S} s: {error.strerror}")
        self._loop.remove_reader(self._listener.fileno())
        self._again = self._loop.call_later(ACCEPT_PAUSE_S, self.start)
