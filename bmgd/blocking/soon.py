"""A future of the loop's thread as something that can be waited for."""

from __future__ import annotations

import asyncio


async def confirmed(soon: asyncio.Future[None]) -> None:
    """Wait for it; raises what it raises."""
    await soon
