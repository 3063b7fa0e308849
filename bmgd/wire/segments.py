"""The body of a segment: whole messages one behind the other, or one piece of a long message.

Each whole message is a msgpack `bin`, so that a program packs and reads a segment by one call
(`batch.py`). Daemons do not look inside: a segment says how many messages it holds. Only where a
reader's credit is smaller than a segment it is cut, between two messages, here and without msgpack.
"""

from __future__ import annotations

from typing import Final

from bmgd.wire.bounds import SEGMENT_BYTES_MAX

OVERHEAD_BYTES: Final = 256
"""What a segment costs beyond its body, so that many small ones are bounded too."""

COST_MAX: Final = SEGMENT_BYTES_MAX + OVERHEAD_BYTES
"""The most that one segment costs."""

_BIN_8, _BIN_16, _BIN_32 = 0xC4, 0xC5, 0xC6
_PREFIX_BYTES = {_BIN_8: 2, _BIN_16: 3, _BIN_32: 5}


def cost_of(body: bytes) -> int:
    """What a segment with this body costs, in credit and in memory; in bytes."""
    return len(body) + OVERHEAD_BYTES


def packed(payload: bytes) -> bytes:
    """One message as it stands in a segment.

    Args:
        payload: at most `PAYLOAD_BYTES_MAX` bytes.
    """
    return bin_prefix(len(payload)) + payload


def bin_prefix(length: int) -> bytes:
    """What stands before a msgpack `bin` of so many bytes, at most `SEGMENT_BYTES_MAX`."""
    if length < 1 << 8:
        return bytes((_BIN_8, length))
    if length < 1 << 16:
        return bytes((_BIN_16,)) + length.to_bytes(2, "big")
    if length > SEGMENT_BYTES_MAX:
        raise ValueError("a longer message goes in pieces")
    return bytes((_BIN_32,)) + length.to_bytes(4, "big")


def only_message(body: bytes) -> bytes | None:
    """The message in a body that holds one and nothing else; None where it does not."""
    prefix = _PREFIX_BYTES.get(body[0]) if body else None
    if prefix is None or int.from_bytes(body[1:prefix], "big") != len(body) - prefix:
        return None
    return body[prefix:]


def end_of(body: bytes, count: int, at: int = 0) -> int:
    """Where the first `count` messages of a body end.

    Complexity: O(count).

    Raises:
        ValueError: the body does not hold so many messages.
    """
    total = len(body)
    for _ in range(count):
        prefix = _PREFIX_BYTES.get(body[at]) if at < total else None
        if prefix is None:
            raise ValueError("not the messages of a segment")
        at += prefix + int.from_bytes(body[at + 1 : at + prefix], "big")
    if at > total:
        raise ValueError("a message that ends behind its segment")
    return at


def count_within(body: bytes, bytes_max: int, count_max: int) -> int:
    """How many whole messages from the front fit into so many bytes of a body, `count_max` at most."""
    at, count, total = 0, 0, len(body)
    while count < count_max and at < total:
        following = end_of(body, 1, at)
        if following > bytes_max:
            break
        at = following
        count += 1
    return count
