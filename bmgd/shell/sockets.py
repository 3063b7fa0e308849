"""What sockets between daemons have in common: their options, and what their errors prove."""

from __future__ import annotations

import errno
import socket

from bmgd.types import Evidence

NOTSENT_LOWAT_BYTES = 128 * 1024


def evidence_of(number: int | None) -> Evidence:
    """The class of evidence that the number of a socket's error is; 0 is the end of the bytes."""
    match number:
        case 0:
            return Evidence.EOF
        case errno.ECONNREFUSED:
            return Evidence.REFUSED
        case errno.ECONNRESET | errno.EPIPE | errno.ECONNABORTED:
            return Evidence.RESET
        case errno.ETIMEDOUT:
            return Evidence.TIMED_OUT
        case _:
            return Evidence.NO_ANSWER


def set_options(sock: socket.socket, user_timeout_ms: int) -> None:
    """Set what every link's socket has: no delay, a short unsent backlog, an end to retries.

    Sockets that a listener accepts inherit its options.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_LOWAT_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout_ms)
