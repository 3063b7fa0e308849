"""What commands that send something long say on a terminal meanwhile."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import bmgd
from bmgd.cli import progress
from bmgd.cli.progress import bytes_gone, with_progress
from bmgd.cli.send import _Lines, _send_lines, _send_one
from bmgd.core.commands import BroadcastTo, Command
from bmgd.core.effects import Reply
from tests.unit.fake_core import FakeCore

DEADLINE_S = 30.0


class Terminal(io.StringIO):
    """A stderr that is one, or is not."""

    is_one = True

    def isatty(self) -> bool:
        return self.is_one

    async def until(self, pattern: str) -> re.Match[str]:
        """Wait until it shows something."""
        async with asyncio.timeout(DEADLINE_S):
            while (found := re.search(pattern, self.getvalue())) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    shown = Terminal()
    # Not sys.stderr itself: pytest puts its own there between a fixture and its test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown))
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    return shown


class Broadcasting(FakeCore):
    """Confirms broadcasts."""

    def issue(self, request: int, command: Command) -> None:
        super().issue(request, command)
        if isinstance(command, BroadcastTo):
            self.server.answers.reply(Reply(request, {"confirmed": [0, 1, 2], "failed": []}))


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    fake = Broadcasting(tmp_path / "d.sock")
    await fake.server.start()
    try:
        yield fake
    finally:
        fake.server.close()


@pytest.fixture
async def daemon(core: FakeCore) -> AsyncIterator[bmgd.Daemon]:
    async with bmgd.connect(core.address) as connected:
        yield connected


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end of stdin into which is written."""
    read_end, write_end = os.pipe()
    stdin = SimpleNamespace(fileno=lambda: read_end, isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    yield write_end
    os.close(read_end)


def arguments(**more: object) -> Namespace:
    given = {"destination": 1, "topic": "t", "timeout": 30.0, "priority": "normal"}
    return Namespace(**{**given, "best_effort": False, "json": False, **more})


async def test_long_bytes_are_those_that_have_gone_of_long_messages(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    await daemon.send(1, bytes(65_536))
    assert daemon.long_bytes == 0
    await daemon.send(1, bytes(65_537))
    assert daemon.long_bytes == 65_537
    await daemon.broadcast(bytes(100_000))
    assert daemon.long_bytes == 165_537
    await daemon.multicast([1, 2], bytes(100_000))
    assert daemon.long_bytes == 365_537


async def test_long_send_says_on_a_terminal_how_much_has_gone(
    core: FakeCore, terminal: Terminal
) -> None:
    core.holds_back = True
    sending = asyncio.ensure_future(_send_one(arguments(), core.address, bytes(4 << 20)))
    # No more than its credit.
    found = await terminal.until(r"\r\x1b\[Kbmgd send: ([1-9][0-9,]+) of 4,194,304 bytes, \d+ s")
    assert 0 < int(found[1].replace(",", "")) < 4 << 20
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    # The line is gone.
    assert terminal.getvalue().endswith("\r\x1b[K")


async def test_lines_say_on_a_terminal_how_many_have_gone(
    core: FakeCore, terminal: Terminal, pipe: int
) -> None:
    core.holds_back = True
    sending = asyncio.ensure_future(_send_lines(arguments(), core.address))
    os.write(pipe, b"one\ntwo\n")
    await terminal.until(r"bmgd send: 2 lines, 6 bytes, \d+ s")
    os.write(pipe, b"three")
    os.close(pipe)
    await terminal.until("bmgd send: 3 lines, 11 bytes, all read, ")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.usefixtures("pipe")
def test_lines_of_which_none_comes_say_nothing_more() -> None:
    lines = _Lines()
    assert lines.gone() == ""
    lines.count, lines.bytes = 2, 6
    assert [lines.gone(), lines.gone()] == ["2 lines, 6 bytes", ""]


async def turns() -> str:
    """Some turns of the loop."""
    for _ in range(10):
        await asyncio.sleep(0)
    return "done"


async def test_progress_is_for_terminals_and_for_what_takes_long(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    terminal.is_one = False
    assert await with_progress("send", turns(), lambda: "gone") == "done"
    assert terminal.getvalue() == ""
    terminal.is_one = True
    assert await with_progress("send", turns(), lambda: "") == "done"
    assert terminal.getvalue() == ""
    assert await with_progress("send", turns(), lambda: "gone") == "done"
    assert "bmgd send: gone, 0 s" in terminal.getvalue()
    told = terminal.getvalue()
    monkeypatch.setattr(progress, "EVERY_S", 60.0)
    assert await with_progress("send", turns(), lambda: "gone") == "done"
    assert terminal.getvalue() == told


async def test_progress_of_a_multicast_counts_for_each_node(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    assert bytes_gone(daemon, 100, 3)() == "100 bytes"
    gone = bytes_gone(daemon, 100_000, 2)
    assert gone() == "0 of 200,000 bytes"
    await daemon.multicast([1, 2], bytes(100_000))
    assert gone() == "200,000 of 200,000 bytes"
