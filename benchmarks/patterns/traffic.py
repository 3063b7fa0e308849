"""Bytes that TCP connections have carried, as the kernel counts them (`ss` of iproute2)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Container
from typing import Final

Way = tuple[int, int, bool]
"""The listening end's port, the other end's, and whether it is what the listening end has sent."""
_SENT: Final = re.compile(r"\bbytes_sent:(\d+)")
_RECEIVED: Final = re.compile(r"\bbytes_received:(\d+)")


def carried_bytes(ports: Container[int]) -> dict[Way, int]:
    """What each connection on this machine to one of these ports has carried, in either direction."""
    listed = subprocess.run(["ss", "-tinHO"], capture_output=True, text=True, check=True).stdout
    found: dict[Way, int] = {}
    for line in listed.splitlines():
        state, _, _, own, other, *_ = line.split()
        own_port, other_port = (int(end.rpartition(":")[2]) for end in (own, other))
        if state != "ESTAB" or own_port not in ports:
            continue
        for pattern, is_sent in ((_SENT, True), (_RECEIVED, False)):
            match = pattern.search(line)
            found[own_port, other_port, is_sent] = int(match[1]) if match else 0
    return found


def difference(before: dict[Way, int], after: dict[Way, int]) -> list[int]:
    """What each direction has carried meanwhile."""
    return [count - before.get(way, 0) for way, count in after.items()]
