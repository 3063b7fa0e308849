"""The client in JavaScript, against real daemons and against Python's msgpack."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest

from bmgd import Message
from tests.integration.cluster import DEADLINE_S, LaunchedCluster, launched
from tests.processes import started

HERE = Path(__file__).parents[2] / "examples" / "javascript"
NODE = shutil.which("node") or shutil.which("nodejs")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")

VALUES: list[Any] = [
    *(None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**53, 2**64 - 1),
    *(-1, -32, -33, -128, -129, -32769, -(2**31) - 1, -(2**63), 1.5, -0.25),
    *("", "x" * 31, "ü" * 16, "x" * 256, "x" * 65536, b"", b"x" * 256, b"x" * 65536),
    *([], list(range(20)), {}, {"a": {"b": [1, {"c": b"d"}]}}, {str(n): n for n in range(20)}),
]

RECODE = """
import { decodeAll, encode } from "./msgpack.mjs";
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
for (const value of decodeAll(Buffer.concat(chunks))) process.stdout.write(encode(value));
"""


def command(cluster: LaunchedCluster, node_id: int, *words: object) -> list[str]:
    socket = cluster.control(node_id).removeprefix("unix:")
    return [str(NODE), str(HERE / "cli.mjs"), socket, *map(str, words)]


async def run(words: list[str]) -> tuple[int, list[Any]]:
    """A command's exit code, and the lines that it printed."""
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in out.splitlines()]


@asynccontextmanager
async def running(words: list[str]) -> AsyncIterator[asyncio.StreamReader]:
    """The output of a command that goes on meanwhile, and ends by itself."""
    async with started(*words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0


async def line(stream: asyncio.StreamReader) -> Any:
    return json.loads(await asyncio.wait_for(stream.readline(), DEADLINE_S))


def test_javascript_msgpack_is_that_of_python() -> None:
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", RECODE],
        input=b"".join(msgpack.packb(value) for value in VALUES),
        capture_output=True,
        cwd=HERE,
        timeout=DEADLINE_S,
        check=True,
    )
    unpacker = msgpack.Unpacker(strict_map_key=True)
    unpacker.feed(done.stdout)
    assert list(unpacker) == VALUES


async def test_javascript_sends_and_reads(tmp_path: Path) -> None:
    async with (
        launched(5, tmp_path) as cluster,
        running(command(cluster, 3, "recv", "jobs", 2)) as received,
    ):
        assert await line(received) == {"reading": "jobs"}
        sent = await run(command(cluster, 0, "send", 3, "jobs", "grüß dich"))
        assert sent == (0, [{"confirmed": 3}])
        assert await line(received) == {"source": 0, "payload": "grüß dich", "broadcast": False}
        await (await cluster.daemon(1)).broadcast(b"to all", topic="jobs")
        assert await line(received) == {"source": 1, "payload": "to all", "broadcast": True}


async def test_javascript_leaves_out_what_comes_in_pieces_and_goes_on(tmp_path: Path) -> None:
    async with (
        launched(3, tmp_path) as cluster,
        running(command(cluster, 2, "recv", "jobs", 2)) as received,
    ):
        assert await line(received) == {"reading": "jobs"}
        daemon = await cluster.daemon(1)
        # More pieces than its credit has room for.
        for payload in (bytes(5_000_000), b"first", b"second"):
            await daemon.broadcast(payload, topic="jobs")
        for text in ("first", "second"):
            assert (await line(received))["payload"] == text


async def test_javascript_recv_leaves_nothing_that_it_has_shown(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        daemon = await cluster.daemon(0)
        await daemon.send(2, b"first", topic="jobs")
        await daemon.send(2, b"second", topic="jobs")
        for text in ("first", "second"):
            code, [_, shown] = await run(command(cluster, 2, "recv", "jobs", 1))
            assert (code, shown["payload"]) == (0, text)


async def test_javascript_asks_and_answers(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster:
        async with running(command(cluster, 2, "answer", "rpc", 2)) as asked:
            assert await line(asked) == {"answering": "rpc"}
            answer = await run(command(cluster, 0, "request", 2, "rpc", "from one like it"))
            assert answer == (0, [{"answer": "FROM ONE LIKE IT"}])
            assert await line(asked) == {"question": "from one like it", "source": 0}
            python = await cluster.daemon(4)
            assert (
                await python.request(2, b"from python", topic="rpc", timeout=10) == b"FROM PYTHON"
            )
            assert await line(asked) == {"question": "from python", "source": 4}
        code, [error] = await run(command(cluster, 0, "request", 2, "rpc", "nobody there"))
        assert (code, error["error"], error["sent"]) == (1, "NoReaderError", False)


async def test_javascript_takes_a_long_answer(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        daemon = await cluster.daemon(2)
        async with daemon.subscribe("rpc") as questions:
            asking = asyncio.ensure_future(run(command(cluster, 0, "request", 2, "rpc", "long")))
            question = await asyncio.wait_for(anext(questions), DEADLINE_S)
            assert isinstance(question, Message)
            await question.reply(b"x" * 300_000)
            assert await asking == (0, [{"answer": "x" * 300_000}])


async def test_javascript_follows_the_membership(tmp_path: Path) -> None:
    async with launched(5, tmp_path) as cluster:
        # Nothing but the death is to change.
        await cluster.at_rest()
        async with running(command(cluster, 0, "watch", 1)) as changes:
            snapshot = await line(changes)
            assert [member["id"] for member in snapshot["members"]] == list(range(5))
            await cluster.kill(2)
            change = await line(changes)
            assert (change["id"], change["status"]) == (2, "excluded")
            assert change["revision"] == snapshot["revision"] + 1


async def test_javascript_is_told_what_is_wrong(tmp_path: Path) -> None:
    async with launched(3, tmp_path) as cluster:
        code, [error] = await run(command(cluster, 0, "send", 9, "jobs", "x"))
        assert (code, error["error"]) == (1, "RequestError")
        await cluster.kill(2)
        code, [error] = await run(command(cluster, 0, "send", 2, "jobs", "x"))
        assert (code, error["error"], error["sent"]) == (1, "DeadError", False)
        nowhere = [str(NODE), str(HERE / "cli.mjs"), str(tmp_path / "none"), "members"]
        code, [error] = await run(nowhere)
        assert (code, error["error"]) == (3, "NoDaemonError")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "3"), "send takes 3 arguments: too few are given"),
        (("members", "3"), "members takes 0 arguments: too many are given"),
        (("recv", "jobs", "abc"), "COUNT is a whole number, not abc"),
    ],
    ids=lambda words: words[0],
)
def test_javascript_is_used_as_its_page_says(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    path = tmp_path / "d.sock"
    command = [str(NODE), str(HERE / "cli.mjs"), str(path), *words]
    # Before any daemon is asked.
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stderr, ended.stdout) == (2, f"{told}\n", "")
