"""Frames as bytes, with their length prefixes: found in what came, and read, the simplest way."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bmgd import frameheader as header
from bmgd.linklayer import contract

_LENGTH: Final = Struct(">I")
_KIND_AT: Final = header.LENGTH_BYTES + header.BODY_PREFIX_BYTES + header.KIND_AT
_PRIORITY_AT: Final = header.LENGTH_BYTES + header.BODY_PREFIX_BYTES + header.PRIORITY_AT
_BEFORE_HEADER: Final = bytes((header.BIN_8, header.HEADER_BYTES))


def kind_of(frame: bytes) -> int:
    """The kind of its message."""
    return frame[_KIND_AT]


def _priority(frame: bytes) -> int:
    return frame[_PRIORITY_AT]


def kind_of_put(frame: bytes) -> int:
    """The kind that an engine is told when the frame is put: control, or its class."""
    if kind_of(frame) <= header.LINK_LOCAL_LAST:
        return contract.CONTROL
    return class_of(frame)


def class_of(frame: bytes) -> int:
    """The class of a routed frame, by its priority."""
    match _priority(frame):
        case 0:
            return contract.URGENT
        case 1:
            return contract.HIGH
    return contract.BULK


def hopped(frame: bytes) -> bytes:
    """The frame as it is relayed: one less of its hop budget."""
    changed = bytearray(frame)
    changed[header.LENGTH_BYTES + header.BODY_PREFIX_BYTES + header.HOP_BUDGET_AT] -= 1
    return bytes(changed)


def frames_in(data: bytes) -> tuple[list[bytes], int, bool]:
    """The whole frames at the beginning, how many bytes they have, and whether what follows is none."""
    frames: list[bytes] = []
    at, size = 0, len(data)
    while size - at >= header.LENGTH_BYTES:
        (length,) = _LENGTH.unpack_from(data, at)
        if not header.BODY_BYTES_MIN <= length <= header.FRAME_BYTES_MAX:
            return frames, at, True
        end = at + header.LENGTH_BYTES + length
        if end > size:
            break
        frame = data[at:end]
        if not _has_header(frame):
            return frames, at, True
        frames.append(frame)
        at = end
    return frames, at, False


def awaited_bytes(begun: bytearray) -> int:
    """How long the frame is that begins so, with its length prefix; 0 for not known."""
    if len(begun) < header.LENGTH_BYTES:
        return 0
    (length,) = _LENGTH.unpack_from(begun)
    return header.LENGTH_BYTES + int(length)


def _has_header(frame: bytes) -> bool:
    first = header.LENGTH_BYTES
    is_array = header.ARRAY_FIRST <= frame[first] <= header.ARRAY_LAST
    is_kind = header.LINK_LOCAL_FIRST <= kind_of(frame) <= header.ROUTED_LAST
    return is_array and frame.startswith(_BEFORE_HEADER, first + 1) and is_kind
