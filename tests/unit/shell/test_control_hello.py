"""The request `hello`: versions and features, with a fake core behind the real control server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import bmgd
from bmgd.shell import control_hello
from bmgd.shell.access import Access, Level
from bmgd.shell.control_hello import answer_hello
from bmgd.version import VERSION
from bmgd.wire import control
from bmgd.wire.control import Failure, Request, Result, encode
from bmgd.wire.control_errors import failure_of
from bmgd.wire.control_reader import FrameReader
from tests.unit.fake_core import FakeCore, fake_daemon
from tests.unit.shell.test_control_server import program

HELLO: dict[str, Any] = {"versions": [1], "features": []}


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    async with fake_daemon(tmp_path / "d.sock") as fake:
        yield fake


async def test_hello_chooses_the_highest_common_version(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_hello, "VERSIONS", frozenset({1, 2, 4}))
    async with program(core) as p:
        p.say(Request(1, "hello", {"versions": [3, 1, 2], "features": []}), Request(2, "status"))
        chosen = {"version": 2, "features": [], "daemon": f"bmgd {VERSION}"}
        assert await p.hear() == Result(1, chosen)
        assert isinstance(await p.hear(), Result)


def test_hello_ignores_features_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_hello, "FEATURES", frozenset({"a", "b", "c"}))
    asked = {"versions": [1], "features": ["c", "telepathy", "a"]}
    assert answer_hello(asked)["features"] == ["a", "c"]


async def test_hello_without_a_common_version_is_refused_and_closed(core: FakeCore) -> None:
    async with program(core) as p:
        p.say(Request(1, "hello", {"versions": [7, 9], "features": []}), Request(2, "status"))
        answer = await p.hear()
        assert isinstance(answer, Failure)
        assert (answer.sequence, answer.name) == (1, "VersionError")
        assert answer.message.endswith("this daemon has 1, the program 7, 9")
        assert await p.hear() is None


async def test_hello_is_the_first_request_only(core: FakeCore) -> None:
    async with program(core) as p:
        for earlier in (Request(1, "status"), Request(2, "hello", HELLO)):
            p.say(earlier, Request(9, "hello", HELLO))
            assert isinstance(await p.hear(), Result if earlier.verb == "status" else Failure)
            answer = await p.hear()
            assert isinstance(answer, Failure)
            assert (answer.sequence, answer.name) == (9, "RequestError")


async def test_hello_after_a_request_that_was_not_allowed_is_a_later_one(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Access, "level", lambda self, peer: Level.LOOK)
    async with program(core) as p:
        p.say(Request(1, "leave"), Request(2, "hello", HELLO))
        for sequence in (1, 2):
            answer = await p.hear()
            assert isinstance(answer, Failure)
            assert (answer.sequence, answer.name) == (sequence, "RequestError")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"versions": [1]},
        HELLO | {"more": 1},
        HELLO | {"versions": []},
        HELLO | {"versions": 1},
        HELLO | {"versions": [True]},
        HELLO | {"versions": [0, 1]},
        HELLO | {"versions": list(range(1, 18))},
        HELLO | {"features": "drain"},
        HELLO | {"features": [1]},
        HELLO | {"features": ["x" * 65]},
        HELLO | {"features": ["x"] * 65},
    ],
)
async def test_hello_with_bad_parameters_is_an_error_and_no_more(
    core: FakeCore, params: dict[str, object]
) -> None:
    async with program(core) as p:
        p.say(Request(1, "hello", params), Request(2, "status"))
        answer = await p.hear()
        assert isinstance(answer, Failure)
        assert (answer.sequence, answer.name) == (1, "RequestError")
        assert isinstance(await p.hear(), Result)


async def test_client_has_the_features_that_both_know(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_hello, "FEATURES", frozenset({"a", "b"}))
    monkeypatch.setattr(control, "FEATURES", frozenset({"b", "c"}))
    async with bmgd.connect(core.address) as daemon:
        assert daemon.features == {"b"}


async def test_client_without_a_common_version_says_so(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "VERSIONS", frozenset({2}))
    with pytest.raises(bmgd.VersionError, match="this daemon has 1, the program 2"):
        async with bmgd.connect(core.address):
            pass


async def test_client_uses_a_daemon_that_knows_no_hello(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(control.REQUEST_BYTES_MAX)
        while data := await reader.read(65_536):
            frames.feed(data)
            while (frame := frames.next_frame()) is not None:
                assert isinstance(frame, Request)
                error = bmgd.RequestError(f"unknown verb {frame.verb!r}")
                known = frame.verb == "links"
                answer = Result(frame.sequence, []) if known else failure_of(frame.sequence, error)
                writer.write(encode(answer))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "old.sock")
    async with server, bmgd.connect(f"unix:{tmp_path}/old.sock") as daemon:
        assert daemon.features == frozenset()
        assert await daemon.links() == []
