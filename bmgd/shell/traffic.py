"""The kernel's numbers for a link's socket: bytes, round trip, bytes that it has yet to send.

They are read from TCP_INFO only when somebody asks, so they cost nothing while bytes move. On a system
without TCP_INFO, or with a shorter one, the numbers are 0.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from bmgd.dataclass import dataclass

_TCP_INFO: Final = getattr(socket, "TCP_INFO", 11)
_INFO_BYTES: Final = 160
_RTT: Final = (struct.Struct("=I"), 68)
_TOTAL_RETRANS: Final = (struct.Struct("=I"), 100)
_ACKED_RECEIVED: Final = (struct.Struct("=QQ"), 120)
_NOTSENT: Final = (struct.Struct("=I"), 144)
"""What to read, and at which offset of Linux's struct tcp_info (include/uapi/linux/tcp.h)."""


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """What one socket has carried.

    Args:
        sent_bytes: acknowledged by the other end.
        received_bytes: since it was opened.
        rtt_us: the smoothed round trip, 0 before one is known.
        unsent_bytes: in the kernel, not sent yet.
        retransmits: segments that were sent again.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    rtt_us: int = 0
    unsent_bytes: int = 0
    retransmits: int = 0


NOTHING: Final = LinkTraffic()


def traffic_of(fd: int) -> LinkTraffic:
    """Ask the kernel; `NOTHING` without a descriptor, or where the kernel does not say."""
    if fd < 0:
        return NOTHING
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        return NOTHING
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
    except OSError:
        return NOTHING
    finally:
        # The descriptor is the engine's.
        sock.detach()
    if len(info) < _INFO_BYTES:
        return NOTHING
    acked, received = _ACKED_RECEIVED[0].unpack_from(info, _ACKED_RECEIVED[1])
    return LinkTraffic(
        # The kernel counts the SYN as a byte.
        max(0, acked - 1),
        received,
        *(field.unpack_from(info, at)[0] for field, at in (_RTT, _NOTSENT, _TOTAL_RETRANS)),
    )
