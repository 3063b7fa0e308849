"""`flush`, and leaving `connect`: all that was begun before has its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import bmgd
from bmgd.client.daemon import SETTLE_S
from bmgd.core.commands import BroadcastTo, Command, Leave, MulticastTo, PutSegment
from bmgd.core.effects import Reply, StreamMoved
from bmgd.types import NodeId
from tests.unit.client.test_reconnecting import until_away
from tests.unit.fake_core import DEADLINE_S, SILENT, FakeCore, fake_daemon, serving

Sends = Callable[[bmgd.Daemon], Awaitable[object]]
TO_MANY: list[Sends] = [
    lambda daemon: daemon.broadcast(b"x", topic="jobs"),
    lambda daemon: daemon.broadcast(bytes(100_000), topic="jobs"),
    lambda daemon: daemon.multicast([1], b"x", topic="jobs"),
]


class LateCore(FakeCore):
    """Answers what is for many when the test lets it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.late: list[int] = []

    def issue(self, request: int, command: Command) -> None:
        if isinstance(command, BroadcastTo | MulticastTo):
            self.late.append(request)
            self.told.append((request, command))
            self._told_more.set()
        else:
            super().issue(request, command)

    def answer(self) -> None:
        late, self.late = self.late, []
        for request in late:
            self.server.answers.reply(Reply(request, {"confirmed": [1], "failed": []}))


async def until_put(
    core: LateCore, send: Callable[[float], Awaitable[asyncio.Future[None]]]
) -> asyncio.Future[None]:
    """Send with longer and longer deadlines, until a message is put before its deadline is over.

    On a busy machine a short deadline is over before the daemon has opened the stream.

    Args:
        core: of the daemon.
        send: sends with a deadline in seconds; what it returns is done when the message has its outcome.
    """
    async with asyncio.TaskGroup() as tasks:
        put = tasks.create_task(
            core.until_told(lambda: any(isinstance(c, PutSegment) for _, c in core.told))
        )
        timeout_s = 0.01
        sent = await send(timeout_s)
        while not put.done():
            await asyncio.wait((put, sent), return_when=asyncio.FIRST_COMPLETED)
            if not put.done():
                timeout_s *= 2
                sent = await send(timeout_s)
    return sent


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[LateCore]:
    async with serving(LateCore(tmp_path / "node-0.sock")) as fake, asyncio.timeout(DEADLINE_S):
        yield fake


@pytest.mark.parametrize("send", TO_MANY)
async def test_flush_waits_for_what_is_sent_to_many(core: LateCore, send: Sends) -> None:
    async with bmgd.connect(core.address) as daemon:
        sending = asyncio.ensure_future(send(daemon))
        await core.until_told(lambda: bool(core.late))
        with pytest.raises(bmgd.UnreachableError, match=r"not everything is confirmed") as late:
            await daemon.flush(timeout=0.05)
        assert late.value.sent
        flushing = asyncio.ensure_future(daemon.flush())
        while not sending.done():
            assert not flushing.done()
            core.answer()
            await asyncio.sleep(0)
        await flushing
        await sending


@pytest.mark.parametrize("send", TO_MANY)
async def test_leaving_a_connection_waits_for_what_is_sent_to_many(
    core: LateCore, send: Sends
) -> None:
    opening = bmgd.connect(core.address)
    sending = asyncio.ensure_future(send(await opening.__aenter__()))
    await core.until_told(lambda: bool(core.late))
    leaving = asyncio.ensure_future(opening.__aexit__(None, None, None))
    while not leaving.done():
        core.answer()
        await asyncio.sleep(0)
    await leaving
    await sending


async def test_flush_does_not_wait_for_the_answer_to_a_request(core: LateCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        asking = asyncio.ensure_future(daemon.request(1, b"q", topic="rpc"))
        await asyncio.sleep(0)
        await daemon.flush()
        assert not asking.done()
    with pytest.raises(bmgd.ControlError, match="the connection is closed"):
        await asking


async def test_flush_waits_for_what_began_before_it_and_not_for_what_follows(
    core: LateCore,
) -> None:
    async with bmgd.connect(core.address) as daemon:
        first = asyncio.ensure_future(daemon.broadcast(b"1", topic="jobs"))
        await core.until_told(lambda: len(core.late) == 1)
        flushing = asyncio.ensure_future(daemon.flush())
        await asyncio.sleep(0)
        (request,) = core.late
        second = asyncio.ensure_future(daemon.broadcast(b"2", topic="jobs"))
        await core.until_told(lambda: len(core.late) == 2)
        core.server.answers.reply(Reply(request, {"confirmed": [1], "failed": []}))
        await flushing
        assert first.done()
        assert not second.done()
        core.late.remove(request)
        core.answer()
        await second


class SlowCore(FakeCore):
    """Confirms what it was given a moment later, as another node does."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        confirm = self.server.answers.stream_moved

        def later(moved: StreamMoved) -> None:
            asyncio.get_running_loop().call_later(0.002, confirm, moved)

        self.server.answers.stream_moved = later  # type: ignore[method-assign]


async def send_on(daemon: bmgd.Daemon) -> None:
    while True:
        await daemon.send(1, b"x", topic="jobs")


async def write_on(daemon: bmgd.Daemon) -> None:
    async with daemon.stream(1, "jobs") as stream:
        while True:
            await stream.write(b"x")
            await asyncio.sleep(0)


@pytest.mark.parametrize("go_on", [send_on, write_on])
@pytest.mark.parametrize("ends", [bmgd.Daemon.flush, bmgd.Daemon.drain, bmgd.Daemon.leave])
async def test_nothing_that_begins_later_is_waited_for(
    tmp_path: Path,
    go_on: Callable[[bmgd.Daemon], Awaitable[None]],
    ends: Callable[[bmgd.Daemon], Awaitable[object]],
) -> None:
    """Tasks that send one message after the other always have something underway."""
    async with serving(SlowCore(tmp_path / "d.sock")) as core, bmgd.connect(core.address) as daemon:
        going_on = [asyncio.ensure_future(go_on(daemon)) for _ in range(4)]
        await core.until_told(lambda: any(isinstance(c, PutSegment) for _, c in core.told))
        ending = asyncio.ensure_future(ends(daemon))
        if ends is bmgd.Daemon.flush:
            await asyncio.wait_for(ending, SETTLE_S - 1)
        else:
            async with asyncio.timeout(SETTLE_S - 1):
                await core.until_told(lambda: any(isinstance(c, Leave) for _, c in core.told))
        for task in (ending, *going_on):
            task.cancel()
        await asyncio.gather(ending, *going_on, return_exceptions=True)


async def test_flush_of_a_stream_does_not_wait_for_what_others_write_later(tmp_path: Path) -> None:
    async with (
        serving(SlowCore(tmp_path / "d.sock")) as core,
        bmgd.connect(core.address) as daemon,
        daemon.stream(1, "jobs") as stream,
    ):

        async def write() -> None:
            while True:
                await stream.write(b"x")
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        await core.until_told(lambda: any(isinstance(c, PutSegment) for _, c in core.told))
        await stream.write(b"before")
        await stream.flush(DEADLINE_S)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def test_flush_tells_what_an_open_stream_has_lost_with_its_daemon(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(tmp_path / "d.sock") as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            await core.until_told(lambda: any(core.streams.values()))
        with pytest.raises(bmgd.NoDaemonError) as failed:
            await daemon.flush()
        assert failed.value.sent
        with pytest.raises(bmgd.NoDaemonError):
            await block.aclose()


async def test_flush_waits_until_what_was_sent_soon_has_told_its_outcome(core: LateCore) -> None:
    """Its deadline is over, and its daemon has a while more to say what became of it."""
    async with bmgd.connect(core.address) as daemon:
        sent = await until_put(core, lambda s: daemon.send_soon(SILENT, b"x", timeout=s))
        with pytest.raises(bmgd.UnreachableError, match="not everything is confirmed"):
            await daemon.flush(timeout=0.3)
        sent.cancel()
        await daemon.flush()


async def test_flush_waits_for_what_waits_for_its_daemon(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
        await until_away(daemon)
        sending = asyncio.ensure_future(daemon.send(1, b"x", timeout=DEADLINE_S))
        await asyncio.sleep(0)
        with pytest.raises(bmgd.UnreachableError, match="node 1: not everything is confirmed"):
            await daemon.flush(timeout=0.05)
        async with fake_daemon(path):
            await opening.__aexit__(None, None, None)
            await sending


async def test_leaving_a_connection_raises_nothing_that_its_sender_was_told(
    core: LateCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bmgd.BmgdError] = []
    core.holds_back = True

    async def send(daemon: bmgd.Daemon, timeout_s: float) -> None:
        try:
            await daemon.send(NodeId(1), bytes(200_000), timeout=timeout_s)
        except bmgd.DeliveryError as error:
            told.append(error)

    async def begin(timeout_s: float) -> asyncio.Future[None]:
        told.clear()
        return asyncio.ensure_future(send(daemon, timeout_s))

    async with bmgd.connect(core.address) as daemon:
        sending = await until_put(core, begin)
    await sending
    assert [type(error) for error in told] == [bmgd.UnreachableError]


@pytest.mark.parametrize("reconnect", [False, True])
async def test_flush_of_a_connection_that_was_left_is_refused(
    core: LateCore, reconnect: bool
) -> None:
    async with bmgd.connect(core.address, reconnect=reconnect) as daemon:
        await daemon.send(1, b"x")
    with pytest.raises(bmgd.ControlError, match="the connection is closed"):
        await daemon.flush()
