"""What is underway: which outcome each segment gets."""

from __future__ import annotations

import asyncio

from bmgd.client.backlog import Pending
from bmgd.client.underway import Segment, Underway
from bmgd.errors import BmgdError, DeadError, QueueFullError, RequestError, UnreachableError


class Settled:
    """What became of segments, by the number of messages in each."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, type[BmgdError] | None, bool | None]] = []
        self.underway = Underway(self._settle)

    def _settle(self, segment: Segment, error: BmgdError | None) -> None:
        sent = getattr(error, "sent", None)
        self.outcomes.append((segment.count, None if error is None else type(error), sent))


def waited() -> Pending:
    return Pending(b"", 0.0, asyncio.get_running_loop().create_future())


async def test_underway_confirms_what_is_below_a_number_where_somebody_waits() -> None:
    settled = Settled()
    underway = settled.underway
    message = waited()
    assert [underway.put(10, count, count, [message] * (count != 2)) for count in (1, 2, 3)] == [
        1,
        2,
        3,
    ]
    assert (message.segment, underway.put_cost, len(underway)) == (3, 30, 3)
    underway.confirm(3)
    assert settled.outcomes == [(1, None, None)]
    underway.confirm(3)
    assert len(underway) == 1


async def test_underway_tells_what_was_taken_back_and_what_is_in_doubt() -> None:
    settled = Settled()
    for count in (1, 2, 3):
        settled.underway.put(10, count, count, [])
    lost = {"withdrawn": [2, 9], "doubted": [1], "error": "QueueFullError", "detail": "full"}
    settled.underway.lose(3, lost)
    assert settled.outcomes == [(2, QueueFullError, False), (1, QueueFullError, True)]
    assert len(settled.underway) == 1


async def test_underway_counts_messages_that_are_confirmed_up_to_the_first_that_is_lost() -> None:
    underway = Settled().underway
    for count, ends in ((2, 2), (0, 0), (0, 1), (3, 3), (1, 1)):
        underway.put(10, count, ends, [])
    underway.confirm(2)
    assert underway.messages_confirmed == 2
    lost = {"withdrawn": [4], "doubted": [], "error": "QueueFullError", "detail": "full"}
    underway.lose(3, lost)
    underway.confirm(6)
    assert underway.messages_confirmed == 3


async def test_underway_fails_with_what_the_daemon_says_was_not_taken() -> None:
    settled = Settled()
    for count in (1, 2, 3):
        settled.underway.put(10, count, count, [])
    settled.underway.fail(UnreachableError(3, "no way", sent=True), unsent=3)
    assert settled.outcomes == [
        (1, UnreachableError, True),
        (2, UnreachableError, True),
        (3, UnreachableError, False),
    ]
    assert not settled.underway
    settled.underway.put(10, 4, 4, [])
    settled.underway.fail(RequestError("closed"), unsent=0)
    assert settled.outcomes[-1] == (4, RequestError, False)


async def test_underway_is_settled_when_nobody_waits_for_what_becomes_of_it() -> None:
    underway = Settled().underway
    message, other = waited(), waited()
    underway.put(10, 2, 2, [message, other])
    message.given_up = True
    assert not underway.all_settled
    assert not underway.is_alone(message)
    other.given_up = True
    assert underway.all_settled
    alone = waited()
    underway.put(10, 1, 1, [alone])
    assert underway.is_alone(alone)
    # What was written without a future is waited for by `flush`.
    underway.put(10, 1, 1, [])
    alone.given_up = True
    assert not underway.all_settled
    underway.fail(DeadError(3, "dead"), unsent=0)
    assert underway.all_settled
