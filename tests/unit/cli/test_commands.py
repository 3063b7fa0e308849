"""Every command against a fake daemon: what it prints, and its exit code; never a traceback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import bmgd
from bmgd.cli import COMMANDS, bench, exit_code_of, main, monitor
from bmgd.core.commands import Command, Leave, OpenStream, PutSegment
from bmgd.core.effects import Deliver, Observed, StreamEnded, StreamMoved
from bmgd.errors import (
    ConfigError,
    DeadError,
    GraphError,
    LaunchError,
    NoDaemonError,
    SilentDaemonError,
    UnreachableError,
)
from bmgd.types import Incarnation, NodeId, Status
from tests.unit.fake_core import CREDIT_BYTES, FakeCore, fake_daemon, serving

DEADLINE_S = 30.0
SHOWS_4096 = Path("/sys/class/net/lo/mtu")
"""A file of the kernel, which shows a size that it does not have."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


async def run(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
    """Run a command as a process; whatever it does, it shows no traceback."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bmgd", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    ran = Ran(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in ran.err
    return ran


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    async with fake_daemon(tmp_path / "node-0.sock") as fake:
        yield fake


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    nodes = [
        {"id": 0, "pid": 1, "address": "a:1", "control": f"unix:{tmp_path}/node-0.sock"},
        {"id": 1, "pid": None, "address": "a:2", "control": f"unix:{tmp_path}/node-1.sock"},
        {"id": 2, "pid": 1, "address": "a:3", "control": f"unix:{tmp_path}/node-2.sock"},
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": "c", "size": 3, "nodes": nodes}))
    return tmp_path


# --- what works -----------------------------------------------------------------------------------


async def test_json_of_every_command_that_asks(core: FakeCore) -> None:
    there = ("--control", core.address, "--json")
    assert (await run("status", *there)).json()["state"] == "ready"
    assert len((await run("members", *there)).json()) == 3
    assert (await run("links", *there)).json()[0]["dialled_by"] == 1
    assert (await run("send", "1", "hello", "--topic", "t", *there)).json()["bytes"] == 5
    assert (await run("ping", "1", *there)).json()["rtt_ms"] == pytest.approx(0.0015)
    assert (await run("trace", "2", *there)).json()["path"] == [0, 2]


async def test_text_of_commands(core: FakeCore) -> None:
    there = ("--control", core.address)
    assert (await run("trace", "2", *there)).out.startswith("0 -> 2  (1 hop, ")
    assert (await run("ping", "1", "--count", "3", *there)).out.count("node 1:") == 3
    assert "127.0.0.1:7402" in (await run("members", *there)).out


async def test_a_daemon_of_a_run_dir(core: FakeCore, run_dir: Path) -> None:
    ran = await run("links", "--run-dir", str(run_dir), "--id", "0", "--json")
    assert ran.code == 0


async def test_a_payload_from_stdin(core: FakeCore) -> None:
    there = ("--control", core.address)
    assert (await run("send", "1", "-", *there, stdin=bytes(65_536))).code == 0
    longer = await run("send", "1", *there, stdin=bytes(65_537))
    assert longer.code == 0
    sizes = [put.size for _, put in core.told if isinstance(put, PutSegment)]
    assert sizes == [0, 65_537, 65_537]


async def test_send_of_a_file_and_of_lines(core: FakeCore, tmp_path: Path) -> None:
    there = ("--control", core.address)
    (tmp_path / "some").write_bytes(bytes(100_000))
    (tmp_path / "none").write_bytes(b"")
    for name, size in (("some", 100_000), ("none", 0)):
        ran = await run("send", "1", "--file", str(tmp_path / name), "--json", *there)
        assert (ran.code, ran.json()["bytes"]) == (0, size)
    ran = await run("send", "1", "--file", str(SHOWS_4096), "--json", *there)
    assert ran.code == 0
    assert 0 < ran.json()["bytes"] < 4096
    for name, why in (("gone", "No such file"), ("", "Is a directory")):
        refused = await run("send", "1", "--file", str(tmp_path / name), *there)
        assert refused.code == 2
        assert why in refused.err
    ran = await run("send", "1", "--lines", "--json", *there, stdin=b"a\nbb\n\nccc")
    assert ran.code == 0
    assert (ran.json()["messages"], ran.json()["bytes"]) == (4, 6)
    both = await run("send", "1", "x", "--lines", *there)
    assert both.code == 2


async def test_recv_takes_no_more_than_it_prints(core: FakeCore) -> None:
    core.put(b"one", b"two", b"three")
    ran = await run("recv", "--topic", "jobs", "--count", "2", "--control", core.address)
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert list(core.waiting) == [b"three"]


async def test_recv_prints_json_whatever_the_bytes(core: FakeCore) -> None:
    core.put(b"text", b"\xff")
    ran = await run("recv", "--topic", "jobs", "--count", "2", "--json", "--control", core.address)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["payload"] for row in rows] == ["text", {"hex": "ff"}]


def begin_a_long_message_and_give_it_up(core: FakeCore) -> None:
    """What its reader gets of it: a piece, and then that no other one comes."""
    assert core.reader is not None
    about = (core.reader, NodeId(9), Incarnation(1), "jobs", 0)
    core.server.answers.deliver(Deliver(*about, bytes(9), long=1, size=100 << 20))
    core.server.answers.deliver(Deliver(*about, b"", long=1, aborted="its source aborted it"))


async def test_recv_of_so_many_fails_at_a_message_that_does_not_come_whole(core: FakeCore) -> None:
    words = ("recv", "--topic", "jobs", "--count", "1", "--json", "--control", core.address)
    receiving = asyncio.ensure_future(run(*words))
    await core.until_told(lambda: core.reader is not None)
    begin_a_long_message_and_give_it_up(core)
    ran = await receiving
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 4
    assert rows[-1]["error"] == "UnreachableError"
    assert "its source aborted it" in rows[-1]["text"]
    assert "its source aborted it" in ran.err


async def test_recv_goes_on_after_a_message_that_does_not_come_whole(core: FakeCore) -> None:
    process = await start("recv", "--topic", "jobs", "--json", "--control", core.address)
    await core.until_told(lambda: core.reader is not None)
    begin_a_long_message_and_give_it_up(core)
    core.put(b"next")
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        while b'"payload":"next"' not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert b"not the whole message: node 9: its source aborted it" in err


def contents(directory: Path) -> dict[str, bytes]:
    """What is in the files of a directory, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


async def test_recv_writes_a_message_to_a_file_byte_for_byte(
    core: FakeCore, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"what was there before, and is longer")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    core.put(b"\x00one\n", b"two")
    there = ("recv", "--topic", "jobs", "--json", "--control", core.address)
    ran = await run(*there, "--file", str(link))
    assert (ran.code, ran.json()) == (
        0,
        {"source": 9, "topic": "jobs", "file": str(link), "bytes": 5},
    )
    assert path.read_bytes() == b"\x00one\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "who could not read it cannot now"
    assert set(contents(tmp_path)) == {"file", "link"}
    assert link.is_symlink()
    ran = await run("recv", "--topic", "jobs", "--control", core.address, "--file", "/dev/stdout")
    assert (ran.code, ran.out) == (0, "two")


async def test_recv_takes_nothing_where_it_cannot_write_the_file(
    core: FakeCore, tmp_path: Path
) -> None:
    core.put(b"one")
    there = ("recv", "--topic", "jobs", "--control", core.address)
    for name, why in (("none/file", "No such file"), ("", "Is a directory")):
        refused = await run(*there, "--file", str(tmp_path / name))
        assert refused.code == 2
        assert why in refused.err
    assert (await run(*there, "--file", "f", "--count", "2")).code == 2
    assert (await run(*there, "--file", "f", "--reply", "cat")).code == 2
    full = await run(*there, "--file", "/dev/full")
    assert full.code == 1
    assert "--file /dev/full cannot be written: No space left on device" in full.err
    await core.until_told(lambda: core.reader is None)
    assert list(core.waiting) == [b"one"]


@pytest.mark.parametrize("ends", ["torn", "late", "ended"])
async def test_recv_leaves_no_part_of_a_message_in_a_file(
    ends: str, core: FakeCore, tmp_path: Path
) -> None:
    path = tmp_path / "here" / "file"
    path.parent.mkdir()
    path.write_bytes(b"before")
    there = ("recv", "--topic", "jobs", "--control", core.address, "--file", str(path))
    process = await start(*there, "--timeout", "0.3" if ends == "late" else "60")
    if ends != "late":
        await core.until_told(lambda: core.reader is not None)
    if ends == "torn":
        begin_a_long_message_and_give_it_up(core)
    if ends == "ended":
        process.terminate()
    async with asyncio.timeout(DEADLINE_S):
        await process.communicate()
    assert process.returncode == (128 + signal.SIGTERM if ends == "ended" else 4)
    assert contents(path.parent) == {"file": b"before"}


async def test_recv_ends_partial_at_its_timeout(core: FakeCore) -> None:
    core.put(b"one")
    words = ("recv", "--topic", "jobs", "--count", "2", "--timeout", "0.3")
    ran = await run(*words, "--control", core.address)
    assert (ran.code, ran.out) == (4, "one\n")
    assert "1 of 2" in ran.err


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("send", "3", "x"), 1, "it is dead"),
        (("send", "4", "x"), 4, "no way was found"),
        (("send", "5", "x"), 1, "is full"),
        (("send", "6", "x"), 1, "no node has the id 6"),
        (("send", "7", "x", "--topic", "x" * 256), 2, "255"),
        (("send", "minus", "x"), 2, "not a node id"),
        (("send", "-1", "x"), 2, "usage"),
        (("send", str(2**31), "x"), 2, "not a node id"),
        (("send", "²", "x"), 2, "not a node id"),
        (("send", "1", "x", "--timeout", "0"), 2, "seconds"),
        (("send", "1", "x", "--timeout", "nan"), 2, "seconds"),
        (("send",), 2, "required"),
        (("ping", "1", "--count", "0"), 2, "whole number"),
        (("recv", "--topic", "taken"), 1, "too many"),
        (("status", "--colour"), 2, "unrecognized"),
    ],
)
async def test_errors_are_one_line_and_a_code(
    core: FakeCore, words: tuple[str, ...], code: int, part: str
) -> None:
    ran = await run(*words, "--control", core.address)
    assert ran.code == code
    assert part in ran.err
    assert len(ran.err.splitlines()) == 1 or ran.err.startswith("usage")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ("send", "3", "x"),
            1,
            {"error": "DeadError", "text": "node 3: it is dead", "sent": False},
        ),
        (
            ("send", "4", "x"),
            4,
            {
                "error": "UnreachableError",
                "text": "node 4: no way was found before the deadline",
                "sent": False,
            },
        ),
        (("send", "6", "x"), 1, {"error": "RequestError", "text": "no node has the id 6"}),
        (
            ("recv", "--topic", "taken"),
            1,
            {"error": "RequestError", "text": "too many subscriptions"},
        ),
    ],
)
async def test_error_of_a_command_with_json_is_json_on_stdout(
    core: FakeCore, words: tuple[str, ...], code: int, told: object
) -> None:
    plain = await run(*words, "--control", core.address)
    ran = await run(*words, "--control", core.address, "--json")
    assert (ran.code, ran.json(), len(ran.out.splitlines())) == (code, told, 1)
    assert (plain.code, plain.out, plain.err) == (code, "", ran.err)


async def test_error_before_a_daemon_is_asked_is_json_too(core: FakeCore, tmp_path: Path) -> None:
    nowhere = f"unix:{tmp_path}/none.sock"
    for words in (("status",), ("multicast", "1", "x"), ("kill",), ("monitor",)):
        ran = await run(*words, "--control", nowhere, "--json")
        assert (ran.code, ran.json()["error"]) == (3, "NoDaemonError")
        assert ran.json()["text"].startswith("no daemon at ")
    ran = await run("grow", "1", "--run-dir", str(tmp_path), "--json")
    assert (ran.code, sorted(ran.json())) == (3, ["error", "text"])
    ran = await run("status", "--json")
    assert (ran.code, ran.json()["error"]) == (2, "ConfigError")
    # What the parser refuses is text only.
    ran = await run("send", "minus", "x", "--json", "--control", core.address)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    "words",
    [
        ("send", "1", "x"),
        ("request", "1", "x"),
        ("multicast", "1", "x"),
        ("broadcast", "x"),
        ("ping", "1"),
        ("trace", "1"),
        ("drain",),
        ("leave",),
        ("kill",),
        ("evict", "1"),
        ("record",),
    ],
    ids=lambda words: words[0],
)
async def test_daemon_that_is_stopped_ends_a_command_in_its_time(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(f"{tmp_path}/d.sock")
        stopped.listen()
        ran = await run(*words, "--control", f"unix:{tmp_path}/d.sock", "--timeout", "0.05")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err == f"bmgd {words[0]}: the daemon has not answered 'hello' for 0.05 s\n"


class Staying(FakeCore):
    """Does not answer when it is told to leave."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.told_to_leave = asyncio.Event()

    def issue(self, request: int, command: Command) -> None:
        if isinstance(command, Leave):
            self.told_to_leave.set()
        else:
            super().issue(request, command)


async def test_leave_ends_in_its_time_where_the_daemon_does_not(tmp_path: Path) -> None:
    async with serving(Staying(tmp_path / "d.sock")) as core:
        ran = await run("leave", "--control", core.address, "--timeout", "2")
    assert (ran.code, ran.out) == (4, "")
    assert "has not ended in 2 s" in ran.err


async def test_daemon_that_does_not_greet_was_asked_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(f"{tmp_path}/d.sock")
        stopped.listen()
        there = ("--control", f"unix:{tmp_path}/d.sock", "--timeout", "0.05", "--json")
        ran = await run("send", "1", "x", *there)
    # Where it is true it stands beside the error: sending again would not be safe.
    assert (ran.code, sorted(ran.json())) == (4, ["error", "text"])


class Losing(FakeCore):
    """Confirms two messages, and then says that their destination is dead."""

    def put_segment(self, request: int, command: PutSegment) -> None:
        self.server.answers.stream_moved(StreamMoved(request, 2, CREDIT_BYTES))
        self.server.answers.stream_ended(
            StreamEnded(request, 2, 2, error=DeadError(1, "it is dead"))
        )


async def test_send_lines_in_json_says_how_many_are_confirmed(tmp_path: Path) -> None:
    async with serving(Losing(tmp_path / "d.sock")) as core, asyncio.timeout(DEADLINE_S):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bmgd", "send", "1", "--lines", "--json"),
            *("--control", core.address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        # More lines may come.
        process.stdin.write(b"one\ntwo\n")
        assert await process.wait() == 1
        out, err = await process.communicate()
    told = json.loads(out)
    assert (told["error"], told["messages"], told["confirmed"]) == ("DeadError", 2, 2)
    assert b"the first 2 of 2 lines are confirmed" in err


@pytest.mark.parametrize("words", [("broadcast", "-"), ("multicast", "1", "-")])
async def test_payload_that_is_too_long_for_best_effort_says_so(
    core: FakeCore, words: tuple[str, ...]
) -> None:
    ran = await run(*words, "--best-effort", "--control", core.address, stdin=bytes(70_000))
    assert (ran.code, ran.out) == (1, "")
    assert "more than 65536 bytes, the most that fit by best effort" in ran.err


async def test_interrupted_drain_says_that_it_goes_on(tmp_path: Path) -> None:
    async with serving(Staying(tmp_path / "d.sock")) as core:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bmgd", "drain", "--control", core.address),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            await core.told_to_leave.wait()
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
    assert process.returncode == 130
    assert b"the daemon goes on draining" in err


async def test_error_in_json_that_nobody_reads_is_told_on_stderr(core: FakeCore) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = ("send", "3", "x", "--json", "--control", core.address)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bmgd", *words), stdout=write_end, stderr=asyncio.subprocess.PIPE
    )
    os.close(write_end)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert (process.returncode, err) == (1, b"bmgd send: node 3: it is dead\n")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("--id", "3"), 2, "out of range"),
        (("--id", "1"), 3, "not running"),
        (("--id", "2"), 3, "no daemon at"),
        ((), 2, "which daemon"),
        (("--id", "0", "--control", "unix:/x"), 2, "either"),
    ],
)
async def test_which_daemon(run_dir: Path, words: tuple[str, ...], code: int, part: str) -> None:
    for command in (("status",), ("kill", "--hard"), ("send", "1", "x")):
        ran = await run(*command, "--run-dir", str(run_dir), *words)
        assert (ran.code, len(ran.err.splitlines())) == (code, 1)
        assert part in ran.err


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"nodes": [{"id": "x"}]}', '{"nodes": 3}'])
async def test_a_damaged_cluster_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    ran = await run("status", "--run-dir", str(tmp_path), "--id", "0")
    assert ran.code == 2
    assert "not the file of a launcher" in ran.err


async def test_no_daemon_there(tmp_path: Path) -> None:
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(dead))
    for words in (
        ("--control", f"unix:{tmp_path}/none.sock"),
        ("--control", f"unix:{dead}"),
        ("--run-dir", str(tmp_path), "--id", "0"),
    ):
        for command in (("status",), ("leave",), ("kill",), ("kill", "--hard"), ("monitor",)):
            ran = await run(*command, *words)
            assert (ran.code, len(ran.err.splitlines())) == (3, 1)
    for asked in (("launch", "--restart", "1"), ("restart", "1"), ("grow", "1")):
        ran = await run(*asked, "--run-dir", str(tmp_path))
        assert (ran.code, len(ran.err.splitlines())) == (3, 1)


@pytest.mark.parametrize("address", ["x", "unix:", "tcp:1.2.3.4:5", "unix:/" + "x" * 200])
async def test_a_control_address_that_cannot_be_used(address: str) -> None:
    assert (await run("status", "--control", address)).code == 2


RUN = ("run", "--id", "0", "--size", "2", "--peers", "127.0.0.1:{7400+id}")


@pytest.mark.parametrize(
    ("words", "env", "toml", "part"),
    [
        (("run",), {}, "", "--id is missing"),
        ((*RUN, "--id", "2"), {}, "", "out of range"),
        ((*RUN, "--size", "0"), {}, "", "--size"),
        ((*RUN, "--peers", "/none"), {}, "", "/none"),
        ((*RUN, "--listen", "0.0.0.0:7400"), {}, "", "without a secret"),
        ((*RUN, "--healing", "no"), {}, "", "--healing"),
        ((*RUN, "--control", "unix:/" + "x" * 107), {}, "", "107"),
        ((*RUN, "--colour", "red"), {}, "", "unrecognized"),
        (RUN, {"BMGD_COLOUR": "red"}, "", "BMGD_COLOUR"),
        (RUN, {"BMGD_TIMING_ASK_MS": "soon"}, "", "BMGD_TIMING_ASK_MS"),
        (RUN, {}, "cluster = ", "not TOML"),
        (RUN, {}, "colour = 3", "unknown key"),
        (RUN, {}, "[timing]\ncolour = 3", "unknown key"),
        (RUN, {"BMGD_BACKEND": "fortran"}, "", "BMGD_BACKEND"),
        (("launch",), {}, "", "-n N"),
        (("launch", "-n", "x"), {}, "", "-n"),
        (("launch", "-n", "0"), {}, "", "-n must be in 1.."),
        (("sim", "--nodes", "0"), {}, "", "--nodes must be in 1.."),
        (("sim", "--nodes", "99999999"), {}, "", "--nodes must be in 1.."),
        (("grow", "0"), {}, "", "whole number"),
        (("restart", "x"), {}, "", "not a node id"),
        (("launch", "-n", "2", "--base-port", "x"), {}, "", "--base-port"),
        (("launch", "-n", "2", "--restart", "1"), {}, "", "either"),
        (("launch", "-n", "2", "--healing", "no"), {}, "", "--healing"),
        (("launch", "-n", "2"), {}, "colour = 3", "unknown key"),
        (("demo", "-n", "2"), {}, "", "invalid choice"),
        (("demo", "--rounds", "2"), {}, "", "--rounds goes with --http"),
        (("replay", "--step", "12345678901", "/none"), {}, "", "cannot read /none"),
        (("replay", "--step", "0", "/none"), {}, "", "not the number of a step"),
    ],
)
async def test_usage(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str], toml: str, part: str
) -> None:
    path = tmp_path / "bmgd.toml"
    path.write_text(toml)
    more: tuple[str, ...] = ("--config", str(path)) if words[0] in ("run", "launch") else ()
    more += ("--run-dir", str(tmp_path / "run")) if words[0] == "launch" else ()
    ran = await run(*words, *more, env=env)
    assert ran.code == 2
    assert part in ran.err


@pytest.mark.parametrize("words", [(), ("dance",), ("--colour",)])
async def test_no_such_command(words: tuple[str, ...]) -> None:
    assert (await run(*words)).code == 2


async def test_version_and_help() -> None:
    assert (await run("--version")).out == f"bmgd {bmgd.__version__}\n"
    ran = await run("--help")
    assert all(command in ran.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
async def test_help_of_every_command(command: str) -> None:
    ran = await run(command, "--help")
    assert (ran.code, ran.out.startswith(f"usage: bmgd {command}")) == (0, True)


def test_exit_codes_of_errors() -> None:
    errors = {
        ConfigError("x"): 2,
        GraphError("x"): 2,
        NoDaemonError("x"): 3,
        SilentDaemonError("x"): 4,
        UnreachableError(1, "x"): 4,
        DeadError(1, "x"): 1,
        LaunchError("x"): 1,
    }
    assert [exit_code_of(error) for error in errors] == list(errors.values())


# --- rough hands ----------------------------------------------------------------------------------


async def start(*words: str, stdin: int | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bmgd", *words),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None
    return await process.stderr.read()


async def test_ctrl_c_shows_no_traceback(core: FakeCore) -> None:
    process = await start("recv", "--topic", "jobs", "--control", core.address)
    await core.until_told(lambda: core.reader is not None)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")


async def test_ctrl_c_ends_a_send_whose_stdin_is_idle(core: FakeCore) -> None:
    words = ("send", "1", "--lines", "--control", core.address)
    process = await start(*words, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"a\nb")
    await core.until_told(lambda: any(isinstance(told, PutSegment) for _, told in core.told))
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        assert (await process.wait(), await read(process)) == (130, b"")


async def test_send_of_lines_ends_with_its_destination_though_no_line_comes(core: FakeCore) -> None:
    words = ("send", "1", "--lines", "--control", core.address)
    process = await start(*words, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"a\nb\n")
    await core.until_told(lambda: any(isinstance(told, PutSegment) for _, told in core.told))
    ((request, segments),) = core.streams.items()
    following = len(segments) + 1
    dead = DeadError(1, "it is dead")
    core.server.answers.stream_ended(StreamEnded(request, following, following, dead))
    async with asyncio.timeout(DEADLINE_S):
        err = (await read(process)).decode().splitlines()
        assert await process.wait() == 1
    confirmed = sum(put.count for put in segments)
    assert err == [
        f"bmgd send: the first {confirmed} of {confirmed} lines are confirmed",
        "bmgd send: node 1: it is dead",
    ]


async def test_send_of_lines_says_from_where_to_send_again(core: FakeCore) -> None:
    core.holds_back = True
    lines = b"".join(b"%d\n" % number for number in range(30_000))
    words = ("send", "1", "--lines", "--control", core.address)
    process = await start(*words, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(lines)
    process.stdin.close()
    await core.until_told(
        lambda: sum(put.count for puts in core.streams.values() for put in puts) == 30_000
    )
    ((request, segments),) = core.streams.items()
    assert len(segments) > 1
    core.server.answers.stream_ended(StreamEnded(request, 2, 2, DeadError(1, "it is dead")))
    async with asyncio.timeout(DEADLINE_S):
        err = (await read(process)).decode()
        assert await process.wait() == 1
    assert f"the first {segments[0].count:,} of 30,000 lines are confirmed" in err


@pytest.mark.parametrize("size", [1_000, 1_000_000])
async def test_ctrl_c_ends_a_send_of_a_file(core: FakeCore, tmp_path: Path, size: int) -> None:
    (tmp_path / "some").write_bytes(bytes(size))
    process = await start("send", "7", "--file", str(tmp_path / "some"), "--control", core.address)
    await core.until_told(lambda: any(isinstance(told, OpenStream) for _, told in core.told))
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        assert (await process.wait(), await read(process)) == (130, b"")


@pytest.mark.parametrize("size", [1_000, 1_000_000])
async def test_send_of_a_file_that_fails_says_why(
    core: FakeCore, tmp_path: Path, size: int
) -> None:
    (tmp_path / "some").write_bytes(bytes(size))
    ran = await run("send", "4", "--file", str(tmp_path / "some"), "--control", core.address)
    assert (ran.code, "no way was found" in ran.err) == (4, True)


async def test_send_of_a_file_that_is_cut_short_meanwhile_says_so(
    core: FakeCore, tmp_path: Path
) -> None:
    file = tmp_path / "some"
    file.write_bytes(bytes(10_000_000))
    core.holds_back = True
    process = await start("send", "1", "--file", str(file), "--control", core.address, "--json")
    await core.until_told(lambda: any(isinstance(told, PutSegment) for _, told in core.told))
    os.truncate(file, 100_000)
    ((request, segments),) = core.streams.items()
    core.server.answers.stream_moved(StreamMoved(request, len(segments) + 1, 64 << 20))
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert process.returncode == 1
    assert "has become shorter while it was sent" in err.decode()
    assert json.loads(out)["error"] == "RequestError"


@pytest.mark.parametrize(
    "words",
    [
        ("send", "1", "-"),
        ("send", "1", "--lines"),
        ("request", "1", "-"),
        ("multicast", "1", "-"),
        ("broadcast", "-"),
    ],
)
async def test_standard_input_that_cannot_be_read_is_a_plain_error(
    core: FakeCore, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with (tmp_path / "only-written").open("wb") as file:
        process = await start(*words, "--control", core.address, "--json", stdin=file.fileno())
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert (process.returncode, err.count(b"\n")) == (2, 1), err
    assert json.loads(out)["error"] == "ConfigError"


async def test_a_closed_pipe_shows_no_traceback(core: FakeCore) -> None:
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bmgd", "members", "--control", core.address),
        stdout=write,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")


async def test_a_daemon_that_goes_away_is_code_3(core: FakeCore) -> None:
    process = await start("monitor", "--control", core.address)
    async with asyncio.timeout(DEADLINE_S):
        while not core.server._calls.monitors:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        core.server.close()
        _, err = await process.communicate()
    assert process.returncode == 3
    assert len(err.splitlines()) == 1


async def test_monitor_prints_a_line_for_what_is_observed_and_for_each_changed_record(
    core: FakeCore,
) -> None:
    process = await start("monitor", "--control", core.address)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        while not core.server._calls.monitors:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        core.server.answers.observed(Observed("suspected", NodeId(2), detail="silence"), 7)
        core.change(2, Status.DEAD)
        lines = [(await process.stdout.readline()).decode().split() for _ in range(2)]
        process.kill()
        await process.communicate()
    for line in lines:
        assert datetime.fromisoformat(line[0]).tzinfo is not None
    assert lines[0][1:] == ["suspected", "peer=2", "detail=silence"]
    assert {"record", "peer=2", "status=dead"} <= set(lines[1])


def test_monitor_shows_what_has_no_time() -> None:
    assert monitor._line({"event": "new", "time": None, "peer": 3}) == "new peer=3"


def test_error_of_one_of_several_tasks_has_its_line_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_several(args: Namespace) -> int:
        inner = ExceptionGroup("tasks", [NoDaemonError("no daemon"), DeadError(7, "it is dead")])
        raise ExceptionGroup("tasks", [inner])

    monkeypatch.setattr(bench, "run", run_several)
    assert main(["bench"]) == 3
    assert capsys.readouterr().err == "bmgd bench: no daemon\n"
