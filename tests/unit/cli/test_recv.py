"""What `bmgd recv` prints of a message that is too long to be held, and gives to a command."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bmgd.cli.recv import answer, show, take
from bmgd.client import Message
from bmgd.errors import UnreachableError

PARTS = [b"some ", b"parts"]


class Long(Message):
    """A message that is read by `parts` only."""

    @property
    def payload(self) -> bytes:
        raise AssertionError("it is never held as a whole")

    @property
    def size(self) -> int:
        return sum(map(len, PARTS))

    @property
    def is_long(self) -> bool:
        return True

    async def parts(self) -> AsyncIterator[bytes]:
        for part in PARTS:
            yield part


@pytest.fixture
def message() -> Message:
    return Long(3, "jobs", b"", False, 1)


async def test_recv_prints_a_long_message_as_it_comes(message: Message, capfdbinary: Any) -> None:
    await show(message, as_json=False)
    assert capfdbinary.readouterr().out == b"some parts\n"


async def test_recv_prints_the_parts_of_a_long_message_as_json(
    message: Message, capsys: pytest.CaptureFixture[str]
) -> None:
    await show(message, as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    about = {"source": 3, "topic": "jobs", "bytes": 10}
    assert rows == [
        {**about, "at": 0, "part": "some "},
        {**about, "at": 5, "part": "parts"},
    ]


async def test_recv_gives_a_long_message_to_its_command(message: Message, capfdbinary: Any) -> None:
    await answer("tr a-z A-Z", message)
    assert capfdbinary.readouterr().out == b"SOME PARTS"


async def test_recv_does_not_mind_a_command_that_reads_nothing(
    message: Message, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.setattr("tests.unit.cli.test_recv.PARTS", [bytes(65_536)] * 64)
    await answer("echo done", message)
    assert capfdbinary.readouterr().out == b"done\n"


class GivenUp(Long):
    """One whose source goes midway."""

    async def parts(self) -> AsyncIterator[bytes]:
        yield b"some "
        raise UnreachableError(3, "its source died", sent=True)


@pytest.mark.parametrize("command", [None, "cat"])
async def test_recv_goes_on_when_a_long_message_is_given_up(
    command: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    await take(GivenUp(3, "jobs", b"", False, 1), command, as_json=True)
    assert "not the whole message: " in capsys.readouterr().err
