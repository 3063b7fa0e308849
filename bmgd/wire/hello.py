"""What a hello says: its records byte by byte, who is there, and why one may be refused.

The conversation of which these are the words is in `handshake.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from bmgd.errors import ProtocolError
from bmgd.peers import ADDRESS_BYTES_MAX
from bmgd.types import NO_ID, NODE_ID_MAX, Incarnation, NodeId

PROTOCOL_VERSION = 1
HELLO_BYTES_MAX = 512
CLUSTER_BYTES_MAX = 64
NONCE_BYTES = 16
OWN_NONCE_BYTES = 8
FINGERPRINT_BYTES = 16
PROOF_BYTES = 32

MAGIC = b"BMGD"
RECORD = struct.Struct(">4sBH")
VERSION = struct.Struct(">H")
_FIXED = struct.Struct(">BI16sIIQQI16s")
REFUSAL = struct.Struct(">BQ")
WELCOME = struct.Struct(">Q")
GRANT = struct.Struct(">I")
_FLAG_SECRET = 0x01
_FLAG_JOINER = 0x02


class HelloKind(IntEnum):
    """The records of a hello."""

    HELLO = 1
    PROOF = 2
    WELCOME = 3
    REFUSAL = 4
    PEERS = 5
    GRANT = 6


class Refusal(IntEnum):
    """Why a hello is refused. docs/wire-protocol.md says what each side does then."""

    WRONG_VERSION = 1
    WRONG_CLUSTER = 2
    WRONG_SIZE = 3
    WRONG_PEERS = 4
    WRONG_SECRET = 5
    WRONG_ID = 6
    OWN_ADDRESS = 7
    STALE_INCARNATION = 8
    DUPLICATE = 9
    RENEWED = 10
    BUSY = 11
    LEFT = 12

    @property
    def text(self) -> str:
        """The name as logs and documents write it: ``wrong cluster``."""
        return self.name.lower().replace("_", " ")


MISCONFIGURED = frozenset(
    {
        Refusal.WRONG_VERSION,
        Refusal.WRONG_CLUSTER,
        Refusal.WRONG_SIZE,
        Refusal.WRONG_PEERS,
        Refusal.WRONG_SECRET,
    }
)
"""Refusals that time does not mend: one of the two daemons is configured wrongly."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a daemon says of itself in every hello.

    Args:
        cluster: the cluster's name, at most 64 bytes.
        founding_size: 1..2**31.
        fingerprint: 16 bytes over the peer list.
        id: own node id; a joiner's is `NO_ID`, or the one that it had before.
        address: the advertised address.
        secret: the cluster secret, b"" for none; never sent.
    """

    cluster: str
    founding_size: int
    fingerprint: bytes
    id: NodeId
    address: str
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Hello:
    """One side's hello, decoded.

    Args:
        is_joiner: whether the sender asks to become a member; then it tells neither size nor list,
            and `id` is the one that it had before, or `NO_ID`.
        expected: the id that the sender believes it is talking to; a joiner's is not looked at.
        known: the highest incarnation of the receiver that the sender knows; 0 for none.
        incarnation: the sender's own.
        dial_number: counts the dialer's dials; 0 from an acceptor.
    """

    has_secret: bool
    cluster: str
    founding_size: int
    fingerprint: bytes
    id: NodeId
    expected: NodeId
    known: Incarnation
    incarnation: Incarnation
    dial_number: int
    nonce: bytes
    address: str
    is_joiner: bool = False


def encode_hello(hello: Hello) -> bytes:
    """The body of a HELLO record."""
    cluster, address = hello.cluster.encode(), hello.address.encode()
    flags = (_FLAG_SECRET if hello.has_secret else 0) | (_FLAG_JOINER if hello.is_joiner else 0)
    return b"".join(
        (
            VERSION.pack(PROTOCOL_VERSION),
            _FIXED.pack(
                flags,
                hello.founding_size - 1,
                hello.fingerprint,
                hello.id,
                hello.expected,
                hello.known,
                hello.incarnation,
                hello.dial_number,
                hello.nonce,
            ),
            bytes((len(cluster),)),
            cluster,
            bytes((len(address),)),
            address,
        )
    )


def decode_hello(body: bytes) -> Hello:
    """Read the body of a HELLO record of this protocol version.

    Raises:
        ProtocolError: a length or a value is out of its range.
    """
    at = VERSION.size
    if len(body) < at + _FIXED.size + 2:
        raise ProtocolError("hello too short")
    flags, last, fingerprint, own, expected, known, incarnation, number, nonce = _FIXED.unpack_from(
        body, at
    )
    cluster, at = _short_text(body, at + _FIXED.size, CLUSTER_BYTES_MAX)
    address, at = _short_text(body, at, ADDRESS_BYTES_MAX)
    is_joiner = bool(flags & _FLAG_JOINER)
    if at != len(body) or last > NODE_ID_MAX or expected > NODE_ID_MAX:
        raise ProtocolError("hello out of range")
    if own > NODE_ID_MAX and not (is_joiner and own == NO_ID):
        raise ProtocolError("hello out of range")
    if incarnation == 0:
        raise ProtocolError("hello without an incarnation")
    return Hello(
        has_secret=bool(flags & _FLAG_SECRET),
        cluster=cluster,
        founding_size=last + 1,
        fingerprint=fingerprint,
        id=NodeId(own),
        expected=NodeId(expected),
        known=Incarnation(known),
        incarnation=Incarnation(incarnation),
        dial_number=number,
        nonce=nonce,
        address=address,
        is_joiner=is_joiner,
    )


def _short_text(body: bytes, at: int, bytes_max: int) -> tuple[str, int]:
    if at >= len(body):
        raise ProtocolError("hello cut short")
    end = at + 1 + body[at]
    if body[at] > bytes_max or end > len(body):
        raise ProtocolError("hello text too long")
    try:
        return body[at + 1 : end].decode(), end
    except UnicodeDecodeError as error:
        raise ProtocolError("hello text is not UTF-8") from error
