"""Processes that a test starts, and that do not outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil


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


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; it may be reaped while it is looked at."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that has not ended."""
    if process.returncode is None:
        process.kill()
        await process.wait()
