"""A joiner that waits for its first id: signals do what they do later, or say that they cannot yet."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import until_true
from tests.integration.ports import free_base_port
from tests.processes import started

DEADLINE_S = 30.0
ANSWERS = {
    signal.SIGUSR1: "waits for its first id",
    signal.SIGUSR2: "nothing is recorded before the first id",
    signal.SIGHUP: "reload",
}


def joiner(contact: str, port: int, state_dir: Path) -> list[str]:
    """The command of a daemon that joins through a contact."""
    words = [sys.executable, "-m", "bmgd", "run", "--join", contact]
    return [*words, "--listen", f"127.0.0.1:{port}", "--state-dir", str(state_dir)]


@asynccontextmanager
async def waiting(
    tmp_path: Path, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A joiner whose contact is not there, and its log."""
    contact = free_base_port(2)
    words = joiner(f"{host}:{contact}", contact + 1, tmp_path)
    async with (
        asyncio.timeout(DEADLINE_S),
        started(*words, stderr=asyncio.subprocess.PIPE) as process,
    ):
        assert process.stderr is not None
        yield process, process.stderr


async def _line_with(log: asyncio.StreamReader, text: str) -> None:
    while text not in (line := (await log.readline()).decode()):
        assert line, f"it ended, and never said {text!r}"


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_joiner_without_an_id_answers_signals_and_ends_well(
    tmp_path: Path, ending: signal.Signals
) -> None:
    async with waiting(tmp_path) as (process, log):
        await _line_with(log, "not joined")
        for number, answer in ANSWERS.items():
            process.send_signal(number)
            await _line_with(log, answer)
        process.send_signal(ending)
        await _line_with(log, "ended without an id")
        assert await process.wait() == 0


def _holds_back(pid: int, number: signal.Signals) -> bool:
    """Whether a process has blocked a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    (blocked,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    return bool(int(blocked, 16) >> (number - 1) & 1)


async def test_signals_that_come_while_a_daemon_begins_wait_until_it_hears_them(
    tmp_path: Path,
) -> None:
    async with waiting(tmp_path) as (process, log):
        await until_true("it holds signals back", lambda: _holds_back(process.pid, signal.SIGHUP))
        for number in ANSWERS:
            process.send_signal(number)
        said = ""
        while not all(answer in said for answer in ANSWERS.values()):
            said += (line := (await log.readline()).decode())
            assert line, f"it ended, and said {said!r}"
        assert not any(_holds_back(process.pid, number) for number in ANSWERS)


async def test_joiner_says_that_the_name_of_its_contact_is_not_found(tmp_path: Path) -> None:
    async with waiting(tmp_path, "a..b") as (_, log):
        await _line_with(log, ": its name was not found: not a name")
