"""A set of node ids in the fewest bytes: as ranges, as a list, or as a bitmap.

    0x00  ranges   u32 first, u32 last, each; ascending, with at least one id between two
    0x01  list     u32 each, ascending
    0x02  bitmap   u32 base, a multiple of 8, then bytes: bit id % 8 of byte (id - base) // 8

The first byte says which; the empty set has no bytes at all. A reader takes any form, the first and
the last byte of a bitmap are not 0, and no id is above `ID_SET_SPACE`.
"""

from __future__ import annotations

import struct
from itertools import pairwise

from bmgd.errors import ProtocolError
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_in, runs_in, set_of_runs

ID_SET_BYTES_MAX = 5 + ID_SET_SPACE // 8
"""The longest form of any set: a bitmap of all ids."""

_RANGES, _LIST, _BITMAP = 0, 1, 2
_U32 = struct.Struct(">I")
_PAIR = struct.Struct(">II")


def encode_id_set(members: int) -> bytes:
    """The shortest of the three forms. O(highest id / 8 + ids or runs that are written)."""
    if not members:
        return b""
    lowest = (members & -members).bit_length() - 1
    base = lowest & ~7
    bitmap_bytes = 4 + (members.bit_length() - base + 7) // 8
    list_bytes = 4 * members.bit_count()
    starts = (members & ~(members << 1)).bit_count()
    ranges_bytes = 8 * starts
    if ranges_bytes < min(list_bytes, bitmap_bytes):
        return bytes([_RANGES]) + b"".join(_PAIR.pack(*run) for run in runs_in(members))
    if list_bytes <= bitmap_bytes:
        return bytes([_LIST]) + b"".join(_U32.pack(each) for each in ids_in(members))
    body = (members >> base).to_bytes(bitmap_bytes - 4, "little")
    return bytes([_BITMAP]) + _U32.pack(base) + body


def id_set_bytes(members: int) -> int:
    """How many bytes `encode_id_set` would give. O(highest id / 64)."""
    if not members:
        return 0
    lowest = (members & -members).bit_length() - 1
    bitmap_bytes = 4 + (members.bit_length() - (lowest & ~7) + 7) // 8
    starts = (members & ~(members << 1)).bit_count()
    return 1 + min(bitmap_bytes, 4 * members.bit_count(), 8 * starts)


def decode_id_set(value: object) -> int:
    """Read a set of ids.

    Raises:
        ProtocolError: not a form of a set, or an id is too high.
    """
    if type(value) is not bytes or len(value) > ID_SET_BYTES_MAX:
        raise ProtocolError(f"not a set of ids of at most {ID_SET_BYTES_MAX} bytes")
    if not value:
        return 0
    form, body = value[0], value[1:]
    if form == _RANGES:
        return _read_ranges(body)
    if form == _LIST:
        return _read_list(body)
    if form == _BITMAP:
        return _read_bitmap(body)
    raise ProtocolError(f"unknown form {form} of a set of ids")


def _read_ranges(body: bytes) -> int:
    if not body or len(body) % _PAIR.size:
        raise ProtocolError("ranges of ids of a wrong length")
    runs = list(_PAIR.iter_unpack(body))
    after = -1
    for first, last in runs:
        if not after < first <= last < ID_SET_SPACE:
            raise ProtocolError("ranges of ids out of order, or too high")
        after = last + 1
    return set_of_runs(runs)


def _read_list(body: bytes) -> int:
    if not body or len(body) % _U32.size:
        raise ProtocolError("a list of ids of a wrong length")
    ids: list[int] = [each for (each,) in _U32.iter_unpack(body)]
    if ids[-1] >= ID_SET_SPACE or any(a >= b for a, b in pairwise(ids)):
        raise ProtocolError("ids out of order, or too high")
    return id_set(ids)


def _read_bitmap(body: bytes) -> int:
    if len(body) <= _U32.size or not body[_U32.size] or not body[-1]:
        raise ProtocolError("a bitmap of ids of a wrong length")
    base = int.from_bytes(body[: _U32.size], "big")
    if base % 8 or base + 8 * (len(body) - _U32.size) > ID_SET_SPACE:
        raise ProtocolError("a bitmap of ids at a wrong place, or too high")
    return int.from_bytes(body[_U32.size :], "little") << base
