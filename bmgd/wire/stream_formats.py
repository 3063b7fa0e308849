"""How the messages of `stream_messages.py` look on the wire."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, Final

from bmgd.errors import ProtocolError
from bmgd.types import NODE_ID_MAX, NodeId
from bmgd.wire.bounds import (
    ENTRIES_MAX,
    GAPS_MAX,
    INBOX_MAX,
    LONG_BYTES_MAX,
    MESSAGES_PER_SEGMENT_MAX,
    QUESTION_MAX,
    SEGMENT_BYTES_MAX,
    STREAM_ID_MAX,
    TOPIC_BYTES_MAX,
)
from bmgd.wire.fields import (
    U32_MAX,
    U64_MAX,
    Fields,
    Format,
    read_array,
    read_bool,
    read_bytes,
    read_id,
    read_int,
    read_text,
    read_topic,
)
from bmgd.wire.stream_messages import (
    Entry,
    Segment,
    SegmentAck,
    SegmentFlag,
    SharedSegment,
    StreamReset,
    Unreachable,
)

SHARED_SEGMENT: Final = 0x56

_ENTRY = struct.Struct(">IIQII")


def _size_field(segment: Segment) -> object:
    """The size; of questions with where their answers go."""
    if segment.inbox:
        return segment.size, segment.inbox, segment.question
    return segment.size


def _read_segment(fields: Fields) -> tuple[Any, ...]:
    flags = read_int(fields[0], 0, 255)
    topic = read_text(fields[1], TOPIC_BYTES_MAX)
    if bool(topic) != bool(flags & (SegmentFlag.OPEN | SegmentFlag.BEST_EFFORT)):
        raise ProtocolError("a topic where none belongs, or none where one does")
    body = read_bytes(fields[6], SEGMENT_BYTES_MAX)
    count = read_int(fields[4], 0, MESSAGES_PER_SEGMENT_MAX)
    size, inbox, question = fields[5], 0, 0
    if type(size) is tuple:
        size, inbox, question = _read_asks(size)
    size = read_int(size, 0, LONG_BYTES_MAX)
    if (count > len(body)) or (bool(body) != bool(count or size)) or (count and size):
        raise ProtocolError("a segment that cannot be")
    if inbox and not body:
        raise ProtocolError("questions without a body")
    replaces, floor = read_int(fields[2], 0, STREAM_ID_MAX), read_int(fields[3], 0, STREAM_ID_MAX)
    return flags, topic, replaces, floor, count, size, body, inbox, question


def _read_asks(value: tuple[object, ...]) -> tuple[int, int, int]:
    """Of questions: size, inbox, and the number of the first."""
    if len(value) != 3:
        raise ProtocolError("not the size and the inbox of questions")
    return (
        read_int(value[0], 0, LONG_BYTES_MAX),
        read_int(value[1], 1, INBOX_MAX),
        read_int(value[2], 1, QUESTION_MAX),
    )


def _read_gaps(value: object) -> tuple[tuple[int, int], ...]:
    numbers = [read_int(item, 1, U32_MAX) for item in read_array(value, 2 * GAPS_MAX)]
    if len(numbers) % 2 or any(a > b for a, b in pairwise(numbers)):
        raise ProtocolError("not the gaps of a stream")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _entry_bytes(entries: tuple[Entry, ...]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def _read_entries(value: object) -> tuple[Entry, ...]:
    packed = read_bytes(value, ENTRIES_MAX * _ENTRY.size)
    if not packed or len(packed) % _ENTRY.size:
        raise ProtocolError("not the entries of a shared segment")
    entries = tuple(Entry(NodeId(each[0]), *each[1:]) for each in _ENTRY.iter_unpack(packed))
    if any(a.id >= b.id for a, b in pairwise(entries)) or entries[-1].id > NODE_ID_MAX:
        raise ProtocolError("entries of a shared segment out of order, or out of range")
    return entries


def _read_shared_body(value: object) -> bytes:
    body = read_bytes(value, SEGMENT_BYTES_MAX)
    if not body:
        raise ProtocolError("a shared segment without a message")
    return body


FORMATS: Final[dict[int, Format]] = {
    0x42: Format(Unreachable, 1, lambda m: (m.target,), lambda f: (read_id(f[0]),)),
    0x49: Format(
        Segment,
        7,
        lambda m: (m.flags, m.topic, m.replaces, m.floor, m.count, _size_field(m), m.body),
        _read_segment,
    ),
    0x4A: Format(
        SegmentAck,
        4,
        lambda m: (m.tag, m.credit, m.full, [n for gap in m.gaps for n in gap]),
        lambda f: (
            read_int(f[0], 0, U32_MAX),
            read_int(f[1], 0, U64_MAX),
            read_bool(f[2]),
            _read_gaps(f[3]),
        ),
    ),
    0x4B: Format(
        StreamReset,
        2,
        lambda m: (m.tag, m.reason),
        lambda f: (read_int(f[0], 0, U32_MAX), read_int(f[1], 0, 255)),
    ),
    SHARED_SEGMENT: Format(
        SharedSegment,
        3,
        lambda m: (m.topic, _entry_bytes(m.entries), m.body),
        lambda f: (read_topic(f[0]), _read_entries(f[1]), _read_shared_body(f[2])),
    ),
}
