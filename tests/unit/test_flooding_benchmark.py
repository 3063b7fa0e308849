"""The benchmark of floods: its programs flood when all are connected, and one that ends is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bmgd
from benchmarks import flooding
from benchmarks.flooding import Signals
from bmgd.errors import NoDaemonError


async def test_programs_that_end_before_the_flood_is_over_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(address: str, signals: Signals, begin: asyncio.Event) -> None:
        signals.end()
        raise NoDaemonError(f"no daemon at {address}")

    monkeypatch.setattr(flooding, "_flood_when_told", program)
    with pytest.raises(NoDaemonError):
        await flooding._flood_all("unix:/nowhere", 2, Signals())


async def test_programs_are_connected_before_they_are_told_to_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flooded: list[Any] = []

    @asynccontextmanager
    async def connect(address: str) -> AsyncIterator[str]:
        yield address

    async def flood(daemon: Any, topic: str) -> None:
        flooded.append(daemon)
        if len(flooded) == 2:
            signals.over.set()

    monkeypatch.setattr(bmgd, "connect", connect)
    monkeypatch.setattr(flooding, "_flood", flood)
    signals = Signals()
    programs = asyncio.create_task(flooding._flood_all("here", 2, signals))
    await signals.until_all_are_there(2)
    assert flooded == []
    signals.begin.set()
    await programs
    assert flooded == ["here", "here"]


async def test_programs_that_do_not_connect_are_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flooding, "START_S", 0.0)
    signals = Signals()
    signals.there.release()
    with pytest.raises(TimeoutError, match="1 of 2 programs"):
        await signals.until_all_are_there(2)


def test_end_of_the_flood_lets_go_of_programs_that_never_began() -> None:
    signals = Signals()
    signals.end()
    assert signals.begin.wait(0)
    assert signals.over.wait(0)
