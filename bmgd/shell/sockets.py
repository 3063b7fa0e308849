"""What all sockets between daemons have in common."""

from __future__ import annotations

import socket

NOTSENT_LOWAT_BYTES = 128 * 1024


def set_options(sock: socket.socket, user_timeout_ms: int) -> None:
    """Set what every link's socket has: no delay, a short unsent backlog, an end to retries.

    Sockets that a listener accepts inherit its options.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
