"""No process is signalled but the one that was adopted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bmgd.errors import ControlError, NoDaemonError
from bmgd.trials.processes import Adopted

DEADLINE_S = 30.0


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, with a deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "node-0.log")


@pytest.fixture
def process(log: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, and writes its log to `log`."""
    with open(log, "wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"], stderr=file
        )
    yield started
    started.kill()
    started.wait()


def test_processes_a_signal_reaches_the_adopted_one(
    process: subprocess.Popen[bytes], log: str
) -> None:
    adopted = Adopted.of(process.pid, log)
    adopted.send(signal.SIGSTOP)
    until(adopted.is_stopped)
    adopted.send(signal.SIGCONT)
    until(lambda: not adopted.is_stopped())
    assert adopted.is_running()


def test_processes_one_that_logs_elsewhere_is_not_adopted(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with pytest.raises(ControlError, match="no daemon of this cluster"):
        Adopted.of(process.pid, str(tmp_path / "node-1.log"))


def test_processes_one_with_another_start_time_gets_no_signal(
    process: subprocess.Popen[bytes], log: str
) -> None:
    former = replace(Adopted.of(process.pid, log), started_ticks=1)
    with pytest.raises(ControlError, match="not the one"):
        former.send(signal.SIGKILL)
    assert process.poll() is None


def test_processes_one_that_has_ended_gets_no_signal(
    process: subprocess.Popen[bytes], log: str
) -> None:
    adopted = Adopted.of(process.pid, log)
    process.kill()
    until(lambda: not adopted.is_running())
    with pytest.raises(NoDaemonError):
        adopted.send(signal.SIGCONT)
    process.wait()
    with pytest.raises(NoDaemonError):
        Adopted.of(process.pid, log)


def test_processes_one_outside_the_container_is_not_adopted(
    process: subprocess.Popen[bytes],
) -> None:
    with pytest.raises(ControlError, match="not in container"):
        Adopted.of(process.pid, container="f" * 64)


def test_processes_this_test_itself_is_no_daemon(log: str) -> None:
    with pytest.raises(ControlError):
        Adopted.of(os.getpid(), log)
