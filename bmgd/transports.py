"""Writing a frame of several parts to a transport of asyncio or uvloop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final


def pauses_after_lines(version: tuple[int, ...]) -> bool:
    """Whether `writelines` of a Python's asyncio tells the protocol to pause (CVE-2024-12254).

    Where it does not, no bound on what waits to be written holds.

    Args:
        version: of Python, as `sys.version_info` begins: three numbers.
    """
    return not ((3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2))


PAUSES_AFTER_LINES: Final = pauses_after_lines(sys.version_info[:3])


def write_parts(transport: asyncio.WriteTransport, parts: Sequence[bytes | memoryview]) -> None:
    """Write a frame; a long body is not copied where the loop can do without."""
    if len(parts) == 1:
        transport.write(parts[0])
    elif PAUSES_AFTER_LINES:
        transport.writelines(parts)
    else:
        transport.write(b"".join(parts))
