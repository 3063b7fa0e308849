"""Streams, batches and long messages of the Python client, against a fake daemon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import bmgd
from bmgd.client.backlog import PREFIX_BYTES
from bmgd.client.connection import WRITE_BYTES_MAX
from bmgd.client.daemon_socket import CROWDED_BYTES
from bmgd.client.kept_streams import KEPT_MAX
from bmgd.client.outgoing import Outgoing
from bmgd.core.commands import CloseStream, Consumed, PutSegment, Withdraw
from bmgd.core.effects import Deliver, StreamEnded, StreamMoved
from bmgd.errors import RequestError
from bmgd.shell.control import CALLS_MAX
from bmgd.types import Incarnation, NodeId
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX, SEGMENT_BYTES_MAX
from bmgd.wire.segments import OVERHEAD_BYTES
from tests.unit.fake_core import CREDIT_BYTES, SILENT, FakeCore
from tests.unit.segments import delivered

DEADLINE_S = 10.0


def put(core: FakeCore) -> list[PutSegment]:
    return [command for _, command in core.told if isinstance(command, PutSegment)]


def piece(
    core: FakeCore, body: bytes, *, last: bool = False, aborted: str = "", long: int = 1
) -> None:
    assert core.reader is not None
    life = Incarnation(1)
    core.server.answers.deliver(
        Deliver(
            core.reader,
            NodeId(9),
            life,
            "jobs",
            0,
            body,
            long=long,
            size=10,
            last=last,
            aborted=aborted,
        )
    )


async def test_stream_packs_what_is_written_in_one_turn(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    wanted = [b"%d" % number for number in range(5000)]
    async with daemon.stream(1, "jobs") as stream:
        for payload in wanted:
            await stream.write(payload)
        await stream.flush()
    segments = put(core)
    assert [p for each in segments for p in unpack_messages(each.body, each.count)] == wanted
    assert len(segments) < 5


@pytest.mark.parametrize("missing_bytes", range(1, 8))
async def test_stream_keeps_to_its_credit_to_the_byte(
    core: FakeCore, daemon: bmgd.Daemon, missing_bytes: int
) -> None:
    core.holds_back = True
    whole_cost = SEGMENT_BYTES_MAX + OVERHEAD_BYTES
    whole, rest = divmod(CREDIT_BYTES, whole_cost)
    # Behind it and all whole ones but one there is nearly room for the last.
    first_bytes = rest + missing_bytes - OVERHEAD_BYTES - PREFIX_BYTES
    async with asyncio.timeout(DEADLINE_S):
        # Left by none: what it wrote is not confirmed.
        opening = daemon.stream(1, "jobs")
        stream = await opening.__aenter__()
        writing = []
        for size in (first_bytes, *[PAYLOAD_BYTES_MAX] * whole):
            writing.append(asyncio.create_task(stream.write(bytes(size))))
            await asyncio.sleep(0)
        await core.until_told(lambda: len(put(core)) >= whole)
        await daemon.status()
        cost = sum(len(each.body) + OVERHEAD_BYTES for each in put(core))
        assert CREDIT_BYTES - whole_cost < cost <= CREDIT_BYTES
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)


async def test_a_stream_does_not_heap_up_what_its_daemon_does_not_read(
    core: FakeCore, daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = core.server._programs
    connection, crowded = daemon._connection, asyncio.Event()
    pause = connection.pause_writing

    def note_pause() -> None:
        pause()
        crowded.set()

    monkeypatch.setattr(connection, "pause_writing", note_pause)
    transport = program._transport
    assert transport is not None
    async with daemon.stream(1, "jobs") as stream:
        transport.pause_reading()
        writing = asyncio.ensure_future(written(stream, 200))
        async with asyncio.timeout(DEADLINE_S):
            await crowded.wait()
        assert not writing.done()
        assert connection.unwritten_bytes < CROWDED_BYTES + 2 * 65_536
        status = asyncio.ensure_future(daemon.status())
        transport.resume_reading()
        async with asyncio.timeout(DEADLINE_S):
            await writing
            await status
            await stream.flush()
    assert sum(each.count for each in put(core)) == 200


def overfill(core: FakeCore, daemon: bmgd.Daemon) -> asyncio.Transport:
    """Let the daemon read no more, and much be on its way to it; returns its end of the socket."""
    (program,) = core.server._programs
    connection, transport = daemon._connection, program._transport
    assert transport is not None
    assert connection._transport is not None
    transport.pause_reading()
    connection._transport.write(bytes(2 * WRITE_BYTES_MAX))
    assert connection.is_overfull
    return transport


async def test_request_to_a_daemon_that_does_not_read_ends_with_its_time_or_the_connection(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    connection, transport = daemon._connection, overfill(core, daemon)
    with pytest.raises(bmgd.SilentDaemonError, match=r"not read for 0\.01 s"):
        await connection.ask("status", {}, 0.01)
    asking = asyncio.ensure_future(daemon.status())
    await asyncio.sleep(0)
    assert not asking.done()
    transport.abort()
    with pytest.raises(bmgd.NoDaemonError):
        await asyncio.wait_for(asking, DEADLINE_S)


async def test_what_opens_a_stream_waits_while_much_is_on_its_way_to_the_daemon(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        announcing = [
            asyncio.ensure_future(daemon.broadcast(bytes(65_000), topic="news")) for _ in range(60)
        ]
        await asyncio.sleep(0)
        assert daemon._connection.unwritten_bytes > WRITE_BYTES_MAX
        sending = asyncio.ensure_future(daemon.send(1, b"x", topic="jobs"))
        soon = asyncio.ensure_future(daemon.send_soon(2, b"x", topic="jobs"))
        stream = await block.enter_async_context(daemon.stream(1, "other"))
        await sending
        await (await soon)
        await stream.write(b"x")
        await stream.flush()
        for each in announcing:
            each.cancel()


async def test_send_to_a_daemon_that_does_not_read_says_so_in_time(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    transport = overfill(core, daemon)
    with pytest.raises(bmgd.UnreachableError, match="does not read") as failed:
        await daemon.send(1, b"x", timeout=0.01)
    assert not failed.value.sent
    transport.abort()


async def written(stream: bmgd.Writer, count: int) -> None:
    for _ in range(count):
        await stream.write(bytes(60_000))


@pytest.mark.parametrize("seconds", [1e6, -1.0, float("nan"), "soon"])
async def test_a_bad_timeout_of_a_long_message_costs_its_stream_nothing(
    core: FakeCore, daemon: bmgd.Daemon, seconds: float
) -> None:
    async with daemon.stream(1, "jobs") as stream:
        with pytest.raises(bmgd.RequestError, match="timeout"):
            await stream.write(bytes(100_000), timeout=seconds)
        await stream.write(b"goes on")
    (segment,) = put(core)
    assert unpack_messages(segment.body, segment.count) == [b"goes on"]


async def test_stream_raises_its_first_error_when_flushed(daemon: bmgd.Daemon) -> None:
    async with daemon.stream(1, "jobs"):
        pass
    context = daemon.stream(3, "jobs")
    stream = await context.__aenter__()
    await stream.write(b"x")
    with pytest.raises(bmgd.DeadError):
        await stream.flush()
    with pytest.raises(bmgd.DeadError):
        await context.__aexit__(None, None, None)


async def test_send_that_is_cancelled_asks_its_daemon_to_take_it_back(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    sending = asyncio.ensure_future(daemon.send(SILENT, b"x"))
    await core.until_told(lambda: bool(put(core)))
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await core.until_told(lambda: any(command == Withdraw(1) for _, command in core.told))


async def test_flush_waits_for_what_was_sent_soon(core: FakeCore, daemon: bmgd.Daemon) -> None:
    confirmed = await daemon.send_soon(SILENT, b"x")
    with pytest.raises(bmgd.UnreachableError) as caught:
        await daemon.flush(timeout=0.05)
    assert caught.value.sent
    assert not confirmed.done()
    confirmed = await daemon.send_soon(1, b"x")
    async with asyncio.timeout(DEADLINE_S):
        await confirmed
    core.server.close()


async def test_flush_waits_for_a_long_message(core: FakeCore, daemon: bmgd.Daemon) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S):
        sending = asyncio.create_task(daemon.send(1, bytes(200_000), timeout=DEADLINE_S))
        await core.until_told(lambda: len(put(core)) > 1)
        with pytest.raises(
            bmgd.UnreachableError, match=r"not everything is confirmed within 0\.05"
        ):
            await daemon.flush(timeout=0.05)
        sending.cancel()
        await asyncio.wait([sending])


async def test_long_message_of_which_nothing_was_put_in_time_is_told_as_not_sent(
    core: FakeCore, daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "open_stream", lambda request, destination: None)
    with pytest.raises(bmgd.UnreachableError) as failed:
        await daemon.send(1, bytes(100_000), timeout=0.05)
    assert not put(core)
    assert not failed.value.sent


@pytest.mark.parametrize("confirmed", [0, 1])
async def test_long_message_of_which_a_piece_is_confirmed_is_told_as_sent(
    core: FakeCore, daemon: bmgd.Daemon, confirmed: int
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S):
        sending = asyncio.create_task(daemon.send(1, bytes(200_000), timeout=DEADLINE_S))
        await core.until_told(lambda: len(put(core)) == 4)
        (request,) = core.streams
        # The daemon knows that the rest was not taken, and says so of that.
        lost = bmgd.ReaderLostError(1, "the program that read it went away", sent=False)
        ended = StreamEnded(request, 1 + confirmed, 1 + confirmed, lost)
        core.server.answers.stream_ended(ended)
        with pytest.raises(bmgd.ReaderLostError) as failed:
            await sending
    assert failed.value.sent == bool(confirmed)


@pytest.mark.parametrize("reconnect", [False, True])
async def test_stream_that_was_left_takes_nothing_more(core: FakeCore, reconnect: bool) -> None:
    async with bmgd.connect(core.address, reconnect=reconnect) as daemon:
        async with daemon.stream(1, "jobs") as stream:
            await stream.write(b"in time")
        for _ in range(2):
            with pytest.raises(bmgd.RequestError, match="closed"):
                await stream.write(b"late")
            # It is over by then.
            await daemon.status()
    assert len(put(core)) == 1


async def test_write_to_a_stream_that_is_being_left_is_refused(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S):
        opening = daemon.stream(1, "jobs")
        stream = await opening.__aenter__()
        await stream.write(b"in time")
        leaving = asyncio.ensure_future(opening.__aexit__(None, None, None))
        await core.until_told(lambda: len(put(core)) == 1)
        with pytest.raises(bmgd.RequestError, match="closed"):
            await stream.write(b"late")
        go_on(core)
        await leaving
    assert sent(core) == [b"in time"]


async def test_what_waits_when_its_stream_ends_is_told_by_the_next_flush(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        stream = await block.enter_async_context(daemon.stream(1, "jobs"))
        await stream.write(b"dropped")
        stream._stream.finish()
        with pytest.raises(bmgd.RequestError, match="closed"):
            await stream.flush()
        block.pop_all()
        stream.abandon()
    assert sent(core) == []


async def test_what_is_sent_soon_ends_in_time_beside_what_has_more(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    sending = await daemon.send_soon(SILENT, b"may take long", timeout=100.0)
    # Long enough for it to be put: what is not put in time fails as not sent.
    soon = await daemon.send_soon(SILENT, b"may not", timeout=0.3)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(bmgd.UnreachableError) as failed:
            await soon
    assert failed.value.sent
    assert [segment.count for segment in put(core)] == [2]
    assert not sending.done()
    (request,) = core.streams
    core.server.answers.stream_moved(StreamMoved(request, 2, CREDIT_BYTES))
    await sending


async def test_connection_that_wrote_to_many_topics_at_a_time_has_room_for_more(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    soon = [await daemon.send_soon(1, b"x", topic=f"{number}") for number in range(CALLS_MAX)]
    await core.until_told(lambda: len(put(core)) == CALLS_MAX)
    with pytest.raises(bmgd.RequestError, match="at a time"):
        await daemon.status()
    for request in list(core.streams):
        core.server.answers.stream_moved(StreamMoved(request, 2, CREDIT_BYTES))
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*soon)
    assert (await daemon.status())["id"] == 0
    (program,) = core.server._programs
    assert len(program.calls) == KEPT_MAX


async def test_taking_many_gives_credit_back_with_the_next_taking(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", credit=100) as messages:
        core.put(*(b"%d" % number for number in range(30)))
        async with asyncio.timeout(DEADLINE_S):
            taken = await messages.take(1000)
            while len(taken) < 30:
                taken += await messages.take(1000)
        assert [message.payload for message in taken] == [b"%d" % n for n in range(30)]
        assert core.unconsumed
    consumed = [c.count for _, c in core.told if isinstance(c, Consumed)]
    assert sum(consumed) == 30


async def test_segment_that_holds_something_else_is_dropped_and_counted(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs") as messages:
        assert core.reader is not None
        core.unconsumed.extend([b"", b""])
        life = Incarnation(1)
        core.server.answers.deliver(Deliver(core.reader, NodeId(9), life, "jobs", 2, b"\xc4\x01x"))
        core.unconsumed.append(b"good")
        core.server.answers.deliver(delivered(core.reader, NodeId(9), "jobs", b"good"))
        async with asyncio.timeout(DEADLINE_S):
            assert (await anext(messages)).payload == b"good"
        assert messages.malformed == 2


async def test_segment_that_cannot_be_read_does_not_confirm_what_waits_before_it(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs") as messages, asyncio.timeout(DEADLINE_S):
        assert core.reader is not None
        core.put(b"first", b"not taken")
        core.unconsumed.extend([b"", b""])
        life = Incarnation(1)
        core.server.answers.deliver(Deliver(core.reader, NodeId(9), life, "jobs", 2, b"\xc4\x01x"))
        await daemon.status()
        assert messages.malformed == 2
        assert (await anext(messages)).payload == b"first"
    consumed = [c.count for _, c in core.told if isinstance(c, Consumed)]
    assert sum(consumed) == 1


async def test_long_message_is_read_in_parts(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.subscribe("jobs", max_message=9) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"first")
        message = await anext(messages)
        assert (message.is_long, message.size, message.source) == (True, 10, 9)
        with pytest.raises(bmgd.RequestError, match="parts"):
            _ = message.payload
        parts = message.parts()
        assert await anext(parts) == b"first"
        piece(core, b"lasts", last=True)
        assert [part async for part in parts] == [b"lasts"]


async def test_pieces_give_their_credit_back_together_and_all_of_it(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    def reported() -> list[int]:
        return [c.count for _, c in core.told if isinstance(c, Consumed) and c.long]

    subscription = daemon.subscribe("jobs", credit_bytes=8 << 20, max_message=9)
    async with subscription as messages, asyncio.timeout(DEADLINE_S):
        for number in range(20):
            piece(core, bytes([number]))
        parts = (await anext(messages)).parts()
        got = [await anext(parts) for _ in range(20)]
        assert got == [bytes([number]) for number in range(20)]
        piece(core, b"last", last=True)
        assert await anext(parts) == b"last"
        await core.until_told(lambda: sum(reported()) == 20)
        assert len(reported()) <= 5
        assert [part async for part in parts] == []
        await core.until_told(lambda: sum(reported()) == 21)


async def test_what_is_not_read_of_a_long_message_gives_its_credit_back_once(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    subscription = daemon.subscribe("jobs", credit_bytes=8 << 20, max_message=9)
    async with subscription as messages, asyncio.timeout(DEADLINE_S):
        for number in range(5):
            piece(core, bytes([number]))
        parts = (await anext(messages)).parts()
        assert [await anext(parts) for _ in range(3)] == [b"\0", b"\1", b"\2"]
        core.put(b"behind")
        assert (await anext(messages)).payload == b"behind"
        with pytest.raises(RequestError, match="the next one was taken"):
            await anext(parts)
    counts = [c.count for _, c in core.told if isinstance(c, Consumed) and c.long]
    assert sum(counts) == 5


async def test_long_message_is_read_once(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.subscribe("jobs", max_message=9) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"first")
        piece(core, b"lasts", last=True)
        message = await anext(messages)
        parts = message.parts()
        assert [part async for part in parts] == [b"first", b"lasts"]
        assert [part async for part in parts] == []
        with pytest.raises(RequestError, match="read once"):
            await anext(message.parts())


@pytest.mark.parametrize("is_whole", [False, True])
async def test_rest_of_a_long_message_is_gone_when_its_subscription_was_left(
    core: FakeCore, daemon: bmgd.Daemon, is_whole: bool
) -> None:
    async with daemon.subscribe("jobs", max_message=9) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"first")
        piece(core, b"lasts", last=is_whole)
        parts = (await anext(messages)).parts()
        assert await anext(parts) == b"first"
    with pytest.raises(bmgd.BmgdError, match="left" if is_whole else "over"):
        await anext(parts)


async def test_long_message_of_which_not_all_was_read_is_not_finished_when_its_reader_leaves(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", max_message=9) as messages, asyncio.timeout(DEADLINE_S):
        for number in range(3):
            piece(core, bytes([number]), last=number == 2)
        parts = (await anext(messages)).parts()
        assert await anext(parts) == b"\0"
    assert sum(c.count for _, c in core.told if isinstance(c, Consumed) and c.long) < 3


async def test_long_message_that_was_read_is_finished_when_its_reader_leaves(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", max_message=9) as messages, asyncio.timeout(DEADLINE_S):
        for number in range(3):
            piece(core, bytes([number]), last=number == 2)
        parts = (await anext(messages)).parts()
        assert [await anext(parts) for _ in range(3)] == [b"\0", b"\1", b"\2"]
    assert sum(c.count for _, c in core.told if isinstance(c, Consumed) and c.long) == 3


async def test_long_message_up_to_the_bound_is_put_together(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", max_message=10) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"first")
        piece(core, b"lasts", last=True)
        message = await anext(messages)
        assert (message.is_long, message.payload) == (False, b"firstlasts")


async def test_long_message_that_is_slow_holds_no_other_up(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", max_message=20) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"slow ")
        piece(core, b"first", long=2)
        piece(core, b"lasts", long=2, last=True)
        assert (await anext(messages)).payload == b"firstlasts"
        piece(core, b"lasts", last=True)
        assert (await anext(messages)).payload == b"slow lasts"


async def test_long_message_that_waits_is_put_together_when_the_one_before_it_is_aborted(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    """There is room for one at a time, and all that waits has come already."""
    async with daemon.subscribe("jobs", max_message=10) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"slow ")
        for long in (2, 3):
            piece(core, b"first", long=long)
            piece(core, b"lasts", long=long, last=True)
        piece(core, b"", long=2, aborted="its source died")
        core.put(b"behind")
        assert (await anext(messages)).payload == b"behind"
        piece(core, b"", aborted="its source died")
        assert (await anext(messages)).payload == b"firstlasts"


async def test_long_message_that_ends_early_is_an_error_to_its_reader(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with daemon.subscribe("jobs", max_message=1) as messages, asyncio.timeout(DEADLINE_S):
        piece(core, b"first")
        message = await anext(messages)
        parts = message.parts()
        assert await anext(parts) == b"first"
        piece(core, b"", aborted="its source is gone")
        with pytest.raises(bmgd.UnreachableError, match="its source is gone"):
            await anext(parts)


async def test_a_message_that_comes_alone_is_written_in_the_turn_in_which_it_is_sent(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    await daemon.send(1, b"first", topic="jobs")
    written = watch_segments(daemon)
    sending = asyncio.ensure_future(daemon.send(1, b"alone", topic="jobs"))
    await asyncio.sleep(0)
    assert [segment.count for segment in written] == [1]
    await sending


async def test_messages_that_are_sent_in_one_turn_share_segments(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async def together() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(daemon.send(1, b"%d" % number, topic="jobs"))

    await daemon.send(1, b"first", topic="jobs")
    written = watch_segments(daemon)
    await together()
    # The first one does not know of the others; those of the next turn are known to come together.
    assert [segment.count for segment in written] == [1, 49]
    await together()
    assert [segment.count for segment in written] == [1, 49, 50]


def watch_segments(daemon: bmgd.Daemon) -> list[control.PutSegment]:
    """What the client writes of streams from now on."""
    connection, found = daemon._connection, list[control.PutSegment]()
    write = connection.write

    def note(frame: control.Frame) -> None:
        if isinstance(frame, control.PutSegment):
            found.append(frame)
        write(frame)

    connection.write = note  # type: ignore[method-assign]
    return found


def closed(core: FakeCore) -> list[bool]:
    """Whether each stream that was closed was abandoned."""
    return [command.abandon for _, command in core.told if isinstance(command, CloseStream)]


def doubt(core: FakeCore, *numbers: int, error: str = "UnreachableError") -> None:
    """The daemon does not know what became of some segments of its only stream."""
    (request,) = core.streams
    detail = "no confirmation before the deadline"
    moved = StreamMoved(request, 1, 1 << 20, (), numbers, error, detail)
    core.server.answers.stream_moved(moved)


@contextlib.asynccontextmanager
async def two_underway(
    core: FakeCore, daemon: bmgd.Daemon
) -> AsyncIterator[tuple[bmgd.Writer, int]]:
    """A stream with two messages underway, each in a segment of its own, and its request."""
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        stream = await block.enter_async_context(daemon.stream(SILENT, "jobs"))
        for number in (1, 2):
            await stream.write(b"%d" % number)
            await core.until_told(lambda: len(put(core)) == number)  # noqa: B023
        (request,) = core.streams
        yield stream, request
        block.pop_all()
        stream.abandon()


@pytest.mark.parametrize("doubted", [(), (1,)])
async def test_error_of_a_stream_says_sent_where_others_are_underway_or_in_doubt(
    core: FakeCore, daemon: bmgd.Daemon, doubted: tuple[int, ...]
) -> None:
    async with two_underway(core, daemon) as (stream, request):
        told = StreamMoved(request, 1, 1 << 20, (2,), doubted, "LeavingError", "it is leaving")
        core.server.answers.stream_moved(told)
        with pytest.raises(bmgd.LeavingError) as failed:
            await stream.flush()
    assert failed.value.sent


async def test_error_of_a_stream_says_sent_where_others_of_it_will_be(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        stream = await block.enter_async_context(daemon.stream(SILENT, "jobs"))
        await stream.write(b"lost")
        await core.until_told(lambda: len(put(core)) == 1)
        # The daemon has no room for the next.
        stream._stream._credit = 0
        await stream.write(b"waits")
        (request,) = core.streams
        told = StreamMoved(request, 1, 0, (1,), (), "QueueFullError", "it is full")
        core.server.answers.stream_moved(told)
        with pytest.raises(bmgd.QueueFullError) as failed:
            await stream.flush()
        assert failed.value.sent
        go_on(core)
        await core.until_told(lambda: sent(core) == [b"lost", b"waits"])
        block.pop_all()
        stream.abandon()


async def test_error_of_a_stream_that_is_left_does_not_count_what_waits_in_vain(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        opening = daemon.stream(SILENT, "jobs")
        stream = await opening.__aenter__()
        await stream.write(b"lost")
        await core.until_told(lambda: len(put(core)) == 1)
        stream._stream._credit = 0
        await stream.write(b"waits")
        leaving = asyncio.ensure_future(opening.__aexit__(None, None, None))
        (request,) = core.streams
        told = StreamMoved(request, 1, 0, (1,), (), "QueueFullError", "it is full")
        core.server.answers.stream_moved(told)
        with pytest.raises(bmgd.QueueFullError) as failed:
            await leaving
    assert not failed.value.sent
    assert sent(core) == [b"lost"]


async def test_error_that_this_release_does_not_know_says_whether_its_message_was_sent(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sending = asyncio.ensure_future(daemon.send(SILENT, b"in doubt", timeout=DEADLINE_S))
        await core.until_told(lambda: len(put(core)) == 1)
        doubt(core, 1, error="QuotaError")
        with pytest.raises(bmgd.RequestError, match="QuotaError") as failed:
            await sending
    assert failed.value.sent


@pytest.mark.parametrize(
    ("doubted", "detail"),
    [
        (True, "no confirmation before the deadline"),
        (False, "its stream could not send it before the deadline"),
    ],
)
async def test_what_was_taken_back_in_the_end_says_that_its_time_was_over(
    core: FakeCore, daemon: bmgd.Daemon, doubted: bool, detail: str
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        soon = await daemon.send_soon(SILENT, b"late", topic="jobs", timeout=0.3)
        await core.until_told(lambda: any(isinstance(told, Withdraw) for _, told in core.told))
        (request,) = core.streams
        numbers: tuple[tuple[int, ...], tuple[int, ...]] = ((), (1,)) if doubted else ((1,), ())
        moved = StreamMoved(request, 1, 1 << 20, *numbers, "UnreachableError", "withdrawn")
        core.server.answers.stream_moved(moved)
        with pytest.raises(bmgd.UnreachableError) as failed:
            await soon
    assert (failed.value.detail, failed.value.sent) == (detail, doubted)


async def test_stream_that_was_abandoned_is_left_in_silence(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        await stream.write(b"x")
        await stream.flush()
        stream.abandon()
        with pytest.raises(bmgd.RequestError):
            await stream.write(b"late")
    assert sent(core) == [b"x"]


async def test_error_of_a_flush_of_all_says_sent_as_that_of_the_stream(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with two_underway(core, daemon) as (_, request):
        told = StreamMoved(request, 2, 1 << 20, (2,), (), "LeavingError", "it is leaving")
        core.server.answers.stream_moved(told)
        with pytest.raises(bmgd.LeavingError) as failed:
            await daemon.flush()
    assert failed.value.sent


async def test_nothing_is_put_without_credit_while_the_daemon_is_not_done_with_what_is_in_doubt(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        first = await daemon.send_soon(SILENT, b"in doubt", topic="jobs", timeout=100.0)
        await core.until_told(lambda: len(put(core)) == 1)
        (request,) = core.streams
        # The destination may still take it, and its bytes are not given back.
        doubted = StreamMoved(request, 1, 1, (), (1,), "UnreachableError", "no confirmation")
        core.server.answers.stream_moved(doubted)
        with pytest.raises(bmgd.UnreachableError):
            await first
        second = await daemon.send_soon(SILENT, b"behind", topic="jobs", timeout=100.0)
        await daemon.status()
        assert len(put(core)) == 1
        core.server.answers.stream_moved(StreamMoved(request, 2, 1))
        await core.until_told(lambda: len(put(core)) == 2)
        core.server.answers.stream_moved(StreamMoved(request, 3, CREDIT_BYTES))
        await second


@pytest.mark.parametrize("others", [0, 1])
async def test_error_of_a_stream_says_sent_where_others_since_the_last_flush_are_confirmed(
    core: FakeCore, daemon: bmgd.Daemon, others: int
) -> None:
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        stream = await block.enter_async_context(daemon.stream(SILENT, "jobs"))
        for number in range(1, 3 + others):
            await stream.write(b"%d" % number)
            await core.until_told(lambda: len(put(core)) == number)  # noqa: B023
            if number == 1:
                (request,) = core.streams
                core.server.answers.stream_moved(StreamMoved(request, 2, 1 << 20))
                await stream.flush()
        lost = 2 + others
        told = StreamMoved(request, lost, 1 << 20, (lost,), (), "QueueFullError", "it is full")
        core.server.answers.stream_moved(told)
        with pytest.raises(bmgd.QueueFullError) as failed:
            await stream.flush()
        assert failed.value.sent == bool(others)
        block.pop_all()
        stream.abandon()


async def test_stream_counts_what_is_confirmed(core: FakeCore, daemon: bmgd.Daemon) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        for payload in (b"1", b"2", bytes(150_000)):
            await stream.write(payload)
            await daemon.status()
        await core.until_told(lambda: len(put(core)) == 5)
        (request,) = core.streams
        counts = []
        for following in (1, 3, 5, 6):
            core.server.answers.stream_moved(StreamMoved(request, following, 1 << 20))
            await daemon.status()
            counts.append(stream.confirmed)
    assert counts == [0, 2, 2, 3]


async def test_stream_that_nothing_is_written_to_tells_of_its_end(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as block:
        stream = await block.enter_async_context(daemon.stream(1, "jobs"))
        failing = asyncio.ensure_future(stream.until_failed())
        await stream.write(b"1")
        await stream.flush()
        assert not failing.done()
        (request,) = core.streams
        dead = bmgd.DeadError(1, "it is dead")
        core.server.answers.stream_ended(StreamEnded(request, 2, 2, dead))
        with pytest.raises(bmgd.DeadError):
            await failing
        block.pop_all()
        stream.abandon()


async def test_leaving_a_stream_by_its_error_ends_it_and_raises_once(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async def write() -> None:
        async with daemon.stream(SILENT, "jobs") as stream:
            await stream.write(bytes(100_000))
            await core.until_told(lambda: len(put(core)) == 2)
            doubt(core, 1, 2)

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(bmgd.UnreachableError, match="before the deadline"):
            await write()
        await core.until_told(lambda: closed(core) == [True])
        # It has been raised, and nothing of it is open.
        await daemon.flush()
    assert not core.streams


async def test_leaving_a_stream_that_is_cancelled_meanwhile_ends_it(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async def leave() -> None:
        async with daemon.stream(SILENT, "jobs") as stream:
            await stream.write(b"x")

    leaving = asyncio.ensure_future(leave())
    await core.until_told(lambda: len(put(core)) == 1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(DEADLINE_S):
        await core.until_told(lambda: closed(core) == [True])
        await daemon.flush()


async def test_closing_an_outgoing_stream_abandons_it_where_something_is_not_confirmed(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    stream = Outgoing(daemon._connection, SILENT, "jobs", "normal", "reliable")
    stream.add(b"x")
    closing = asyncio.ensure_future(stream.close())
    await core.until_told(lambda: len(put(core)) == 1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(DEADLINE_S):
        await core.until_told(lambda: closed(core) == [True])


def go_on(core: FakeCore) -> None:
    """All that was held back of its only stream is confirmed, and what follows at once."""
    core.holds_back = False
    ((request, segments),) = core.streams.items()
    core.server.answers.stream_moved(StreamMoved(request, len(segments) + 1, 8 << 20))


async def test_nothing_is_put_between_the_pieces_of_a_long_message(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        await stream.write(b"before")
        writing = [asyncio.ensure_future(stream.write(bytes(2 << 20))) for _ in range(2)]
        # Its credit is spent but for what a short one costs.
        await core.until_told(lambda: len(put(core)) == 16)
        writing.append(asyncio.ensure_future(stream.write(b"behind")))
        # Answered behind what can be put.
        await daemon.status()
        go_on(core)
        await asyncio.gather(*writing)
    shown = "".join("[" * each.first + "." + "]" * each.last for each in put(core) if each.size)
    assert shown == 2 * ("[" + 32 * "." + "]")
    place = [each.count for each in put(core)]
    assert place.index(1, 1) == 65


async def test_what_waits_behind_a_long_message_that_is_cancelled_goes_on(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        writing = asyncio.ensure_future(stream.write(bytes(2 << 20)))
        await core.until_told(lambda: len(put(core)) == 15)
        await stream.write(b"behind")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await core.until_told(lambda: sum(each.count for each in put(core)) == 1)
        order = [type(c) for _, c in core.told if isinstance(c, PutSegment | Withdraw)]
        assert order[-2:] == [Withdraw, PutSegment]
        go_on(core)


async def filled(daemon: bmgd.Daemon, stream: bmgd.Writer) -> list[bytes]:
    """Write until its credit is spent and the next message has to wait; returns what was written."""
    written: list[bytes] = []
    while not stream._stream.is_full:
        written.append(b"%05d" % len(written) + bytes(40_000))
        await stream.write(written[-1])
        # Answered behind it.
        await daemon.status()
    return written


def sent(core: FakeCore) -> list[bytes]:
    """The short messages that were put, in order."""
    short = [each for each in put(core) if each.count]
    return [payload for each in short for payload in unpack_messages(each.body, each.count)]


async def test_write_that_is_cancelled_while_the_stream_is_full_is_not_sent(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        wanted = await filled(daemon, stream)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.write(b"in vain")
        # Answered behind what can be put.
        await daemon.status()
        go_on(core)
        await stream.write(b"last")
    assert sent(core) == [*wanted, b"last"]


async def test_write_that_is_cancelled_when_there_is_room_just_now_leaves_it_to_the_next(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        wanted = await filled(daemon, stream)
        writing = [
            asyncio.ensure_future(stream.write(payload)) for payload in (bytes(65_536), b"x")
        ]
        await daemon.status()
        # There is room for the first, and nothing is confirmed that would make more.
        (request,) = core.streams
        core.server.answers.stream_moved(StreamMoved(request, 1, 8 << 20))
        await until_changed(stream)
        assert not writing[0].done()
        writing[0].cancel()
        await writing[1]
        assert writing[0].cancelled()
        go_on(core)
    assert sent(core) == [*wanted, b"x"]


async def until_changed(stream: bmgd.Writer) -> None:
    """Until there is room again; nobody who waited for it has run."""
    while stream._stream.is_full:
        await stream._stream.until_changed()


async def test_writers_that_wait_go_on_in_their_order_and_nobody_overtakes_them(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        wanted = await filled(daemon, stream)
        # More than go into one segment, and a long one between them.
        later = [b"%05d later" % number + bytes(20_000) for number in range(10)]
        writing = [asyncio.ensure_future(stream.write(payload)) for payload in later[:5]]
        writing.append(asyncio.ensure_future(stream.write(bytes(100_000))))
        writing += [asyncio.ensure_future(stream.write(payload)) for payload in later[5:]]
        await daemon.status()
        assert not any(each.done() for each in writing)
        writing[3].cancel()
        go_on(core)
        await until_changed(stream)
        await stream.write(b"came last")
        await asyncio.gather(*writing, return_exceptions=True)
    assert sent(core) == [*wanted, *later[:3], *later[4:], b"came last"]
    segments = put(core)
    before = segments[[each.first for each in segments].index(True) - 1]
    assert unpack_messages(before.body, before.count)[-1] == later[4]


async def test_writers_that_wait_when_their_stream_ends_are_told(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True

    async def write() -> None:
        async with daemon.stream(1, "jobs") as stream:
            await filled(daemon, stream)
            writing = [asyncio.ensure_future(stream.write(b"x")) for _ in range(2)]
            writing.append(asyncio.ensure_future(stream.write(bytes(100_000))))
            await daemon.status()
            (request,) = core.streams
            error = bmgd.DeadError(1, "it is dead")
            core.server.answers.stream_ended(StreamEnded(request, 1, 1, error))
            ends = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(each) for each in ends] == 3 * [bmgd.DeadError]

    with pytest.raises(bmgd.DeadError):
        await asyncio.wait_for(write(), DEADLINE_S)


@pytest.mark.parametrize("size", [64, 100_000])
async def test_what_is_confirmed_when_its_destination_is_declared_dead_has_not_failed(
    core: FakeCore, daemon: bmgd.Daemon, size: int
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S):
        async with daemon.stream(1, "jobs") as stream:
            await stream.write(bytes(size))
            flushing = asyncio.ensure_future(stream.flush())
            sending = asyncio.ensure_future(daemon.send(1, bytes(size), topic="other"))
            pieces = 1 if size == 64 else 2
            await core.until_told(lambda: len(put(core)) == 2 * pieces)
            for request in list(core.streams):
                # The confirmation and the death are told at once.
                confirmed, dead = pieces + 1, bmgd.DeadError(1, "it is dead")
                core.server.answers.stream_moved(StreamMoved(request, confirmed, CREDIT_BYTES))
                ended = StreamEnded(request, confirmed, confirmed, dead)
                core.server.answers.stream_ended(ended)
            await flushing
            await sending
        with pytest.raises(bmgd.DeadError):
            await stream.write(b"later")


async def test_long_message_that_waits_for_its_turn_in_vain_is_not_sent(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S), daemon.stream(1, "jobs") as stream:
        wanted = await filled(daemon, stream)
        with pytest.raises(bmgd.UnreachableError, match="no room") as failed:
            await stream.write(bytes(100_000), timeout=0.01)
        assert not failed.value.sent
        await daemon.status()
        go_on(core)
    assert sent(core) == wanted
    assert not any(each.size for each in put(core))


async def test_leaving_a_stream_waits_for_those_who_wait_to_write(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    async with asyncio.timeout(DEADLINE_S):
        async with daemon.stream(1, "jobs") as stream:
            wanted = await filled(daemon, stream)
            writing = asyncio.ensure_future(stream.write(b"x"))
            await daemon.status()
            go_on(core)
        await writing
    assert sent(core) == [*wanted, b"x"]
