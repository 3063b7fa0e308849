"""Fields of the messages of `stream_messages.py`, good ones and wrong ones."""

from __future__ import annotations

from typing import Any, Final

from bmgd.wire.bounds import ENTRIES_MAX, SEGMENT_BYTES_MAX
from tests.unit.wire.examples import U32_MAX, U64_MAX
from tests.unit.wire.violations import NOT_BOOL, NOT_ID, NOT_U32, NOT_U64

ENTRY: Final = bytes.fromhex("00000009 0000abcd 0000000300000001 00000002 00000003")
OTHER_ENTRY: Final = bytes.fromhex("0000000a 00000000 0000000100000007 00000000 00000001")
NOT_ENTRIES: Final[list[Any]] = [
    b"",
    ENTRY[:-1],
    ENTRY + ENTRY,
    OTHER_ENTRY + ENTRY,
    b"\xff" * 24,
    b"".join(number.to_bytes(4, "big") + ENTRY[4:] for number in range(ENTRIES_MAX + 1)),
    "entries",
    [[9, 0, 1, 0, 1]],
    None,
]
NOT_ASKED: Final[list[Any]] = [
    [],
    [0, 3],
    [0, 3, 9, 1],
    [0, 0, 9],
    [0, U32_MAX + 1, 9],
    [0, 3, 0],
    [0, 3, U64_MAX + 1],
    [1, 3, 9],
    [True, 3, 9],
    [0, True, 9],
    [0, 3, None],
]

VALID: Final[dict[int, list[Any]]] = {
    0x42: [9],
    0x49: [1, "jobs", 0, 1, 1, 0, b"\xc4\x01x"],
    0x4A: [1, 4096, False, [3, 5, 9, 9]],
    0x4B: [1, 4],
    0x56: ["jobs", ENTRY + OTHER_ENTRY, b"\xc4\x01x"],
}
"""The fields of one good message of every kind."""

WRONG: Final[list[tuple[int, int, Any]]] = [
    *[(0x49, 0, value) for value in [0, 16 << 4, -1, True, None]],
    *[(0x49, 1, value) for value in ["", "x" * 256, "é" * 128, b"jobs", 1, None, ["jobs"]]],
    *[(kind, at, value) for kind, at in ((0x49, 2), (0x49, 3)) for value in NOT_U32],
    *[(0x49, 4, value) for value in [0, 4, -1, 65_536, True, 1.0, None]],
    *[(0x49, 5, value) for value in [1, -1, 2**40 + 1, True, None]],
    *[(0x49, 5, value) for value in NOT_ASKED],
    *[(0x49, 6, value) for value in [bytes(SEGMENT_BYTES_MAX + 1), b"", "body", 1, None]],
    *[(kind, 0, value) for kind in (0x4A, 0x4B) for value in NOT_U32],
    *[(0x4A, 1, value) for value in NOT_U64],
    *[(0x4A, 2, value) for value in NOT_BOOL],
    *[
        (0x4A, 3, value)
        for value in [[0, 1], [3], [5, 3], [3, 5, 4, 4], [1] * 66, [1, 2**32], 3, None, ["1", "2"]]
    ],
    *[(0x4B, 1, value) for value in [-1, 256, True, 0.0, "0", None]],
    *[(0x42, 0, value) for value in NOT_ID],
    *[(0x56, 0, value) for value in ["", "x" * 256, b"jobs", 1, None]],
    *[(0x56, 1, value) for value in NOT_ENTRIES],
    *[(0x56, 2, value) for value in [bytes(SEGMENT_BYTES_MAX + 1), b"", "body", 1, None]],
]
"""(kind, which field, a value that it cannot have)."""
