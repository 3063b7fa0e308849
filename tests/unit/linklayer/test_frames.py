"""Runs of frames: how many there are, and what is in them."""

from __future__ import annotations

import pytest

from bmgd.linklayer.contract import BULK, HIGH, URGENT
from bmgd.linklayer.frames import bodies_in, class_of, frame_count, frame_end, is_routed
from tests.unit.linklayer.engines import body, data, ping


@pytest.mark.parametrize(
    "lengths",
    [(0,), (5,), (5, 5, 5), (5, 6), (6, 5), (0, 300, 0), (300, 300), (1, 1, 1, 99), (48, 4, 48)],
)
def test_frames_are_counted_whatever_their_lengths(lengths: tuple[int, ...]) -> None:
    frames = [data(1, "x" * length) for length in lengths]
    assert frame_count(b"".join(frames)) == len(frames)
    assert bodies_in(b"".join(frames)) == [body(frame) for frame in frames]
    assert frame_end(b"".join(frames), 0) == len(frames[0])


def test_frames_of_unlike_lengths_are_not_taken_for_equal_ones() -> None:
    # Where the second frame ends, the payload of the first looks like a length prefix.
    first = data(1, "x" * 20)
    second = data(1, "y" * (2 * len(first) - len(data(1))))
    assert len(first + second) % len(first) == 0
    assert frame_count(first + second) == 2


def test_frames_tell_where_they_go_and_their_class() -> None:
    assert is_routed(body(data(1)))
    assert not is_routed(body(ping(1)))
    classes = [class_of(data(1, priority=priority)) for priority in (0, 1, 2, 3, 255)]
    assert classes == [URGENT, HIGH, BULK, BULK, BULK]
