"""A subscription whose daemon is restarted while its program reads."""

from __future__ import annotations

import asyncio

import pytest

import bmgd
from bmgd.client.connection import Connection
from bmgd.client.message import LongMessage
from bmgd.client.reading import LIVES_MAX, Interrupted, Messages
from bmgd.wire import control
from bmgd.wire.batch import pack_messages
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX

PIECE = bytes(PAYLOAD_BYTES_MAX)


class Recorded(Connection):
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[control.Frame] = []

    def write(self, frame: control.Frame) -> None:
        self.written.append(frame)


def reading(connection: Recorded) -> Messages:
    """A subscription that is open as request 5."""
    messages = Messages(connection, 100, 1 << 20, max_message=1000)
    messages.sequence = 5
    return messages


def restart(messages: Messages) -> None:
    """The daemon goes away; the subscription is open again as request 8."""
    messages.interrupt()
    messages.sequence = 8


def piece(messages: Messages, number: int, *, long: int = 9, last: bool = False) -> None:
    of = {"source": 3, "incarnation": 1, "topic": "t", "size": 4 * len(PIECE)}
    messages.on_item({**of, "long": long, "body": bytes([number]) + PIECE[1:], "last": last})


def short(messages: Messages, payload: bytes) -> None:
    of = {"source": 3, "incarnation": 1, "topic": "t", "redelivered": False}
    messages.on_item({**of, "count": 1, "body": pack_messages([payload])})


def broadcast_piece(messages: Messages, number: int) -> None:
    of = {"source": 3, "incarnation": 1, "topic": "t", "sequence": number}
    where = [77, number * len(PIECE), 4 * len(PIECE)]
    messages.on_item({**of, "piece": where, "body": bytes([number]) + PIECE[1:]})


async def first_bytes(message: bmgd.Message) -> list[int]:
    return [part[0] async for part in message.parts()]


async def test_whole_long_message_that_is_read_across_a_restart_is_told_to_no_later_daemon() -> (
    None
):
    connection = Recorded()
    messages = reading(connection)
    for number in range(4):
        piece(messages, number, last=number == 3)
    message = await anext(messages)
    parts = message.parts()
    assert (await anext(parts))[0] == 0
    restart(messages)
    # It was here as a whole, and still is.
    assert [part[0] async for part in parts] == [1, 2, 3]
    assert isinstance(await anext(messages), Interrupted)
    assert connection.written == []


async def test_whole_long_broadcast_that_is_read_across_a_restart_is_told_to_no_later_daemon() -> (
    None
):
    connection = Recorded()
    messages = reading(connection)
    for number in range(4):
        broadcast_piece(messages, number)
    message = await anext(messages)
    parts = message.parts()
    assert (await anext(parts))[0] == 0
    restart(messages)
    assert [part[0] async for part in parts] == [1, 2, 3]
    assert isinstance(await anext(messages), Interrupted)
    assert connection.written == []


async def test_long_message_of_the_same_number_behind_a_restart_keeps_its_own_credit() -> None:
    connection = Recorded()
    messages = reading(connection)
    for number in range(4):
        piece(messages, number, last=number == 3)
    before = await anext(messages)
    restart(messages)
    for number in range(4):
        piece(messages, number, last=number == 3)
    assert await first_bytes(before) == [0, 1, 2, 3]
    assert connection.written == []
    assert isinstance(await anext(messages), Interrupted)
    assert await first_bytes(await anext(messages)) == [0, 1, 2, 3]
    consumed = [frame for frame in connection.written if isinstance(frame, control.ConsumedPieces)]
    assert {(frame.sequence, frame.long) for frame in consumed} == {(8, 9)}
    assert sum(frame.count for frame in consumed) == 4


async def test_part_of_a_long_message_that_is_read_across_a_restart_ends_with_an_error() -> None:
    connection = Recorded()
    messages = reading(connection)
    piece(messages, 0)
    parts = (await anext(messages)).parts()
    assert (await anext(parts))[0] == 0
    restart(messages)
    with pytest.raises(bmgd.UnreachableError, match="went away"):
        await anext(parts)
    assert connection.written == []


async def test_restart_while_the_one_before_is_worked_on_leaves_the_credit_whole() -> None:
    connection = Recorded()
    messages = reading(connection)
    restart(messages)
    assert isinstance(await anext(messages), Interrupted)
    restart(messages)
    short(messages, b"x")
    assert isinstance(await anext(messages), Interrupted)
    assert (await anext(messages)).payload == b"x"
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_gap_that_is_put_back_stops_no_credit() -> None:
    connection = Recorded()
    messages = reading(connection)
    restart(messages)
    short(messages, b"x")
    assert isinstance(await anext(messages), Interrupted)
    messages.put_back()
    assert (await anext(messages)).payload == b"x"
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_what_is_put_back_comes_again_to_a_reader_that_goes_on() -> None:
    # Credit goes back for the oldest first: what followed was reported in its place.
    connection = Recorded()
    messages = reading(connection)
    for payload in (b"0", b"1", b"2", b"3"):
        short(messages, payload)
    assert [each.payload for each in await messages.take(1)] == [b"0"]
    assert [each.payload for each in await messages.take(2)] == [b"1", b"2"]
    messages.put_back()
    assert connection.written == [control.Consumed(5, 1)]
    assert [each.payload for each in await messages.take(9)] == [b"1", b"2", b"3"]
    messages.finish_taken()
    assert connection.written == [control.Consumed(5, 1), control.Consumed(5, 3)]


async def test_broadcast_that_is_put_back_is_done() -> None:
    connection = Recorded()
    messages = reading(connection)
    item = {"source": 1, "incarnation": 5, "topic": "t", "payload": b"b", "broadcast": True}
    for _ in range(2):
        messages.on_item(item)
        assert (await anext(messages)).broadcast
        messages.put_back()
    messages.finish_taken()
    given = [frame for frame in connection.written if isinstance(frame, control.ConsumedBroadcasts)]
    assert sum(frame.count for frame in given) == 2


async def test_put_back_after_a_restart_reports_nothing_of_the_former_daemon() -> None:
    connection = Recorded()
    messages = reading(connection)
    for payload in (b"0", b"1"):
        short(messages, payload)
    restart(messages)
    short(messages, b"new")
    messages._report_at = 10
    assert [(await anext(messages)).payload for _ in range(2)] == [b"0", b"1"]
    assert isinstance(await anext(messages), Interrupted)
    messages.put_back()
    assert (await anext(messages)).payload == b"new"
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_broadcast_of_a_former_daemon_that_is_put_back_is_told_to_no_later_one() -> None:
    connection = Recorded()
    messages = reading(connection)
    item = {"source": 1, "incarnation": 5, "topic": "t", "payload": b"b", "broadcast": True}
    messages.on_item(item)
    restart(messages)
    assert (await anext(messages)).broadcast
    messages.put_back()
    assert isinstance(await anext(messages), Interrupted)
    messages.finish_taken()
    assert connection.written == []


async def test_long_broadcast_that_is_put_back_gives_its_credit_back() -> None:
    connection = Recorded()
    messages = reading(connection)
    for number in range(3):
        broadcast_piece(messages, number)
    assert isinstance(await anext(messages), LongMessage)
    messages.put_back()
    broadcast_piece(messages, 3)
    messages.finish_taken()
    given = [frame for frame in connection.written if isinstance(frame, control.ConsumedBroadcasts)]
    assert sum(frame.count for frame in given) == 4


async def test_restarts_with_nothing_between_them_are_shown_as_one() -> None:
    connection = Recorded()
    messages = reading(connection)
    short(messages, b"before")
    for _ in range(3):
        restart(messages)
    short(messages, b"after")
    assert (await anext(messages)).payload == b"before"
    assert isinstance(await anext(messages), Interrupted)
    assert (await anext(messages)).payload == b"after"
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_restarts_with_something_between_them_are_shown_each() -> None:
    connection = Recorded()
    messages = reading(connection)
    for payload in (b"one", b"two"):
        short(messages, payload)
        restart(messages)
    short(messages, b"three")
    taken = [await anext(messages) for _ in range(5)]
    assert [isinstance(each, Interrupted) for each in taken] == [False, True, False, True, False]
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_part_that_is_not_waited_for_any_more_is_taken_by_the_next_who_waits() -> None:
    messages = reading(Recorded())
    piece(messages, 0)
    parts = (await anext(messages)).parts()
    assert (await anext(parts))[0] == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(parts)
    for number in (1, 2, 3):
        piece(messages, number, last=number == 3)
    assert [part[0] async for part in parts] == [1, 2, 3]


async def test_long_broadcast_whose_reader_is_slow_is_not_missed_for_that() -> None:
    messages = reading(Recorded())
    broadcast_piece(messages, 0)
    messages._broadcasts._on_silence((3, 1, 77))
    # Its credit is spent until the program reads: no further piece can come.
    parts = (await anext(messages)).parts()
    assert (await anext(parts))[0] == 0
    broadcast_piece(messages, 1)
    assert (await anext(parts))[0] == 1


async def test_long_broadcast_that_does_not_go_on_is_missed() -> None:
    messages = reading(Recorded())
    broadcast_piece(messages, 0)
    parts = (await anext(messages)).parts()
    assert (await anext(parts))[0] == 0
    asking = asyncio.ensure_future(anext(parts))
    await asyncio.sleep(0)
    messages._broadcasts._on_silence((3, 1, 77))
    with pytest.raises(bmgd.UnreachableError, match="did not come"):
        await asking
    missed = await anext(messages)
    assert isinstance(missed, bmgd.Missed)
    assert (missed.source, missed.first, missed.last) == (3, 0, 0)


async def test_restarts_of_a_daemon_whose_program_does_not_read_heap_up_no_more_than_a_bound() -> (
    None
):
    connection = Recorded()
    messages = reading(connection)
    for number in range(3 * LIVES_MAX):
        short(messages, b"%d" % number)
        restart(messages)
    short(messages, b"last")
    taken = [await anext(messages) for _ in range(2 * LIVES_MAX + 1)]
    payloads = [each.payload for each in taken if not isinstance(each, Interrupted)]
    assert payloads == [*(b"%d" % number for number in range(LIVES_MAX)), b"last"]
    assert isinstance(taken[-2], Interrupted)
    messages.finish_taken()
    assert connection.written == [control.Consumed(8, 1)]


async def test_what_waits_when_its_reader_leaves_is_taken_by_nobody_here() -> None:
    messages = reading(Recorded())
    for payload in (b"1", b"2"):
        short(messages, payload)
    assert (await anext(messages)).payload == b"1"
    messages.finish_taken()
    # It is underway until the daemon has heard that the reader left.
    short(messages, b"3")
    messages.on_end(None, {})
    assert [message async for message in messages] == []


async def test_what_is_here_when_the_daemon_ends_a_subscription_can_still_be_taken() -> None:
    messages = reading(Recorded())
    short(messages, b"1")
    messages.on_end(None, {})
    messages.finish_taken()
    assert [message.payload async for message in messages] == [b"1"]


@pytest.mark.parametrize("puts_back", [False, True])
async def test_long_message_that_is_whole_takes_room_until_its_program_has_finished_it(
    puts_back: bool,
) -> None:
    connection = Recorded()
    messages = Messages(connection, 100, 1 << 20, max_message=100_000)
    messages.sequence = 5
    of = {"source": 3, "incarnation": 1, "topic": "t", "size": 80_000}
    for long in (1, 2):
        messages.on_item({**of, "long": long, "body": PIECE, "last": False})
        messages.on_item({**of, "long": long, "body": PIECE[:14_464], "last": True})
    # Only the first one has given the credit of a piece back.
    assert [f.long for f in connection.written if isinstance(f, control.ConsumedPieces)] == [1]
    assert len(await messages.take(9)) == 1
    if puts_back:
        messages.put_back()
    else:
        messages._report()
    consumed = [f.long for f in connection.written if isinstance(f, control.ConsumedPieces)]
    assert consumed == ([1, 2] if puts_back else [1, 1, 2])
    assert len(await messages.take(9)) == 1
