"""Streams of a connection that reconnects: what is lost with a daemon is told, the rest goes on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import bmgd
from bmgd.client.connection import WRITE_BYTES_MAX
from bmgd.client.reconnecting import LastingConnection
from bmgd.core.commands import OpenStream
from bmgd.core.effects import StreamEnded, StreamMoved
from bmgd.types import NodeId
from bmgd.wire.batch import unpack_messages
from tests.unit.client.restarts import Unopened, asks_for_stream, cut_stream, put
from tests.unit.fake_core import FakeCore, fake_daemon, serving

DEADLINE_S = 10.0


async def test_what_was_refused_before_a_restart_is_told_after_it(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            await core.until_told(lambda: bool(put(core)))
            (request,) = core.streams
            refused = StreamMoved(request, 2, 1 << 20, (1,), (), "QueueFullError", "it is full")
            core.server.answers.stream_moved(refused)
            # Answered behind it.
            await daemon.status()
        async with fake_daemon(path):
            await daemon.status()
            with pytest.raises(bmgd.QueueFullError):
                await stream.flush()
            # Once.
            await stream.write(b"y")
            await block.aclose()


async def test_what_a_restart_cut_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            flushing = asyncio.ensure_future(stream.flush())
            await core.until_told(lambda: bool(put(core)))
        with pytest.raises(bmgd.UnreachableError):
            await flushing
        async with fake_daemon(path) as core:
            await stream.write(b"y")
            await stream.flush()
            assert len(put(core)) == 1
            await block.aclose()


async def test_tasks_that_write_to_one_stream_share_it_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        writing = [asyncio.ensure_future(stream.write(b"y")) for _ in range(3)]
        await asyncio.sleep(0)
        async with fake_daemon(path) as core:
            await asyncio.gather(*writing)
            await stream.flush()
            opened = [command for _, command in core.told if isinstance(command, OpenStream)]
            assert len(opened) == 1
            assert sum(each.count for each in put(core)) == 3
            await block.aclose()


async def test_stream_whose_daemon_goes_before_it_is_open_is_opened_by_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with serving(Unopened(path)) as unopened:
            daemon = await block.enter_async_context(bmgd.connect(unopened.address, reconnect=True))
            entering = block.enter_async_context(daemon.stream(1, "jobs"))
            opening = asyncio.ensure_future(entering)
            await unopened.until_told(lambda: asks_for_stream(unopened))
        async with fake_daemon(path) as core:
            stream = await opening
            await stream.write(b"x")
            await stream.flush()
            assert sum(each.count for each in put(core)) == 1
            await block.aclose()


async def test_write_whose_daemon_goes_before_its_stream_is_open_again_goes_to_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        async with serving(Unopened(path)) as unopened:
            writing = asyncio.ensure_future(stream.write(b"y"))
            await unopened.until_told(lambda: asks_for_stream(unopened))
        async with fake_daemon(path) as core:
            await writing
            await stream.flush()
            assert sum(each.count for each in put(core)) == 1
            assert stream.confirmed == 2
            await block.aclose()


async def test_what_another_task_has_added_to_a_stream_that_never_opens_is_told_as_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        async with serving(Unopened(path)) as unopened:
            waiting = asyncio.ensure_future(stream.write(b"a"))
            await unopened.until_told(lambda: asks_for_stream(unopened))
            await stream.write(b"b")
        with pytest.raises(bmgd.UnreachableError) as lost:
            await waiting
        assert not lost.value.sent
        async with fake_daemon(path) as core:
            await stream.write(b"c")
            await stream.flush()
            assert sum(each.count for each in put(core)) == 1
            await block.aclose()


@pytest.mark.parametrize("flushes", [False, True])
async def test_error_says_sent_where_others_since_the_last_flush_were_confirmed_before_a_restart(
    tmp_path: Path, flushes: bool
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path, flushes=flushes)
        async with fake_daemon(path) as core:
            await refuse_one(stream, core)
            with pytest.raises(bmgd.QueueFullError) as failed:
                await block.aclose()
            assert failed.value.sent != flushes


async def refuse_one(stream: bmgd.Writer, core: FakeCore) -> None:
    """Write one message, which the daemon takes back."""
    core.holds_back = True
    await stream.write(b"y")
    await core.until_told(lambda: bool(put(core)))
    (request,) = core.streams
    refused = StreamMoved(request, 2, 1 << 20, (1,), (), "QueueFullError", "it is full")
    core.server.answers.stream_moved(refused)
    with pytest.raises(bmgd.QueueFullError):
        await stream.until_failed()


async def test_stream_that_was_idle_when_its_daemon_went_has_not_failed(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        failing = asyncio.ensure_future(stream.until_failed())
        async with fake_daemon(path) as core:
            await core.until_told(lambda: asks_for_stream(core))
            await stream.write(b"y")
            await stream.flush()
            assert not failing.done()
            (request,) = core.streams
            dead = bmgd.DeadError(1, "it is dead")
            core.server.answers.stream_ended(StreamEnded(request, 2, 2, dead))
            with pytest.raises(bmgd.DeadError):
                await failing
            await block.aclose()


@pytest.mark.parametrize("flushes_first", [False, True])
async def test_who_watches_a_stream_and_who_flushes_take_no_error_away_from_each_other(
    tmp_path: Path, flushes_first: bool
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            await core.until_told(lambda: bool(put(core)))
            watching = [asyncio.ensure_future(stream.until_failed())]
            if flushes_first:
                watching.insert(0, asyncio.ensure_future(stream.flush()))
                watching.append(asyncio.ensure_future(stream.until_failed()))
                await daemon.status()
        others = [] if flushes_first else [daemon.flush(), stream.flush()]
        for waiting in (*watching, *others):
            with pytest.raises(bmgd.UnreachableError) as lost:
                await waiting
            assert lost.value.sent
        # Told once to who flushes.
        await stream.flush()
        await daemon.flush()
        await block.aclose()


async def test_who_watches_an_idle_stream_takes_no_error_away_from_who_wrote_to_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        failing = asyncio.ensure_future(stream.until_failed())
        async with serving(Unopened(path)) as unopened:
            await unopened.until_told(lambda: asks_for_stream(unopened))
            await stream.write(b"b")
        with pytest.raises(bmgd.UnreachableError):
            await failing
        with pytest.raises(bmgd.UnreachableError):
            await stream.flush()
        await block.aclose()


@pytest.mark.parametrize("flushes", [False, True])
async def test_write_that_waits_in_vain_says_sent_where_others_since_the_last_flush_were_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: bool
) -> None:
    monkeypatch.setattr("bmgd.client.writing.ANSWER_S", 0.01)
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, tmp_path / "d.sock", flushes=flushes)
        with pytest.raises(bmgd.UnreachableError, match="its daemon is not there") as failed:
            await stream.write(b"y")
        assert failed.value.sent != flushes
        await block.aclose()


async def test_flush_of_all_tells_of_a_cut_stream_also_when_another_is_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            core.holds_back = True
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            await core.until_told(lambda: bool(put(core)))
        async with fake_daemon(path):
            await block.enter_async_context(daemon.stream(2, "jobs"))
            with pytest.raises(bmgd.UnreachableError):
                await daemon.flush()
            with pytest.raises(bmgd.UnreachableError):
                await stream.flush()
            await daemon.flush()
            await block.aclose()


async def test_sends_that_waited_for_a_daemon_to_read_come_before_those_after_it_has_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            (program,), connection = core.server._programs, daemon._connection
            assert isinstance(connection, LastingConnection)
            assert program._transport is not None
            assert connection._transport is not None
            program._transport.pause_reading()
            connection._transport.write(bytes(2 * WRITE_BYTES_MAX))
            sending = [
                asyncio.ensure_future(daemon.send(1, b"%d" % number, topic="jobs"))
                for number in range(4)
            ]
            await asyncio.sleep(0)
            gone = connection._changed
            program._transport.abort()
        await gone.wait()
        sending.append(asyncio.ensure_future(daemon.send(1, b"4", topic="jobs")))
        async with fake_daemon(path) as core:
            await asyncio.gather(*sending)
            bodies = [unpack_messages(each.body, each.count) for each in put(core)]
            assert [int(each) for body in bodies for each in body] == [0, 1, 2, 3, 4]
            await block.aclose()


async def test_confirmed_messages_are_counted_up_to_the_first_that_a_restart_has_cut(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with fake_daemon(path) as core:
            daemon = await block.enter_async_context(bmgd.connect(core.address, reconnect=True))
            stream = await block.enter_async_context(daemon.stream(1, "jobs"))
            await stream.write(b"x")
            await stream.flush()
            core.holds_back = True
            await stream.write(b"y")
            await core.until_told(lambda: len(put(core)) == 2)
        async with fake_daemon(path):
            await daemon.status()
            with pytest.raises(bmgd.UnreachableError):
                await stream.flush()
            await stream.write(b"z")
            await stream.flush()
            assert stream.confirmed == 1
            await block.aclose()


async def test_send_that_waits_for_its_turn_when_its_daemon_goes_waits_for_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        async with serving(Unopened(path)) as unopened:
            daemon = await block.enter_async_context(bmgd.connect(unopened.address, reconnect=True))
            soon = [
                asyncio.ensure_future(daemon.send_soon(1, bytes(40_000), topic="jobs"))
                for _ in range(3)
            ]
            sending = asyncio.ensure_future(daemon.send(1, b"x", topic="jobs"))
            await unopened.until_told(lambda: asks_for_stream(unopened))
        async with fake_daemon(path) as core:
            await sending
            # Those that had been added were lost with their stream, and the one that waited was not.
            confirmed = await asyncio.gather(*soon)
            outcomes = await asyncio.gather(*confirmed, return_exceptions=True)
            assert [type(each) for each in outcomes][-1] is type(None)
            opened = [command for _, command in core.told if isinstance(command, OpenStream)]
            assert len(opened) == 1
            await block.aclose()


async def test_write_that_waits_for_the_next_daemon_is_refused_where_its_stream_is_left_meanwhile(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as block:
        stream = await cut_stream(block, path)
        async with serving(Unopened(path)) as core:
            waiting = asyncio.ensure_future(stream.write(b"late"))
            await core.until_told(lambda: asks_for_stream(core))
            # Another task's, which goes to the stream that is being opened.
            await stream.write(b"in time")
            leaving = asyncio.ensure_future(block.aclose())
            await asyncio.sleep(0)
            ((request, _),) = [told for told in core.told if isinstance(told[1], OpenStream)]
            FakeCore.open_stream(core, request, NodeId(1))
            with pytest.raises(bmgd.RequestError, match="closed"):
                await waiting
            await leaving
            segments = put(core)
    written = [p for each in segments for p in unpack_messages(each.body, each.count)]
    assert written == [b"in time"]
