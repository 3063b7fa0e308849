"""What a daemon tells systemd, or another service manager that speaks its protocol: sd_notify(3).

A manager gives the path of a datagram socket in NOTIFY_SOCKET; each datagram is lines of ``NAME=value``.
Under ``Type=notify`` a unit counts as started at READY=1, and under ``WatchdogSec=`` it is killed and
started again when no WATCHDOG=1 comes for so long. That is sent by the event loop: one that has stopped
turning sends none.

A manager that does not read has a full queue. What changes the daemon's state is then sent again, in
order, until it is taken; a status and a WATCHDOG=1 are left out, for the next one says more.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

WAITING_MAX: Final = 8
"""Changes of the state that wait for a manager that does not read; of more the oldest is dropped."""
AGAIN_S: Final = 0.1
"""They are sent again after so long."""
_US = 1_000_000


class ServiceManager:
    """The service manager that started this process; without one every method does nothing.

    Args:
        environment: its three variables are taken out, so that no child speaks in this daemon's name.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = _address(environment.pop("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(
            environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        )
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._planned: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[str, ...]] = deque(maxlen=WAITING_MAX)
        self._again: asyncio.TimerHandle | None = None
        self._is_ready = False
        self._status = ""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to feed the watchdog, if there is one."""
        if not self._address:
            return
        self._loop = loop
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        if self._watchdog_s:
            self._feed(loop)

    def close(self) -> None:
        """Say nothing more, but for what waits, if it can be said at once."""
        self._send_waiting()
        for planned in (self._planned, self._again):
            if planned is not None:
                planned.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ready(self, status: str) -> None:
        """The daemon serves: it is linked with its neighbors, or has waited long enough for them."""
        self._is_ready = True
        self._status = status
        self._change("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._status = text
        if not self._waiting:
            with suppress(OSError):
                self._send(f"STATUS={text}")

    def reloading(self) -> None:
        """Configuration is read anew; `reloaded` follows."""
        self._change("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """That is done."""
        if self._is_ready:
            self._change("READY=1")

    def stopping(self, within_s: float) -> None:
        """The daemon leaves; it may take so long."""
        self._status = "leaving"
        self._change("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(within_s * _US)}")

    def _feed(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError):
            self._send("WATCHDOG=1")
        self._planned = loop.call_later(self._watchdog_s / 2, self._feed, loop)

    def _change(self, *lines: str) -> None:
        """Tell of a change of the daemon's state, after those that wait."""
        if self._socket is not None:
            self._waiting.append(lines)
            self._send_waiting()

    def _send_waiting(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            while self._waiting:
                status = (f"STATUS={self._status}",) if self._status else ()
                self._send(*self._waiting[0], *status)
                self._waiting.popleft()
        except BlockingIOError:
            assert self._loop is not None
            self._again = self._loop.call_later(AGAIN_S, self._send_waiting)
        except OSError:
            # A manager that is gone is no reason to end.
            self._waiting.clear()

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            self._socket.sendto("\n".join(lines).encode(), self._address)


def _address(path: str) -> str:
    """The socket's address; "" for none. One that begins with ``@`` is in the abstract namespace."""
    return "\0" + path[1:] if path.startswith("@") else path if path.startswith("/") else ""


def _watchdog_s(interval: str, pid: str) -> float:
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(interval) / _US if interval.isascii() and interval.isdigit() else 0.0
