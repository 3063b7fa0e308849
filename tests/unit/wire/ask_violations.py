"""Fields of the messages of `ask_messages.py`, good ones and wrong ones."""

from __future__ import annotations

from typing import Any, Final

from bmgd.types import NODE_ID_MAX
from bmgd.wire.bounds import PROGRAMS_BYTES_MAX, REPORT_BYTES_MAX, ROUTE_IDS_MAX, TRACE_MS_MAX
from tests.unit.wire.examples import U64_MAX
from tests.unit.wire.violations import NOT_BOOL, NOT_ID, NOT_U64

NOT_IDS: Final[list[Any]] = [
    [1] * (ROUTE_IDS_MAX + 1),
    [NODE_ID_MAX + 1],
    [-1],
    ["1"],
    [[1]],
    1,
    {},
    None,
]

VALID: Final[dict[int, list[Any]]] = {
    0x43: [[1, 2]],
    0x44: [[1, 2]],
    0x45: [7, 1],
    0x46: [7, 1, True],
    0x47: [U64_MAX, "new:1", 17],
    0x48: [1, 17],
    0x57: [0],
    0x58: [3, 0, True, b"\x01"],
    0x68: [],
    0x69: [b"{}"],
    0x6A: [9, 1000],
    0x6B: [1500, [1, 9], ""],
    0x6C: ["rpc"],
    0x6D: [True],
}
"""The fields of one good message of every kind."""

WRONG: Final[list[tuple[int, int, Any]]] = [
    *[(kind, 0, value) for kind in (0x43, 0x44) for value in NOT_IDS],
    *[(kind, 0, value) for kind in (0x45, 0x46) for value in NOT_ID],
    *[(kind, 1, value) for kind in (0x45, 0x46) for value in NOT_U64],
    *[(0x46, 2, value) for value in NOT_BOOL],
    *[(kind, 0, value) for kind in (0x47, 0x48) for value in [0, *NOT_U64]],
    *[(0x47, 1, value) for value in ["x" * 256, "é" * 128, b"new:1", 1, None]],
    *[(0x47, 2, value) for value in [-1, NODE_ID_MAX + 2, True, "1", None]],
    *[(0x48, 1, value) for value in NOT_ID],
    *[(kind, at, value) for kind, at in ((0x57, 0), (0x58, 0), (0x58, 1)) for value in NOT_U64],
    *[(0x58, 2, value) for value in NOT_BOOL],
    *[(0x58, 3, value) for value in [bytes(PROGRAMS_BYTES_MAX + 1), "", 1, None]],
    *[(0x69, 0, value) for value in [bytes(REPORT_BYTES_MAX + 1), "{}", 1, None, {}]],
    *[(0x6A, 0, value) for value in NOT_ID],
    *[(0x6A, 1, value) for value in [0, TRACE_MS_MAX + 1, True, 1.0, "1", None]],
    *[(0x6C, 0, value) for value in ["", "x" * 256, b"rpc", 1, None]],
    *[(0x6D, 0, value) for value in NOT_BOOL],
    *[(0x6B, 0, value) for value in NOT_U64],
    *[(0x6B, 1, value) for value in NOT_IDS],
    *[(0x6B, 2, value) for value in ["x" * 256, b"", 1, None]],
]
"""(kind, which field, a value that it cannot have)."""
