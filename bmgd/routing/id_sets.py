"""Sets of node ids as integers: bit i says whether id i is in it.

Unions, differences and intervals of such sets cost a few machine words, whatever is in them; so a
broadcast to thousands of ids is split among branches without looking at each id.
"""

from __future__ import annotations

from collections.abc import Iterable

from bmgd.types import NodeId

ID_SET_SPACE = 2**17
"""Ids in a set are below this: no frame makes anybody allocate more than 16 KiB for one."""

MANY = 64
"""From so many ids on a set is written digit by digit: each union costs a copy of it."""

_ONE = ord("1")
_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def id_set(ids: Iterable[int]) -> int:
    """The set of these ids. O(count + highest)."""
    listed = list(ids)
    if len(listed) >= MANY:
        digits = bytearray(b"0") * (max(listed) + 1)
        for node_id in listed:
            digits[~node_id] = _ONE
        return int(digits, 2)
    found = 0
    for node_id in listed:
        found |= 1 << node_id
    return found


def set_of_runs(runs: Iterable[tuple[int, int]]) -> int:
    """The set of the ids in all these runs (first, last), in any order. O(count log count + highest)."""
    listed = list(runs)
    if len(listed) >= MANY:
        digits = bytearray(b"0") * (max(last for _, last in listed) + 1)
        end = 0
        for first, last in sorted(listed):
            # Of runs that overlap each id is written once.
            begin = max(first, end)
            if begin <= last:
                end = last + 1
                digits[-end : len(digits) - begin] = b"1" * (end - begin)
        return int(digits, 2)
    found = 0
    for first, last in listed:
        found |= ids_between(first, last + 1)
    return found


def set_bytes(members: int) -> int:
    """What a set takes in memory: a bitmap up to its highest id. O(1)."""
    return (members.bit_length() + 7) // 8


def ids_between(first: int, end: int) -> int:
    """The set of the ids first..end-1; empty where `end` is not above `first`."""
    return (1 << end) - (1 << first) if end > first else 0


def without(members: int, node_id: int) -> int:
    """The set without one id, which may be any number. O(highest / 64), however high the id is."""
    return members & ~(1 << node_id) if members >> node_id & 1 else members


def ids_in(members: int) -> list[NodeId]:
    """The ids of a set, ascending. O(highest / 8 + count)."""
    data = members.to_bytes((members.bit_length() + 7) // 8, "little")
    return [NodeId(8 * at + bit) for at, byte in enumerate(data) if byte for bit in _BITS[byte]]


def runs_in(members: int) -> list[tuple[int, int]]:
    """The runs of neighboring ids of a set, as (first, last), ascending. O(highest / 8 + runs)."""
    firsts, lasts = members & ~(members << 1), members & ~(members >> 1)
    return list(zip(ids_in(firsts), ids_in(lasts), strict=True))
