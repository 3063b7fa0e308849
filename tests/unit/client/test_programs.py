"""Registered programs: how their ends are told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import bmgd
from bmgd.client import programs
from bmgd.client.items import Stream
from bmgd.core.commands import Unregister
from tests.unit.fake_core import FakeCore

DEADLINE_S = 10.0


@pytest.mark.parametrize(
    ("code", "told"), [(True, 1), (False, 0), (7, 7), (None, 0), ("no disk", 1), (2**70, 1)]
)
async def test_a_program_that_exits_in_its_block_ends_with_an_exit_code(
    core: FakeCore, daemon: bmgd.Daemon, code: int | str | None, told: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        async with daemon.register("worker"):
            sys.exit(code)
    assert ended.value.code is code
    exits = [command.exit for _, command in core.told if isinstance(command, Unregister)]
    assert exits == [told]


async def test_running_programs_are_waited_for_in_bounds(
    daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream opens, and nothing comes."""

    @asynccontextmanager
    async def silent(*_: object) -> AsyncIterator[Stream[Any]]:
        yield Stream(1)

    monkeypatch.setattr(daemon._connection, "stream", silent)
    monkeypatch.setattr(programs, "ANSWER_S", 0.05)
    with pytest.raises(bmgd.SilentDaemonError, match="not told of any programs"):
        await asyncio.wait_for(daemon.running_programs(), DEADLINE_S)
