"""How the messages of `link_messages.py` look on the wire."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from bmgd.errors import ProtocolError
from bmgd.peers import ADDRESS_BYTES_MAX
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.bounds import OLDER_MEMBERS_MAX, RECORDS_PER_NOTICE_MAX, WATERMARKS_MAX
from bmgd.wire.fields import (
    U32_MAX,
    U64_MAX,
    Format,
    read_array,
    read_bool,
    read_id,
    read_int,
    read_runs,
    read_text,
)
from bmgd.wire.link_messages import (
    BUCKETS,
    Buckets,
    Goodbye,
    Heartbeat,
    Held,
    MemberFeatures,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Unwanted,
    Watermarks,
)

_REASON_BYTES_MAX: Final = 255


def _digest_bytes(digest: int) -> bytes:
    return digest.to_bytes(16, "big")


def _read_digest(value: object) -> int:
    if type(value) is not bytes or len(value) != 16:
        raise ProtocolError("not a digest of 16 bytes")
    return int.from_bytes(value, "big")


def _read_digests(value: object) -> tuple[int, ...]:
    digests = tuple(_read_digest(item) for item in read_array(value, BUCKETS))
    if len(digests) != BUCKETS:
        raise ProtocolError("not all buckets")
    return digests


def _read_record(value: object) -> tuple[NodeId, Record]:
    fields = read_array(value, 5)
    if len(fields) != 5:
        raise ProtocolError("not a record")
    return read_id(fields[0]), Record(
        Incarnation(read_int(fields[1], 0, U64_MAX)),
        read_int(fields[2], 0, U32_MAX),
        Status(read_int(fields[3], Status.EXPECTED, Status.LEFT)),
        read_text(fields[4], ADDRESS_BYTES_MAX),
    )


def _read_records(value: object) -> tuple[tuple[NodeId, Record], ...]:
    records = tuple(_read_record(item) for item in read_array(value, RECORDS_PER_NOTICE_MAX))
    if any(a[0] >= b[0] for a, b in pairwise(records)):
        raise ProtocolError("records out of order")
    return records


def _read_held(value: object) -> tuple[Held, ...]:
    found = []
    for item in read_array(value, WATERMARKS_MAX):
        fields = read_array(item, 5)
        if len(fields) != 5:
            raise ProtocolError("not what is held of a source")
        life = Incarnation(read_int(fields[1], 1, U64_MAX))
        watermark, stable, highest = (read_int(each, 0, U64_MAX) for each in fields[2:])
        found.append(Held(read_id(fields[0]), life, watermark, stable, highest))
    return tuple(found)


def _read_member_features(value: object) -> tuple[MemberFeatures, ...]:
    found: list[MemberFeatures] = []
    for item in read_array(value, OLDER_MEMBERS_MAX):
        fields = read_array(item, 3)
        if len(fields) != 3:
            raise ProtocolError("not the features of a member")
        node_id, life = read_id(fields[0]), Incarnation(read_int(fields[1], 1, U64_MAX))
        if found and node_id <= found[-1].id:
            raise ProtocolError("members out of order")
        found.append(MemberFeatures(node_id, life, read_int(fields[2], 0, U32_MAX)))
    return tuple(found)


FORMATS: Final[dict[int, Format]] = {
    0x01: Format(
        Heartbeat,
        4,
        lambda m: (m.sequence, m.echo, _digest_bytes(m.digest), m.answer),
        lambda f: (
            read_int(f[0], 1, U64_MAX),
            read_int(f[1], 0, U64_MAX),
            _read_digest(f[2]),
            read_bool(f[3]),
        ),
    ),
    0x02: Format(Ping, 1, lambda m: (m.nonce,), lambda f: (read_int(f[0], 0, U64_MAX),)),
    0x03: Format(Pong, 1, lambda m: (m.nonce,), lambda f: (read_int(f[0], 0, U64_MAX),)),
    0x04: Format(
        Notice,
        1,
        lambda m: ([(node_id, *record) for node_id, record in m.records],),
        lambda f: (_read_records(f[0]),),
    ),
    0x05: Format(
        Buckets,
        2,
        lambda m: ([_digest_bytes(digest) for digest in m.digests], m.answer),
        lambda f: (_read_digests(f[0]), read_bool(f[1])),
    ),
    0x06: Format(
        Unwanted, 1, lambda m: (_digest_bytes(m.digest),), lambda f: (_read_digest(f[0]),)
    ),
    0x07: Format(
        Goodbye, 1, lambda m: (m.reason,), lambda f: (read_text(f[0], _REASON_BYTES_MAX),)
    ),
    0x08: Format(
        Watermarks,
        2,
        lambda m: (m.held, m.asks),
        lambda f: (_read_held(f[0]), read_bool(f[1])),
    ),
    0x09: Format(
        Pull,
        3,
        lambda m: (m.source, m.incarnation, m.first),
        lambda f: (
            read_id(f[0]),
            Incarnation(read_int(f[1], 1, U64_MAX)),
            read_int(f[2], 1, U64_MAX),
        ),
    ),
    0x0C: Format(
        PageAsk,
        2,
        lambda m: (m.after, m.buckets),
        lambda f: (read_id(f[0]), read_int(f[1], 1, U64_MAX)),
    ),
    0x0D: Format(
        RecordPage,
        3,
        lambda m: (
            [(node_id, *record) for node_id, record in m.records],
            m.retired,
            m.following,
        ),
        lambda f: (
            _read_records(f[0]),
            read_runs(f[1], RECORDS_PER_NOTICE_MAX),
            None if f[2] is None else read_id(f[2]),
        ),
    ),
    0x0E: Format(
        OlderMembers,
        1,
        lambda m: (m.members,),
        lambda f: (_read_member_features(f[0]),),
    ),
}
