"""How commands end whose work fails: before it begins where that is possible, and always with a line."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bmgd import cli
from bmgd.cli import chaos, demo, status
from bmgd.errors import LaunchError, NoDaemonError

LIMIT_S = 30.0


def test_closed_pipe_of_a_task_is_as_one_of_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(args: object) -> int:
        raise BaseExceptionGroup("outer", [ExceptionGroup("inner", [BrokenPipeError()])])

    monkeypatch.setattr("bmgd.cli.status.run", run)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.main(["status"]) == 1
        out.write("nobody reads it")
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.parametrize(("sent", "told"), [(True, {"sent": True}), (False, {})])
def test_error_in_json_says_where_the_daemon_may_have_done_what_was_asked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sent: bool,
    told: dict[str, bool],
) -> None:
    def run(args: object) -> int:
        raise NoDaemonError("it went away", sent=sent)

    monkeypatch.setattr("bmgd.cli.status.run", run)
    assert cli.main(["status", "--json"]) == 3
    out = json.loads(capsys.readouterr().out)
    assert out == {"error": "NoDaemonError", "text": "it went away", **told}


@pytest.mark.parametrize("words", [["programs", "--help"], ["secret", "new", "{}/secret"]])
def test_command_without_a_stdout_does_its_work(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "bmgd", *(word.format(tmp_path) for word in words)]
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def _without(closed: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a standard stream closed, as a shell does it."""
    command = [sys.executable, "-m", "bmgd", *words]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )


def test_command_without_a_stderr_tells_its_error_by_its_code_alone(tmp_path: Path) -> None:
    ended = _without("2>&-", "status", "--control", str(tmp_path / "none.sock"))
    assert (ended.returncode, ended.stdout) == (3, "")


@pytest.mark.parametrize(
    "words",
    [
        ["send", "1"],
        ["send", "1", "-"],
        ["send", "1", "--lines"],
        ["broadcast", "-"],
        ["request", "1"],
    ],
    ids=" ".join,
)
def test_command_that_reads_a_closed_stdin_says_so(tmp_path: Path, words: list[str]) -> None:
    with_daemon = [*words, "--control", str(tmp_path / "none.sock")]
    ended = _without("<&-", *with_daemon)
    name = words[0]
    if "--lines" in words:
        # It is read when there is a daemon.
        assert ended.returncode == 3
        return
    assert (ended.returncode, ended.stderr) == (2, f"bmgd {name}: standard input is closed\n")


def test_recv_takes_nothing_that_it_could_not_print(tmp_path: Path) -> None:
    ended = _without(">&-", "recv", "--control", str(tmp_path / "none.sock"))
    assert (ended.returncode, ended.stderr) == (2, "bmgd recv: standard output is closed\n")


def test_command_interrupted_while_it_is_loaded_ends_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert cli.main(["status"]) == 130


def test_command_whose_output_finds_no_room_says_so_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bmgd", "secret", "new", str(tmp_path / "secret")]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "bmgd secret: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "cannot write the output: File too large"),
        (errno.EIO, "cannot write the output: Input/output error"),
        (errno.EMFILE, "cannot open what it needs: Too many open files"),
    ],
)
def test_command_that_the_system_refuses_something_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, told: str
) -> None:
    def run(args: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("bmgd.cli.status.run", run)
    # Its output is given up, so it must not be that of the tests.
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        assert cli.main(["status"]) == 1
    assert (tmp_path / "err").read_text() == f"bmgd status: {told}\n"


def test_character_that_the_output_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(args: object) -> int:
        print("program \u8a08")
        return 0

    monkeypatch.setattr("bmgd.cli.status.run", run)
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    assert cli.main(["status"]) == 0
    assert shown.getvalue() == b"program \\u8a08\n"


def test_costs_of_a_process_that_is_not_told_are_not_those_of_the_command() -> None:
    assert status.costs_of(None) == "not to be seen from here"


def test_check_answers_unknown_to_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--colour"], ["--id", "x"], ["--timeout", "0"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *words])
        printed = capsys.readouterr()
        assert ended.value.code == 3
        assert printed.out.startswith("BMGD UNKNOWN: ")
        assert len(printed.out.splitlines()) == 1


def test_check_answers_in_json_to_wrong_arguments_where_json_is_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--colour", "--json"], ["--id", "x", "--json"], ["--json", "--timeout"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *words])
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (3, "")
        told = json.loads(printed.out)
        assert (told["state"], told["figures"]) == ("UNKNOWN", {})
        assert told["text"]


def test_chaos_refuses_a_history_that_cannot_be_written_before_the_trial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def trial(*_: object, **__: object) -> Any:
        raise AssertionError("the cluster is harmed in vain")

    monkeypatch.setattr(chaos, "_cluster", lambda args: None)
    monkeypatch.setattr(chaos, "_plan", lambda *_: SimpleNamespace())
    monkeypatch.setattr("bmgd.trials.runner.run_trial", trial)
    words = ["chaos", "--plan", "p", "--history", str(tmp_path / "none" / "h")]
    assert cli.main(words) == 2
    assert "--history" in capsys.readouterr().err


async def test_demo_ends_at_once_when_its_launcher_does() -> None:
    played = demo._Demo(3, "run", None, None, quiet=True)
    stdout = asyncio.StreamReader()
    stdout.feed_data(b'{"event": "listening", "id": 0}\n')
    stdout.feed_eof()
    launcher: Any = SimpleNamespace(stdout=stdout)
    async with asyncio.timeout(LIMIT_S):
        waiting = asyncio.ensure_future(played._until("up", 1))
        await played._read_events(launcher)
        with pytest.raises(LaunchError, match="launcher ended"):
            await waiting


@pytest.mark.parametrize("command", ["send", "request", "multicast", "broadcast", "recv"])
@pytest.mark.parametrize("topic", ["", "x" * 256, "\udcff"])
def test_bad_topic_is_a_bad_argument(command: str, topic: str) -> None:
    there = ["--control", "unix:/nowhere", "--topic", topic]
    words = {"recv": [], "broadcast": ["x"]}.get(command, ["1", "x"])
    with pytest.raises(SystemExit) as ended:
        cli.main([command, *words, *there])
    assert ended.value.code == 2


@pytest.mark.parametrize("digits", [20, 5000])
def test_node_id_of_many_digits_is_told_the_range(
    capsys: pytest.CaptureFixture[str], digits: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["ping", "9" * digits, "--control", "unix:/nowhere"])
    assert ended.value.code == 2
    assert "not a node id in 0.." in capsys.readouterr().err


TALKING = """
import os
import sys
from bmgd import cli
from bmgd.cli import ping, running

async def main():
    os.set_blocking(1, False)
    try:
        while True:
            os.write(1, bytes(65_536))
    except BlockingIOError:
        os.set_blocking(1, True)
    print("a line for which there is no room", flush=True)

ping.run = lambda args: running.run_async(main)
sys.exit(cli.main(["ping", "1", "--control", "unix:/nowhere"]))
"""


def test_command_whose_output_nobody_reads_ends_at_the_first_interruption() -> None:
    pipe = subprocess.PIPE
    # What is left in its buffer must not hold up its end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", TALKING]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=buffered) as talking:
        try:
            assert talking.stdout is not None
            assert talking.stderr is not None
            room = fcntl.fcntl(talking.stdout, fcntl.F_GETPIPE_SZ)
            until(lambda: waiting_bytes(talking.stdout) == room)
            talking.send_signal(signal.SIGINT)
            assert talking.wait(LIMIT_S) == 130
            assert talking.stderr.read() == b""
        finally:
            talking.kill()


def waiting_bytes(pipe: Any) -> int:
    """How much of a pipe is not read."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    limit_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit_s
        time.sleep(0.01)
