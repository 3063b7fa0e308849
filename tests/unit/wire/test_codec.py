"""What the codec writes it reads, and what it should not read is a ProtocolError, nothing else."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, get_args

import msgpack
import pytest

from bmgd.errors import ProtocolError
from bmgd.frameheader import (
    ARRAY_FIRST,
    ARRAY_LAST,
    BIN_8,
    BODY_BYTES_MIN,
    FLAG_CAREFUL,
    FLAG_RECORD,
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    KIND_AT,
    LENGTH_BYTES,
)
from bmgd.routing.id_sets import ID_SET_SPACE
from bmgd.types import NODE_ID_MAX
from bmgd.wire.codec import decode, encode, encode_header
from bmgd.wire.id_sets import ID_SET_BYTES_MAX
from bmgd.wire.messages import (
    BRANCHES_MAX,
    BUCKETS,
    ENTRIES_MAX,
    EXCEPTIONS_BYTES_MAX,
    OLDER_MEMBERS_MAX,
    PAYLOAD_BYTES_MAX,
    PROGRAMS_BYTES_MAX,
    RECORDS_PER_NOTICE_MAX,
    REPORT_BYTES_MAX,
    ROUTE_IDS_MAX,
    SEARCH_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SKIPS_MAX,
    TRACE_MS_MAX,
    WATERMARKS_MAX,
    Buckets,
    LinkMessage,
    Message,
    Notice,
    Ping,
    RoutedMessage,
    Segment,
)
from tests.unit.wire.examples import DIGEST_MAX, MESSAGES, RECORD, U32_MAX, U64_MAX

DIGEST = bytes(16)
ROW = [3, 1, 0, 1, "host3:7400"]

ENTRY = bytes.fromhex("00000009 0000abcd 0000000300000001 00000002 00000003")
OTHER_ENTRY = bytes.fromhex("0000000a 00000000 0000000100000007 00000000 00000001")

VALID: dict[int, list[Any]] = {
    0x01: [1, 0, DIGEST, False],
    0x02: [1],
    0x03: [1],
    0x04: [[ROW]],
    0x05: [[DIGEST] * BUCKETS, True],
    0x06: [DIGEST],
    0x07: ["leaving"],
    0x08: [[[4, 1, 77, 70, 79]], False],
    0x09: [4, 1, 71],
    0x0C: [0, 1],
    0x0E: [[[3, 1, 0]]],
    0x0D: [[ROW], [[5, 9], [11, 11]], 12],
    0x42: [9],
    0x43: [[1, 2]],
    0x44: [[1, 2]],
    0x45: [7, 1],
    0x46: [7, 1, True],
    0x47: [U64_MAX, "new:1", 17],
    0x48: [1, 17],
    0x49: [1, "jobs", 0, 1, 1, 0, b"\xc4\x01x"],
    0x4A: [1, 4096, False, [3, 5, 9, 9]],
    0x4B: [1, 4],
    0x50: ["news", b"payload", 0, [[9, b"\x01\x00\x00\x00\x09"]]],
    0x51: ["jobs", b"payload", [[9, b"\x02\x00\x00\x00\x08\xff"]]],
    0x52: ["news", b"x", 0, [], 16, b"\x01\x00\x00\x00\x03", [[12, 1, 76, False]], 70],
    0x53: [77, 70, False],
    0x54: [0, [], 77],
    0x55: [[[9, 71, 76, True]], 76],
    0x59: ["news", b"x", 0, [], 16, b"", [], 70, [5, 65_536, 65_537]],
    0x56: ["jobs", ENTRY + OTHER_ENTRY, b"\xc4\x01x"],
    0x57: [0],
    0x58: [3, 0, True, b"\x01"],
    0x68: [],
    0x69: [b"{}"],
    0x6A: [9, 1000],
    0x6B: [1500, [1, 9], ""],
    0x6C: ["rpc"],
    0x6D: [True],
}
"""The fields of one good message of every kind."""


def u32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


NOT_PAYLOADS: list[Any] = [bytes(PAYLOAD_BYTES_MAX + 1), "payload", 1, None, [1]]
NOT_ENTRIES: list[Any] = [
    b"",
    ENTRY[:-1],
    ENTRY + ENTRY,
    OTHER_ENTRY + ENTRY,
    b"\xff" * 24,
    b"".join(number.to_bytes(4, "big") + ENTRY[4:] for number in range(ENTRIES_MAX + 1)),
    "entries",
    [[9, 0, 1, 0, 1]],
    None,
]
NOT_U64: list[Any] = [-1, U64_MAX + 1, True, 1.0, "1", b"1", None, [1]]
NOT_U32: list[Any] = [-1, U32_MAX + 1, False, 0.0, "0", None]
NOT_ID: list[Any] = [-1, NODE_ID_MAX + 1, U64_MAX, True, 3.0, "3", None, []]
NOT_BOOL: list[Any] = [0, 1, "true", None, b"\x01"]
NOT_DIGEST: list[Any] = [b"", bytes(15), bytes(17), "0" * 16, 0, None, [0] * 16]
NOT_IDS: list[Any] = [[1] * (ROUTE_IDS_MAX + 1), [NODE_ID_MAX + 1], [-1], ["1"], [[1]], 1, {}, None]
NOT_ID_SETS: list[Any] = [
    b"\x00",
    b"\x03\x00\x00\x00\x01",
    b"\x00" + u32(1, 2, 3),
    b"\x00" + u32(2, 1),
    b"\x00" + u32(1, 2, 3, 4),
    b"\x00" + u32(1, ID_SET_SPACE),
    b"\x01",
    b"\x01" + u32(2, 2),
    b"\x01" + u32(ID_SET_SPACE),
    b"\x01\x00",
    b"\x02" + u32(0),
    b"\x02" + u32(4) + b"\x01",
    b"\x02" + u32(0) + b"\x00\x01",
    b"\x02" + u32(0) + b"\x01\x00",
    b"\x02" + u32(ID_SET_SPACE) + b"\x01",
    bytes(ID_SET_BYTES_MAX + 1),
    "\x01",
    9,
    None,
]
NOT_ASKED: list[Any] = [
    [],
    [0, 3],
    [0, 3, 9, 1],
    [0, 0, 9],
    [0, U32_MAX + 1, 9],
    [0, 3, 0],
    [0, 3, U64_MAX + 1],
    [1, 3, 9],
    [True, 3, 9],
    [0, True, 9],
    [0, 3, None],
]
NOT_BRANCHES: list[Any] = [
    [[9]],
    [[9, b"", 0]],
    [[-1, b""]],
    [9],
    [[9, b""]] * (BRANCHES_MAX + 1),
    {9: b""},
    None,
    *[[[9, value]] for value in NOT_ID_SETS],
]
NOT_SKIPS: list[Any] = [
    [[9, 1, 2]],
    [[9, 1, 2, True, 0]],
    [[-1, 1, 2, True]],
    [[9, 0, 2, True]],
    [[9, 3, 2, True]],
    [[9, 1, U64_MAX + 1, True]],
    [[9, 1, 2, 1]],
    [[9, 1, 2, True]] * (SKIPS_MAX + 1),
    [9],
    {},
    None,
]
NOT_HELD: list[Any] = [
    [[4, 1, 77, 70]],
    [[4, 1, 77, 70, 79, 0]],
    [[-1, 1, 77, 70, 79]],
    [[4, 0, 77, 70, 79]],
    [[4, 1, -1, 70, 79]],
    [[4, 1, 77, True, 79]],
    [[4, 1, 77, 70, U64_MAX + 1]],
    [[4, 1, 77, 70, 79]] * (WATERMARKS_MAX + 1),
    [4],
    None,
]
NOT_RUNS: list[Any] = [
    [[5]],
    [[5, 6, 7]],
    [[6, 5]],
    [[5, NODE_ID_MAX + 1]],
    [[-1, 5]],
    [["5", 6]],
    [[7, 8], [5, 6]],
    [[5, 6], [6, 7]],
    [[5, 6], [7, 8]],
    [5],
    [[2 * i, 2 * i] for i in range(300)],
    None,
]
NOT_RECORDS: list[Any] = [
    [ROW[:4]],
    [[*ROW, 0]],
    [[]],
    [3],
    [[NODE_ID_MAX + 1, *ROW[1:]]],
    [[3, U64_MAX + 1, 0, 1, "a:1"]],
    [[3, -1, 0, 1, "a:1"]],
    [[3, 1, U32_MAX + 1, 1, "a:1"]],
    [[3, 1, -1, 1, "a:1"]],
    [[3, 1, 0, 5, "a:1"]],
    [[3, 1, 0, -1, "a:1"]],
    [[3, 1, 0, True, "a:1"]],
    [[3, 1, 0, 1, b"a:1"]],
    [[3, 1, 0, 1, "a" * 256]],
    [[3, 1, 0, 1, "é" * 128]],
    [ROW, ROW],
    [[4, *ROW[1:]], ROW],
    [[number, *ROW[1:]] for number in range(RECORDS_PER_NOTICE_MAX + 1)],
    {3: ROW},
    None,
    "records",
]
NOT_MEMBER_FEATURES: list[Any] = [
    [[3, 1]],
    [[3, 1, 0, 0]],
    [3],
    [[NODE_ID_MAX + 1, 1, 0]],
    [[3, 0, 0]],
    [[3, U64_MAX + 1, 0]],
    [[3, 1, U32_MAX + 1]],
    [[3, 1, -1]],
    [[3, 1, None]],
    [[3, 1, 0], [3, 2, 0]],
    [[4, 1, 0], [3, 1, 0]],
    [[number, 1, 0] for number in range(OLDER_MEMBERS_MAX + 1)],
    None,
    b"",
]

WRONG: list[tuple[int, int, Any]] = [
    *[(0x01, 0, value) for value in [0, *NOT_U64]],
    *[(0x01, 1, value) for value in NOT_U64],
    *[(0x01, 2, value) for value in NOT_DIGEST],
    *[(0x01, 3, value) for value in NOT_BOOL],
    *[(kind, 0, value) for kind in (0x02, 0x03) for value in NOT_U64],
    *[(0x04, 0, value) for value in NOT_RECORDS],
    *[(0x05, 0, [DIGEST] * count) for count in (0, BUCKETS - 1, BUCKETS + 1)],
    *[(0x05, 0, [*[DIGEST] * (BUCKETS - 1), value]) for value in NOT_DIGEST],
    *[(0x05, 1, value) for value in NOT_BOOL],
    *[(0x0C, 0, value) for value in NOT_ID],
    *[(0x0C, 1, value) for value in [*NOT_U64, 0]],
    *[(0x0D, 0, value) for value in NOT_RECORDS],
    *[(0x0D, 1, value) for value in NOT_RUNS],
    *[(0x0D, 2, value) for value in NOT_ID if value is not None],
    *[(0x0E, 0, value) for value in NOT_MEMBER_FEATURES],
    *[(0x06, 0, value) for value in NOT_DIGEST],
    *[(0x07, 0, value) for value in ["x" * 256, "é" * 128, b"leaving", 1, None]],
    *[(0x49, 0, value) for value in [0, 16 << 4, -1, True, None]],
    *[(0x49, 1, value) for value in ["", "x" * 256, "é" * 128, b"jobs", 1, None, ["jobs"]]],
    *[(kind, at, value) for kind, at in ((0x49, 2), (0x49, 3)) for value in NOT_U32],
    *[(0x49, 4, value) for value in [0, 4, -1, 65_536, True, 1.0, None]],
    *[(0x49, 5, value) for value in [1, -1, 2**40 + 1, True, None]],
    *[(0x49, 5, value) for value in NOT_ASKED],
    *[(0x49, 6, value) for value in [bytes(SEGMENT_BYTES_MAX + 1), b"", "body", 1, None]],
    *[(kind, 0, value) for kind in (0x4A, 0x4B) for value in NOT_U32],
    *[(0x4A, 1, value) for value in NOT_U64],
    *[(0x4A, 2, value) for value in NOT_BOOL],
    *[
        (0x4A, 3, value)
        for value in [[0, 1], [3], [5, 3], [3, 5, 4, 4], [1] * 66, [1, 2**32], 3, None, ["1", "2"]]
    ],
    *[(0x4B, 1, value) for value in [-1, 256, True, 0.0, "0", None]],
    *[(0x42, 0, value) for value in NOT_ID],
    *[(kind, 0, value) for kind in (0x43, 0x44) for value in NOT_IDS],
    *[(kind, 0, value) for kind in (0x45, 0x46) for value in NOT_ID],
    *[(kind, 1, value) for kind in (0x45, 0x46) for value in NOT_U64],
    *[(0x46, 2, value) for value in NOT_BOOL],
    *[(kind, 0, value) for kind in (0x47, 0x48) for value in [0, *NOT_U64]],
    *[(0x47, 1, value) for value in ["x" * 256, "é" * 128, b"new:1", 1, None]],
    *[(0x47, 2, value) for value in [-1, NODE_ID_MAX + 2, True, "1", None]],
    *[(0x48, 1, value) for value in NOT_ID],
    *[(0x08, 0, value) for value in NOT_HELD],
    *[(0x08, 1, value) for value in NOT_BOOL],
    *[(0x09, 0, value) for value in NOT_ID],
    *[(0x09, at, value) for at in (1, 2) for value in [0, *NOT_U64]],
    *[(0x52, 1, value) for value in NOT_PAYLOADS],
    *[(kind, at, value) for kind, at in ((0x52, 2), (0x54, 0)) for value in [-1, 2, True, None]],
    *[(kind, at, value) for kind, at in ((0x52, 3), (0x54, 1)) for value in NOT_BRANCHES],
    *[(0x52, 4, value) for value in [0, ID_SET_SPACE + 1, True, "1", None]],
    *[(0x52, 5, value) for value in [bytes(EXCEPTIONS_BYTES_MAX + 1), *NOT_ID_SETS]],
    *[(kind, at, value) for kind, at in ((0x52, 6), (0x55, 0)) for value in NOT_SKIPS],
    *[(kind, at, value) for kind, at in ((0x52, 7), (0x54, 2), (0x55, 1)) for value in NOT_U64],
    *[(0x53, at, value) for at in (0, 1) for value in NOT_U64],
    *[(0x53, 2, value) for value in NOT_BOOL],
    *[
        (kind, 0, value)
        for kind in (0x50, 0x51, 0x52, 0x56)
        for value in ["x" * 256, b"jobs", 1, None]
    ],
    *[(kind, 0, "") for kind in (0x50, 0x51, 0x56)],
    *[(kind, at, value) for kind, at in ((0x57, 0), (0x58, 0), (0x58, 1)) for value in NOT_U64],
    *[(0x58, 2, value) for value in NOT_BOOL],
    *[(0x58, 3, value) for value in [bytes(PROGRAMS_BYTES_MAX + 1), "", 1, None]],
    *[(kind, 1, value) for kind in (0x50, 0x51) for value in NOT_PAYLOADS],
    *[(0x50, 2, value) for value in [-1, 2, True, "0", None]],
    *[(kind, at, value) for kind, at in ((0x50, 3), (0x51, 2)) for value in NOT_BRANCHES],
    *[(0x56, 1, value) for value in NOT_ENTRIES],
    *[(0x59, 1, value) for value in [b"", b"xx", *NOT_PAYLOADS]],
    *[
        (0x59, 8, value)
        for value in [
            [0, 0, 1],
            [5, 1, 1],
            [5, -1, 9],
            [5, 0, 2**40 + 1],
            [5, 0],
            [5, 0, 1, 0],
            5,
            None,
        ]
    ],
    *[(0x56, 2, value) for value in [bytes(SEGMENT_BYTES_MAX + 1), b"", "body", 1, None]],
    *[(0x69, 0, value) for value in [bytes(REPORT_BYTES_MAX + 1), "{}", 1, None, {}]],
    *[(0x6A, 0, value) for value in NOT_ID],
    *[(0x6A, 1, value) for value in [0, TRACE_MS_MAX + 1, True, 1.0, "1", None]],
    *[(0x6C, 0, value) for value in ["", "x" * 256, b"rpc", 1, None]],
    *[(0x6D, 0, value) for value in NOT_BOOL],
    *[(0x6B, 0, value) for value in NOT_U64],
    *[(0x6B, 1, value) for value in NOT_IDS],
    *[(0x6B, 2, value) for value in ["x" * 256, b"", 1, None]],
]
"""(kind, which field, a value that it cannot have)."""


def body_of(kind: int, fields: list[Any], **header: int) -> bytes:
    """The body of a frame with any fields at all."""
    return bytes(_pack([encode_header(kind, **header), *fields]))


def _pack(value: object) -> bytes:
    # 2**64 and above has no form in msgpack; a float of that size is the nearest that a peer can send.
    return bytes(msgpack.packb(value, default=float))


def search_body(search: object) -> bytes:
    return body_of(0x42, [9, search], flags=FLAG_CAREFUL)


def outcome_of(body: bytes) -> Message | None:
    """The message, or None for a ProtocolError; any other exception fails the test."""
    try:
        return decode(body)
    except ProtocolError:
        return None


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MESSAGES)
def test_codec_reads_what_it_writes(name: str) -> None:
    frame = encode(MESSAGES[name])
    assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
    assert decode(frame[LENGTH_BYTES:]) == MESSAGES[name]


def test_codec_examples_have_every_kind() -> None:
    kinds = {type(message) for message in MESSAGES.values()}
    assert kinds == {*get_args(LinkMessage), *get_args(RoutedMessage)}
    assert {encode(m)[LENGTH_BYTES + 3 + KIND_AT] for m in MESSAGES.values()} == VALID.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_codec_puts_the_header_where_relays_look_for_it(name: str) -> None:
    body = encode(MESSAGES[name])[LENGTH_BYTES:]
    assert ARRAY_FIRST <= body[0] <= ARRAY_LAST
    assert body[1:3] == bytes((BIN_8, HEADER_BYTES))


def test_codec_longest_message_fits_into_a_frame() -> None:
    longest = max(len(encode(message)) for message in MESSAGES.values()) - LENGTH_BYTES
    assert PAYLOAD_BYTES_MAX + SEARCH_BYTES_MAX < longest <= FRAME_BYTES_MAX


# --- violations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VALID)
def test_codec_reads_the_fields_that_the_violations_start_from(kind: int) -> None:
    assert encode(decode(body_of(kind, VALID[kind])))[LENGTH_BYTES:] == body_of(kind, VALID[kind])


@pytest.mark.parametrize(("kind", "at", "value"), WRONG)
def test_codec_refuses_a_value_out_of_its_range_or_type(kind: int, at: int, value: object) -> None:
    fields = list(VALID[kind])
    fields[at] = value
    with pytest.raises(ProtocolError):
        decode(body_of(kind, fields))


@pytest.mark.parametrize("kind", VALID)
def test_codec_refuses_a_missing_or_extra_field(kind: int) -> None:
    wrong = [VALID[kind][:-1], [*VALID[kind], 0], [*VALID[kind], None], []]
    for fields in [fields for fields in wrong if fields != VALID[kind]]:
        with pytest.raises(ProtocolError):
            decode(body_of(kind, fields))


@pytest.mark.parametrize("kind", [0x00, 0x0A, 0x3F, 0x40, 0x4F, 0x7F, 0x80, 0xFF])
def test_codec_refuses_an_unknown_kind(kind: int) -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        decode(body_of(kind, [1]))


@pytest.mark.parametrize(
    "value",
    [
        [bytes(31), 1, 2, 3],
        [bytes(33), 1],
        [b"\x02" * 31 + b"", 1, "fill the frame"],
        ["\x02" * 32, 1],
        [list(range(32)), 1],
        {b"\x02" * 32: 1},
        b"\x02" * 64,
        "\x02" * 64,
        [None, "x" * 64],
        [1, "x" * 64],
        [[encode_header(0x02), 1]],
    ],
)
def test_codec_refuses_a_frame_without_a_header(value: object) -> None:
    with pytest.raises(ProtocolError):
        decode(_pack(value))


def test_codec_refuses_a_frame_of_a_wrong_length() -> None:
    good = body_of(0x02, [1])
    for body in (b"", good[:-1], good[: BODY_BYTES_MIN - 1], good + b"\x00", good + good):
        with pytest.raises(ProtocolError):
            decode(body)
    with pytest.raises(ProtocolError, match="length"):
        decode(body_of(0x49, [1, "t", 0, 0, 1, 0, bytes(FRAME_BYTES_MAX)]))


@pytest.mark.parametrize(
    "field",
    [
        b"\xa1\xff",  # a text that is not UTF-8
        b"\xa3\xed\xa0\x80",  # half of a surrogate pair
        b"\xd4\x05\x00",  # an extension type
        b"\xc7\x00\x05",  # an empty one
        b"\xd6\xff\x00\x00\x00\x00",  # a time stamp
        b"\xc7\x00\xff",  # a broken time stamp
        b"\xc1",  # a byte that msgpack never uses
        b"\xdd\xff\xff\xff\xff",  # an array that claims 4 billion items
        b"\xdf\xff\xff\xff\xff",  # a map that claims as many
        b"\xc6\xff\xff\xff\xff",  # bytes that claim 4 GiB
        b"\x81\x90\x01",  # a map with an array as its key
        b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # not a number
        b"\x91" * 600 + b"\x01",  # deep nesting
        b"\x91" * 60_000 + b"\x01",
        b"\x81\xa1k" * 5_000 + b"\x01",
    ],
)
def test_codec_refuses_what_msgpack_can_say_and_the_protocol_cannot(field: bytes) -> None:
    for kind, fields in VALID.items():
        for at in range(len(fields)):
            packed = [_pack(value) for value in fields]
            packed[at] = field
            head = bytes((0x90 | 1 + len(fields), BIN_8, HEADER_BYTES)) + encode_header(kind)
            with pytest.raises(ProtocolError):
                decode(head + b"".join(packed))


@pytest.mark.parametrize(
    "search",
    [
        None,
        [],
        [b"", b""],
        [b"", b"", 0, 0],
        ["", b"", 0],
        [b"", "", 0],
        [b"", [1, 2], 0],
        [b"", bytes(3), 0],
        [b"", struct.pack(">I", NODE_ID_MAX + 1), 0],
        [bytes(SEARCH_BYTES_MAX + 1), b"", 0],
        [b"", bytes(SEARCH_BYTES_MAX + 4), 0],
        [bytes(SEARCH_BYTES_MAX - 3), bytes(4), 0],
        [b"", b"", -1],
        [b"", b"", 256],
        [b"", b"", None],
        [b"", b"", True],
    ],
)
def test_codec_refuses_a_search_out_of_its_bounds(search: object) -> None:
    with pytest.raises(ProtocolError):
        decode(search_body(search))


def test_codec_refuses_a_shared_segment_in_careful_mode() -> None:
    search = [b"\x01", struct.pack(">I", 3), 2]
    with pytest.raises(ProtocolError):
        decode(body_of(0x56, [*VALID[0x56], search], flags=FLAG_CAREFUL))


def test_codec_asks_for_a_search_exactly_where_the_flag_says() -> None:
    search = [b"\x01", struct.pack(">I", 3), 2]
    found = decode(search_body(search))
    assert encode(found)[LENGTH_BYTES:] == search_body(search)
    with pytest.raises(ProtocolError):
        decode(body_of(0x42, [9], flags=FLAG_CAREFUL))
    with pytest.raises(ProtocolError):
        decode(body_of(0x42, [9, search]))


@pytest.mark.parametrize("name", ["destination", "source"])
def test_codec_refuses_an_id_above_the_highest_in_the_header(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode(body_of(0x42, [9], **{name: NODE_ID_MAX + 1}))


def test_codec_ignores_flags_that_it_does_not_know() -> None:
    assert decode(body_of(0x42, [9], flags=0xFC)) == decode(body_of(0x42, [9]))
    assert decode(body_of(0x02, [1], flags=0xFF)) == Ping(1)
    assert decode(body_of(0x42, [9], flags=FLAG_RECORD)) != decode(body_of(0x42, [9]))


# --- fuzz -----------------------------------------------------------------------------------------


def _mutated(random: Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed))
        match random.randrange(5):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                changed[at] ^= 1 << random.randrange(8)
            case 2:
                changed[at:at] = random.randbytes(random.randrange(1, 5))
            case 3:
                del changed[at : at + random.randrange(1, 5)]
            case _:
                # Behind the header, where the fields begin.
                changed[35:35] = bytes((random.choice((0x80, 0x91, 0xC4, 0xC7, 0xD6, 0xDD, 0xFF)),))
        if not changed:
            return b""
    return bytes(changed)


def _survives_a_round(message: Message) -> bool:
    return decode(encode(message)[LENGTH_BYTES:]) == message


@pytest.mark.parametrize("name", [n for n, m in MESSAGES.items() if len(encode(m)) < 4096])
def test_codec_reads_a_mutated_frame_or_refuses_it(name: str) -> None:
    random = Random(f"mutated {name}")
    body = encode(MESSAGES[name])[LENGTH_BYTES:]
    outcomes = [outcome_of(_mutated(random, body)) for _ in range(1500)]
    assert None in outcomes
    assert all(_survives_a_round(found) for found in outcomes if found is not None)


def test_codec_reads_random_bytes_or_refuses_them() -> None:
    random = Random("random bytes")
    for _ in range(5000):
        assert outcome_of(random.randbytes(random.randrange(200))) is None


def test_codec_reads_random_fields_or_refuses_them() -> None:
    random = Random("random fields")
    kinds = list(VALID)
    refused = 0
    for _ in range(10_000):
        count = random.randrange(5)
        head = bytes((0x91 + count, BIN_8, HEADER_BYTES))
        header = encode_header(random.choice(kinds), flags=random.randrange(4))
        found = outcome_of(head + header + random.randbytes(random.randrange(1, 24)))
        refused += found is None
        assert found is None or _survives_a_round(found)
    assert refused > 5000


def test_codec_truncated_anywhere_is_refused() -> None:
    for name in ("notice", "buckets", "segment in careful mode", "probe", "answer"):
        body = encode(MESSAGES[name])[LENGTH_BYTES:]
        for end in range(len(body)):
            with pytest.raises(ProtocolError):
                decode(body[:end])


# --- what is read is what others hold too -----------------------------------------------------------


def test_codec_gives_digests_as_numbers() -> None:
    buckets = decode(body_of(0x05, [[b"\xff" * 16] + [DIGEST] * (BUCKETS - 1), False]))
    assert isinstance(buckets, Buckets)
    assert buckets.digests == (DIGEST_MAX, *[0] * (BUCKETS - 1))


def test_codec_gives_records_as_records() -> None:
    notice = decode(body_of(0x04, [[[3, RECORD.incarnation, 2, 1, "host3:7400"]]]))
    assert isinstance(notice, Notice)
    assert notice.records[0][1] == RECORD
    assert notice.records[0][1].status is RECORD.status


def test_codec_does_not_show_a_payload_in_a_repr() -> None:
    message = MESSAGES["segment that opens"]
    assert isinstance(message, Segment)
    assert "hello" not in repr(message)


def test_codec_refuses_questions_without_a_body() -> None:
    with pytest.raises(ProtocolError, match="without a body"):
        decode(body_of(0x49, [2, "", 0, 1, 0, [0, 3, 9], b""]))
