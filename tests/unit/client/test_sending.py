"""Single messages that wait for room: in their order, and while their daemon goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import bmgd
from bmgd.core.commands import CloseStream, PutSegment, Withdraw
from bmgd.core.effects import StreamMoved
from bmgd.wire.batch import unpack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX
from tests.unit.fake_core import FakeCore, fake_daemon

DEADLINE_S = 10.0


def put(core: FakeCore) -> int:
    return sum(command.count for _, command in core.told if isinstance(command, PutSegment))


async def test_message_that_waits_for_room_is_sent_by_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    async with asyncio.timeout(DEADLINE_S):
        async with fake_daemon(path) as core:
            opening = bmgd.connect(core.address, reconnect=True)
            daemon = await opening.__aenter__()
            core.holds_back = True
            waiting = [asyncio.ensure_future(daemon.send_soon(1, bytes(65_000))) for _ in range(20)]
            # That is all its credit.
            await core.until_told(lambda: put(core) == 16)
        async with fake_daemon(path) as core:
            confirmed = await asyncio.gather(*waiting)
            outcomes = await asyncio.gather(*confirmed, return_exceptions=True)
            errors = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(error, bmgd.UnreachableError) for error in errors)
            assert len(errors) + put(core) == 20
            assert put(core)
            await opening.__aexit__(None, None, None)


def texts(core: FakeCore) -> list[bytes]:
    """What was put, without what only fills."""
    segments = [command for _, command in core.told if isinstance(command, PutSegment)]
    messages = [m for each in segments for m in unpack_messages(each.body, each.count)]
    return [message for message in messages if message.strip(b"\0")]


async def filled(core: FakeCore, daemon: bmgd.Daemon) -> None:
    """Spend the stream's credit, and let as much wait as goes into a segment."""
    core.holds_back = True
    for _ in range(16):
        sent = await daemon.send_soon(1, bytes(PAYLOAD_BYTES_MAX))
        sent.add_done_callback(asyncio.Future.exception)
    await core.until_told(lambda: put(core) == 15)


def go_on(core: FakeCore) -> None:
    """Confirm what was put, and grant more credit."""
    request, segments = next(iter(core.streams.items()))
    core.server.answers.stream_moved(StreamMoved(request, len(segments) + 1, 8 << 20))


def send_soon(daemon: bmgd.Daemon, text: bytes) -> asyncio.Task[asyncio.Future[None]]:
    return asyncio.ensure_future(daemon.send_soon(1, text))


async def test_those_who_wait_for_room_are_sent_before_those_who_come_later(
    core: FakeCore, daemon: bmgd.Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await filled(core, daemon)
        sending = [send_soon(daemon, text) for text in (b"1", b"2", b"3")]
        await daemon.status()
        buffer_updated = daemon._connection.buffer_updated

        def update_late(nbytes: int) -> None:
            # Runs when there is room, and before those who are told of it.
            if len(sending) == 3:
                sending.append(send_soon(daemon, b"4"))
            buffer_updated(nbytes)

        monkeypatch.setattr(daemon._connection, "buffer_updated", update_late)
        go_on(core)
        await core.until_told(lambda: put(core) > 16)
        for sent in await asyncio.gather(*sending[:4]):
            sent.add_done_callback(asyncio.Future.exception)
        await core.until_told(lambda: len(texts(core)) >= 4)
    assert texts(core) == [b"1", b"2", b"3", b"4"]
    go_on(core)


async def test_send_does_not_overtake_what_send_soon_waits_to_add(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await filled(core, daemon)
        soon = [send_soon(daemon, text) for text in (b"1", b"2")]
        await daemon.status()
        sending = asyncio.ensure_future(daemon.send(1, b"3", timeout=DEADLINE_S))
        await daemon.status()
        go_on(core)
        for sent in await asyncio.gather(*soon):
            sent.add_done_callback(asyncio.Future.exception)
        await core.until_told(lambda: len(texts(core)) == 3)
        sending.cancel()
        await asyncio.wait((sending,))
    assert texts(core) == [b"1", b"2", b"3"]
    go_on(core)


async def test_one_who_waits_for_room_in_vain_or_is_cancelled_leaves_no_gap(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await filled(core, daemon)
        late = asyncio.ensure_future(daemon.send_soon(1, b"late", timeout=0.01))
        sending = [send_soon(daemon, text) for text in (b"1", b"2", b"3")]
        with pytest.raises(bmgd.UnreachableError) as caught:
            await late
        assert not caught.value.sent
        sending[1].cancel()
        await asyncio.wait(sending[1:2])
        go_on(core)
        for sent in await asyncio.gather(sending[0], sending[2]):
            sent.add_done_callback(asyncio.Future.exception)
        await core.until_told(lambda: len(texts(core)) == 2)
    assert texts(core) == [b"1", b"3"]
    go_on(core)


def withdrawn(core: FakeCore) -> list[int]:
    return [each.number for _, each in core.told if isinstance(each, Withdraw)]


async def test_messages_of_one_segment_are_taken_back_when_all_are_cancelled(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        core.holds_back = True
        lone = asyncio.ensure_future(daemon.send(1, b"lone", timeout=60))
        await core.until_told(lambda: put(core) == 1)
        sending = [asyncio.ensure_future(daemon.send(1, b"m", timeout=60)) for _ in range(3)]
        await core.until_told(lambda: put(core) == 4)
        for each in sending[:2]:
            each.cancel()
        await asyncio.wait(sending[:2])
        await daemon.status()
        assert not withdrawn(core)
        sending[2].cancel()
        await core.until_told(lambda: withdrawn(core) == [2])
        later = asyncio.ensure_future(daemon.send(1, b"later", timeout=60))
        await core.until_told(lambda: put(core) == 5)
        lone.cancel()
        later.cancel()
        # Else the later one would have its turn when the other is taken back.
        await core.until_told(lambda: withdrawn(core) == [2, 3, 1])


async def test_message_whose_future_is_cancelled_is_not_sent(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        core.holds_back = True
        first = [await daemon.send_soon(1, bytes(65_000)) for _ in range(16)]
        # That is nearly all its credit.
        await core.until_told(lambda: put(core) == 16)
        given_up = await daemon.send_soon(1, b"1" * 10_000)
        kept = await daemon.send_soon(1, b"2" * 10_000)
        given_up.cancel()
        await asyncio.wait((given_up,))
        go_on(core)
        await asyncio.wait(first)
        await core.until_told(lambda: bool(texts(core)))
        assert texts(core) == [b"2" * 10_000]
        go_on(core)
        await kept


async def test_message_that_the_daemon_has_is_taken_back_when_its_future_is_cancelled(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        core.holds_back = True
        sent = await daemon.send_soon(1, b"m")
        await core.until_told(lambda: put(core) == 1)
        sent.cancel()
        await core.until_told(lambda: withdrawn(core) == [1])


async def test_long_message_is_taken_back_when_its_sender_is_cancelled(
    core: FakeCore, daemon: bmgd.Daemon
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        core.holds_back = True
        payload = bytes(3 * PAYLOAD_BYTES_MAX)
        sending = asyncio.ensure_future(daemon.send(1, payload, timeout=60))
        puts = [PutSegment] * 3
        await core.until_told(
            lambda: [type(c) for _, c in core.told if isinstance(c, PutSegment)] == puts
        )
        sending.cancel()
        await core.until_told(lambda: isinstance(core.told[-1][1], CloseStream))
        assert withdrawn(core) == [3]
