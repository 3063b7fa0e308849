"""Values that a field of a plain type cannot have, for all groups of messages."""

from __future__ import annotations

from typing import Any, Final

from bmgd.types import NODE_ID_MAX
from tests.unit.wire.examples import U32_MAX, U64_MAX

NOT_U64: Final[list[Any]] = [-1, U64_MAX + 1, True, 1.0, "1", b"1", None, [1]]
NOT_U32: Final[list[Any]] = [-1, U32_MAX + 1, False, 0.0, "0", None]
NOT_ID: Final[list[Any]] = [-1, NODE_ID_MAX + 1, U64_MAX, True, 3.0, "3", None, []]
NOT_BOOL: Final[list[Any]] = [0, 1, "true", None, b"\x01"]
