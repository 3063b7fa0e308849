"""Heartbeats as an engine of links reads them: bytes, without a decoder.

An idle link carries little else, and from one whose digest is the own nothing follows but that its sender
lives and what it has heard. An engine takes such a one in by itself (`LinkEngine.absorb_heartbeats`). It
reads the plain form that every encoder writes; what is written otherwise goes to the core, which decides.
"""

from __future__ import annotations

from typing import Final

from bmgd.frameheader import BODY_PREFIX_BYTES, HEADER_BYTES

HEARTBEAT_KIND: Final = 0x01
DIGEST_BYTES: Final = 16

_ARRAY_OF_FIVE: Final = 0x95
_DIGEST_PREFIX: Final = b"\xc4\x10"
_FIXINT_LAST: Final = 0x7F
_NUMBER_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_BOOLEANS: Final = (b"\xc2", b"\xc3")


def read_heartbeat(body: bytes, digest: bytes) -> tuple[int, int] | None:
    """The sequence and the echo of a heartbeat with this digest; None for any other frame.

    Args:
        body: of a frame with a header.
        digest: `DIGEST_BYTES` bytes.
    """
    if body[0] != _ARRAY_OF_FIVE or body[BODY_PREFIX_BYTES] != HEARTBEAT_KIND:
        return None
    sequence, at = _number(body, BODY_PREFIX_BYTES + HEADER_BYTES)
    echo, at = _number(body, at)
    end = at + len(_DIGEST_PREFIX) + DIGEST_BYTES
    if body[at:end] != _DIGEST_PREFIX + digest or body[end:] not in _BOOLEANS or sequence < 1:
        return None
    return sequence, echo


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A number that begins at `at`, and where it ends; -1 where there is none."""
    first = body[at] if at < len(body) else 0xFF
    if first <= _FIXINT_LAST:
        return first, at + 1
    end = at + 1 + _NUMBER_BYTES.get(first, len(body))
    if end > len(body):
        return -1, len(body)
    return int.from_bytes(body[at + 1 : end], "big"), end
