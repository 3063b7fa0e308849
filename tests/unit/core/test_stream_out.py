"""One stream out: which of its segments count as lost, and what is underway of a long message."""

from __future__ import annotations

from bmgd.core.streams.expiry import pieces_underway
from bmgd.core.streams.stream_out import NEVER_NS, REORDER_NS, Sending, StreamOut
from bmgd.types import NodeId

LATER_NS = 10 * REORDER_NS


def sending(number: int, size: int = 0, *, first: bool = False, last: bool = False) -> Sending:
    return Sending(number, 0 if size else 1, b"x", size, first, last, NEVER_NS)


def stream_of(*sendings: Sending) -> StreamOut:
    stream = StreamOut(1, 0, NodeId(4), "t", 2, best_effort=False)
    for each in sendings:
        stream.on_sent(each, 0)
    return stream


def test_segments_within_gaps_are_held_and_those_before_them_lost() -> None:
    sent = [sending(number) for number in range(1, 8)]
    stream = stream_of(*sent)
    stream.hold([(3, 3), (5, 6)], LATER_NS)
    assert [each.number for each in sent if each.held] == [3, 5, 6]
    assert [each.number for each in sent if each.lost] == [1, 2, 4]
    assert [each.number for each in sent if each.flying] == [7]


def test_what_is_held_and_taken_back_is_lost() -> None:
    sent = [sending(number) for number in range(1, 4)]
    stream = stream_of(*sent)
    stream.hold([(2, 3)], 0)
    stream.hold([(3, 3)], 0)
    assert [each.held for each in sent] == [False, False, True]
    assert sent[1].lost


def test_pieces_underway_are_those_of_a_message_without_its_end() -> None:
    ended = [sending(1, 9, first=True), sending(2, 9, last=True)]
    begun = [sending(4, 9, first=True), sending(5, 9)]
    assert pieces_underway(stream_of(*ended)) == []
    assert pieces_underway(stream_of(*ended, sending(3), *begun)) == begun
    assert pieces_underway(stream_of(*begun, sending(6))) == []
