"""What `bmgd recv` prints of a message that is too long to be held, and gives to a command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bmgd.cli.answering import answer
from bmgd.cli.received_file import received_file
from bmgd.cli.recv import show, take
from bmgd.client import Message
from bmgd.client.arguments import Payload
from bmgd.errors import RequestError, UnreachableError
from tests.integration.cluster import until_true
from tests.processes import started
from tests.unit.fake_core import FakeCore, fake_daemon

DEADLINE_S = 30.0
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


class Asked(Message):
    """One that is a request."""

    is_request = True


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


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ("aäö€".encode(), ["a", "ä", "ö", "€"]),
        (b"a\xe2\x82", ["a", {"hex": "e282"}]),
        (b"\xff\xfeab", [{"hex": "ff"}, {"hex": "fe"}, "a", "b"]),
    ],
)
async def test_recv_prints_no_part_of_a_character_as_json(
    message: Message,
    parts: bytes,
    told: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    single = [bytes([each]) for each in parts]
    monkeypatch.setattr("tests.unit.cli.test_recv.PARTS", single)
    await show(message, as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["part"] for row in rows] == told
    lengths = [len(_bytes_of(row["part"])) for row in rows]
    assert [row["at"] for row in rows] == [sum(lengths[:i]) for i in range(len(rows))]
    assert b"".join(_bytes_of(row["part"]) for row in rows) == parts


def _bytes_of(part: str | dict[str, str]) -> bytes:
    return part.encode() if isinstance(part, str) else bytes.fromhex(part["hex"])


@pytest.mark.parametrize(
    ("message", "unusual"),
    [
        (Message(3, "jobs", b"x", False, 1), {}),
        (Message(3, "jobs", b"x", False, 1, True), {"redelivered": True}),
        (Message(3, "jobs", b"x", True, 1), {"broadcast": True}),
        (Asked(3, "jobs", b"x", False, 1), {"request": True}),
    ],
)
async def test_recv_tells_in_json_what_is_unusual_of_a_message(
    message: Message, unusual: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    await show(message, as_json=True)
    row = json.loads(capsys.readouterr().out)
    assert row == {"source": 3, "topic": "jobs", **unusual, "payload": "x"}


async def test_recv_tells_its_command_the_source_and_the_topic(
    message: Message, capfdbinary: Any
) -> None:
    await answer("echo $MESSAGE_SOURCE $MESSAGE_TOPIC", message, as_json=False)
    assert capfdbinary.readouterr().out == b"3 jobs\n"


async def test_recv_gives_a_long_message_to_its_command(message: Message, capfdbinary: Any) -> None:
    await answer("tr a-z A-Z", message, as_json=False)
    assert capfdbinary.readouterr().out == b"SOME PARTS"


async def test_recv_prints_the_output_of_its_command_as_json(
    message: Message, capsys: pytest.CaptureFixture[str]
) -> None:
    await take(message, "tr a-z A-Z", as_json=True)
    row = json.loads(capsys.readouterr().out)
    assert row == {"source": 3, "topic": "jobs", "output": "SOME PARTS"}


async def test_recv_does_not_mind_a_command_that_reads_nothing(
    message: Message, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.setattr("tests.unit.cli.test_recv.PARTS", [bytes(65_536)] * 64)
    await answer("echo done", message, as_json=False)
    assert capfdbinary.readouterr().out == b"done\n"


async def test_recv_ends_a_command_that_prints_more_than_is_kept(
    message: Message, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also one that reads nothing of a message that does not fit into its pipe."""
    monkeypatch.setattr("tests.unit.cli.test_recv.PARTS", [bytes(65_536)] * 64)
    monkeypatch.setattr("bmgd.cli.answering.KEPT_BYTES_MAX", 200_000)
    async with asyncio.timeout(DEADLINE_S):
        await answer("yes", message, as_json=False)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "bmgd recv: 'yes' was ended: it has printed more than 200000 bytes\n")


class Question(Long):
    """One that is a request, and remembers why it got no answer."""

    is_request = True
    refused = ""

    async def refuse(self, text: str = "", timeout: float = 10.0) -> None:  # noqa: ASYNC109
        self.refused = text


async def test_recv_refuses_a_request_whose_command_prints_more_than_an_answer_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmgd.client.requesting.MAX_ANSWER", 200_000)
    question = Question(3, "rpc", b"", False, 1)
    async with asyncio.timeout(DEADLINE_S):
        await answer("yes", question, as_json=False)
    assert question.refused == "'yes' was ended: it has printed more than 200000 bytes"


class Outdated(Long):
    """A request of which nobody waits for the answer any more."""

    is_request = True

    async def reply(self, payload: Payload, *, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        raise RequestError("an answer to a question that is not known any more")


async def test_recv_goes_on_where_an_answer_comes_too_late(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await take(Outdated(3, "rpc", b"", False, 1), "cat", as_json=False)
    assert "not known any more" in capsys.readouterr().err


class GivenUp(Long):
    """One whose source goes midway."""

    async def parts(self) -> AsyncIterator[bytes]:
        yield b"some "
        raise UnreachableError(3, "its source died", sent=True)


@pytest.mark.parametrize("command", [None, "cat"])
async def test_recv_ends_the_command_of_a_long_message_that_is_given_up(
    command: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = noted(monkeypatch)
    with pytest.raises(UnreachableError, match="its source died"):
        await take(GivenUp(3, "jobs", b"", False, 1), command, as_json=True)
    assert len(begun) == (command is not None)
    assert are_over(begun)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    """The commands that are started from now on."""
    begun, begin = [], asyncio.create_subprocess_shell

    async def note(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        begun.append(await begin(*words, **options))
        return begun[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_shell", note)
    return begun


def are_over(begun: list[asyncio.subprocess.Process]) -> bool:
    """Whether nothing of these commands is left in the loop, which may be closed."""
    transports: list[Any] = [process._transport for process in begun]  # type: ignore[attr-defined]
    ended = all(process.returncode is not None for process in begun)
    return ended and all(each.is_closing() for each in transports) and len(asyncio.all_tasks()) == 1


async def test_recv_that_is_cancelled_waits_for_the_end_of_its_command(
    message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = noted(monkeypatch)
    answering = asyncio.create_task(answer("cat; sleep 1000", message, as_json=False))
    await until_true("it runs", lambda: bool(begun))
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert are_over(begun)


async def test_recv_that_is_cancelled_ends_what_its_command_left_in_the_background(
    message: Message, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    command = f"sleep 1000 & echo $! >{pid}.new; mv {pid}.new {pid}; cat"
    answering = asyncio.create_task(answer(command, message, as_json=False))
    async with asyncio.timeout(DEADLINE_S):
        await until_true("it runs in the background", pid.exists)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        await until_true("it has ended", lambda: not _runs(int(pid.read_text())))


def _runs(pid: int) -> bool:
    """Whether a process runs: one that has ended waits for nobody here."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_recv_does_not_wait_for_what_has_left_the_group_of_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = noted(monkeypatch)
    pid = tmp_path / "pid"

    class GivenUpLater(GivenUp):
        async def parts(self) -> AsyncIterator[bytes]:
            await until_true("it has left the group", pid.exists)
            async for part in super().parts():
                yield part

    # It holds the output open.
    command = f"setsid sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000' & cat"
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(UnreachableError, match="its source died"):
                await take(GivenUpLater(3, "jobs", b"", False, 1), command, as_json=True)
        assert begun[0].returncode is not None
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
        # Else its pipe is closed in the midst of another test.
        begun[0]._transport.close()  # type: ignore[attr-defined]


@asynccontextmanager
async def receiving(
    core: FakeCore, *words: str, stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    command = sys.executable, "-m", "bmgd", "recv", "--control", core.address, *words
    async with (
        started(*command, stdout=stdout, preexec_fn=_take_hangups) as process,
        asyncio.timeout(DEADLINE_S),
    ):
        yield process


def _take_hangups() -> None:
    """As in a terminal, also where the tests run under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    async with fake_daemon(tmp_path / "d.sock") as fake:
        yield fake


async def test_recv_leaves_what_it_could_not_print_to_the_next_reader(core: FakeCore) -> None:
    read_end, write_end = os.pipe()
    out = os.fdopen(read_end, "rb")
    async with receiving(core, stdout=write_end) as process:
        os.close(write_end)
        core.put(b"1", b"2", b"3")
        for line in (b"1\n", b"2\n", b"3\n"):
            assert await asyncio.to_thread(out.readline) == line
        # As `| head -3` does.
        out.close()
        await core.until_told(lambda: not core.unconsumed)
        core.put(b"4", b"5")
        assert await process.wait() == 1
        await core.until_told(lambda: core.reader is None)
    assert list(core.waiting) == [b"4", b"5"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_recv_that_is_ended_ends_its_command(
    core: FakeCore, tmp_path: Path, number: signal.Signals
) -> None:
    # Whoever has the write end of a FIFO open lives: the command's own children too.
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with os.fdopen(alive, "rb") as pipe:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        command = f"exec >{tmp_path}/alive; echo here; sleep 1000; true"
        async with receiving(core, "--reply", command) as process:
            core.put(b"1")
            assert await reader.readline() == b"here\n"
            process.send_signal(number)
            assert await process.wait() == 128 + number
            assert await reader.read() == b""
            await core.until_told(lambda: core.reader is None)
        transport.close()
    assert list(core.waiting) == [b"1"]


async def test_recv_goes_on_when_its_terminal_ends_where_that_is_ignored(core: FakeCore) -> None:
    """As `nohup` does it."""
    command = (
        sys.executable,
        "-m",
        "bmgd",
        "recv",
        "--control",
        core.address,
        "--reply",
        "echo here",
    )
    ignoring = "sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command
    async with (
        started(*ignoring, stdout=asyncio.subprocess.PIPE) as process,
        asyncio.timeout(DEADLINE_S),
    ):
        assert process.stdout is not None
        core.put(b"1")
        assert await process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGHUP)
        core.put(b"2")
        assert await process.stdout.readline() == b"here\n"
        process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM


def test_received_file_may_have_as_long_a_name_as_any(tmp_path: Path) -> None:
    name = "\u20ac" * 84
    with received_file(tmp_path / name) as file:
        file.write(b"whole")
        file.keep()
    assert (tmp_path / name).read_bytes() == b"whole"
