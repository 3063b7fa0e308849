"""Fields of the messages of `link_messages.py`, good ones and wrong ones."""

from __future__ import annotations

from typing import Any, Final

from bmgd.types import NODE_ID_MAX
from bmgd.wire.bounds import OLDER_MEMBERS_MAX, RECORDS_PER_NOTICE_MAX, WATERMARKS_MAX
from bmgd.wire.link_messages import BUCKETS
from tests.unit.wire.examples import U32_MAX, U64_MAX
from tests.unit.wire.violations import NOT_BOOL, NOT_ID, NOT_U64

DIGEST: Final = bytes(16)
ROW: Final[list[Any]] = [3, 1, 0, 1, "host3:7400"]
NOT_DIGEST: Final[list[Any]] = [b"", bytes(15), bytes(17), "0" * 16, 0, None, [0] * 16]
NOT_RECORDS: Final[list[Any]] = [
    [ROW[:4]],
    [[*ROW, 0]],
    [[]],
    [3],
    [[NODE_ID_MAX + 1, *ROW[1:]]],
    [[3, U64_MAX + 1, 0, 1, "a:1"]],
    [[3, -1, 0, 1, "a:1"]],
    [[3, 1, U32_MAX + 1, 1, "a:1"]],
    [[3, 1, -1, 1, "a:1"]],
    [[3, 1, 0, 5, "a:1"]],
    [[3, 1, 0, -1, "a:1"]],
    [[3, 1, 0, True, "a:1"]],
    [[3, 1, 0, 1, b"a:1"]],
    [[3, 1, 0, 1, "a" * 256]],
    [[3, 1, 0, 1, "é" * 128]],
    [ROW, ROW],
    [[4, *ROW[1:]], ROW],
    [[number, *ROW[1:]] for number in range(RECORDS_PER_NOTICE_MAX + 1)],
    {3: ROW},
    None,
    "records",
]
NOT_RUNS: Final[list[Any]] = [
    [[5]],
    [[5, 6, 7]],
    [[6, 5]],
    [[5, NODE_ID_MAX + 1]],
    [[-1, 5]],
    [["5", 6]],
    [[7, 8], [5, 6]],
    [[5, 6], [6, 7]],
    [[5, 6], [7, 8]],
    [5],
    [[2 * i, 2 * i] for i in range(300)],
    None,
]
NOT_HELD: Final[list[Any]] = [
    [[4, 1, 77, 70]],
    [[4, 1, 77, 70, 79, 0]],
    [[-1, 1, 77, 70, 79]],
    [[4, 0, 77, 70, 79]],
    [[4, 1, -1, 70, 79]],
    [[4, 1, 77, True, 79]],
    [[4, 1, 77, 70, U64_MAX + 1]],
    [[4, 1, 77, 70, 79]] * (WATERMARKS_MAX + 1),
    [4],
    None,
]
NOT_MEMBER_FEATURES: Final[list[Any]] = [
    [[3, 1]],
    [[3, 1, 0, 0]],
    [3],
    [[NODE_ID_MAX + 1, 1, 0]],
    [[3, 0, 0]],
    [[3, U64_MAX + 1, 0]],
    [[3, 1, U32_MAX + 1]],
    [[3, 1, -1]],
    [[3, 1, None]],
    [[3, 1, 0], [3, 2, 0]],
    [[4, 1, 0], [3, 1, 0]],
    [[number, 1, 0] for number in range(OLDER_MEMBERS_MAX + 1)],
    None,
    b"",
]

VALID: Final[dict[int, list[Any]]] = {
    0x01: [1, 0, DIGEST, False],
    0x02: [1],
    0x03: [1],
    0x04: [[ROW]],
    0x05: [[DIGEST] * BUCKETS, True],
    0x06: [DIGEST],
    0x07: ["leaving"],
    0x08: [[[4, 1, 77, 70, 79]], False],
    0x09: [4, 1, 71],
    0x0C: [0, 1],
    0x0E: [[[3, 1, 0]]],
    0x0D: [[ROW], [[5, 9], [11, 11]], 12],
}
"""The fields of one good message of every kind."""

WRONG: Final[list[tuple[int, int, Any]]] = [
    *[(0x01, 0, value) for value in [0, *NOT_U64]],
    *[(0x01, 1, value) for value in NOT_U64],
    *[(0x01, 2, value) for value in NOT_DIGEST],
    *[(0x01, 3, value) for value in NOT_BOOL],
    *[(kind, 0, value) for kind in (0x02, 0x03) for value in NOT_U64],
    *[(0x04, 0, value) for value in NOT_RECORDS],
    *[(0x05, 0, [DIGEST] * count) for count in (0, BUCKETS - 1, BUCKETS + 1)],
    *[(0x05, 0, [*[DIGEST] * (BUCKETS - 1), value]) for value in NOT_DIGEST],
    *[(0x05, 1, value) for value in NOT_BOOL],
    *[(0x0C, 0, value) for value in NOT_ID],
    *[(0x0C, 1, value) for value in [*NOT_U64, 0]],
    *[(0x0D, 0, value) for value in NOT_RECORDS],
    *[(0x0D, 1, value) for value in NOT_RUNS],
    *[(0x0D, 2, value) for value in NOT_ID if value is not None],
    *[(0x0E, 0, value) for value in NOT_MEMBER_FEATURES],
    *[(0x06, 0, value) for value in NOT_DIGEST],
    *[(0x07, 0, value) for value in ["x" * 256, "é" * 128, b"leaving", 1, None]],
    *[(0x08, 0, value) for value in NOT_HELD],
    *[(0x08, 1, value) for value in NOT_BOOL],
    *[(0x09, 0, value) for value in NOT_ID],
    *[(0x09, at, value) for at in (1, 2) for value in [0, *NOT_U64]],
]
"""(kind, which field, a value that it cannot have)."""
