"""Fields of the messages of `broadcast_messages.py`, good ones and wrong ones."""

from __future__ import annotations

from typing import Any, Final

from bmgd.routing.id_sets import ID_SET_SPACE
from bmgd.wire.bounds import (
    BRANCHES_MAX,
    COVERS_BYTES_MAX,
    EXCEPTIONS_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SKIPS_MAX,
)
from bmgd.wire.id_sets import ID_SET_BYTES_MAX
from tests.unit.wire.examples import U64_MAX
from tests.unit.wire.violations import NOT_BOOL, NOT_U64


def u32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


NOT_PAYLOADS: Final[list[Any]] = [bytes(PAYLOAD_BYTES_MAX + 1), "payload", 1, None, [1]]
NOT_ID_SETS: Final[list[Any]] = [
    b"\x00",
    b"\x03\x00\x00\x00\x01",
    b"\x00" + u32(1, 2, 3),
    b"\x00" + u32(2, 1),
    b"\x00" + u32(1, 2, 3, 4),
    b"\x00" + u32(1, ID_SET_SPACE),
    b"\x01",
    b"\x01" + u32(2, 2),
    b"\x01" + u32(ID_SET_SPACE),
    b"\x01\x00",
    b"\x02" + u32(0),
    b"\x02" + u32(4) + b"\x01",
    b"\x02" + u32(0) + b"\x00\x01",
    b"\x02" + u32(0) + b"\x01\x00",
    b"\x02" + u32(ID_SET_SPACE) + b"\x01",
    bytes(ID_SET_BYTES_MAX + 1),
    "\x01",
    9,
    None,
]
NOT_BRANCHES: Final[list[Any]] = [
    [[9]],
    [[9, b"", 0]],
    [[-1, b""]],
    [9],
    [[9, b""]] * (BRANCHES_MAX + 1),
    [[9, b"\x01" + u32(ID_SET_SPACE - 1)]] * (COVERS_BYTES_MAX // (ID_SET_SPACE // 8) + 1),
    {9: b""},
    None,
    *[[[9, value]] for value in NOT_ID_SETS],
]
NOT_SKIPS: Final[list[Any]] = [
    [[9, 1, 2]],
    [[9, 1, 2, True, 0]],
    [[-1, 1, 2, True]],
    [[9, 0, 2, True]],
    [[9, 3, 2, True]],
    [[9, 1, U64_MAX + 1, True]],
    [[9, 1, 2, 1]],
    [[9, 1, 2, True]] * (SKIPS_MAX + 1),
    [9],
    {},
    None,
]

VALID: Final[dict[int, list[Any]]] = {
    0x50: ["news", b"payload", 0, [[9, b"\x01\x00\x00\x00\x09"]]],
    0x51: ["jobs", b"payload", [[9, b"\x02\x00\x00\x00\x08\xff"]]],
    0x52: ["news", b"x", 0, [], 16, b"\x01\x00\x00\x00\x03", [[12, 1, 76, False]], 70],
    0x53: [77, 70, False],
    0x54: [0, [], 77],
    0x55: [[[9, 71, 76, True]], 76],
    0x59: ["news", b"x", 0, [], 16, b"", [], 70, [5, 65_536, 65_537]],
}
"""The fields of one good message of every kind."""

WRONG: Final[list[tuple[int, int, Any]]] = [
    *[(0x52, 1, value) for value in NOT_PAYLOADS],
    *[(kind, at, value) for kind, at in ((0x52, 2), (0x54, 0)) for value in [-1, 2, True, None]],
    *[(kind, at, value) for kind, at in ((0x52, 3), (0x54, 1)) for value in NOT_BRANCHES],
    *[(0x52, 4, value) for value in [0, ID_SET_SPACE + 1, True, "1", None]],
    *[(0x52, 5, value) for value in [bytes(EXCEPTIONS_BYTES_MAX + 1), *NOT_ID_SETS]],
    *[(kind, at, value) for kind, at in ((0x52, 6), (0x55, 0)) for value in NOT_SKIPS],
    *[(kind, at, value) for kind, at in ((0x52, 7), (0x54, 2), (0x55, 1)) for value in NOT_U64],
    *[(0x53, at, value) for at in (0, 1) for value in NOT_U64],
    *[(0x53, 2, value) for value in NOT_BOOL],
    *[(kind, 0, value) for kind in (0x50, 0x51, 0x52) for value in ["x" * 256, b"jobs", 1, None]],
    *[(kind, 0, "") for kind in (0x50, 0x51)],
    *[(kind, 1, value) for kind in (0x50, 0x51) for value in NOT_PAYLOADS],
    *[(0x50, 2, value) for value in [-1, 2, True, "0", None]],
    *[(kind, at, value) for kind, at in ((0x50, 3), (0x51, 2)) for value in NOT_BRANCHES],
    *[(0x59, 1, value) for value in [b"", b"xx", *NOT_PAYLOADS]],
    *[
        (0x59, 8, value)
        for value in [
            [0, 0, 1],
            [5, 1, 1],
            [5, -1, 9],
            [5, 0, 2**40 + 1],
            [5, 0],
            [5, 0, 1, 0],
            5,
            None,
        ]
    ],
]
"""(kind, which field, a value that it cannot have)."""
