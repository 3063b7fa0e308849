"""Long multicasts, over a fake daemon that knows ten nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import bmgd
from bmgd.core.commands import Command, MulticastTo, OpenStream, PutSegment, ShowMembers
from bmgd.core.effects import Reply
from bmgd.errors import (
    DeadError,
    NoDaemonError,
    PartialError,
    ProtocolError,
    RequestError,
    UnreachableError,
)
from tests.unit.cli.test_commands import run
from tests.unit.fake_core import FakeCore, serving

DEADLINE_S = 10.0
PAYLOAD = bytes(range(256)) * 512


class TenNodes(FakeCore):
    """Knows ids 0 to 9; 3 and 4 fail."""

    def issue(self, request: int, command: Command) -> None:
        if isinstance(command, ShowMembers):
            members = [self.member(node_id) for node_id in range(10)]
            self.server.answers.reply(Reply(request, {"revision": 1, "members": members}))
        else:
            super().issue(request, command)

    @property
    def opened(self) -> list[int]:
        return [each.destination for _, each in self.told if isinstance(each, OpenStream)]

    def taken(self, destination: int) -> bytes:
        """What was put for a node."""
        requests = {
            request
            for request, command in self.told
            if isinstance(command, OpenStream) and command.destination == destination
        }
        return b"".join(
            command.body
            for request, command in self.told
            if isinstance(command, PutSegment) and request in requests
        )


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[TenNodes]:
    async with serving(TenNodes(tmp_path / "d.sock")) as fake:
        yield fake


async def test_long_multicast_goes_to_each_node_and_makes_one_report(
    core: TenNodes, daemon: bmgd.Daemon
) -> None:
    report = await daemon.multicast([1, range(8, 10)], memoryview(PAYLOAD).cast("I"))
    assert report == bmgd.Report(frozenset({1, 8, 9}), {})
    assert sorted(core.opened) == [1, 8, 9]
    assert core.taken(9) == PAYLOAD
    assert not any(isinstance(command, MulticastTo) for _, command in core.told)


async def test_long_multicast_says_who_has_not_confirmed_it(
    core: TenNodes, daemon: bmgd.Daemon
) -> None:
    with pytest.raises(PartialError) as partial:
        await daemon.multicast([4, 1, 3, 2], PAYLOAD)
    report = partial.value.report
    assert report.confirmed == frozenset({1, 2})
    assert [(each, type(error)) for each, error in report.failed.items()] == [
        (3, DeadError),
        (4, UnreachableError),
    ]
    assert core.taken(1) == core.taken(2) == PAYLOAD


async def test_long_multicast_to_an_id_of_no_node_is_refused_before_it_is_sent(
    core: TenNodes, daemon: bmgd.Daemon
) -> None:
    with pytest.raises(RequestError, match="no node has the id 10"):
        await daemon.multicast([1, 10], PAYLOAD)
    with pytest.raises(RequestError, match="at most 512 destinations"):
        await daemon.multicast([range(513)], PAYLOAD)
    with pytest.raises(RequestError, match="a topic has"):
        await daemon.multicast([1], PAYLOAD, topic="")
    with pytest.raises(RequestError, match="131072 bytes"):
        await daemon.multicast([1], PAYLOAD, quality="best-effort")
    assert core.opened == []


async def test_long_multicast_whose_time_is_over_says_whose_turn_did_not_come(
    core: TenNodes, daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.long_multicasts.SINGLY_MAX", 2)
    core.holds_back = True
    with pytest.raises(PartialError) as partial:
        await daemon.multicast([1, 2, 8, 9], PAYLOAD, timeout=0.05)
    failed = partial.value.report.failed
    assert list(failed) == [1, 2, 8, 9]
    assert [failed[each].sent for each in (8, 9)] == [False, False]
    assert set(core.opened) <= {1, 2}


@pytest.mark.parametrize("reconnect", [False, True])
async def test_long_multicast_whose_daemon_goes_away_says_what_may_have_been_taken(
    core: TenNodes, reconnect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.long_multicasts.SINGLY_MAX", 2)
    async with (
        asyncio.timeout(DEADLINE_S),
        bmgd.connect(core.address, reconnect=reconnect) as daemon,
    ):
        core.holds_back = True
        sending = asyncio.ensure_future(daemon.multicast([1, 2, 8], PAYLOAD, timeout=1))
        await core.until_told(lambda: core.taken(1) == core.taken(2) == PAYLOAD)
        core.server.close()
        if reconnect:
            with pytest.raises(PartialError) as partial:
                await sending
            failed = partial.value.report.failed
            assert {each: error.sent for each, error in failed.items()} == {
                1: True,
                2: True,
                8: False,
            }
        else:
            with pytest.raises(NoDaemonError) as gone:
                await sending
            assert gone.value.sent


async def test_multicast_command_takes_a_long_message_from_stdin(core: TenNodes) -> None:
    there = ("--control", core.address)
    ran = await run("multicast", "1-2", "-", "--json", *there, stdin=PAYLOAD)
    assert (ran.code, ran.out) == (0, '{"confirmed":[1,2],"failed":{}}\n')
    assert core.taken(1) == core.taken(2) == PAYLOAD
    ran = await run("multicast", "1-2", "-", "--best-effort", *there, stdin=PAYLOAD)
    assert ran.code == 1


async def test_long_multicast_over_a_daemon_that_breaks_the_protocol_raises_one_error(
    core: TenNodes,
) -> None:
    async with asyncio.timeout(DEADLINE_S), bmgd.connect(core.address) as daemon:
        core.holds_back = True
        sending = asyncio.ensure_future(daemon.multicast([1, 2], PAYLOAD, timeout=10))
        await core.until_told(lambda: core.taken(1) == core.taken(2) == PAYLOAD)
        daemon._connection._lose(ProtocolError("no frame"))
        with pytest.raises(ProtocolError, match="no frame"):
            await sending
