"""Processes that a test starts, and that do not outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def started(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that runs meanwhile; what has not ended by itself is killed.

    Args:
        options: those of `asyncio.create_subprocess_exec`.
    """
    process = await asyncio.create_subprocess_exec(*words, **options)
    try:
        yield process
    finally:
        await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that has not ended."""
    if process.returncode is None:
        process.kill()
        await process.wait()
