"""A program of the benchmark of floods that ends is not counted as one that floods."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from benchmarks import flooding
from bmgd.errors import NoDaemonError


async def test_programs_that_end_before_the_flood_is_over_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over: Any = threading.Event()

    async def flood(address: str, topic: str) -> None:
        over.set()
        raise NoDaemonError(f"no daemon at {address}")

    monkeypatch.setattr(flooding, "_flood", flood)
    with pytest.raises(NoDaemonError):
        await flooding._flood_all("unix:/nowhere", 2, over)
