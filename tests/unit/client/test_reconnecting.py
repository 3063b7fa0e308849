"""`connect(..., reconnect=True)` over fake daemons that end and come again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

import bmgd
from bmgd.client.connection import GRACE_S
from bmgd.client.reconnecting import LastingConnection
from bmgd.core.commands import (
    BroadcastTo,
    Command,
    Leave,
    OpenInbox,
    OpenQuestions,
    ProbeTo,
    Register,
    Subscribe,
)
from bmgd.core.effects import Reply
from bmgd.errors import RequestError
from bmgd.shell.control_connection import ProgramConnection
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.control_errors import failure_of
from tests.unit.client.restarts import Unopened, asks_for_stream, cut_stream, put
from tests.unit.fake_core import FakeCore, fake_daemon, serving

DEADLINE_S = 10.0
LEFT_S = 1.0
"""Below what a client waits for the end of a subscription that its daemon does not tell."""


def subscribed(core: FakeCore) -> list[str]:
    return [command.topic for _, command in core.told if isinstance(command, Subscribe)]


async def test_a_subscription_that_has_ended_is_not_opened_at_the_next_daemon(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
            subscription = daemon.subscribe("jobs")
            messages = await subscription.__aenter__()
            assert core.reader is not None
            core.server.answers.reply(Reply(core.reader, error=RequestError("it ends")))
            with pytest.raises(RequestError, match="it ends"):
                await anext(messages)
        async with fake_daemon(path) as core:
            # It is answered by the next one, to which all that lasts was opened before.
            assert (await daemon.status())["id"] == 0
            assert subscribed(core) == []
            # Its end was the last of it.
            with pytest.raises(RequestError, match="it ends"):
                await anext(messages)
            await subscription.__aexit__(None, None, None)
            await opening.__aexit__(None, None, None)


async def test_a_socket_that_ends_late_does_not_end_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        fake_daemon(tmp_path / "d.sock") as core,
        asyncio.timeout(DEADLINE_S),
        bmgd.connect(core.address, reconnect=True) as daemon,
    ):
        (first,) = core.server._programs
        is_gone, transport = note_end(first, monkeypatch), first._transport
        assert transport is not None
        transport.pause_reading()
        asking = []
        while not daemon._connection.unwritten_bytes:
            asking.append(asyncio.ensure_future(daemon.status()))
            await asyncio.sleep(0)
        first.write(control.Failure(0, "RequestError", "too many programs", {}))
        # Asked again of the next socket, while the first one has not been read.
        await asyncio.gather(*asking)
        (second,) = {*core.server._programs} - {first}
        transport.resume_reading()
        await is_gone.wait()
        await daemon.status()
        assert set(core.server._programs) == {second}


def note_end(program: ProgramConnection, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the daemon's side of a socket has ended."""
    over, end = asyncio.Event(), program.connection_lost

    def note(error: Exception | None) -> None:
        end(error)
        over.set()

    monkeypatch.setattr(program, "connection_lost", note)
    return over


async def test_request_whose_daemon_goes_before_it_is_put_waits_for_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
            asking = asyncio.ensure_future(daemon.request(1, b"q"))
            await core.until_told(lambda: has_opened_inbox(core))
        async with fake_daemon(path) as core:
            await core.until_told(lambda: has_opened_inbox(core))
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await opening.__aexit__(None, None, None)


async def test_what_is_opened_when_the_daemon_goes_is_opened_at_the_next(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.subscribe = lambda *_: None  # type: ignore[method-assign]
            core.register = lambda *_: None  # type: ignore[method-assign]
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            subscription, registration = daemon.subscribe("jobs"), daemon.register("worker")
            entering = asyncio.gather(subscription.__aenter__(), registration.__aenter__())
            await core.until_told(lambda: asks(core) == {Subscribe, Register})
        async with fake_daemon(path) as core:
            messages, _ = await entering
            core.put(b"x")
            assert (await anext(messages)).payload == b"x"
            for each in (subscription, registration):
                await each.__aexit__(None, None, None)
            await block.aclose()


async def test_registration_that_is_lost_by_a_restart_is_told_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            registration = daemon.register("worker")
            await registration.__aenter__()
        async with fake_daemon(path) as core:
            core.registered.add("worker")
            await core.until_told(lambda: asks(core) == {Register})
            await daemon.status()
            with pytest.raises(bmgd.RequestError, match="registered"):
                await registration.__aexit__(None, None, None)
            await block.aclose()


def asks(core: FakeCore) -> set[type]:
    """Which subscriptions and registrations were asked for."""
    return {type(command) for _, command in core.told} & {Subscribe, Register}


def kinds(core: FakeCore) -> set[type]:
    """What was asked for."""
    return {type(command) for _, command in core.told}


def has_opened_inbox(core: FakeCore) -> bool:
    return any(isinstance(command, OpenInbox) for _, command in core.told)


async def test_stream_that_is_closed_while_a_writer_waits_for_its_daemon_refuses_what_it_wrote(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        writing = asyncio.ensure_future(stream.write(b"y"))
        await asyncio.sleep(0)
        await stream.close()
        async with fake_daemon(path):
            with pytest.raises(RequestError, match="closed"):
                await writing
            await block.aclose()


async def test_writers_that_wait_for_room_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            while not stream._stream.is_full:
                await stream.write(bytes(40_000))
                # Answered behind it: it is credit that lacks.
                await daemon.status()
            writing = [asyncio.ensure_future(stream.write(b"%d" % n)) for n in range(3)]
            await daemon.status()
        async with fake_daemon(path) as core:
            ends = await asyncio.gather(*writing, return_exceptions=True)
            # What was cut is told once; nothing of the others was sent before.
            assert [type(each) for each in ends] == [bmgd.UnreachableError, type(None), type(None)]
            await stream.flush()
            (segment,) = put(core)
            assert unpack_messages(segment.body, segment.count) == [b"1", b"2"]
            await block.aclose()


async def until_away(daemon: bmgd.Daemon) -> None:
    """Wait until the client knows that its daemon is gone."""
    connection = daemon._connection
    assert isinstance(connection, LastingConnection)
    while connection.is_up:
        await connection._wait_for_change()


async def test_what_waits_for_its_daemon_to_read_ends_with_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        fake_daemon(tmp_path / "d.sock") as core,
        bmgd.connect(core.address, reconnect=True) as daemon,
    ):
        connection = daemon._connection
        connection._uncrowded.clear()
        monkeypatch.setattr(LastingConnection, "unwritten_bytes", 1 << 30)
        waiting = asyncio.create_task(connection._until_read("broadcast", 2 * DEADLINE_S))
        await asyncio.sleep(0)
        connection.close()
        assert await waiting > DEADLINE_S


async def test_what_a_daemon_that_is_away_is_asked_ends_within_its_own_time(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        await until_away(daemon)
        asked: list[Awaitable[object]] = [
            daemon.multicast([1], b"x", timeout=0.01),
            daemon.broadcast(b"x", timeout=0.01),
            daemon.broadcast(bytes(100_000), timeout=0.01),
            daemon.ping(1, timeout=0.01),
            daemon.trace(1, timeout=0.01),
            daemon.readers(timeout=0.01),
            daemon.evict(1, timeout=0.01),
            daemon.drain(timeout=0.01),
        ]
        async with asyncio.timeout(GRACE_S - 0.1):
            ends = await asyncio.gather(*asked, return_exceptions=True)
        multicast, *others = ends
        assert isinstance(multicast, bmgd.PartialError)
        failed = multicast.report.failed
        assert [(each, type(error), error.sent) for each, error in failed.items()] == [
            (1, bmgd.UnreachableError, False)
        ]
        assert [(type(end), getattr(end, "sent", None)) for end in others] == [
            (bmgd.NoDaemonError, False)
        ] * 7


async def test_what_waited_for_its_daemon_is_told_what_is_left_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        await until_away(daemon)
        asking = asyncio.ensure_future(daemon.ping(1, timeout=60))
        await asyncio.sleep(0)
        async with fake_daemon(path) as core:
            await asking
            (probe,) = [command for _, command in core.told if isinstance(command, ProbeTo)]
            assert probe.timeout_ns < 60_000_000_000


async def test_what_is_underway_when_the_daemon_goes_is_in_doubt(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            asking = [
                asyncio.ensure_future(daemon.multicast([1, range(5, 7)], b"x")),
                asyncio.ensure_future(daemon.multicast([1], b"x", quality="best-effort")),
                asyncio.ensure_future(daemon.broadcast(b"x")),
                asyncio.ensure_future(daemon.broadcast(bytes(100_000))),
                asyncio.ensure_future(daemon.evict(1)),
            ]
            await core.until_told(lambda: len(core.told) == len(asking) + 1)
        multicast, *others = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(multicast, bmgd.PartialError)
        assert multicast.report.confirmed == frozenset()
        failed = multicast.report.failed
        assert [(each, type(error), error.sent) for each, error in failed.items()] == [
            (each, bmgd.UnreachableError, True) for each in (1, 5, 6)
        ]
        assert [(type(end), getattr(end, "sent", None)) for end in others] == [
            (bmgd.NoDaemonError, True)
        ] * 4


async def test_long_message_whose_stream_was_not_open_is_not_in_doubt(tmp_path: Path) -> None:
    core = Unopened(tmp_path / "d.sock")
    await core.server.start()
    async with (
        asyncio.timeout(DEADLINE_S),
        bmgd.connect(core.address, reconnect=True) as daemon,
    ):
        sending = asyncio.ensure_future(daemon.send(1, bytes(100_000)))
        await core.until_told(lambda: asks_for_stream(core))
        core.server.close()
        with pytest.raises(bmgd.UnreachableError) as lost:
            await sending
        assert not lost.value.sent


async def test_connection_waits_while_the_next_daemon_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon makes its socket before it gives it to its group."""
    path = tmp_path / "d.sock"
    refused = asyncio.Event()

    async def refuse(*_: object, **__: object) -> None:
        refused.set()
        raise PermissionError(errno.EACCES, "Permission denied")

    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
            monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", refuse)
        await refused.wait()
        monkeypatch.undo()
        async with fake_daemon(path):
            assert (await daemon.status())["state"] == "ready"
            await opening.__aexit__(None, None, None)


async def test_what_waits_for_the_next_daemon_is_not_overtaken_by_what_comes_later(
    tmp_path: Path,
) -> None:
    path, sending = tmp_path / "d.sock", list[asyncio.Task[None]]()
    async with asyncio.timeout(DEADLINE_S):
        core = FakeCore(path)
        await core.server.start()
        async with bmgd.connect(core.address, reconnect=True) as daemon:
            core.server.close()
            await until_away(daemon)

            def send() -> None:
                text = b"%d" % len(sending)
                sending.append(asyncio.create_task(daemon.send(1, text, topic="jobs")))

            for _ in range(5):
                send()
            async with fake_daemon(path) as following:
                while not put(following):
                    send()
                    await asyncio.sleep(0)
                await asyncio.gather(*sending)
                bodies = [(each.body, each.count) for each in put(following)]
        taken = [int(m) for body, count in bodies for m in unpack_messages(body, count)]
    assert taken == list(range(len(sending)))


@pytest.mark.parametrize("reconnect", [False, True])
async def test_user_that_its_daemon_refuses_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reconnect: bool
) -> None:
    def admit(*_: object) -> None:
        raise RequestError("uid 5 may not use this daemon")

    async with fake_daemon(tmp_path / "d.sock") as core, asyncio.timeout(DEADLINE_S):
        monkeypatch.setattr(core.server, "admit", admit)
        with pytest.raises(RequestError, match="uid 5 may not"):
            async with bmgd.connect(core.address, reconnect=reconnect):
                pass


@pytest.mark.parametrize("reconnect", [False, True])
async def test_subscribing_waits_while_much_is_on_its_way_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reconnect: bool
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        fake_daemon(tmp_path / "d.sock") as core,
        bmgd.connect(core.address, reconnect=reconnect) as daemon,
        AsyncExitStack() as block,
    ):
        connection = daemon._connection
        with monkeypatch.context() as crowded:
            crowded.setattr(type(connection), "unwritten_bytes", 1 << 30)
            connection._uncrowded.clear()
            opening = block.enter_async_context(daemon.subscribe("jobs"))
            subscribing = asyncio.create_task(opening)
            while not connection._line.count:  # noqa: ASYNC110 (until it is in line)
                await asyncio.sleep(0)
            assert subscribed(core) == []
        connection._uncrowded.set()
        await subscribing
        assert subscribed(core) == ["jobs"]


@asynccontextmanager
async def greeting(path: Path, daemon: bmgd.Daemon, refusal: bytes) -> AsyncIterator[asyncio.Event]:
    """A daemon that accepts, and says nothing until the event that this gives is set: then this."""
    lets_go = asyncio.Event()

    async def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await lets_go.wait()
        writer.write(refusal)
        writer.close()

    connection = cast(LastingConnection, daemon._connection)
    server = await asyncio.start_unix_server(meet, str(path))
    try:
        # Nothing tells of a socket that is open, and no more.
        while connection._lost is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        yield lets_go
    finally:
        server.close()
        path.unlink(missing_ok=True)  # noqa: ASYNC240


async def test_what_is_asked_before_the_next_daemon_has_answered_waits_for_it(
    tmp_path: Path,
) -> None:
    """It may refuse this program: then nobody has taken what was asked."""
    path = tmp_path / "d.sock"
    full = failure_of(0, bmgd.RequestError("more than 1024 programs at a time"))
    refusal = b"".join(control.encode_parts(full, control.ANSWER_BYTES_MAX))
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        await until_away(daemon)
        async with greeting(path, daemon, refusal) as refuses:
            sending = asyncio.ensure_future(daemon.broadcast(b"x", timeout=DEADLINE_S))
            await asyncio.sleep(0)
            refuses.set()
        async with fake_daemon(path) as core:
            await core.until_told(lambda: BroadcastTo in kinds(core))
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await block.aclose()


async def test_subscription_is_left_at_once_before_the_next_daemon_has_answered(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            subscription = daemon.subscribe("jobs")
            await subscription.__aenter__()
        await until_away(daemon)
        async with greeting(path, daemon, b""):
            async with asyncio.timeout(LEFT_S):
                await subscription.__aexit__(None, None, None)
        block.pop_all()


async def test_next_daemon_is_not_told_to_leave_by_surprise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.daemon.ANSWER_S", 0.05)
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        await until_away(daemon)
        with pytest.raises(bmgd.NoDaemonError):
            await daemon.leave()
        async with fake_daemon(path) as core:
            assert (await daemon.status())["state"] == "ready"
            assert Leave not in kinds(core)
            await block.aclose()


class InboxCore(FakeCore):
    """Opens an inbox for who asks."""

    def issue(self, request: int, command: Command) -> None:
        super().issue(request, command)
        if isinstance(command, OpenInbox):
            self.server.answers.reply(Reply(request, {"inbox": 1}))


async def test_request_whose_daemon_goes_just_when_it_opens_the_inbox_waits_for_the_next(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        core = await block.enter_async_context(serving(InboxCore(tmp_path / "d.sock")))
        daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
        connection = daemon._connection
        on_frame = connection._on_frame

        def then_the_socket_ends(frame: control.Frame) -> None:
            on_frame(frame)
            match frame:
                case control.Result(value={"inbox": _}):
                    # As a write into a broken socket in the same turn of the loop ends it.
                    connection._on_frame = on_frame  # type: ignore[method-assign]
                    assert connection._transport is not None
                    connection._transport.abort()

        connection._on_frame = then_the_socket_ends  # type: ignore[method-assign]
        asking = asyncio.ensure_future(daemon.request(1, b"q"))
        await core.until_told(lambda: OpenQuestions in kinds(core))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_request_waits_while_much_is_on_its_way_to_the_daemon_when_its_inbox_opens(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(InboxCore(tmp_path / "d.sock")) as core,
        bmgd.connect(core.address) as daemon,
    ):
        connection, others = daemon._connection, []
        on_frame = connection._on_frame

        def behind_much(frame: control.Frame) -> None:
            match frame:
                case control.Result(value={"inbox": _}):
                    for _ in range(60):
                        others.append(asyncio.ensure_future(daemon.broadcast(bytes(65_000))))
            on_frame(frame)

        connection._on_frame = behind_much  # type: ignore[method-assign]
        asking = asyncio.ensure_future(daemon.request(1, b"q"))
        await core.until_told(lambda: OpenQuestions in kinds(core))
        for each in (asking, *others):
            each.cancel()
        await asyncio.gather(asking, *others, return_exceptions=True)


async def test_subscription_that_is_cancelled_before_its_request_is_written_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[control.Frame] = []
    waits = asyncio.Event()

    async def until_read(verb: str, within_s: float) -> float:
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError(verb)

    async with (
        asyncio.timeout(DEADLINE_S),
        fake_daemon(tmp_path / "d.sock") as core,
        bmgd.connect(core.address, reconnect=True) as daemon,
    ):
        monkeypatch.setattr(daemon._connection, "_until_read", until_read)
        monkeypatch.setattr(daemon._connection, "write", frames.append)
        subscribing = asyncio.ensure_future(daemon.subscribe("jobs").__aenter__())
        await waits.wait()
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        assert not frames


class Pauses:
    """Counts the pauses of a connection, which last no time."""

    def __init__(self) -> None:
        self.count = 0
        self.more = asyncio.Event()

    def uniform(self, _least: float, _most: float) -> float:
        self.count += 1
        self.more.set()
        return 0.0


async def test_daemon_that_greets_and_goes_is_dialled_after_pauses(tmp_path: Path) -> None:
    path, greeted = tmp_path / "d.sock", 0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        size = int.from_bytes(await reader.readexactly(4), "big")
        hello = control.decode(await reader.readexactly(size))
        assert isinstance(hello, control.Request)
        told = control.Result(hello.sequence, {"version": 1, "features": [], "daemon": "x"})
        writer.write(b"".join(control.encode_parts(told, control.ANSWER_BYTES_MAX)))
        writer.close()

    server = await asyncio.start_unix_server(meet, str(path))
    pauses = Pauses()
    async with asyncio.timeout(DEADLINE_S), bmgd.connect(str(path), reconnect=True) as daemon:
        cast(LastingConnection, daemon._connection)._random = pauses  # type: ignore[assignment]
        while pauses.count < 20:
            pauses.more.clear()
            await pauses.more.wait()
        # The first was before there was anything to pause for.
        assert greeted <= pauses.count + 1
    server.close()
