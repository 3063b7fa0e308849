"""What waits for a segment: which messages it takes, and what is left out of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from bmgd.client.backlog import PREFIX_BYTES, Backlog, Pending
from bmgd.errors import UnreachableError
from bmgd.wire.bounds import MESSAGES_PER_SEGMENT_MAX, PAYLOAD_BYTES_MAX


def waiting(backlog: Backlog, payload: bytes) -> Pending:
    """Let a message wait, and its sender for it."""
    message = Pending(payload, 0.0, asyncio.get_running_loop().create_future())
    backlog.wait_for(message)
    backlog.add(payload)
    return message


async def test_backlog_gives_all_that_fits_into_a_segment_in_order() -> None:
    backlog = Backlog()
    first = waiting(backlog, b"a")
    backlog.add(b"b")
    assert backlog.size_bytes == 2 * (1 + PREFIX_BYTES)
    assert backlog.take() == ([b"a", b"b"], [first])
    assert not backlog.payloads
    assert backlog.size_bytes == 0


async def test_backlog_leaves_what_does_not_fit_for_the_next_segments() -> None:
    backlog = Backlog()
    bodies = [bytes([number]) * 30_000 for number in range(5)]
    messages = [waiting(backlog, body) for body in bodies]
    assert backlog.is_full
    assert backlog.take() == (bodies[:2], messages[:2])
    assert backlog.take() == (bodies[2:4], messages[2:4])
    assert backlog.take() == (bodies[4:], messages[4:])
    longest = waiting(backlog, bytes(PAYLOAD_BYTES_MAX))
    backlog.add(b"behind")
    assert backlog.take() == ([longest.payload], [longest])
    assert backlog.take() == ([b"behind"], [])


async def test_backlog_gives_no_more_messages_than_a_segment_can_count() -> None:
    backlog = Backlog()
    for _ in range(20_000):
        backlog.add(b"")
    assert 13_000 < len(backlog.take()[0]) < MESSAGES_PER_SEGMENT_MAX
    assert len(backlog.take()[0]) > 6_000


async def test_backlog_leaves_out_what_nobody_waits_for_any_more() -> None:
    backlog = Backlog()
    messages = [waiting(backlog, bytes([number]) * 30_000) for number in range(6)]
    for message in (messages[0], messages[2]):
        backlog.drop(message)
    assert backlog.size_bytes == 4 * (30_000 + PREFIX_BYTES)
    assert backlog.take()[1] == [messages[1], messages[3]]
    backlog.drop(messages[4])
    # It is in a segment already, and was left out before.
    backlog.drop(messages[1])
    backlog.drop(messages[4])
    assert backlog.take()[1] == [messages[5]]


async def test_backlog_of_which_everything_is_left_out_is_empty() -> None:
    backlog = Backlog()
    messages = [waiting(backlog, b"x") for _ in range(3)]
    for message in messages:
        backlog.drop(message)
    assert not backlog.payloads
    assert backlog.size_bytes == 0
    again = waiting(backlog, b"y")
    assert backlog.take() == ([b"y"], [again])


@pytest.mark.parametrize("backwards", [False, True])
async def test_backlog_leaves_many_out_in_a_time_that_grows_with_their_number(
    backwards: bool,
) -> None:
    backlog = Backlog()
    stays = waiting(backlog, b"stays")
    messages = [waiting(backlog, b"x") for _ in range(10_000)]
    began_s = time.process_time()
    for message in reversed(messages) if backwards else messages:
        backlog.drop(message)
    # Each of them was as much work as there were messages: some seconds in all.
    assert time.process_time() - began_s < 0.5
    assert len(backlog.payloads) < 1_000
    assert backlog.take() == ([b"stays"], [stays])


async def test_backlog_that_fails_tells_who_waits_that_it_was_not_sent() -> None:
    backlog = Backlog()
    message = waiting(backlog, b"x")
    backlog.fail(UnreachableError(3, "no way", sent=True))
    with pytest.raises(UnreachableError) as caught:
        await message.confirmed
    assert not caught.value.sent
    assert not backlog.payloads
