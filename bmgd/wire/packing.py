"""Plain values as bytes, for files that bmgd itself writes and reads again: msgpack, with bounds."""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgpack

from bmgd.errors import ProtocolError

UNPACKED_BYTES_MAX: Final = 256 * 2**20
"""A packed value that would become longer is refused before it does."""


def pack(value: Any) -> bytes:
    """Bytes of a value made of None, bool, int (64 bits), float, str, bytes, list and dict."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack(data: bytes) -> Any:
    """The value of `pack`.

    Raises:
        ProtocolError: these bytes are none.
    """
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise ProtocolError(f"not a packed value: {error}") from None


def compress(data: bytes) -> bytes:
    """A short form of some bytes, made fast."""
    return zlib.compress(data, 1)


def decompress(data: bytes) -> bytes:
    """The bytes of `compress`.

    Raises:
        ProtocolError: these are none, or there are more than `UNPACKED_BYTES_MAX`.
    """
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError(f"not compressed: {error}") from None
    if stream.unconsumed_tail or not stream.eof:
        raise ProtocolError("compressed bytes are cut off, or too many")
    return found
