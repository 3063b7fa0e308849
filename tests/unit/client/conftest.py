"""A daemon with a core that only notes what it is told, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bmgd
from tests.unit.fake_core import FakeCore, fake_daemon


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    """The core of a daemon that has started."""
    async with fake_daemon(tmp_path / "d.sock") as fake:
        yield fake


@pytest.fixture
async def daemon(core: FakeCore) -> AsyncIterator[bmgd.Daemon]:
    """A program's connection to that daemon."""
    async with bmgd.connect(core.address) as connected:
        yield connected
