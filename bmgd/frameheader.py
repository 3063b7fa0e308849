"""The routing header: the 32 bytes at the start of every frame that relays read and patch.

A frame is a 4-byte big-endian length and a body of that many bytes. The body is one msgpack array
of 1 to 15 elements; the first is a `bin` of exactly 32 bytes, the header. So the header lies at a
fixed place, and a relay needs no msgpack. The extension has the same numbers.

The whole format is in docs/wire-protocol.md.
"""

from __future__ import annotations

import struct
from typing import Final

LENGTH_BYTES: Final = 4
"""The length of the length prefix."""

BODY_PREFIX_BYTES: Final = 3
"""The bytes of a body before the header: array of 1..15 (0x91..0x9f), bin 8 (0xc4), 32 (0x20)."""

HEADER_BYTES: Final = 32
"""The length of the header."""

BODY_BYTES_MIN: Final = BODY_PREFIX_BYTES + HEADER_BYTES
"""The length of the shortest body: a header alone."""

FRAME_BYTES_MAX: Final = 83_968
"""The length of the longest body: 64 KiB of payload, 16 KiB of search state, 2 KiB of the rest."""

ARRAY_FIRST: Final = 0x91
ARRAY_LAST: Final = 0x9F
BIN_8: Final = 0xC4

HEADER: Final = struct.Struct(">BBBBIIQIQ")
"""Kind, flags, priority, hop budget, destination, source, source incarnation, destination tag,
stream sequence."""

KIND_AT: Final = 0
FLAGS_AT: Final = 1
PRIORITY_AT: Final = 2
HOP_BUDGET_AT: Final = 3
DESTINATION_AT: Final = 4
SOURCE_AT: Final = 8
SOURCE_INCARNATION_AT: Final = 12
DESTINATION_TAG_AT: Final = 20
SEQUENCE_AT: Final = 24

LINK_LOCAL_FIRST: Final = 0x01
LINK_LOCAL_LAST: Final = 0x3F
ROUTED_FIRST: Final = 0x40
ROUTED_LAST: Final = 0x7F
"""Kinds up to 0x3f are for the node at the other end of the link, these go on to a destination."""

FLAG_CAREFUL: Final = 0x01
"""The frame carries the state of a search; the core of every node on its way takes part."""

FLAG_RECORD: Final = 0x02
"""The frame records its route; the core of every node on its way adds itself."""

BAD_LENGTH: Final = "bad frame length"
BAD_HEADER: Final = "no routing header"
BAD_KIND: Final = "unknown kind"
"""The reasons for which bytes are malformed."""


def flow_of(source: int, destination: int) -> int:
    """The flow of messages between two node ids, for the choice among equal next hops."""
    return source << 32 | destination
