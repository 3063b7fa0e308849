"""What the codec writes it reads, and what it should not read is a ProtocolError, nothing else."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random
from typing import Any, Final, get_args

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
from bmgd.types import NODE_ID_MAX
from bmgd.wire import ask_formats, broadcast_formats, link_formats, stream_formats
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX, SEARCH_BYTES_MAX
from bmgd.wire.codec import decode, encode, encode_header, kinds
from bmgd.wire.link_messages import BUCKETS, Buckets, Notice, Ping
from bmgd.wire.messages import LinkMessage, Message, RoutedMessage
from bmgd.wire.routes import VISITED_RUN_BYTES
from bmgd.wire.stream_messages import Segment
from tests.unit.wire import ask_violations, broadcast_violations, link_violations, stream_violations
from tests.unit.wire.examples import DIGEST_MAX, MESSAGES, RECORD

VALID: Final[dict[int, list[Any]]] = {
    **link_violations.VALID,
    **stream_violations.VALID,
    **ask_violations.VALID,
    **broadcast_violations.VALID,
}
"""The fields of one good message of every kind."""

WRONG: Final[list[tuple[int, int, Any]]] = [
    *link_violations.WRONG,
    *stream_violations.WRONG,
    *ask_violations.WRONG,
    *broadcast_violations.WRONG,
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
    written = {type(message) for message in MESSAGES.values()}
    assert written == {*get_args(LinkMessage), *get_args(RoutedMessage)}
    assert {encode(m)[LENGTH_BYTES + 3 + KIND_AT] for m in MESSAGES.values()} == VALID.keys()


def test_codec_has_no_kind_in_two_tables() -> None:
    tables = (link_formats, stream_formats, ask_formats, broadcast_formats)
    assert len(kinds()) == sum(len(table.FORMATS) for table in tables)


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
    refused = 0
    for _ in range(10_000):
        count = random.randrange(5)
        head = bytes((0x91 + count, BIN_8, HEADER_BYTES))
        header = encode_header(random.choice(list(VALID)), flags=random.randrange(4))
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
    buckets = decode(
        body_of(0x05, [[b"\xff" * 16] + [link_violations.DIGEST] * (BUCKETS - 1), False])
    )
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


@pytest.mark.parametrize("stack_bytes", [0, 40])
def test_search_of_runs_and_a_stack_has_its_bound_together(stack_bytes: int) -> None:
    runs = [(3 * number, 3 * number + 1) for number in range(SEARCH_BYTES_MAX // VISITED_RUN_BYTES)]
    found = outcome_of(search_body([runs, bytes(stack_bytes), 0]))
    assert (found is None) == bool(stack_bytes)


def test_first_question_of_all_has_the_number_1() -> None:
    first = MESSAGES["segment of questions"]
    assert isinstance(first, Segment)
    asked = replace(first, question=1)
    assert decode(encode(asked)[LENGTH_BYTES:]) == asked
