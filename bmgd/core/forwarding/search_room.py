"""Whether the state of a search has room in a frame beside what the message has already.

A frame has room for the longest payload and the longest state of a search, or the longest payload and
the longest covers, not for all three.
"""

from __future__ import annotations

from typing import Final

from bmgd.frameheader import FRAME_BYTES_MAX
from bmgd.wire.bounds import BRANCH_FRAME_BYTES
from bmgd.wire.broadcast_messages import Broadcast, Multicast, ReliableBroadcast, Stable
from bmgd.wire.id_sets import id_set_bytes
from bmgd.wire.messages import RoutedMessage

REST_BYTES: Final = 2048
"""All but payload, covers and search: header, topic, exceptions, skips, and what is before each field."""


def has_room_for_search(message: RoutedMessage, search_bytes: int) -> bool:
    """Whether a frame can hold a message with a search of at most `SEARCH_BYTES_MAX`.

    O(branches * highest id / 64) for messages to many, else O(1).
    """
    if not isinstance(message, Broadcast | Multicast | ReliableBroadcast | Stable):
        return True
    payload_bytes = 0 if isinstance(message, Stable) else len(message.payload)
    left = FRAME_BYTES_MAX - REST_BYTES - payload_bytes - search_bytes
    for branch in message.branches:
        left -= id_set_bytes(branch.cover) + BRANCH_FRAME_BYTES
        if left < 0:
            return False
    return True
