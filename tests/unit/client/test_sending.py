"""Single messages that wait for room while their daemon goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import bmgd
from bmgd.core.commands import PutSegment
from tests.unit.fake_core import FakeCore, fake_daemon

DEADLINE_S = 10.0


def put(core: FakeCore) -> int:
    return sum(command.count for _, command in core.told if isinstance(command, PutSegment))


async def test_message_that_waits_for_room_is_sent_by_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
            core.holds_back = True
            waiting = [asyncio.ensure_future(daemon.send_soon(1, bytes(65_000))) for _ in range(20)]
            # That is all its credit.
            await core.until_told(lambda: put(core) == 16)
        async with fake_daemon(path) as core:
            confirmed = await asyncio.gather(*waiting)
            outcomes = await asyncio.gather(*confirmed, return_exceptions=True)
            errors = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(error, bmgd.UnreachableError) for error in errors)
            assert len(errors) + put(core) == 20
            assert put(core)
            await opening.__aexit__(None, None, None)
