"""What a trial's messages say: their number, and bytes from which a reader sees that they are whole."""

from __future__ import annotations

from typing import Final

NUMBER_BYTES: Final = 8
"""A payload begins with its number, big-endian."""
TO_MANY: Final = 1 << 62
"""In the number of a message to many: node n reads it as the number n above this one."""
BROKEN: Final = 0
"""The number of a payload that nobody wrote so."""


def payload_of(number: int, size_bytes: int) -> bytes:
    """A payload of a size; at least `NUMBER_BYTES`."""
    return number.to_bytes(NUMBER_BYTES, "big") + _filler(number) * (size_bytes - NUMBER_BYTES)


def number_in(payload: bytes, node: int) -> int:
    """The number of a message that was read at a node; `BROKEN` where its bytes are not as written.

    O(length).
    """
    number = int.from_bytes(payload[:NUMBER_BYTES], "big")
    filler_bytes = len(payload) - NUMBER_BYTES
    if filler_bytes < 0 or payload.count(_filler(number), NUMBER_BYTES) != filler_bytes:
        return BROKEN
    return number - TO_MANY + node if number & TO_MANY else number


def _filler(number: int) -> bytes:
    return bytes((number % 251,))
