"""The daemon's side of the control protocol, spoken to byte by byte."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bmgd.core.commands import CloseStream, SendTo, ShowStatus, Unsubscribe
from bmgd.core.commands import Consumed as CoreConsumed
from bmgd.core.commands import Withdraw as Withdrawal
from bmgd.core.effects import Deliver, Observed, StreamEnded
from bmgd.errors import ConfigError
from bmgd.shell import control as server_module
from bmgd.shell import control_calls
from bmgd.shell import control_connection as connection_module
from bmgd.shell.control_connection import PAUSE_BYTES
from bmgd.shell.control_socket import bind_control_socket, remove_control_socket
from bmgd.types import Incarnation, NodeId, Status
from bmgd.wire.control import (
    ANSWER_BYTES_MAX,
    Cancel,
    Close,
    Consumed,
    End,
    Failure,
    Frame,
    Item,
    PutSegment,
    Request,
    Result,
    Withdraw,
    encode,
)
from bmgd.wire.control_reader import FrameReader
from bmgd.wire.segments import packed
from tests.integration.cluster import until_true
from tests.unit.fake_core import SILENT, FakeCore, fake_daemon

DEADLINE_S = 10.0
SEND = {"destination": 1, "topic": "t", "payload": b"", "timeout": 1.0}


class Program:
    """A program that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(ANSWER_BYTES_MAX)

    def say(self, *frames: Frame) -> None:
        self._writer.write(b"".join(map(encode, frames)))

    def say_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> Frame | None:
        """The next frame; None at the end of the connection."""
        async with asyncio.timeout(DEADLINE_S):
            while (frame := self._frames.next_frame()) is None:
                data = await self._reader.read(65536)
                if not data:
                    return None
                self._frames.feed(data)
            return frame

    def leave(self) -> None:
        self._writer.close()


@asynccontextmanager
async def program(core: FakeCore) -> AsyncIterator[Program]:
    reader, writer = await asyncio.open_unix_connection(core.address.removeprefix("unix:"))
    try:
        yield Program(reader, writer)
    finally:
        writer.close()


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[FakeCore]:
    async with fake_daemon(tmp_path / "d.sock") as fake:
        yield fake


async def test_requests_are_answered(core: FakeCore) -> None:
    async with program(core) as p:
        p.say(Request(1, "status"), Request(2, "links"), Request(3, "leave"))
        assert await p.hear() == Result(1, {"id": 0, "state": "ready", "pid": 4711})
        assert await p.hear() == Result(2, [{"id": 1, "dialled_by": 1, "state": "up"}])
        assert await p.hear() == Result(3)


async def test_a_timeout_becomes_nanoseconds(core: FakeCore) -> None:
    async with program(core) as p:
        p.say(Request(1, "send", SEND | {"timeout": 2}))
        assert await p.hear() == Result(1)
    command = core.told[0][1]
    assert isinstance(command, SendTo)
    assert command.timeout_ns == 2_000_000_000


@pytest.mark.parametrize(
    ("verb", "params"),
    [
        ("dance", {}),
        ("status", {"now": True}),
        ("send", {}),
        ("send", SEND | {"more": 1}),
        ("send", SEND | {"destination": -1}),
        ("send", SEND | {"destination": 2**31}),
        ("send", SEND | {"destination": "1"}),
        ("send", SEND | {"destination": True}),
        ("send", SEND | {"payload": "text"}),
        ("send", SEND | {"payload": bytes(65_537)}),
        ("send", SEND | {"topic": ""}),
        ("send", SEND | {"topic": "ä" * 128}),
        ("send", SEND | {"timeout": 0}),
        ("send", SEND | {"timeout": float("nan")}),
        ("send", SEND | {"timeout": float("inf")}),
        ("send", SEND | {"timeout": None}),
        ("ping", {"destination": 1}),
        ("subscribe", {"topic": "t", "credit": 0}),
        ("subscribe", {"topic": "t", "credit": 1025}),
        ("subscribe", {"topic": "t", "credit": 1.0}),
        ("membership", {"since": 3}),
        ("drain", {}),
        ("drain", {"timeout": 0}),
        ("leave", {"timeout": 1}),
    ],
)
async def test_bad_requests_get_an_error_and_no_more(
    core: FakeCore, verb: str, params: dict[str, object]
) -> None:
    async with program(core) as p:
        p.say(Request(1, verb, params), Request(2, "status"))
        answer = await p.hear()
        assert isinstance(answer, Failure)
        assert (answer.sequence, answer.name) == (1, "RequestError")
        assert isinstance(await p.hear(), Result)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        encode(Result(1)),
        encode(Item(1, 1)),
        encode(Request(0, "status")),
        encode(Request(1, "send", SEND | {"destination": SILENT})) * 2,
        encode(Request(1, "subscribe", {"topic": "t", "credit": 1})) + encode(Consumed(1, 1)),
    ],
    ids=range(7),
)
async def test_who_breaks_the_protocol_is_told_and_closed(core: FakeCore, data: bytes) -> None:
    async with program(core) as p, program(core) as other:
        p.say_bytes(data)
        while isinstance(answer := await p.hear(), Result):
            pass
        assert isinstance(answer, Failure)
        assert (answer.sequence, answer.name) == (0, "ProtocolError")
        assert await p.hear() is None
        other.say(Request(1, "status"))
        assert isinstance(await other.hear(), Result)


async def test_an_answer_too_long_for_a_frame_becomes_an_error(core: FakeCore) -> None:
    core.member = lambda node_id: {"id": node_id, "x": bytes(ANSWER_BYTES_MAX)}  # type: ignore
    async with program(core) as p:
        p.say(Request(1, "members"))
        answer = await p.hear()
        assert isinstance(answer, Failure)
        assert answer.name == "RequestError"
        assert "at most" in answer.message


async def test_a_subscription_keeps_to_its_credit_and_loses_nothing(core: FakeCore) -> None:
    core.put(b"0", b"1", b"2", b"3")
    async with program(core) as p:
        p.say(Request(5, "subscribe", {"topic": "jobs", "credit": 2}))
        assert await p.hear() == Result(5)
        assert [await p.hear() for _ in range(2)] == [
            Item(5, {"source": 9, "topic": "jobs", "payload": payload}) for payload in (b"0", b"1")
        ]
        p.say(Consumed(5, 1))
        third = await p.hear()
        assert isinstance(third, Item)
        assert third.value["payload"] == b"2"
        p.say(Cancel(5))
        assert await p.hear() == End(5)
    assert list(core.waiting) == [b"1", b"2", b"3"]


async def test_a_program_that_goes_away_ends_its_subscription(core: FakeCore) -> None:
    core.put(b"0")
    async with program(core) as p:
        p.say(Request(5, "subscribe", {"topic": "jobs", "credit": 2}))
        assert await p.hear() == Result(5)
        await p.hear()
    await core.until_told(lambda: isinstance(core.told[-1][1], Unsubscribe))
    assert list(core.waiting) == [b"0"]


async def test_membership_has_a_snapshot_and_no_gap(core: FakeCore) -> None:
    async with program(core) as p:
        p.say(Request(1, "membership"))
        assert await p.hear() == Result(1)
        core.change(2, Status.DEAD)
        core.change(2, Status.ALIVE)
        snapshot, *changes = [await p.hear() for _ in range(3)]
        assert isinstance(snapshot, Item)
        assert snapshot.value["revision"] == 10
        assert [c.value["revision"] for c in changes if isinstance(c, Item)] == [11, 12]
        p.say(Cancel(1))
        assert await p.hear() == End(1)


async def test_monitor_shows_events_and_records(core: FakeCore) -> None:
    began_s = time.time()
    async with program(core) as p:
        p.say(Request(1, "monitor"))
        assert await p.hear() == Result(1)
        core.server.answers.observed(Observed("suspected", detail="silence"), 7)
        core.change(2, Status.DEAD)
        first, second = await p.hear(), await p.hear()
    assert isinstance(first, Item)
    assert isinstance(second, Item)
    assert first.value["event"] == "suspected"
    assert (second.value["event"], second.value["status"]) == ("record", "dead")
    assert (second.value["peer"], second.value["id"]) == (2, 2)
    now_s = time.time()
    assert all(began_s <= event.value["time"] <= now_s for event in (first, second))


async def test_a_cancelled_request_is_answered_all_the_same(core: FakeCore) -> None:
    async with program(core) as p:
        p.say(Request(1, "send", SEND | {"destination": SILENT}), Cancel(1), Request(2, "status"))
        assert isinstance(answer := await p.hear(), Result)
        assert answer.sequence == 2


async def test_withdraw_holds_until_its_stream_has_ended_and_then_means_nothing(
    core: FakeCore,
) -> None:
    params = {"topic": "t", "priority": "normal", "quality": "reliable"}
    core.holds_back = True
    async with program(core) as p:
        for sequence in (1, 2):
            p.say(Request(sequence, "stream", params | {"destination": 1}))
            assert isinstance(await p.hear(), Result)
            p.say(PutSegment(sequence, 1, 0, 0, 0.0, packed(b"x")))
        core.keeps_closed = True
        p.say(Close(1), Withdraw(1, 1), Request(3, "status"))
        assert isinstance(await p.hear(), Result)
        (request, _), *_ = core.told
        assert core.told[-3:-1] == [(request, CloseStream()), (request, Withdrawal(1))]
        core.server.answers.stream_ended(StreamEnded(request, 2, 2))
        assert isinstance(await p.hear(), End)
        p.say(Withdraw(1, 1), Request(4, "status"))
        assert isinstance(await p.hear(), Result)
        assert [command for _, command in core.told[-2:]] == [ShowStatus(), ShowStatus()]


async def test_one_program_too_many_is_told_so(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PROGRAMS_MAX", 1)
    async with program(core) as first:
        first.say(Request(1, "status"))
        assert isinstance(await first.hear(), Result)
        async with program(core) as second:
            answer = await second.hear()
            assert isinstance(answer, Failure)
            assert (answer.sequence, answer.name) == (0, "RequestError")
            assert await second.hear() is None
        first.say(Request(2, "status"))
        assert isinstance(await first.hear(), Result)


async def end_of(sock: socket.socket) -> bytes:
    """All that comes until the other side says no more."""
    loop = asyncio.get_running_loop()
    heard = b""
    async with asyncio.timeout(DEADLINE_S):
        while data := await loop.sock_recv(sock, 65536):
            heard += data
    return heard


@asynccontextmanager
async def connected(core: FakeCore) -> AsyncIterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, core.address.removeprefix("unix:"))
        yield sock


async def test_who_is_refused_can_write_until_it_has_read_why(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PROGRAMS_MAX", 0)
    loop = asyncio.get_running_loop()
    async with connected(core) as sock:
        told = await end_of(sock)
        for _ in range(100):
            await loop.sock_sendall(sock, b"this is no request, and it is not read" * 100)
    assert b"more than 0 programs" in told
    await until_true("the connection is closed", lambda: not core.server.lingering)


async def test_who_is_refused_and_stays_is_closed_in_time(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PROGRAMS_MAX", 0)
    monkeypatch.setattr(connection_module, "LINGER_S", 0.01)
    async with connected(core) as sock:
        await end_of(sock)
        await until_true("the connection is closed", lambda: not core.server.lingering)
        with pytest.raises(BrokenPipeError):
            sock.send(b"still here")


async def test_one_too_many_that_lingers_is_closed_at_once(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "PROGRAMS_MAX", 0)
    monkeypatch.setattr(connection_module, "LINGERING_MAX", 1)
    async with connected(core) as first, connected(core) as second:
        assert b"more than 0 programs" in await end_of(first)
        assert b"more than 0 programs" in await end_of(second)
        with pytest.raises(BrokenPipeError):
            second.send(b"x")
        first.send(b"x")
        assert len(core.server.lingering) == 1


@pytest.mark.parametrize("lingering_max", [0, 64])
async def test_who_says_no_more_and_reads_nothing_is_closed_in_time(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, lingering_max: int
) -> None:
    monkeypatch.setattr(connection_module, "LINGER_S", 0.01)
    monkeypatch.setattr(connection_module, "LINGERING_MAX", lingering_max)
    async with connected(core) as sock:
        sock.send(encode(Request(1, "monitor")))
        server = core.server
        await until_true("it watches", lambda: bool(server._calls.monitors))
        while not server.held_bytes:
            server.answers.observed(Observed("event", detail="x" * 1000), 7)
        sock.shutdown(socket.SHUT_WR)
        await until_true("its streams end", lambda: not server._calls.monitors)
        await until_true("it is gone", lambda: not server._programs and not server.lingering)
        # What the kernel held of it is read, and then its end.
        assert len(await end_of(sock)) > 1000


async def test_who_says_no_more_reads_what_waits(core: FakeCore) -> None:
    async with connected(core) as sock:
        sock.send(encode(Request(1, "monitor")))
        server = core.server
        await until_true("it watches", lambda: bool(server._calls.monitors))
        sent = 0
        while not server.held_bytes:
            server.answers.observed(Observed("event", detail="x" * 1000), 7)
            sent += 1
        sock.shutdown(socket.SHUT_WR)
        await until_true("its streams end", lambda: not server._calls.monitors)
        assert len(server.lingering) == 1
        assert len(await end_of(sock)) > sent * 1000
        await until_true("it is gone", lambda: not server.lingering)


async def test_one_request_too_many_is_told_so(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CALLS_MAX", 1)
    async with program(core) as p:
        p.say(Request(1, "send", SEND | {"destination": SILENT}), Request(2, "status"))
        answer = await p.hear()
        assert isinstance(answer, Failure)
        assert (answer.sequence, answer.name) == (2, "RequestError")


async def test_those_that_follow_what_happens_are_bounded_over_all_programs(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "FOLLOWING_MAX", 2)
    async with program(core) as first, program(core) as second:
        first.say(Request(1, "monitor"), Request(2, "membership"))
        assert await first.hear() == Result(1)
        assert await first.hear() == Result(2)
        for number, verb in enumerate(("monitor", "membership", "programs"), 1):
            second.say(Request(number, verb))
            answer = await second.hear()
            assert isinstance(answer, Failure)
            assert (answer.sequence, answer.name) == (number, "RequestError")
        first.say(Cancel(1))
        assert isinstance(await first.hear(), Item)
        assert await first.hear() == End(1)
        second.say(Request(4, "monitor"))
        assert await second.hear() == Result(4)


async def test_a_reader_too_slow_loses_its_streams(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_calls, "OUTGOING_BYTES_MAX", 1 << 16)
    async with program(core) as p:
        p.say(Request(1, "monitor"))
        assert await p.hear() == Result(1)
        for _ in range(2000):
            core.server.answers.observed(Observed("event", detail="x" * 1000), 7)
        items = 0
        while isinstance(frame := await p.hear(), Item):
            items += 1
        assert isinstance(frame, End)
        assert (frame.sequence, frame.name) == (1, "SubscriptionError")
        assert await p.hear() is None
    assert items < 2000


async def test_a_program_that_does_not_read_is_not_read_from(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.member = lambda node_id: {"id": node_id, "x": bytes(100_000)}  # type: ignore
    async with program(core) as p:
        p.say(*(Request(n, "members") for n in range(1, 301)))
        await core.until_told(lambda: len(core.told) >= 2)
        assert len(core.told) < 10
        sequences = [f.sequence for _ in range(300) if isinstance(f := await p.hear(), Result)]
    assert sequences == list(range(1, 301))


async def test_only_the_owner_can_connect_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    umask = os.umask(0)
    try:
        async with fake_daemon(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(umask)
    assert not path.exists()


async def test_a_living_daemon_keeps_its_socket(core: FakeCore) -> None:
    with pytest.raises(ConfigError, match="another daemon"):
        bind_control_socket(core.address)
    async with program(core) as p:
        p.say(Request(1, "status"))
        assert isinstance(await p.hear(), Result)


async def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
        stale.listen()
    async with fake_daemon(path) as core, program(core) as p:
        p.say(Request(1, "status"))
        assert isinstance(await p.hear(), Result)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        bind_control_socket(f"unix:{path}")
    assert path.read_text() == "precious"


def test_a_socket_that_cannot_be_given_to_its_group_leaves_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    path = tmp_path / "d.sock"
    with pytest.raises(ConfigError, match="not permitted"):
        bind_control_socket(f"unix:{path}", group=1)
    assert not path.exists()


def test_a_socket_whose_directory_is_none_any_more_ends_nothing(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    sock, inode = bind_control_socket(f"unix:{place}/d.sock")
    sock.close()
    (place / "d.sock").unlink()
    place.rmdir()
    place.write_text("a file")
    remove_control_socket(f"unix:{place}/d.sock", inode)


def test_of_daemons_that_begin_at_once_one_replaces_a_stale_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/d.sock"
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(tmp_path / "d.sock"))
        bound: list[socket.socket] = []
        ready = threading.Barrier(4)

        def begin(ready: threading.Barrier = ready, bound: list[socket.socket] = bound) -> None:
            ready.wait()
            with suppress(ConfigError):
                bound.append(bind_control_socket(address)[0])

        daemons = [threading.Thread(target=begin) for _ in range(4)]
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            daemon.join()
        assert len(bound) == 1
        bound[0].close()
        (tmp_path / "d.sock").unlink()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        bind_control_socket(f"unix:{tmp_path}/none/d.sock")


async def test_programs_that_do_not_read_are_cut_and_nobody_is_let_in_above_the_bound(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(core) as slow:
        slow.say(Request(1, "monitor"))
        assert isinstance(await slow.hear(), Result)
        for _ in range(250):
            core.server.answers.observed(Observed("x", detail="y" * 4096), 7)
        monkeypatch.setattr(control_calls, "HELD_BYTES_MAX", 50_000)
        async with program(core) as other:
            answer = await other.hear()
            assert isinstance(answer, Failure)
            assert (answer.sequence, answer.name) == (0, "RequestError")
            assert "do not read" in answer.message
        assert core.server.held_bytes > PAUSE_BYTES
        core.server.answers.observed(Observed("x", detail="y"), 7)
        frames = []
        while (frame := await slow.hear()) is not None:
            frames.append(frame)
        assert isinstance(frames[-1], End)
        assert frames[-1].name == "SubscriptionError"


async def test_program_that_never_reads_is_cut_above_what_any_credit_is_for(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of long messages that were given up, again and again, are not counted by the core."""
    monkeypatch.setattr(control_calls, "WAITING_BYTES_MAX", 1 << 20)
    async with program(core) as slow:
        params = {"topic": "jobs", "credit": 1, "credit_bytes": 1}
        slow.say(Request(1, "read", params))
        assert isinstance(await slow.hear(), Result)
        assert core.reader is not None
        for number in range(100):
            piece = Deliver(
                core.reader, NodeId(9), Incarnation(1), "jobs", 0, bytes(60_000), long=number + 1
            )
            core.server.answers.deliver(piece)
        assert core.server.held_bytes < 2 << 20
        frames = []
        while (frame := await slow.hear()) is not None:
            frames.append(frame)
        assert isinstance(frames[-1], End)
        assert frames[-1].name == "SubscriptionError"


async def test_of_programs_that_never_read_who_has_most_waiting_is_cut(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_calls, "WAITING_BYTES_MAX", 3 << 20)
    async with program(core) as one, program(core) as other:
        readers = []
        for slow in (one, other):
            slow.say(Request(1, "read", {"topic": "jobs", "credit": 1, "credit_bytes": 1}))
            assert isinstance(await slow.hear(), Result)
            assert core.reader is not None
            readers.append(core.reader)
            core.reader = None
        for number, reader in enumerate([readers[0]] * 10 + [readers[1]] * 60):
            piece = Deliver(
                reader, NodeId(9), Incarnation(1), "jobs", 0, bytes(60_000), long=number + 1
            )
            core.server.answers.deliver(piece)
        assert core.server.held_bytes < 4 << 20
        ended = [request for request, command in core.told if isinstance(command, Unsubscribe)]
        assert ended == [readers[1]]


async def test_messages_that_cannot_be_read_make_room_for_others_in_the_next_turn(
    core: FakeCore,
) -> None:
    async with program(core) as p:
        p.say(Request(1, "subscribe", {"topic": "jobs", "credit": 9}))
        assert isinstance(await p.hear(), Result)
        assert core.reader is not None
        core.unconsumed.extend([b"a", b"b", b"c"])
        for count in (1, 2):
            bad = Deliver(core.reader, NodeId(9), Incarnation(1), "jobs", count, b"\x91\xc0")
            core.server.answers.deliver(bad)
        told = len(core.told)
        await core.until_told(lambda: len(core.told) > told)
        assert core.told[told:] == [(core.reader, CoreConsumed(3))]


def test_a_reader_of_frames_keeps_nothing_that_it_has_returned() -> None:
    reader = FrameReader(ANSWER_BYTES_MAX)
    whole = encode(Result(1, bytes(100_000)))
    reader.feed(whole + whole[:10])
    assert reader.next_frame() is not None
    assert reader.next_frame() is None
    assert reader.waiting_bytes == 10
    assert len(reader._rest) == 10
