"""The Python client against a fake daemon."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import bmgd
from bmgd.client import daemon_socket, writing
from bmgd.client.arguments import checked_payload
from bmgd.client.items import Stream
from bmgd.core.commands import OpenStream, PutSegment
from bmgd.core.effects import Observed
from bmgd.types import NodeId, Status
from bmgd.wire import control
from bmgd.wire.batch import unpack_messages
from bmgd.wire.control_errors import failure_of
from tests.unit.fake_core import SILENT, FakeCore

DEADLINE_S = 10.0


async def test_requests(daemon: bmgd.Daemon) -> None:
    assert (await daemon.status())["state"] == "ready"
    assert [member["id"] for member in await daemon.members()] == [0, 1, 2]
    assert (await daemon.links())[0]["dialled_by"] == 1
    assert await daemon.ping(1) == 1.5e-6
    assert await daemon.trace(2) == bmgd.Trace((0, 2), 1.5e-6)
    await daemon.leave()


async def test_many_requests_at_a_time(daemon: bmgd.Daemon) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(500):
            tasks.create_task(daemon.send(1, b"x" * 1000))


@pytest.mark.parametrize(
    ("destination", "error"),
    [
        (3, bmgd.DeadError),
        (4, bmgd.UnreachableError),
        (5, bmgd.QueueFullError),
        (6, bmgd.RequestError),
    ],
)
async def test_errors_are_those_of_the_tree(
    daemon: bmgd.Daemon, destination: int, error: type[bmgd.BmgdError]
) -> None:
    with pytest.raises(error) as caught:
        await daemon.send(destination, b"")
    if isinstance(caught.value, bmgd.DeliveryError):
        assert caught.value.destination == destination


@pytest.mark.parametrize("destination", [[1], {1: 2}, "1", None, 1.0, True])
async def test_destination_that_is_no_id_is_refused(daemon: bmgd.Daemon, destination: Any) -> None:
    refused = partial(pytest.raises, bmgd.RequestError, match="a destination is the id of a node")
    with refused():
        await daemon.send(destination, b"")
    with refused():
        await daemon.send_soon(destination, b"")
    with refused():
        await daemon.request(destination, b"")
    with refused():
        daemon.stream(destination)
    with refused():
        await daemon.ping(destination)
    await daemon.send(1, b"")


async def test_what_cannot_be_right_is_not_even_sent(core: FakeCore, daemon: bmgd.Daemon) -> None:
    with pytest.raises(bmgd.RequestError, match=r"65536 bytes are sent by send"):
        await daemon.send_soon(1, bytes(65_537))
    with pytest.raises(bmgd.RequestError, match=r"a payload is bytes, not str.*\.encode\(\)"):
        await daemon.send(6, "text")  # type: ignore[arg-type]
    for topic in ("", "x" * 256, "\udcff"):
        with pytest.raises(bmgd.RequestError, match="topic"):
            await daemon.send(1, b"", topic=topic)
        with pytest.raises(bmgd.RequestError, match="topic"):
            daemon.subscribe(topic)
    for credit in (0, 2**20 + 1):
        with pytest.raises(bmgd.RequestError, match="credit"):
            daemon.subscribe("jobs", credit=credit)
    for payload in (None, [1]):
        with pytest.raises(bmgd.RequestError, match=r"a payload is bytes, not \w+$"):
            await daemon.send(6, payload)  # type: ignore[arg-type]
    for destination in (-1, 2**31, 2**70):
        with pytest.raises(bmgd.RequestError, match=r"a node id in 0\.\.2147483647"):
            await daemon.send(destination, b"")
    for name in ("", "x" * 256, "\udcff", 7):
        with pytest.raises(bmgd.RequestError, match=r"(a|the) program's name"):
            async with daemon.register(name):  # type: ignore[arg-type]
                pass
    with pytest.raises(
        bmgd.RequestError, match=r"^the request cannot be sent: no frame holds it: "
    ):
        await daemon.evict(2**70)
    assert core.told == []


@pytest.mark.parametrize("size", [1, 100_000])
async def test_quality_that_there_is_not_is_refused_whatever_the_size(
    core: FakeCore, daemon: bmgd.Daemon, size: int
) -> None:
    wrong: Any = "realible"
    for call in (
        daemon.send(1, bytes(size), quality=wrong),
        daemon.broadcast(bytes(size), quality=wrong),
        daemon.multicast([1], bytes(size), quality=wrong),
    ):
        with pytest.raises(bmgd.RequestError, match="a quality is reliable or best-effort"):
            await call
    with pytest.raises(bmgd.RequestError, match="a quality is reliable or best-effort"):
        daemon.stream(1, quality=wrong)
    assert core.told == []


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), 10**400, "3", None, True])
async def test_a_bad_timeout_is_refused_before_anything_is_done(
    core: FakeCore, daemon: bmgd.Daemon, seconds: Any
) -> None:
    for call in (
        daemon.drain(seconds),
        daemon.evict(1, timeout=seconds),
        daemon.readers("jobs", timeout=seconds),
        daemon.ping(1, timeout=seconds),
        daemon.trace(1, timeout=seconds),
        daemon.send(1, b"", timeout=seconds),
        daemon.send_soon(1, b"", timeout=seconds),
        daemon.request(1, b"", timeout=seconds),
        daemon.broadcast(b"", timeout=seconds),
        daemon.multicast([1], b"", timeout=seconds),
        daemon.flush(seconds),
    ):
        with pytest.raises(bmgd.RequestError, match="timeout"):
            await call
    assert core.told == []
    await daemon.status()
    async with daemon.stream(1) as stream:
        if seconds is not None:
            with pytest.raises(bmgd.RequestError, match="timeout"):
                await stream.flush(seconds)


async def test_errors_of_a_connection_that_is_lost_do_not_grow(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.server.close()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with pytest.raises(bmgd.NoDaemonError) as first:
                await daemon.status()
            if daemon._connection.lost is not None:
                break
    lengths = set()
    for _ in range(5):
        for call in (daemon.status(), daemon.send(1, b"x")):
            with pytest.raises(bmgd.NoDaemonError) as caught:
                await call
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1
    del first


@pytest.mark.parametrize("size", [-1, 1.5, "x", None, True])
async def test_a_bound_of_bytes_is_a_whole_number(
    core: FakeCore, daemon: bmgd.Daemon, size: Any
) -> None:
    with pytest.raises(bmgd.RequestError, match="max_message"):
        daemon.subscribe("jobs", max_message=size)
    with pytest.raises(bmgd.RequestError, match="max_answer"):
        await daemon.request(1, b"", max_answer=size)
    assert core.told == []


@pytest.mark.parametrize("step", [1, 2])
def test_long_views_of_wide_items_are_taken_as_bytes(step: int) -> None:
    view = memoryview(bytes(range(256)) * 1024).cast("I")[::step]
    checked = checked_payload(view)
    assert len(checked) == view.nbytes
    assert bytes(checked) == view.tobytes()


@pytest.mark.parametrize("topic", [None, 3, b"jobs"])
async def test_a_topic_is_a_text(core: FakeCore, daemon: bmgd.Daemon, topic: Any) -> None:
    with pytest.raises(bmgd.RequestError, match="a topic is a text"):
        await daemon.send(1, b"", topic=topic)
    with pytest.raises(bmgd.RequestError, match="a topic is a text"):
        daemon.subscribe(topic)
    with pytest.raises(bmgd.RequestError, match="credit"):
        daemon.subscribe("jobs", credit="3")  # type: ignore[arg-type]
    with pytest.raises(bmgd.RequestError, match="credit"):
        daemon.subscribe("jobs", credit_bytes="3")  # type: ignore[arg-type]
    assert core.told == []


async def test_the_largest_payload_fits(core: FakeCore, daemon: bmgd.Daemon) -> None:
    await daemon.send(1, bytes(65_536), topic="x" * 255)
    ((_, opened), (_, put)) = core.told[-2:]
    assert opened == OpenStream(NodeId(1), "x" * 255)
    assert isinstance(put, PutSegment)
    assert unpack_messages(put.body, put.count) == [bytes(65_536)]


async def test_a_subscription_takes_one_at_a_time(core: FakeCore, daemon: bmgd.Daemon) -> None:
    core.put(*(bytes([n]) for n in range(10)))
    taken = []
    async with daemon.subscribe("jobs", credit=4) as messages:
        async for message in messages:
            assert (message.source, message.topic) == (9, "jobs")
            taken.append(message.payload)
            if len(taken) == 6:
                break
    # What was delivered and not taken is there for the next reader, in order.
    async with daemon.subscribe("jobs", credit=4) as messages:
        taken += [(await anext(messages)).payload for _ in range(4)]
    assert taken == [bytes([n]) for n in range(10)]


@pytest.mark.parametrize("most", [0, -1, 1.5, "1", True, None])
async def test_messages_are_taken_by_whole_numbers(daemon: bmgd.Daemon, most: Any) -> None:
    async with daemon.subscribe("jobs") as messages:
        with pytest.raises(bmgd.RequestError, match=r"number of messages|at least one"):
            await messages.take(most)


async def test_taking_survives_a_timeout(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.subscribe("jobs") as messages:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await anext(messages)
        core.put(b"at last")
        async with asyncio.timeout(DEADLINE_S):
            assert (await anext(messages)).payload == b"at last"


async def test_a_subscription_that_is_refused(daemon: bmgd.Daemon) -> None:
    with pytest.raises(bmgd.RequestError, match="too many"):
        async with daemon.subscribe("taken"):
            pass
    assert (await daemon.status())["state"] == "ready"


async def test_membership_begins_with_everybody(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.membership() as changes:
        core.change(1, Status.EXCLUDED)
        items = [await anext(changes) for _ in range(4)]
    assert [(c.id, c.status, c.revision) for c in items] == [
        (0, "expected", 10),
        (1, "expected", 10),
        (2, "expected", 10),
        (1, "excluded", 11),
    ]
    assert items[-1].incarnation == 2**64 - 1


async def test_monitor(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.monitor() as events:
        core.server.answers.observed(Observed("suspected"), 7)
        assert (await anext(events))["event"] == "suspected"


@pytest.mark.parametrize("reconnect", [False, True])
async def test_stream_gives_nothing_when_its_block_was_left(
    core: FakeCore, reconnect: bool
) -> None:
    async with bmgd.connect(core.address, reconnect=reconnect) as daemon:
        async with daemon.membership() as changes:
            await anext(changes)
        async with daemon.monitor() as events:
            core.server.answers.observed(Observed("suspected"), 7)
            await daemon.status()
        for left in (changes, events):
            with pytest.raises(StopAsyncIteration):
                await anext(left)


async def test_a_program_too_slow_for_a_stream_is_told(
    core: FakeCore, daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.client.showing.CHANGES_MAX", 8)
    async with daemon.monitor() as events:
        for _ in range(100):
            core.server.answers.observed(Observed("event"), 7)
        await daemon.status()
        with pytest.raises(bmgd.SubscriptionError):
            async for _ in events:
                pass


async def test_a_stopped_daemon_is_not_waited_for_for_ever(
    daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "GRACE_S", 0.02)
    timeout_s = 0.01
    was_sent = False
    while not was_sent and timeout_s < DEADLINE_S:
        # On a busy machine a short deadline is over before the stream is open.
        with pytest.raises(bmgd.UnreachableError) as caught:
            await daemon.send(SILENT, b"", timeout=timeout_s)
        was_sent = caught.value.sent
        timeout_s *= 2
    assert was_sent
    assert (await daemon.status())["state"] == "ready"


async def test_everybody_hears_that_the_daemon_is_gone(core: FakeCore, daemon: bmgd.Daemon) -> None:
    async with daemon.subscribe("jobs") as messages:
        sending = asyncio.ensure_future(daemon.send(SILENT, b""))
        await daemon.status()
        core.server.close()
        with pytest.raises(bmgd.NoDaemonError):
            await sending
        with pytest.raises(bmgd.NoDaemonError):
            await anext(messages)
    with pytest.raises(bmgd.NoDaemonError):
        await daemon.status()


async def test_a_cancelled_request_leaves_nothing_behind(daemon: bmgd.Daemon) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await daemon.send(SILENT, b"")
    assert (await daemon.status())["state"] == "ready"


async def test_after_the_end_nothing_works(core: FakeCore) -> None:
    async with bmgd.connect(core.address) as daemon:
        pass
    with pytest.raises(bmgd.ControlError, match="closed"):
        await daemon.status()


@pytest.mark.parametrize("reconnect", [False, True])
async def test_connection_to_a_daemon_that_is_stopped_is_closed_all_the_same(
    core: FakeCore, monkeypatch: pytest.MonkeyPatch, reconnect: bool
) -> None:
    monkeypatch.setattr(daemon_socket, "CLOSE_S", 0.05)

    async with (
        asyncio.timeout(DEADLINE_S),
        bmgd.connect(core.address, reconnect=reconnect) as daemon,
    ):
        (program,) = core.server._programs
        stopped, transport = program._transport, daemon._connection._transport
        assert stopped is not None
        assert transport is not None
        stopped.pause_reading()
        while not daemon._connection.unwritten_bytes:
            transport.write(bytes(100_000))
    assert transport.get_extra_info("socket").fileno() == -1


@pytest.mark.parametrize("reconnect", [False, True])
async def test_connection_is_refused_in_another_event_loop(core: FakeCore, reconnect: bool) -> None:
    async with (
        bmgd.connect(core.address, reconnect=reconnect) as daemon,
        daemon.stream(1, "jobs") as stream,
        daemon.monitor() as events,
        daemon.subscribe("jobs") as messages,
    ):
        # Its stream is open.
        await daemon.send(1, b"x")
        uses: list[Callable[[], Awaitable[object]]] = [
            daemon.status,
            lambda: daemon.send(1, b"x"),
            lambda: daemon.send_soon(1, b"x"),
            lambda: daemon.request(1, b"x"),
            lambda: daemon.broadcast(b"x"),
            daemon.flush,
            stream.flush,
            lambda: stream.write(bytes(100_000)),
            lambda: daemon.stream(1, "other").__aenter__(),
            lambda: anext(events),
            lambda: anext(messages),
            messages.take,
        ]
        for use in uses:
            with pytest.raises(bmgd.RequestError, match="another event loop"):
                await asyncio.wait_for(asyncio.to_thread(asyncio.run, result_of(use)), DEADLINE_S)
        assert (await daemon.status())["state"] == "ready"
    assert len([command for _, command in core.told if isinstance(command, PutSegment)]) == 1


async def result_of(use: Callable[[], Awaitable[object]]) -> object:
    return await use()


async def test_garbage_from_a_daemon_is_an_error(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    path = tmp_path / "d.sock"
    async with await asyncio.start_unix_server(talk, path):
        with pytest.raises(bmgd.BmgdError, match="control frame"):
            async with bmgd.connect(str(path)):
                pass


@pytest.mark.parametrize("prefix", ["", "unix:"])
async def test_nobody_there(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(bmgd.NoDaemonError, match="No such file"):
        async with bmgd.connect(f"{prefix}{tmp_path}/none.sock"):
            pass


async def test_socket_that_this_user_may_not_use_is_not_taken_for_no_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_unix_connection", refuse)
    with pytest.raises(bmgd.RequestError, match=r"may not use the socket /d\.sock: Perm"):
        async with bmgd.connect("/d.sock"):
            pass


@pytest.mark.parametrize("reconnect", [False, True])
async def test_daemon_that_does_not_answer_at_first_is_waited_for_as_long_as_was_asked(
    tmp_path: Path, reconnect: bool
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(f"{tmp_path}/d.sock")
        stopped.listen()
        with pytest.raises(bmgd.SilentDaemonError, match=r"'hello' for 0\.05 s"):
            async with bmgd.connect(f"{tmp_path}/d.sock", reconnect=reconnect, timeout=0.05):
                pass


@pytest.mark.parametrize("timeout_s", [0, -1.0, True, "5", 1e9])
async def test_connecting_refuses_what_is_no_timeout(tmp_path: Path, timeout_s: Any) -> None:
    with pytest.raises(bmgd.RequestError, match="a timeout is"):
        async with bmgd.connect(f"{tmp_path}/d.sock", timeout=timeout_s):
            pass


async def test_a_bad_address() -> None:
    with pytest.raises(bmgd.ConfigError):
        async with bmgd.connect("tcp:1.2.3.4:5"):
            pass


def test_the_public_names_are_there_and_cheap() -> None:
    for name in bmgd.__all__:
        assert getattr(bmgd, name) is not None
    with pytest.raises(AttributeError):
        _ = bmgd.nothing
    code = "import sys, bmgd; sys.exit('asyncio' in sys.modules or 'msgpack' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_streams_have_the_bound_that_they_state() -> None:
    stream: Stream[int] = Stream(2)
    stream.add([1, 2, 3])
    with pytest.raises(bmgd.SubscriptionError):
        stream.add([4])


async def test_error_of_a_daemon_that_goes_away_says_what_it_may_have_taken(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    core.holds_back = True
    asking = [
        asyncio.ensure_future(daemon.send(1, b"x")),
        asyncio.ensure_future(daemon.send(1, bytes(100_000))),
        asyncio.ensure_future(daemon.broadcast(b"x")),
    ]
    await core.until_told(lambda: len(core.told) == 6)
    core.server.close()
    ends = await asyncio.gather(*asking, return_exceptions=True)
    assert [(type(end), getattr(end, "sent", None)) for end in ends] == [
        (bmgd.NoDaemonError, True)
    ] * 3
    later: list[Awaitable[object]] = [
        daemon.send(1, b"x"),
        daemon.broadcast(b"x"),
        daemon.multicast([1], b"x"),
    ]
    for each in later:
        with pytest.raises(bmgd.NoDaemonError) as lost:
            await each
        assert not lost.value.sent


@pytest.mark.parametrize("word", ["topic", "priority", "quality"])
async def test_send_refuses_a_word_that_is_no_text(daemon: bmgd.Daemon, word: str) -> None:
    wrong: dict[str, Any] = {word: []}
    with pytest.raises(bmgd.RequestError, match=f"a {word} is a text"):
        await daemon.send(1, b"x", **wrong)
    if word != "quality":
        with pytest.raises(bmgd.RequestError, match=f"a {word} is a text"):
            await daemon.request(1, b"x", **wrong)


@pytest.mark.parametrize("address", [None, 5, b"/tmp/d.sock"])
async def test_connect_refuses_an_address_that_is_no_text(address: Any) -> None:
    with pytest.raises(bmgd.ConfigError, match="is a text"):
        async with bmgd.connect(address):
            pass


async def test_connection_that_its_daemon_refuses_has_sent_nothing(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    full = failure_of(0, bmgd.RequestError("more than 1024 programs at a time"))

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(b"".join(control.encode_parts(full)))
        writer.close()

    server = await asyncio.start_unix_server(refuse, str(path))
    with pytest.raises(bmgd.RequestError, match="1024 programs") as refused:
        async with asyncio.timeout(10.0), bmgd.connect(str(path)):
            pass
    assert not refused.value.sent
    server.close()
