"""How much is left until a deadline."""

from __future__ import annotations

import asyncio
from typing import Final

LEAST_S: Final = 0.001
"""The least that is returned. A timeout must be above 0, and who waits for so little sees its end."""


def left_until(until: float) -> float:
    """Seconds until a time of the running loop, `LEAST_S` at least."""
    return max(until - asyncio.get_running_loop().time(), LEAST_S)
