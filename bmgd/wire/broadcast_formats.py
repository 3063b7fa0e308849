"""How the messages of `broadcast_messages.py` look on the wire."""

from __future__ import annotations

from typing import Any, Final

from bmgd.errors import ProtocolError
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, set_bytes
from bmgd.types import NodeId
from bmgd.wire.bounds import (
    BRANCHES_MAX,
    COVERS_BYTES_MAX,
    EXCEPTIONS_BYTES_MAX,
    LONG_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SKIPS_MAX,
    TOPIC_BYTES_MAX,
)
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skip,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.fields import (
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
from bmgd.wire.id_sets import decode_id_set, encode_id_set


def _branch_fields(branches: tuple[Branch, ...]) -> list[tuple[NodeId, bytes]]:
    return [(branch.head, encode_id_set(branch.cover)) for branch in branches]


def _read_branch(value: object) -> Branch:
    fields = read_array(value, 2)
    if len(fields) != 2:
        raise ProtocolError("not a branch")
    return Branch(read_id(fields[0]), decode_id_set(fields[1]))


def _read_branches(value: object) -> tuple[Branch, ...]:
    found = []
    left = COVERS_BYTES_MAX
    for item in read_array(value, BRANCHES_MAX):
        branch = _read_branch(item)
        left -= set_bytes(branch.cover)
        if left < 0:
            raise ProtocolError(f"covers of more than {COVERS_BYTES_MAX} bytes")
        found.append(branch)
    return tuple(found)


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


def _read_reliable(fields: Fields) -> tuple[Any, ...]:
    return (
        # Without a topic it is about programs.
        read_text(fields[0], TOPIC_BYTES_MAX),
        read_bytes(fields[1], PAYLOAD_BYTES_MAX),
        read_int(fields[2], 0, 1),
        _read_branches(fields[3]),
        read_int(fields[4], 1, ID_SET_SPACE),
        decode_id_set(read_bytes(fields[5], EXCEPTIONS_BYTES_MAX)),
        _read_skips(fields[6]),
        read_int(fields[7], 0, U64_MAX),
    )


def _read_piece(value: object, payload: bytes) -> Piece:
    fields = read_array(value, 3)
    if len(fields) != 3 or not payload:
        raise ProtocolError("not a piece of a message")
    at = read_int(fields[1], 0, LONG_BYTES_MAX)
    size = read_int(fields[2], at + len(payload), LONG_BYTES_MAX)
    return Piece(read_int(fields[0], 1, U64_MAX), at, size)


def _read_skips(value: object) -> tuple[Skip, ...]:
    found = []
    for item in read_array(value, SKIPS_MAX):
        fields = read_array(item, 4)
        if len(fields) != 4:
            raise ProtocolError("not a skip")
        first = read_int(fields[1], 1, U64_MAX)
        node_id, last = read_id(fields[0]), read_int(fields[2], first, U64_MAX)
        found.append(Skip(node_id, first, last, read_bool(fields[3])))
    return tuple(found)


FORMATS: Final[dict[int, Format]] = {
    0x50: Format(
        Broadcast,
        4,
        lambda m: (m.topic, m.payload, m.tree, _branch_fields(m.branches)),
        lambda f: (
            read_topic(f[0]),
            read_bytes(f[1], PAYLOAD_BYTES_MAX),
            read_int(f[2], 0, 1),
            _read_branches(f[3]),
        ),
    ),
    0x51: Format(
        Multicast,
        3,
        lambda m: (m.topic, m.payload, _branch_fields(m.branches)),
        lambda f: (read_topic(f[0]), read_bytes(f[1], PAYLOAD_BYTES_MAX), _read_branches(f[2])),
    ),
    0x52: Format(ReliableBroadcast, 8, _reliable_fields, _read_reliable),
    0x53: Format(
        Watermark,
        3,
        lambda m: (m.watermark, m.stable, m.asks),
        lambda f: (read_int(f[0], 0, U64_MAX), read_int(f[1], 0, U64_MAX), read_bool(f[2])),
    ),
    0x54: Format(
        Stable,
        3,
        lambda m: (m.tree, _branch_fields(m.branches), m.stable),
        lambda f: (read_int(f[0], 0, 1), _read_branches(f[1]), read_int(f[2], 0, U64_MAX)),
    ),
    0x55: Format(
        Skipped,
        2,
        lambda m: (m.skips, m.stable),
        lambda f: (_read_skips(f[0]), read_int(f[1], 0, U64_MAX)),
    ),
    0x59: Format(
        BroadcastPiece,
        9,
        lambda m: (*_reliable_fields(m), m.piece),
        lambda f: (read_topic(f[0]), *_read_reliable(f)[1:], _read_piece(f[8], f[1])),
    ),
}
