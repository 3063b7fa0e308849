"""The proxy's listener in front of one daemon: open exactly while the daemon's own one is.

A proof of death is a refused dial, so a proxy whose listeners always accept would hide every death.
A gate therefore mirrors: nobody listening behind it, nobody listening at it. Whether somebody listens
behind it is asked of the kernel, not of the daemon: binding the same port with SO_REUSEADDR fails
only while another socket listens there. So a daemon sees no dials but those of its peers, a stopped
daemon (whose kernel still accepts) counts as listening, and so does a foreign process on its port.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from bmgd.errors import LaunchError
from bmgd.peers import split_address

BACKLOG = 4096
ACCEPTS_PER_WAKE_MAX = 64
AGAIN_S = 0.05
"""So long after it could not take a connection, for want of descriptors, a gate tries again."""

OnAccepted = Callable[["Gate", socket.socket], None]


def listens(address: tuple[str, int]) -> bool:
    """Whether some process of this machine listens at a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


class Gate:
    """The place where peers dial one daemon.

    Args:
        node_id: whose; None for a joiner's, until somebody who dials it says whom it wants.
        outside: what the daemon advertises, ``host:port``.
        inside: what the daemon listens at.
        on_accepted: takes each new connection.
    """

    def __init__(
        self, node_id: int | None, outside: str, inside: str, on_accepted: OnAccepted
    ) -> None:
        self.node_id = node_id
        self.inside = split_address(inside)
        self._outside = split_address(outside)
        self._on_accepted = on_accepted
        self._listener: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """Whether peers can connect."""
        return self._listener is not None

    def follow(self) -> None:
        """Open or close as the daemon's own listener is there or not."""
        if listens(self.inside) != self.is_open:
            if self.is_open:
                self.close()
            else:
                self._open()

    def _open(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(self._outside)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            host, port = self._outside
            raise LaunchError(f"the proxy lost {host}:{port}: {error.strerror}") from None
        self._listener = listener
        self._watch(listener)

    def _watch(self, listener: socket.socket) -> None:
        if listener is self._listener:
            asyncio.get_running_loop().add_reader(listener.fileno(), self._on_acceptable)

    def close(self) -> None:
        """Refuse whoever dials; connections that are through stay."""
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE_MAX):
            if self._listener is None:
                return
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._pause(self._listener)
                return
            accepted.setblocking(False)
            self._on_accepted(self, accepted)

    def _pause(self, listener: socket.socket) -> None:
        """Try again in a moment: it would be told of the same connection at once, again and again."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        loop.call_later(AGAIN_S, self._watch, listener)
