"""What others have written makes no room for what is not there."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import msgpack
import pytest

from bmgd.errors import ProtocolError
from bmgd.wire import codec, control
from bmgd.wire.batch import pack_messages, unpack_messages
from bmgd.wire.unpacking import UNWALKED_BYTES_MAX, unpack_one

NESTED = 1000
ROOM_BYTES_MAX = 1 << 20


def _arrays_within_arrays(says: int, total_bytes: int) -> bytes:
    """Arrays, each the first item of the one before; the bytes behind them are nils."""
    arrays = (b"\xdd" + struct.pack(">I", says)) * NESTED
    return arrays + b"\xc0" * (total_bytes - len(arrays))


def _frame(header: bytes) -> bytes:
    return b"\x92\xc4" + bytes((len(header),)) + header + _arrays_within_arrays(65_000, 70_000)


@pytest.mark.parametrize(
    "read",
    [
        lambda: codec.decode(_frame(codec.encode_header(0x45))),
        lambda: control.decode(_frame(bytes((0x80,)) + bytes(31))),
        lambda: unpack_messages(_arrays_within_arrays(60_000, 65_541), 60_000),
        lambda: unpack_messages(_arrays_within_arrays(60_000, 65_541), 1),
    ],
    ids=["of a link", "of a program", "of a segment", "of a segment with one message"],
)
def test_arrays_within_arrays_make_no_room_for_what_they_say(read: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            read()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < ROOM_BYTES_MAX


@pytest.mark.parametrize("value", [[1, [2, b"x" * 400]], {"a": [b"y" * 300]}, b"z" * 300, 7])
def test_value_is_read_as_it_was_written(value: object) -> None:
    assert unpack_one(msgpack.packb(value), use_list=True) == value


def test_value_is_read_where_it_lies() -> None:
    body = memoryview(msgpack.packb([b"x" * 400, (1, 2)]))
    assert unpack_one(body, use_list=False) == (b"x" * 400, (1, 2))


@pytest.mark.parametrize("size", [UNWALKED_BYTES_MAX // 2, 2 * UNWALKED_BYTES_MAX])
@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\xc0", lambda b: b"\xc1" + b])
def test_bytes_that_are_not_one_value_are_refused(
    size: int, change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(ValueError, match=r"^"):
        unpack_one(change(msgpack.packb([bytes(size)])), use_list=True)


@pytest.mark.parametrize(
    "rest", [b"\xc4", b"\xc5\x01", b"\xc6\0\0\0", b"\xc4\x02x", b"\xc0", b"\x90"]
)
def test_segment_that_ends_within_a_message_is_refused(rest: bytes) -> None:
    body = pack_messages([b"one", b"another"])
    assert unpack_messages(body, 2) == [b"one", b"another"]
    for count in (1, 2, 3):
        with pytest.raises(ProtocolError):
            unpack_messages(body + rest, count)


@pytest.mark.parametrize("size", [UNWALKED_BYTES_MAX, UNWALKED_BYTES_MAX + 1])
def test_what_is_longer_than_a_few_bytes_is_walked_through_before_it_is_read(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []

    class Walker(msgpack.Unpacker):  # type: ignore[misc]
        def skip(self) -> None:
            walked.append(size)
            super().skip()

    monkeypatch.setattr(msgpack, "Unpacker", Walker)
    packed = msgpack.packb(bytes(size - 2))
    assert len(packed) == size
    assert unpack_one(packed, use_list=False) == bytes(size - 2)
    assert bool(walked) == (size > UNWALKED_BYTES_MAX)
