"""Control frames out of bytes that come in pieces."""

from __future__ import annotations

import pytest

from bmgd.wire.control import ANSWER_BYTES_MAX, Frame, Result, encode
from bmgd.wire.control_reader import READ_BYTES, FrameReader, ReadBuffer
from tests.unit.wire.test_control import FRAMES


def piecewise(reader: FrameReader, data: bytes, step: int) -> list[Frame]:
    """The frames in some bytes that are read in pieces of at most so many."""
    frames: list[Frame] = []
    at = 0
    while at < len(data):
        room = reader.room()
        count = min(step, len(room), len(data) - at)
        room[:count] = data[at : at + count]
        at += count
        reader.filled(count)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return frames


@pytest.mark.parametrize("step", [1, 3, 40, 1000, 2**20])
def test_frames_are_read_where_they_lie_however_they_come(step: int) -> None:
    sent = FRAMES * 3
    reader = FrameReader(ANSWER_BYTES_MAX)
    assert piecewise(reader, b"".join(map(encode, sent)), step) == sent
    assert reader.waiting_bytes == 0


def test_a_frame_longer_than_the_buffer_is_read_and_its_memory_given_back() -> None:
    long = Result(1, bytes(READ_BYTES * 3))
    buffer = ReadBuffer()
    reader = FrameReader(ANSWER_BYTES_MAX, buffer)
    sent = [long, Result(2)]
    assert piecewise(reader, b"".join(map(encode, sent)), 2**20) == sent
    assert piecewise(reader, encode(Result(3)), 2**20) == [Result(3)]
    assert len(buffer.bytes) <= READ_BYTES


def test_readers_that_share_a_buffer_keep_what_is_theirs() -> None:
    buffer = ReadBuffer()
    readers = [FrameReader(ANSWER_BYTES_MAX, buffer) for _ in range(3)]
    data = [encode(Result(number, bytes([number]) * 30_000)) for number in (1, 2, 3)]
    got: list[list[Frame]] = [[], [], []]
    for at in range(0, len(data[0]), 7_001):
        for number, reader in enumerate(readers):
            got[number] += piecewise(reader, data[number][at : at + 7_001], 7_001)
            reader.settle()
    assert got == [[Result(number, bytes([number]) * 30_000)] for number in (1, 2, 3)]


def test_a_reader_that_stops_in_between_goes_on_where_it_was() -> None:
    buffer = ReadBuffer()
    reader, other = FrameReader(ANSWER_BYTES_MAX, buffer), FrameReader(ANSWER_BYTES_MAX, buffer)
    data = encode(Result(1)) + encode(Result(2)) + encode(Result(3))[:20]
    reader.room()[: len(data)] = data
    reader.filled(len(data))
    assert reader.next_frame() == Result(1)
    reader.settle()
    assert piecewise(other, encode(Result(9)) * 3, 2**20) == [Result(9)] * 3
    assert reader.next_frame() == Result(2)
    assert reader.next_frame() is None
    assert piecewise(reader, encode(Result(3))[20:], 2**20) == [Result(3)]


def test_a_buffer_grows_while_reads_fill_it() -> None:
    buffer = ReadBuffer()
    before = len(buffer.bytes)
    reader = FrameReader(ANSWER_BYTES_MAX, buffer)
    sent = [Result(1, bytes(60_000))] * 20
    assert piecewise(reader, b"".join(map(encode, sent)), 2**20) == sent
    assert before < len(buffer.bytes) <= READ_BYTES


def test_buffer_grows_fourfold_where_a_read_fills_it_and_not_beyond_one_read() -> None:
    buffer, sizes = ReadBuffer(), []
    for _ in range(5):
        buffer.settle(len(buffer.bytes))
        sizes.append(len(buffer.bytes))
    assert sizes == [64 * 1024, READ_BYTES, READ_BYTES, READ_BYTES, READ_BYTES]
    buffer.settle(1)
    assert len(buffer.bytes) == READ_BYTES
