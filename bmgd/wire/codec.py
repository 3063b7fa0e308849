"""Messages to bytes and back: a 4-byte length, then one msgpack array that begins with the header.

The bytes are a contract, written down in docs/wire-protocol.md and pinned by tests/golden/. One
table below says for every kind which fields follow the header; reading checks each of them, because
what comes from a peer is data, not trust.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgpack

from bmgd.dataclass import dataclass
from bmgd.errors import ProtocolError
from bmgd.frameheader import (
    BODY_BYTES_MIN,
    FLAG_CAREFUL,
    FLAG_RECORD,
    FRAME_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
)
from bmgd.peers import ADDRESS_BYTES_MAX
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId, Record, Status
from bmgd.wire.id_sets import decode_id_set, encode_id_set
from bmgd.wire.messages import (
    BRANCHES_MAX,
    BUCKETS,
    ENTRIES_MAX,
    EXCEPTIONS_BYTES_MAX,
    GAPS_MAX,
    INBOX_MAX,
    LONG_BYTES_MAX,
    MESSAGES_PER_SEGMENT_MAX,
    OLDER_MEMBERS_MAX,
    PAYLOAD_BYTES_MAX,
    PROBLEM_BYTES_MAX,
    PROGRAMS_BYTES_MAX,
    QUESTION_MAX,
    RECORDS_PER_NOTICE_MAX,
    REPORT_BYTES_MAX,
    ROUTE_IDS_MAX,
    SEARCH_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SKIPS_MAX,
    STREAM_ID_MAX,
    TOPIC_BYTES_MAX,
    TRACE_MS_MAX,
    VISITED_RUN_BYTES,
    WATERMARKS_MAX,
    Answer,
    Ask,
    Broadcast,
    BroadcastPiece,
    Buckets,
    Entry,
    Goodbye,
    Heartbeat,
    Held,
    JoinGrant,
    JoinRequest,
    MemberFeatures,
    Message,
    Multicast,
    Notice,
    OlderMembers,
    PageAsk,
    Piece,
    Ping,
    Pong,
    Probe,
    ProbeReply,
    ProgramAsk,
    ProgramList,
    Pull,
    ReadersAnswer,
    ReadersAsk,
    RecordPage,
    ReliableBroadcast,
    Report,
    ReportAsk,
    Route,
    Search,
    Segment,
    SegmentAck,
    SegmentFlag,
    SharedSegment,
    Skip,
    Skipped,
    Stable,
    StreamReset,
    TraceAnswer,
    TraceAsk,
    Unreachable,
    Unwanted,
    Visited,
    Watermark,
    Watermarks,
)
from bmgd.wire.segments import bin_prefix

LENGTH = struct.Struct(">I")
LENGTH_BYTES = LENGTH.size

_HEARTBEAT = 0x01
_HEARTBEAT_ITEMS = 5
_ENTRY = struct.Struct(">IIQII")
_SHARED_SEGMENT = 0x56
_SHORT_BYTES = 4096
_SHORT_ARRAY_MAX = 15
"""Values in an array whose length stands in its first byte."""
_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
_REASON_BYTES_MAX = 255
_RESTARTS_MAX = 255

Fields = Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Format:
    """How one kind looks behind the header."""

    message: type[Any]
    fields: int
    write: Callable[[Any], tuple[object, ...]]
    read: Callable[[Fields], tuple[Any, ...]]


# --- checks of single values ----------------------------------------------------------------------


def _int(value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"not an integer in {low}..{high}")
    return value


def _text(value: object, bytes_max: int) -> str:
    if type(value) is not str or len(value.encode()) > bytes_max:
        raise ProtocolError(f"not a text of at most {bytes_max} bytes")
    return value


def _topic(value: object) -> str:
    topic = _text(value, TOPIC_BYTES_MAX)
    if not topic:
        raise ProtocolError("an empty topic")
    return topic


def _bytes(value: object, bytes_max: int) -> bytes:
    if type(value) is not bytes or len(value) > bytes_max:
        raise ProtocolError(f"not at most {bytes_max} bytes")
    return value


def _bool(value: object) -> bool:
    if type(value) is not bool:
        raise ProtocolError("not a boolean")
    return value


def _array(value: object, items_max: int) -> tuple[object, ...]:
    if type(value) is not tuple or len(value) > items_max:
        raise ProtocolError(f"not an array of at most {items_max}")
    return value


def _id(value: object) -> NodeId:
    return NodeId(_int(value, 0, NODE_ID_MAX))


def _digest_bytes(digest: int) -> bytes:
    return digest.to_bytes(16, "big")


def _digest(value: object) -> int:
    if type(value) is not bytes or len(value) != 16:
        raise ProtocolError("not a digest of 16 bytes")
    return int.from_bytes(value, "big")


def _record(value: object) -> tuple[NodeId, Record]:
    fields = _array(value, 5)
    if len(fields) != 5:
        raise ProtocolError("not a record")
    return _id(fields[0]), Record(
        Incarnation(_int(fields[1], 0, _U64_MAX)),
        _int(fields[2], 0, _U32_MAX),
        Status(_int(fields[3], Status.EXPECTED, Status.LEFT)),
        _text(fields[4], ADDRESS_BYTES_MAX),
    )


def _records(value: object) -> tuple[tuple[NodeId, Record], ...]:
    records = tuple(_record(item) for item in _array(value, RECORDS_PER_NOTICE_MAX))
    if any(a[0] >= b[0] for a, b in pairwise(records)):
        raise ProtocolError("records out of order")
    return records


def _runs(value: object) -> tuple[tuple[NodeId, NodeId], ...]:
    return _ascending(_array(value, RECORDS_PER_NOTICE_MAX))


def _ascending(values: tuple[object, ...]) -> tuple[tuple[NodeId, NodeId], ...]:
    runs = tuple(_run(item) for item in values)
    if any(a[1] + 1 >= b[0] for a, b in pairwise(runs)):
        raise ProtocolError("runs out of order, or touching")
    return runs


def _run(value: object) -> tuple[NodeId, NodeId]:
    ends = _array(value, 2)
    if len(ends) != 2:
        raise ProtocolError("not a run of ids")
    first = _id(ends[0])
    return first, NodeId(_int(ends[1], first, NODE_ID_MAX))


def _digests(value: object) -> tuple[int, ...]:
    digests = tuple(_digest(item) for item in _array(value, BUCKETS))
    if len(digests) != BUCKETS:
        raise ProtocolError("not all buckets")
    return digests


def _ids(value: object) -> tuple[NodeId, ...]:
    return tuple(_id(item) for item in _array(value, ROUTE_IDS_MAX))


def _branch_fields(branches: tuple[Branch, ...]) -> list[tuple[NodeId, bytes]]:
    return [(branch.head, encode_id_set(branch.cover)) for branch in branches]


def _branch(value: object) -> Branch:
    fields = _array(value, 2)
    if len(fields) != 2:
        raise ProtocolError("not a branch")
    return Branch(_id(fields[0]), decode_id_set(fields[1]))


def _branches(value: object) -> tuple[Branch, ...]:
    items = _array(value, BRANCHES_MAX)
    return tuple(_branch(item) for item in items)


def _skips(value: object) -> tuple[Skip, ...]:
    found = []
    for item in _array(value, SKIPS_MAX):
        fields = _array(item, 4)
        if len(fields) != 4:
            raise ProtocolError("not a skip")
        first = _int(fields[1], 1, _U64_MAX)
        found.append(
            Skip(_id(fields[0]), first, _int(fields[2], first, _U64_MAX), _bool(fields[3]))
        )
    return tuple(found)


def _held(value: object) -> tuple[Held, ...]:
    found = []
    for item in _array(value, WATERMARKS_MAX):
        fields = _array(item, 5)
        if len(fields) != 5:
            raise ProtocolError("not what is held of a source")
        life = Incarnation(_int(fields[1], 1, _U64_MAX))
        watermark, stable, highest = (_int(each, 0, _U64_MAX) for each in fields[2:])
        found.append(Held(_id(fields[0]), life, watermark, stable, highest))
    return tuple(found)


def _member_features(value: object) -> tuple[MemberFeatures, ...]:
    found: list[MemberFeatures] = []
    for item in _array(value, OLDER_MEMBERS_MAX):
        fields = _array(item, 3)
        if len(fields) != 3:
            raise ProtocolError("not the features of a member")
        node_id, life = _id(fields[0]), Incarnation(_int(fields[1], 1, _U64_MAX))
        if found and node_id <= found[-1].id:
            raise ProtocolError("members out of order")
        found.append(MemberFeatures(node_id, life, _int(fields[2], 0, _U32_MAX)))
    return tuple(found)


def _segment(fields: Fields) -> tuple[Any, ...]:
    flags = _int(fields[0], 0, 255)
    topic = _text(fields[1], TOPIC_BYTES_MAX)
    if bool(topic) != bool(flags & (SegmentFlag.OPEN | SegmentFlag.BEST_EFFORT)):
        raise ProtocolError("a topic where none belongs, or none where one does")
    body = _bytes(fields[6], SEGMENT_BYTES_MAX)
    count = _int(fields[4], 0, MESSAGES_PER_SEGMENT_MAX)
    size, inbox, question = fields[5], 0, 0
    if type(size) is tuple:
        size, inbox, question = _asks(size)
    size = _int(size, 0, LONG_BYTES_MAX)
    if (count > len(body)) or (bool(body) != bool(count or size)) or (count and size):
        raise ProtocolError("a segment that cannot be")
    if inbox and not body:
        raise ProtocolError("questions without a body")
    replaces, floor = _int(fields[2], 0, STREAM_ID_MAX), _int(fields[3], 0, STREAM_ID_MAX)
    return flags, topic, replaces, floor, count, size, body, inbox, question


def _asks(value: tuple[object, ...]) -> tuple[int, int, int]:
    """Of questions: size, inbox, and the number of the first."""
    if len(value) != 3:
        raise ProtocolError("not the size and the inbox of questions")
    return (
        _int(value[0], 0, LONG_BYTES_MAX),
        _int(value[1], 1, INBOX_MAX),
        _int(value[2], 1, QUESTION_MAX),
    )


def _size_field(segment: Segment) -> object:
    """The size; of questions with where their answers go."""
    if segment.inbox:
        return segment.size, segment.inbox, segment.question
    return segment.size


def _entry_bytes(entries: tuple[Entry, ...]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def _entries(value: object) -> tuple[Entry, ...]:
    packed = _bytes(value, ENTRIES_MAX * _ENTRY.size)
    if not packed or len(packed) % _ENTRY.size:
        raise ProtocolError("not the entries of a shared segment")
    entries = tuple(Entry(NodeId(each[0]), *each[1:]) for each in _ENTRY.iter_unpack(packed))
    if any(a.id >= b.id for a, b in pairwise(entries)) or entries[-1].id > NODE_ID_MAX:
        raise ProtocolError("entries of a shared segment out of order, or out of range")
    return entries


def _shared_body(value: object) -> bytes:
    body = _bytes(value, SEGMENT_BYTES_MAX)
    if not body:
        raise ProtocolError("a shared segment without a message")
    return body


def _reliable_fields(m: ReliableBroadcast) -> tuple[object, ...]:
    return (
        m.topic,
        m.payload,
        m.tree,
        _branch_fields(m.branches),
        m.id_space,
        encode_id_set(m.exceptions),
        m.skips,
        m.stable,
    )


def _reliable(fields: Fields) -> tuple[Any, ...]:
    return (
        # Without a topic it is about programs.
        _text(fields[0], TOPIC_BYTES_MAX),
        _bytes(fields[1], PAYLOAD_BYTES_MAX),
        _int(fields[2], 0, 1),
        _branches(fields[3]),
        _int(fields[4], 1, ID_SET_SPACE),
        decode_id_set(_bytes(fields[5], EXCEPTIONS_BYTES_MAX)),
        _skips(fields[6]),
        _int(fields[7], 0, _U64_MAX),
    )


def _piece(value: object, payload: bytes) -> Piece:
    fields = _array(value, 3)
    if len(fields) != 3 or not payload:
        raise ProtocolError("not a piece of a message")
    at = _int(fields[1], 0, LONG_BYTES_MAX)
    size = _int(fields[2], at + len(payload), LONG_BYTES_MAX)
    return Piece(_int(fields[0], 1, _U64_MAX), at, size)


def _gaps(value: object) -> tuple[tuple[int, int], ...]:
    numbers = [_int(item, 1, _U32_MAX) for item in _array(value, 2 * GAPS_MAX)]
    if len(numbers) % 2 or any(a > b for a, b in pairwise(numbers)):
        raise ProtocolError("not the gaps of a stream")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


# --- the table ------------------------------------------------------------------------------------

_FORMATS: dict[int, _Format] = {
    0x01: _Format(
        Heartbeat,
        4,
        lambda m: (m.sequence, m.echo, _digest_bytes(m.digest), m.answer),
        lambda f: (
            _int(f[0], 1, _U64_MAX),
            _int(f[1], 0, _U64_MAX),
            _digest(f[2]),
            _bool(f[3]),
        ),
    ),
    0x02: _Format(Ping, 1, lambda m: (m.nonce,), lambda f: (_int(f[0], 0, _U64_MAX),)),
    0x03: _Format(Pong, 1, lambda m: (m.nonce,), lambda f: (_int(f[0], 0, _U64_MAX),)),
    0x04: _Format(
        Notice,
        1,
        lambda m: ([(node_id, *record) for node_id, record in m.records],),
        lambda f: (_records(f[0]),),
    ),
    0x05: _Format(
        Buckets,
        2,
        lambda m: ([_digest_bytes(digest) for digest in m.digests], m.answer),
        lambda f: (_digests(f[0]), _bool(f[1])),
    ),
    0x06: _Format(Unwanted, 1, lambda m: (_digest_bytes(m.digest),), lambda f: (_digest(f[0]),)),
    0x07: _Format(Goodbye, 1, lambda m: (m.reason,), lambda f: (_text(f[0], _REASON_BYTES_MAX),)),
    0x08: _Format(
        Watermarks,
        2,
        lambda m: (m.held, m.asks),
        lambda f: (_held(f[0]), _bool(f[1])),
    ),
    0x09: _Format(
        Pull,
        3,
        lambda m: (m.source, m.incarnation, m.first),
        lambda f: (_id(f[0]), Incarnation(_int(f[1], 1, _U64_MAX)), _int(f[2], 1, _U64_MAX)),
    ),
    0x0E: _Format(
        OlderMembers,
        1,
        lambda m: (m.members,),
        lambda f: (_member_features(f[0]),),
    ),
    0x0C: _Format(
        PageAsk,
        2,
        lambda m: (m.after, m.buckets),
        lambda f: (_id(f[0]), _int(f[1], 1, _U64_MAX)),
    ),
    0x0D: _Format(
        RecordPage,
        3,
        lambda m: (
            [(node_id, *record) for node_id, record in m.records],
            m.retired,
            m.following,
        ),
        lambda f: (_records(f[0]), _runs(f[1]), None if f[2] is None else _id(f[2])),
    ),
    0x42: _Format(Unreachable, 1, lambda m: (m.target,), lambda f: (_id(f[0]),)),
    0x43: _Format(Probe, 1, lambda m: (m.passed,), lambda f: (_ids(f[0]),)),
    0x44: _Format(ProbeReply, 1, lambda m: (m.passed,), lambda f: (_ids(f[0]),)),
    0x45: _Format(
        Ask,
        2,
        lambda m: (m.suspect, m.incarnation),
        lambda f: (_id(f[0]), Incarnation(_int(f[1], 0, _U64_MAX))),
    ),
    0x46: _Format(
        Answer,
        3,
        lambda m: (m.suspect, m.incarnation, m.alive),
        lambda f: (_id(f[0]), Incarnation(_int(f[1], 0, _U64_MAX)), _bool(f[2])),
    ),
    0x47: _Format(
        JoinRequest,
        3,
        lambda m: (m.incarnation, m.address, m.floor),
        lambda f: (
            Incarnation(_int(f[0], 1, _U64_MAX)),
            _text(f[1], ADDRESS_BYTES_MAX),
            _int(f[2], 0, NODE_ID_MAX + 1),
        ),
    ),
    0x48: _Format(
        JoinGrant,
        2,
        lambda m: (m.incarnation, m.id),
        lambda f: (Incarnation(_int(f[0], 1, _U64_MAX)), _id(f[1])),
    ),
    0x49: _Format(
        Segment,
        7,
        lambda m: (m.flags, m.topic, m.replaces, m.floor, m.count, _size_field(m), m.body),
        _segment,
    ),
    0x4A: _Format(
        SegmentAck,
        4,
        lambda m: (m.tag, m.credit, m.full, [n for gap in m.gaps for n in gap]),
        lambda f: (
            _int(f[0], 0, _U32_MAX),
            _int(f[1], 0, _U64_MAX),
            _bool(f[2]),
            _gaps(f[3]),
        ),
    ),
    0x4B: _Format(
        StreamReset,
        2,
        lambda m: (m.tag, m.reason),
        lambda f: (_int(f[0], 0, _U32_MAX), _int(f[1], 0, 255)),
    ),
    0x50: _Format(
        Broadcast,
        4,
        lambda m: (m.topic, m.payload, m.tree, _branch_fields(m.branches)),
        lambda f: (
            _topic(f[0]),
            _bytes(f[1], PAYLOAD_BYTES_MAX),
            _int(f[2], 0, 1),
            _branches(f[3]),
        ),
    ),
    0x51: _Format(
        Multicast,
        3,
        lambda m: (m.topic, m.payload, _branch_fields(m.branches)),
        lambda f: (_topic(f[0]), _bytes(f[1], PAYLOAD_BYTES_MAX), _branches(f[2])),
    ),
    0x52: _Format(ReliableBroadcast, 8, _reliable_fields, _reliable),
    0x59: _Format(
        BroadcastPiece,
        9,
        lambda m: (*_reliable_fields(m), m.piece),
        lambda f: (_topic(f[0]), *_reliable(f)[1:], _piece(f[8], f[1])),
    ),
    0x53: _Format(
        Watermark,
        3,
        lambda m: (m.watermark, m.stable, m.asks),
        lambda f: (_int(f[0], 0, _U64_MAX), _int(f[1], 0, _U64_MAX), _bool(f[2])),
    ),
    0x54: _Format(
        Stable,
        3,
        lambda m: (m.tree, _branch_fields(m.branches), m.stable),
        lambda f: (_int(f[0], 0, 1), _branches(f[1]), _int(f[2], 0, _U64_MAX)),
    ),
    0x55: _Format(
        Skipped,
        2,
        lambda m: (m.skips, m.stable),
        lambda f: (_skips(f[0]), _int(f[1], 0, _U64_MAX)),
    ),
    _SHARED_SEGMENT: _Format(
        SharedSegment,
        3,
        lambda m: (m.topic, _entry_bytes(m.entries), m.body),
        lambda f: (_topic(f[0]), _entries(f[1]), _shared_body(f[2])),
    ),
    0x57: _Format(ProgramAsk, 1, lambda m: (m.after,), lambda f: (_int(f[0], 0, _U64_MAX),)),
    0x58: _Format(
        ProgramList,
        4,
        lambda m: (m.revision, m.after, m.is_last, m.starts),
        lambda f: (
            _int(f[0], 0, _U64_MAX),
            _int(f[1], 0, _U64_MAX),
            _bool(f[2]),
            _bytes(f[3], PROGRAMS_BYTES_MAX),
        ),
    ),
    0x68: _Format(ReportAsk, 0, lambda m: (), lambda f: ()),
    0x69: _Format(Report, 1, lambda m: (m.body,), lambda f: (_bytes(f[0], REPORT_BYTES_MAX),)),
    0x6A: _Format(
        TraceAsk,
        2,
        lambda m: (m.target, m.timeout_ms),
        lambda f: (_id(f[0]), _int(f[1], 1, TRACE_MS_MAX)),
    ),
    0x6B: _Format(
        TraceAnswer,
        3,
        lambda m: (m.rtt_us, m.passed, m.problem),
        lambda f: (_int(f[0], 0, _U64_MAX), _ids(f[1]), _text(f[2], PROBLEM_BYTES_MAX)),
    ),
    0x6C: _Format(ReadersAsk, 1, lambda m: (m.topic,), lambda f: (_topic(f[0]),)),
    0x6D: _Format(ReadersAnswer, 1, lambda m: (m.has_reader,), lambda f: (_bool(f[0]),)),
}
_KIND_OF: dict[type[Message], int] = {form.message: kind for kind, form in _FORMATS.items()}
_ROUTED_KIND_MIN = 0x40


# --- whole messages -------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """A whole frame, length prefix included.

    Complexity: O(size of the message).
    """
    kind = _KIND_OF[type(message)]
    fields = _FORMATS[kind].write(message)
    if kind < _ROUTED_KIND_MIN:
        return _frame((_LINK_HEADERS[kind], *fields))
    return _frame(_routed_values(kind, message.route, fields))  # type: ignore[union-attr]


def _frame(values: tuple[object, ...]) -> bytes:
    """A frame with these values, the header first."""
    last = values[-1]
    if (
        type(last) is bytes
        and _SHORT_BYTES < len(last) <= SEGMENT_BYTES_MAX
        and len(values) <= _SHORT_ARRAY_MAX
    ):
        # The same bytes by one copy of what is long in place of three.
        packed = msgpack.packb(values[:-1])
        prefix = bin_prefix(len(last))
        length = len(packed) + len(prefix) + len(last)
        head = LENGTH.pack(length) + bytes((packed[0] + 1,))
        return b"".join((head, packed[1:], prefix, last))
    body: bytes = msgpack.packb(values)
    return b"".join((LENGTH.pack(len(body)), body))


def decode(body: bytes) -> Message:
    """Read the body of one frame.

    Args:
        body: what follows the length prefix.

    Raises:
        ProtocolError: the bytes are not a message of this protocol.
    """
    if not BODY_BYTES_MIN <= len(body) <= FRAME_BYTES_MAX:
        raise ProtocolError("frame of a wrong length")
    try:
        items = msgpack.unpackb(body, use_list=False, max_ext_len=0)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not one msgpack array") from error
    if type(items) is not tuple or type(items[0]) is not bytes or len(items[0]) != HEADER_BYTES:
        raise ProtocolError("frame without a routing header")
    header = items[0]
    if header[0] == _HEARTBEAT and len(items) == _HEARTBEAT_ITEMS:
        heartbeat = _read_heartbeat(items)
        if heartbeat is not None:
            return heartbeat
    form = _FORMATS.get(header[0])
    if form is None:
        raise ProtocolError(f"unknown kind {header[0]:#x}")
    careful = bool(header[1] & FLAG_CAREFUL) and header[0] >= _ROUTED_KIND_MIN
    if careful and header[0] == _SHARED_SEGMENT:
        raise ProtocolError("a shared segment in careful mode")
    if len(items) != 1 + form.fields + careful:
        raise ProtocolError(f"a {form.message.__name__} of a wrong number of fields")
    fields = form.read(items[1:])
    if header[0] < _ROUTED_KIND_MIN:
        return _message(form, *fields)
    route = _read_route(header, items[-1] if careful else None)
    return _message(form, route, *fields)


def _read_heartbeat(items: tuple[Any, ...]) -> Heartbeat | None:
    """A heartbeat, as most frames of an idle link are, without a call for each field; None if bad."""
    _, sequence, echo, digest, answer = items
    are_numbers = type(sequence) is int and sequence >= 1 and type(echo) is int and echo >= 0
    if are_numbers and type(digest) is bytes and len(digest) == 16 and type(answer) is bool:
        return Heartbeat(sequence, echo, int.from_bytes(digest, "big"), answer)
    return None


def kinds() -> dict[int, tuple[type[Message], int]]:
    """Every kind: its class, and how many fields it has behind the header."""
    return {kind: (form.message, form.fields) for kind, form in _FORMATS.items()}


def kind_of_message(message_class: type[Message]) -> int:
    """The number of a class of messages in the header."""
    return _KIND_OF[message_class]


def _message(form: _Format, *fields: object) -> Message:
    message: Message = form.message(*fields)
    return message


def encode_header(
    kind: int,
    *,
    flags: int = 0,
    priority: int = 0,
    hop_budget: int = 0,
    destination: int = 0,
    source: int = 0,
    source_incarnation: int = 0,
    destination_tag: int = 0,
    sequence: int = 0,
) -> bytes:
    """The 32 bytes of a routing header; see docs/wire-protocol.md for each field."""
    header: bytes = HEADER.pack(
        kind,
        flags,
        priority,
        hop_budget,
        destination,
        source,
        source_incarnation,
        destination_tag,
        sequence,
    )
    return header


_LINK_HEADERS = {kind: encode_header(kind) for kind in _FORMATS if kind < _ROUTED_KIND_MIN}


def _routed_values(kind: int, route: Route, fields: tuple[object, ...]) -> tuple[object, ...]:
    search = route.search
    flags = (FLAG_RECORD if route.record else 0) | (FLAG_CAREFUL if search is not None else 0)
    header = encode_header(
        kind,
        flags=flags,
        priority=route.priority,
        hop_budget=route.hop_budget,
        destination=route.destination,
        source=route.source,
        source_incarnation=route.source_incarnation,
        destination_tag=route.destination_tag,
        sequence=route.sequence,
    )
    if search is None:
        return (header, *fields)
    stack = b"".join(LENGTH.pack(node_id) for node_id in search.stack)
    return (header, *fields, (search.visited, stack, search.restarts))


def _read_route(header: bytes, search: object) -> Route:
    _, flags, priority, budget, destination, source, incarnation, tag, sequence = HEADER.unpack(
        header
    )
    return Route(
        destination=_id(destination),
        source=_id(source),
        source_incarnation=Incarnation(incarnation),
        destination_tag=tag,
        sequence=sequence,
        hop_budget=budget,
        priority=priority,
        record=bool(flags & FLAG_RECORD),
        search=_read_search(search) if flags & FLAG_CAREFUL else None,
    )


def _read_visited(value: object) -> tuple[Visited, int]:
    if type(value) is bytes:
        return value, len(value)
    runs = _ascending(_array(value, SEARCH_BYTES_MAX // VISITED_RUN_BYTES))
    return runs, len(runs) * VISITED_RUN_BYTES


def _read_search(value: object) -> Search:
    fields = _array(value, 3)
    if len(fields) != 3:
        raise ProtocolError("not the state of a search")
    visited, size = _read_visited(fields[0])
    packed = _bytes(fields[1], SEARCH_BYTES_MAX)
    if len(packed) % LENGTH_BYTES or size + len(packed) > SEARCH_BYTES_MAX:
        raise ProtocolError("the state of a search has a wrong length")
    stack = tuple(_id(item) for (item,) in LENGTH.iter_unpack(packed))
    return Search(visited, stack, _int(fields[2], 0, _RESTARTS_MAX))
