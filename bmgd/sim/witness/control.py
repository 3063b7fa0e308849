"""A second writer and reader of the control protocol, from docs/control-protocol.md and nothing else.

`written` gives the bytes of a frame, `any_body` one that a program may or may not send, and what it
means.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from bmgd.sim.witness.fields import U64
from bmgd.sim.witness.packed import Ready, packed

KINDS: Final = {
    "Request": 0x80,
    "Result": 0x81,
    "Failure": 0x82,
    "Item": 0x83,
    "End": 0x84,
    "Consumed": 0x85,
    "Cancel": 0x86,
    "PutSegment": 0x87,
    "Withdraw": 0x88,
    "Close": 0x89,
    "ConsumedPieces": 0x8A,
    "Settled": 0x8B,
    "ConsumedBroadcasts": 0x8E,
}
"""The page has them by what a frame is for; here they have the names that bmgd gives them."""
BODY_BYTES_MIN: Final = 35
_MOST: Final = 2**48
_BEFORE, _AFTER = 1, 24
"""Where the header's zeros begin, and where they end."""

_NO_COUNT: Final = (-1, _MOST + 1, True, 1.0, "1", b"1", None, [1])
_NO_POSITIVE: Final = (0, *_NO_COUNT)
_NO_TEXT: Final = (b"text", 1, None, ["x"], Ready(b"\xa2\xc3\x28"))
_NO_MAP: Final[tuple[Any, ...]] = ([], None, 1, "map", {1: 1}, {b"key": 1}, Ready(b"\x81\xa1x"))
_NO_SECONDS: Final = (-1, -0.5, 86_401, 86_400.5, True, "1", None)
_NO_BYTES: Final = ("bytes", 1, None, [1])
_NO_NUMBERS: Final[tuple[Any, ...]] = (
    1,
    None,
    {},
    b"\x01",
    [0],
    [-1],
    [True],
    ["1"],
    [1, None],
    [1.0],
)

_Elements = tuple[tuple[Any, ...], ...]
_GOOD: Final[dict[int, _Elements]] = {
    0x80: (("ping", "", "x" * 64), ({}, {"timeout": 1.5, "ids": [1, 2]})),
    0x81: ((None, True, -1, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": 1}}),),
    0x82: (("DeadError", ""), ("text", ""), ({}, {"sent": True})),
    0x83: ((1, {"body": b"x"}),),
    0x84: (("", "DeadError"), ("", "text")),
    0x85: ((1, _MOST),),
    0x86: (),
    0x87: ((0, 1, _MOST), (0, 3), (0, _MOST), (0, 1.5, 86_400, 86_400.0), (b"", b"body")),
    0x88: ((0, 1, _MOST),),
    0x89: (),
    0x8A: ((1, _MOST), (1, _MOST)),
    0x8B: ((0, 1, _MOST), ([], [1], [1, U64])),
    0x8E: ((1, 1024),),
}
"""Of each kind, of each element behind the header, good values."""
_WRONG: Final[dict[int, _Elements]] = {
    0x80: (("x" * 65, *_NO_TEXT), _NO_MAP),
    0x81: (({1: 1}, Ready(b"\xc1"), Ready(b"\xd4\x05\x00")),),
    0x82: (_NO_TEXT, _NO_TEXT, _NO_MAP),
    0x83: (({1: 1}, Ready(b"\xc1"), Ready(b"\xd4\x05\x00")),),
    0x84: (_NO_TEXT, _NO_TEXT),
    0x85: (_NO_POSITIVE,),
    0x86: (),
    0x87: (_NO_COUNT, _NO_COUNT, _NO_COUNT, _NO_SECONDS, _NO_BYTES),
    0x88: (_NO_COUNT,),
    0x89: (),
    0x8A: (_NO_POSITIVE, _NO_POSITIVE),
    0x8B: (_NO_COUNT, _NO_NUMBERS),
    0x8E: ((1025, *_NO_POSITIVE),),
}
_UNKNOWN: Final = (0x00, 0x41, 0x7F, 0x8C, 0x8D, 0x8F, 0xFF)


def header(kind: int, sequence: int) -> bytes:
    """The 32 bytes that a frame begins with: kind, zeros, the number of the request."""
    return bytes((kind,)) + bytes(_AFTER - _BEFORE) + sequence.to_bytes(8, "big")


def written(name: str, sequence: int, elements: tuple[object, ...]) -> bytes:
    """A frame of the kind of that name, its length in front."""
    body = packed([header(KINDS[name], sequence), *elements])
    return len(body).to_bytes(4, "big") + body


def any_body(random: Random) -> tuple[bytes, int, list[Any] | None]:
    """What follows the length of some frame.

    Returns:
        The bytes, the number of the request, and the elements behind the header; None where it is
        malformed.
    """
    kind, sequence = random.choice(list(_GOOD)), random.choice((0, 1, 2**32, U64))
    good = [random.choice(values) for values in _GOOD[kind]]
    if random.random() < 0.5:
        return packed([header(kind, sequence), *good]), sequence, good
    return _malformed(random, kind, sequence, good), sequence, None


def _malformed(random: Random, kind: int, sequence: int, good: list[Any]) -> bytes:
    wrong = _WRONG[kind]
    match random.randrange(6):
        case 0:
            good = [*good, None]
        case 1 if good:
            good = good[:-1]
        case 2:
            kind = random.choice(_UNKNOWN)
        case 3:
            short, long = header(kind, sequence)[:-1], header(kind, sequence) + b"\0"
            return packed([random.choice((short, long, "x" * 32, None)), *good])
        case 4:
            whole = packed([header(kind, sequence), *good])
            return random.choice((whole[:-1], whole + b"\0", packed({}), packed([]), b""))
        case _ if wrong:
            at = random.randrange(len(wrong))
            good[at] = random.choice(wrong[at])
        case _:
            good = [*good, 1]
    return packed([header(kind, sequence), *good])
