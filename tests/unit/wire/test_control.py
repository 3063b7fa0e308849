"""Control frames: what is written is read again, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import replace

import msgpack
import pytest

from bmgd.errors import ProtocolError
from bmgd.wire.control import (
    REQUEST_BYTES_MAX,
    SHORT_BODY_BYTES,
    Cancel,
    Consumed,
    End,
    Failure,
    Frame,
    Item,
    PutSegment,
    Request,
    Result,
    Settled,
    decode,
    encode,
    encode_parts,
)
from bmgd.wire.control_reader import FrameReader

FRAMES: list[Frame] = [
    Request(1, "send", {"destination": 7, "payload": b"\0\xff", "timeout": 1.5}),
    Result(2**64 - 1, {"revision": 3, "members": [{"id": 0}]}),
    Result(3),
    Failure(4, "DeadError", "node 3: it is dead", {"destination": 3, "detail": "it is dead"}),
    Item(5, {"source": 1, "topic": "ä", "payload": b""}),
    End(6),
    End(7, "SubscriptionError", "too slow"),
    Consumed(8, 1024),
    Cancel(9),
    Settled(10, 0, [1, 2**64 - 1]),
    Settled(11, 2**48, []),
]


def header(kind: int, sequence: int = 1) -> bytes:
    return bytes([kind]) + bytes(23) + struct.pack(">Q", sequence)


def framed(*items: object) -> bytes:
    body = bytes(msgpack.packb(items))
    return struct.pack(">I", len(body)) + body


def read_all(data: bytes, bound: int = REQUEST_BYTES_MAX) -> list[Frame]:
    reader = FrameReader(bound)
    reader.feed(data)
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_frames_come_back(frame: Frame) -> None:
    assert read_all(encode(frame)) == [frame]


def test_frames_come_back_however_they_are_cut() -> None:
    data = b"".join(map(encode, FRAMES))
    for step in (1, 3, 50, len(data)):
        reader, frames = FrameReader(REQUEST_BYTES_MAX), []
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while (frame := reader.next_frame()) is not None:
                frames.append(frame)
        assert frames == FRAMES


def test_the_bytes_of_the_documentation() -> None:
    expected = "0000002b 93 c420 80" + "00" * 30 + "01 a6737461747573 80"
    assert encode(Request(1, "status")) == bytes.fromhex(expected)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", REQUEST_BYTES_MAX + 1),
        struct.pack(">I", 2**32 - 1),
        struct.pack(">I", 34) + bytes(34),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 40) + bytes(40),
        struct.pack(">I", 40) + b"\xc1" * 40,
        framed(header(0x80)[:-1] + b"", "status", {}),
        framed(header(0x80), "status"),
        framed(header(0x80), "status", []),
        framed(header(0x80), b"status", {}),
        framed(header(0x80), "x" * 65, {}),
        framed(header(0x80), "status", {1: 2}),
        framed(header(0x80), "status", {}, None),
        framed(header(0x80), "status", {"t": msgpack.Timestamp(1)}),
        framed(header(0x80), "status", {"t": msgpack.ExtType(1, b"x")}),
        framed(header(0x85), 0),
        framed(header(0x85), True),
        framed(header(0x85), 2**48 + 1),
        framed(header(0x86), None),
        framed(header(0x40), "a kind of the daemons"),
        framed(header(0x90)),
        framed(header(0x87), 1, 0, 0, -1.0, b"x"),
        framed(header(0x87), -1, 0, 0, 0, b"x"),
        framed(header(0x87), 1, 0, 0, 0, "x"),
        framed(header(0x87), 1, True, 0, 0, b"x"),
        framed(header(0x88), -1),
        framed(header(0x89), 1),
        framed(header(0x8A), 0, 1),
        framed(header(0x8A), 1, 0),
        framed(header(0x8B), 1),
        framed(header(0x8B), -1, []),
        framed(header(0x8B), 1, [0]),
        framed(header(0x8B), 1, [True]),
        framed(header(0x8B), 1, 1),
        framed("no header, but as long as one, or longer", {}),
        framed(header(0x80), "status", {}) + bytes(4),
        struct.pack(">I", 50) + b"\xdd\xff\xff\xff\xff" + bytes(45),
    ],
    ids=range(37),
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_all(data)


def test_deep_nesting_is_refused() -> None:
    body = b"\x93\xc4\x20" + header(0x80) + b"\xa1v\x81\xa1k" + b"\x91" * 60_000 + b"\xc0"
    with pytest.raises(ProtocolError):
        read_all(struct.pack(">I", len(body)) + body)


def test_a_length_is_refused_before_its_body_comes() -> None:
    with pytest.raises(ProtocolError, match="83969 bytes"):
        read_all(struct.pack(">I", REQUEST_BYTES_MAX + 1))


@pytest.mark.parametrize("value", [b"x" * REQUEST_BYTES_MAX, object(), 2**64])
def test_what_cannot_be_sent_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        encode(Request(1, "send", {"value": value}), REQUEST_BYTES_MAX)


BODIES = [SHORT_BODY_BYTES, SHORT_BODY_BYTES + 1, 65_536]


@pytest.mark.parametrize("size", BODIES)
def test_a_long_body_stands_alone_behind_its_frame(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    fields = {"source": 1, "body": body, "count": 1, "long": 7}
    parts = encode_parts(Item(5, fields))
    assert (parts[-1] is body) == (size > SHORT_BODY_BYTES)
    assert decode(b"".join(parts)[4:]) == Item(5, fields)
    whole = PutSegment(5, 1, 0, 0, 0.5, b"\xc5" + body)
    in_two = replace(whole, body=b"\xc5", more=memoryview(body))
    assert encode(in_two) == encode(whole)
    assert decode(encode(in_two)[4:]) == whole
    with pytest.raises(ProtocolError):
        encode(in_two, size)
