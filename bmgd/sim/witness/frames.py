"""Frames as docs/wire-protocol.md has them: the fields of each kind, and what becomes of a frame.

`judge` reads the body of any frame, and says what its receiver must do with it. `differences` compares
a frame with the message that it was made of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from bmgd.sim.witness.fields import (
    ID_MAX,
    SET_SPACE,
    U8,
    U16,
    U32,
    U64,
    Bytes,
    Digest,
    Either,
    Field,
    Items,
    Row,
    Rows,
    Text,
    Truth,
    Whole,
)
from bmgd.sim.witness.packed import Reader, Unreadable
from bmgd.sim.witness.values import (
    Branches,
    Entries,
    Gaps,
    IdSet,
    Piece,
    Records,
    Runs,
    Size,
    Skips,
    shortest_set_bytes,
)

LENGTHS: Final = range(35, 83_968 + 1)
"""Of the body of a frame."""
HEADER: Final = struct.Struct(">BBBBIIQIQ")
HEADER_AT: Final = 3
LINK_KINDS: Final = range(0x01, 0x40)
KINDS_MAX: Final = 0x7F
CAREFUL: Final = 0x01
RECORD: Final = 0x02
SEARCH_BYTES: Final = 16_384
RUN_BYTES: Final = 11
GOODBYE: Final = 0x07
SHARED_SEGMENT: Final = 0x56

READ, DROP, CLOSE = "read", "drop", "close"
"""What the receiver must do: read it; drop and count it; close the link without a goodbye."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of messages.

    Args:
        name: of the class of its messages.
        fields: by the names of that class, in the order of the frame.
        rule: says what is wrong with fields that are good each for itself; "" for nothing.
    """

    name: str
    fields: dict[str, Field]
    rule: Callable[[tuple[Any, ...]], str] = lambda fields: ""

    def plain(self, message: Any) -> tuple[Any, ...]:
        """The fields of a message, as `judge` would give them."""
        found = [field.plain(getattr(message, name)) for name, field in self.fields.items()]
        if self.name == "Segment" and (message.inbox or message.question):
            found[5] = message.size, message.inbox, message.question
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the page says of the body of a frame.

    Args:
        what: `READ`, `DROP` or `CLOSE`.
        why: what is wrong with it.
        kind: its number.
        fields, search: what it says, where it is to be read.
        is_shortest: each value stands in its shortest form.
    """

    what: str
    why: str = ""
    kind: int = 0
    fields: tuple[Any, ...] = ()
    search: tuple[Any, ...] | None = None
    is_shortest: bool = True


class _Visited(Field):
    """The ids that a search has visited: a bitmap, or runs."""

    def read(self, value: object) -> Any:
        if type(value) is bytes:
            return value
        return Runs(SEARCH_BYTES // RUN_BYTES).read(value)

    def edge(self, random: Random) -> Any:
        return random.randbytes(random.choice((0, 1, 32)))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return "", 1, [[5, 4]]


class _Stack(Field):
    """Ids of 4 bytes each."""

    def read(self, value: object) -> Any:
        data = Bytes(SEARCH_BYTES).read(value)
        if len(data) % 4:
            raise Unreadable("not a stack of ids")
        return tuple([Whole(0, ID_MAX).read(each) for (each,) in struct.iter_unpack(">I", data)])

    def edge(self, random: Random) -> Any:
        return struct.pack(">I", random.choice((0, ID_MAX)))

    def wrongs(self, random: Random) -> tuple[Any, ...]:
        return b"\0\0\0", struct.pack(">I", ID_MAX + 1), "", 1


_SEARCH: Final = Row(_Visited(), _Stack(), Whole(0, U8))


def read_search(value: object) -> tuple[Any, ...]:
    """The state of a search."""
    visited, stack, restarts = _SEARCH.read(value)
    runs_bytes = 1 if type(visited) is bytes else RUN_BYTES
    if len(visited) * runs_bytes + 4 * len(stack) > SEARCH_BYTES:
        raise Unreadable("a search of too many bytes")
    return visited, stack, restarts


def _segment_rule(fields: tuple[Any, ...]) -> str:
    flags, topic, _, _, count, size, body = fields
    is_question = type(size) is tuple
    size = size[0] if is_question else size
    if bool(topic) != bool(flags & 0x11):
        return "a topic where none belongs, or none where one does"
    if count and size:
        return "whole messages and a piece"
    if bool(body) != bool(count or size):
        return "a body where none belongs, or none where one does"
    if count > len(body):
        return "more messages than bytes"
    return "questions without a body" if is_question and not body else ""


def _piece_rule(fields: tuple[Any, ...]) -> str:
    payload, (_, at, size) = fields[1], fields[8]
    return "a piece beyond its message" if at + len(payload) > size else ""


_ID, _U64, _LIFE, _TREE = Whole(0, ID_MAX), Whole(0, U64), Whole(1, U64), Whole(0, 1)
_TOPIC, _PAYLOAD, _TRUE = Text(255, 1), Bytes(65_536), Truth()
_PASSED: Final = Items(_ID, 4096)
_MEMBERS: Final = Rows(Row(_ID, _LIFE, Whole(0, U32)), 256, ordered=True)
_RELIABLE: Final[dict[str, Field]] = {
    "topic": Text(255),
    "payload": _PAYLOAD,
    "tree": _TREE,
    "branches": Branches(),
    "id_space": Whole(1, SET_SPACE),
    "exceptions": IdSet(1100),
    "skips": Skips(),
    "stable": _U64,
}

KINDS: Final[dict[int, Kind]] = {
    0x01: Kind("Heartbeat", {"sequence": _LIFE, "echo": _U64, "digest": Digest(), "answer": _TRUE}),
    0x02: Kind("Ping", {"nonce": _U64}),
    0x03: Kind("Pong", {"nonce": _U64}),
    0x04: Kind("Notice", {"records": Records()}),
    0x05: Kind("Buckets", {"digests": Items(Digest(), 64, 64), "answer": _TRUE}),
    0x06: Kind("Unwanted", {"digest": Digest()}),
    0x07: Kind("Goodbye", {"reason": Text(255)}),
    0x08: Kind("Watermarks", {"held": Rows(Row(_ID, _LIFE, _U64, _U64, _U64), 256), "asks": _TRUE}),
    0x09: Kind("Pull", {"source": _ID, "incarnation": _LIFE, "first": _LIFE}),
    0x0C: Kind("PageAsk", {"after": _ID, "buckets": _LIFE}),
    0x0D: Kind(
        "RecordPage", {"records": Records(), "retired": Runs(256), "following": Either(_ID)}
    ),
    0x0E: Kind("OlderMembers", {"members": _MEMBERS}),
    0x42: Kind("Unreachable", {"target": _ID}),
    0x43: Kind("Probe", {"passed": _PASSED}),
    0x44: Kind("ProbeReply", {"passed": _PASSED}),
    0x45: Kind("Ask", {"suspect": _ID, "incarnation": _U64}),
    0x46: Kind("Answer", {"suspect": _ID, "incarnation": _U64, "alive": _TRUE}),
    0x47: Kind(
        "JoinRequest",
        {"incarnation": _LIFE, "address": Text(255), "floor": Whole(0, ID_MAX + 1)},
    ),
    0x48: Kind("JoinGrant", {"incarnation": _LIFE, "id": _ID}),
    0x49: Kind(
        "Segment",
        {
            "flags": Whole(0, U8),
            "topic": Text(255),
            "replaces": Whole(0, U32),
            "floor": Whole(0, U32),
            "count": Whole(0, U16),
            "size": Size(),
            "body": Bytes(65_541),
        },
        _segment_rule,
    ),
    0x4A: Kind("SegmentAck", {"tag": Whole(0, U32), "credit": _U64, "full": _TRUE, "gaps": Gaps()}),
    0x4B: Kind("StreamReset", {"tag": Whole(0, U32), "reason": Whole(0, U8)}),
    0x50: Kind(
        "Broadcast", {"topic": _TOPIC, "payload": _PAYLOAD, "tree": _TREE, "branches": Branches()}
    ),
    0x51: Kind("Multicast", {"topic": _TOPIC, "payload": _PAYLOAD, "branches": Branches()}),
    0x52: Kind("ReliableBroadcast", _RELIABLE),
    0x53: Kind("Watermark", {"watermark": _U64, "stable": _U64, "asks": _TRUE}),
    0x54: Kind("Stable", {"tree": _TREE, "branches": Branches(), "stable": _U64}),
    0x55: Kind("Skipped", {"skips": Skips(), "stable": _U64}),
    SHARED_SEGMENT: Kind(
        "SharedSegment", {"topic": _TOPIC, "entries": Entries(), "body": Bytes(65_541, 1)}
    ),
    0x57: Kind("ProgramAsk", {"after": _U64}),
    0x58: Kind(
        "ProgramList",
        {"revision": _U64, "after": _U64, "is_last": _TRUE, "starts": Bytes(65_536)},
    ),
    0x59: Kind(
        "BroadcastPiece",
        {**_RELIABLE, "topic": _TOPIC, "payload": Bytes(65_536, 1), "piece": Piece()},
        _piece_rule,
    ),
    0x68: Kind("ReportAsk", {}),
    0x69: Kind("Report", {"body": Bytes(16_384)}),
    0x6A: Kind("TraceAsk", {"target": _ID, "timeout_ms": Whole(1, 60_000)}),
    0x6B: Kind("TraceAnswer", {"rtt_us": _U64, "passed": _PASSED, "problem": Text(255)}),
    0x6C: Kind("ReadersAsk", {"topic": _TOPIC}),
    0x6D: Kind("ReadersAnswer", {"has_reader": _TRUE}),
}
"""All kinds, by their numbers."""
_NUMBERS: Final = {kind.name: number for number, kind in KINDS.items()}


def judge(body: bytes) -> Verdict:
    """What the receiver of a frame with this body must do, if the frame is for it."""
    if len(body) not in LENGTHS:
        return Verdict(CLOSE, "a wrong length")
    if not 0x91 <= body[0] <= 0x9F or body[1:HEADER_AT] != b"\xc4\x20":
        return Verdict(CLOSE, "no header")
    kind = body[HEADER_AT]
    if not 0x01 <= kind <= KINDS_MAX:
        return Verdict(CLOSE, "a kind of another protocol")
    try:
        return _read(body, kind)
    except Unreadable as error:
        return Verdict(CLOSE if kind in LINK_KINDS else DROP, str(error), kind)


def _read(body: bytes, number: int) -> Verdict:
    kind = KINDS.get(number)
    if kind is None:
        raise Unreadable("an unknown kind")
    _, flags, _, _, destination, source, *_ = HEADER.unpack_from(body, HEADER_AT)
    is_routed = number not in LINK_KINDS
    if is_routed and max(destination, source) > ID_MAX:
        raise Unreadable("an id out of range in the header")
    is_careful = is_routed and bool(flags & CAREFUL)
    if is_careful and number == SHARED_SEGMENT:
        raise Unreadable("a shared segment in careful mode")
    count = 1 + len(kind.fields) + is_careful
    if body[0] - 0x90 != count:
        raise Unreadable(f"{body[0] - 0x90} elements, not {count}")
    reader = Reader(body, HEADER_AT + HEADER.size)
    values = [reader.value() for _ in range(count - 1)]
    if not reader.is_at_end:
        raise Unreadable("something behind the array")
    fields = tuple(
        [field.read(value) for field, value in zip(kind.fields.values(), values, strict=False)]
    )
    problem = kind.rule(fields)
    if problem:
        raise Unreadable(problem)
    search = read_search(values[-1]) if is_careful else None
    return Verdict(READ, "", number, fields, search, reader.is_shortest)


def differences(message: Any, body: bytes, *, is_own: bool) -> str:
    """In what the body of a frame is not that of a message; "" for nothing.

    Args:
        message: what was sent, or read.
        body: the frame's.
        is_own: written by a sender that keeps to the page, so in the shortest form.
    """
    name = type(message).__name__
    number = _NUMBERS.get(name)
    verdict = judge(body)
    if number is None or verdict.what is not READ or verdict.kind != number:
        return f"{name} is {verdict.what} as kind {verdict.kind:#x}: {verdict.why}"
    kind = KINDS[number]
    plain = kind.plain(message)
    if verdict.fields != plain or not _are_alike(verdict.fields, plain):
        return f"{name} has {_shown(plain)}, its frame {_shown(verdict.fields)}"
    if is_own and not (verdict.is_shortest and _sets_are_shortest(body, number, verdict)):
        return f"{name} is not in its shortest form"
    header = HEADER.unpack_from(body, HEADER_AT)
    if number in LINK_KINDS:
        return f"{name} has a header {header}" if is_own and any(header[1:]) else ""
    return _header_differences(message.route, header, verdict, is_own=is_own)


def _header_differences(
    route: Any, header: tuple[int, ...], verdict: Verdict, *, is_own: bool
) -> str:
    search = route.search
    state = None if search is None else (search.visited, search.stack, search.restarts)
    if verdict.search != state:
        return f"search {_shown(state)}, in the frame {_shown(verdict.search)}"
    flags = (CAREFUL if search is not None else 0) | (RECORD if route.record else 0)
    known = header[1] if is_own else header[1] & (CAREFUL | RECORD)
    expected = (
        *(verdict.kind, flags, route.priority, route.hop_budget, route.destination),
        *(route.source, route.source_incarnation, route.destination_tag, route.sequence),
    )
    found = (header[0], known, *header[2:])
    return "" if found == expected else f"header {expected}, in the frame {found}"


def _are_alike(one: object, other: object) -> bool:
    """Whether equal values have equal types, too: 1 is not true."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_are_alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _sets_are_shortest(body: bytes, number: int, verdict: Verdict) -> bool:
    """Whether the sets of ids in a frame that was read have the shortest of their forms."""
    names = list(KINDS[number].fields)
    if not {"branches", "exceptions"} & set(names):
        return True
    reader = Reader(body, HEADER_AT + HEADER.size)
    values: list[Any] = [reader.value() for _ in names]
    for name, value, found in zip(names, values, verdict.fields, strict=True):
        if name == "exceptions" and len(value) != shortest_set_bytes(found):
            return False
        if name == "branches":
            pairs = zip(value, found, strict=True)
            if any(len(one[1]) != shortest_set_bytes(cover) for one, (_, cover) in pairs):
                return False
    return True


def _shown(value: object) -> str:
    return f"{value!r}"[:200]
