"""The simulator's own reader of the wire agrees with the codec, though neither knows the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bmgd.errors import ProtocolError
from bmgd.sim.witness.frames import CLOSE, DROP, KINDS, READ, differences, judge
from bmgd.sim.witness.packed import Reader, Unreadable, packed
from bmgd.wire.codec import LENGTH_BYTES, decode, encode, kinds
from bmgd.wire.link_messages import Heartbeat, Ping
from bmgd.wire.messages import LinkMessage, Message
from tests.unit.wire.examples import MESSAGES
from tests.unit.wire.test_codec import VALID, WRONG, body_of

VALUES: list[object] = [
    *(0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**64 - 1, -1, None, True, False, "", b""),
    *("a" * 31, "é" * 16, "a" * 256, "a" * 65_536, b"x" * 256, b"x" * 65_536, (1,) * 15, (1,) * 16),
    *((0,) * 65_536, ((1, ("a",)), b"x")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_packed_value_is_read_in_its_shortest_form(value: object) -> None:
    reader = Reader(packed(value))
    assert (reader.value(), reader.is_at_end, reader.is_shortest) == (value, True, True)


@pytest.mark.parametrize("data", ["cc7f", "cd00ff", "ce0000ffff", "cf00000000ffffffff", "c50001aa"])
def test_packed_value_in_a_longer_form_is_read_as_such(data: str) -> None:
    reader = Reader(bytes.fromhex(data))
    reader.value()
    assert (reader.is_at_end, reader.is_shortest) == (True, False)


@pytest.mark.parametrize("data", ["", "cd00", "c1", "ca00000000", "80", "d40500", "92c0", "a2c328"])
def test_packed_value_that_no_message_has_is_unreadable(data: str) -> None:
    with pytest.raises(Unreadable):
        Reader(bytes.fromhex(data)).value()


def test_witness_knows_the_kinds_of_the_codec() -> None:
    known = {number: (kind.name, len(kind.fields)) for number, kind in KINDS.items()}
    assert known == {number: (kind.__name__, count) for number, (kind, count) in kinds().items()}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_witness_reads_in_a_frame_what_it_was_made_of(message: Message) -> None:
    assert differences(message, encode(message)[LENGTH_BYTES:], is_own=True) == ""


def test_witness_names_a_field_that_differs() -> None:
    body = encode(Ping(7))[LENGTH_BYTES:]
    assert "has (8,), its frame (7,)" in differences(Ping(8), body, is_own=True)
    heartbeat = Heartbeat(1, 0, 5, answer=True)
    one = encode(replace(heartbeat, answer=1))[LENGTH_BYTES:]  # type: ignore[arg-type]
    assert "is close" in differences(heartbeat, one, is_own=True)


@pytest.mark.parametrize(("kind", "fields"), VALID.items(), ids=lambda v: repr(v)[:20])
def test_witness_reads_good_fields(kind: int, fields: list[Any]) -> None:
    assert judge(body_of(kind, fields)).what == READ


@pytest.mark.parametrize(("kind", "at", "value"), WRONG, ids=lambda v: repr(v)[:20])
def test_witness_reads_no_wrong_field(kind: int, at: int, value: Any) -> None:
    body = body_of(kind, [*VALID[kind][:at], value, *VALID[kind][at + 1 :]])
    with pytest.raises(ProtocolError):
        decode(body)
    is_long = len(body) > 83_968
    assert judge(body).what == (CLOSE if kind < 0x40 or is_long else DROP)


def test_witness_closes_links_for_link_messages_only() -> None:
    routed = {number for number, kind in kinds().items() if not issubclass(kind[0], LinkMessage)}
    for number in KINDS:
        verdict = judge(body_of(number, [None] * 12))
        assert verdict.what == (DROP if number in routed else CLOSE), number
