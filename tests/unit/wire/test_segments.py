"""Where the messages of a segment end, and how many of them fit."""

from __future__ import annotations

import pytest

from bmgd.wire.batch import pack_messages
from bmgd.wire.segments import count_within, end_of

MESSAGES = [b"a", b"bb", bytes(300)]
BODY = pack_messages(MESSAGES)
ENDS = [0, 3, 7, 310]


@pytest.mark.parametrize("count", range(4))
def test_messages_end_where_their_lengths_say(count: int) -> None:
    assert end_of(BODY, count) == ENDS[count]
    assert end_of(BODY, 3 - count, ENDS[count]) == ENDS[3]


@pytest.mark.parametrize("body", [BODY[:-1], BODY[:4], BODY[:3], b"", b"\xc1" + BODY])
def test_body_that_does_not_hold_so_many_messages_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="segment"):
        end_of(body, 3)


@pytest.mark.parametrize(
    ("bytes_max", "count_max", "fit"),
    [(310, 3, 3), (309, 3, 2), (7, 3, 2), (6, 3, 1), (2, 3, 0), (310, 2, 2), (310, 9, 3)],
)
def test_as_many_whole_messages_fit_as_there_is_room_for(
    bytes_max: int, count_max: int, fit: int
) -> None:
    assert count_within(BODY, bytes_max, count_max) == fit
