"""Frames by chance: good ones with their fields at their bounds, and such as no daemon may send.

Whether a frame is good is not decided here: `frames.judge` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from bmgd.sim.witness.fields import ID_MAX, U32, U64
from bmgd.sim.witness.frames import (
    CAREFUL,
    HEADER,
    HEADER_AT,
    KINDS,
    LENGTHS,
    LINK_KINDS,
    RECORD,
    RUN_BYTES,
    SEARCH_BYTES,
    SHARED_SEGMENT,
)
from bmgd.sim.witness.packed import packed
from bmgd.sim.witness.values import Runs

_NUMBERS: Final = tuple(KINDS)
_UNKNOWN: Final = (
    0x00,
    0x0A,
    0x0B,
    0x0F,
    0x10,
    0x3F,
    0x40,
    0x41,
    0x4C,
    0x5A,
    0x6E,
    0x7F,
    0x80,
    0xFF,
)


WRONG_SEARCHES: Final[tuple[Any, ...]] = (
    *([b"", b""], [b"", b"", 0, 0], [b"", b"\x00", 0], [b"", b"", 256], [b"", b"", True]),
    *([b"", bytes(SEARCH_BYTES + 4), 0], [bytes(SEARCH_BYTES), bytes(4), 0], ["", b"", 0]),
    *([b"", b"\xff" * 4, 0], [[[3, 2]], b"", 0], [[[1, 2], [3, 4]], b"", 0], [b"", [1], 0]),
    *(None, b"", {}),
)
"""What is no state of a search."""


def any_frame(random: Random) -> bytes:
    """A frame, with its length in front of it; more often than not it is malformed."""
    number = random.choice(_NUMBERS)
    kind = list(KINDS[number].fields.values())
    values = good_fields(number, random)
    flags, tail = _flags(number, random), b""
    search = [good_search(random)] if flags & CAREFUL else []
    ids = random.choice((0, 1, ID_MAX)), random.choice((0, 5, ID_MAX))
    shown = number
    manner = random.randrange(20)
    if manner < 8 and values:
        at = random.randrange(len(values))
        values[at] = kind[at].wrong(random)
    elif manner == 8:
        values = values[:-1] if random.random() < 0.5 else [*values, random.choice((0, None, b""))]
    elif manner == 9:
        shown = random.choice(_UNKNOWN)
    elif manner == 10:
        tail = random.choice((b"\x00", b"\xc0", b"\xc1", packed(values)))
    elif manner == 11:
        ids = random.choice(((ID_MAX + 1, 0), (0, ID_MAX + 1), (U32, U32)))
    elif manner == 12:
        flags, search = flags | CAREFUL, [wrong_search(random)]
    elif manner == 13:
        flags ^= CAREFUL
    body = _body(shown, flags, ids, [*values, *search], random) + tail
    if manner == 14:
        body = body[: random.randrange(len(body))]
    elif manner == 15:
        body = _changed(body, random)
    if manner == 16:
        length = random.choice((0, LENGTHS[0] - 1, LENGTHS[-1] + 1, U32))
        return length.to_bytes(4, "big") + body[: max(0, min(length, len(body)))]
    return len(body).to_bytes(4, "big") + body


def frames_of(number: int, random: Random) -> Iterator[bytes]:
    """Frames of one kind, in each of which one thing is at a bound or wrong, and the rest is good.

    Each field has each of the wrong values of its type once; so has the search of a careful one.
    """
    flags = _flags(number, random) & ~CAREFUL
    ids = random.choice((0, 1, ID_MAX)), random.choice((0, 5, ID_MAX))
    fields = list(KINDS[number].fields.values())
    bodies = [_body(number, flags, ids, good_fields(number, random), random) for _ in range(10)]
    for at, field in enumerate(fields):
        for wrong in field.wrongs(random):
            values = good_fields(number, random)
            values[at] = wrong
            bodies.append(_body(number, flags, ids, values, random))
    if number not in LINK_KINDS:
        for search in (good_search(random), _full_search(random), *WRONG_SEARCHES):
            values = [*good_fields(number, random), search]
            bodies.append(_body(number, flags | CAREFUL, ids, values, random))
    for at, byte in (
        (0, 0x90),
        (0, 0xA0 - 1),
        (0, 0xA0),
        (0, 0xDC),
        (1, 0xC5),
        (2, 0x1F),
        (2, 0x21),
    ):
        bodies.append(bodies[0][:at] + bytes((byte,)) + bodies[0][at + 1 :])
    for body in bodies:
        yield len(body).to_bytes(4, "big") + body


def good_frame(number: int, random: Random) -> bytes:
    """A frame of one kind, with its length in front of it, that most often is a good one."""
    body = _body(number, 0, (0, 0), good_fields(number, random), random)
    return len(body).to_bytes(4, "big") + body


def _full_search(random: Random) -> Any:
    """The state of a search of as many bytes as it may have, as runs, or of one id more."""
    count = SEARCH_BYTES // RUN_BYTES - random.choice((1, 2, 300))
    ids = (SEARCH_BYTES - RUN_BYTES * count) // 4 + random.choice((0, 1))
    return [[[2 * each, 2 * each] for each in range(count)], bytes(4 * ids), 0]


def good_fields(number: int, random: Random) -> list[Any]:
    """Values of the fields of one kind, at the ends of their ranges."""
    fields = KINDS[number].fields
    if "piece" in fields:
        payload = random.choice((b"x", bytes(65_536)))
        at = random.choice((0, 2**40 - len(payload)))
        size = random.choice((at + len(payload), 2**40))
        last = [random.choice((payload, payload, payload + b"x")), at, size]
        rest = [field.edge(random) for field in list(fields.values())[2:-1]]
        return ["t", last[0], *rest, [random.choice((1, U64)), at, size]]
    if "size" in fields:
        return _segment(random)
    return [field.edge(random) for field in fields.values()]


def _segment(random: Random) -> list[Any]:
    """The fields of a segment: empty, of whole messages, or a piece; a question or not."""
    flags = random.choice((0x00, 0x01, 0x10, 0x11, 0x02, 0x04, 0x08, 0xEE, 0xFF))
    topic = random.choice(("t", "t" * 255)) if flags & 0x11 else ""
    ids = [random.choice((0, U32)), random.choice((0, 1, U32))]
    count, size, body = random.choice(
        (
            *((0, 0, b""), (1, 0, b"\xc4\x00"), (2, 0, b"\xc4\x00"), (3, 0, b"\xc4\x00")),
            *((65_535, 0, bytes(65_541)), (0, 1, b"x"), (0, 2**40, bytes(65_541)), (1, 1, b"x")),
            *((0, 0, b"x"), (1, 0, b""), (0, 1, b"")),
        )
    )
    asked = [size, random.choice((1, U32)), random.choice((1, U64))]
    if random.random() < 0.1:
        topic = "" if topic else "t"
    return [flags, topic, *ids, count, asked if random.random() < 0.4 else size, body]


def good_search(random: Random) -> Any:
    """The state of a search, or one of a few bytes too many."""
    stack = random.choice((b"", bytes(4), ID_MAX.to_bytes(4, "big") * 3))
    room = SEARCH_BYTES - len(stack)
    runs = Runs(SEARCH_BYTES // RUN_BYTES).edge(random)
    visited = random.choice((b"", b"\x01", bytes(room), bytes(room + 1), runs, runs))
    return [visited, stack, random.choice((0, 255))]


def wrong_search(random: Random) -> Any:
    """What is no state of a search."""
    return random.choice((*WRONG_SEARCHES, [Runs(0).edge(random), "", 0]))


def _flags(number: int, random: Random) -> int:
    flags = random.choice((0, 0, RECORD, 0x80))
    may_search = number not in LINK_KINDS and number != SHARED_SEGMENT
    return flags | (CAREFUL if may_search and random.random() < 0.2 else 0)


def _body(
    number: int, flags: int, ids: tuple[int, int], values: list[Any], random: Random
) -> bytes:
    numbers = (
        random.choice((0, 1, U64)),
        random.choice((0, U32)),
        random.choice((0, 2**32 + 1, U64)),
    )
    header = HEADER.pack(
        number, flags, random.randrange(4), random.choice((0, 255)), *ids, *numbers
    )
    return packed([header, *values])


def _changed(body: bytes, random: Random) -> bytes:
    """A frame with one byte changed, most often one behind the header."""
    first = HEADER_AT + HEADER.size
    low = first if random.random() < 0.7 and len(body) > first else 0
    at = random.randrange(low, min(len(body), low + 40))
    return body[:at] + bytes((random.randrange(256),)) + body[at + 1 :]
