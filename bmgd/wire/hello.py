"""What a hello says: its records byte by byte, who is there, and why one may be refused.

The conversation of which these are the words is in `handshake.py`.
"""

from __future__ import annotations

import struct
from dataclasses import field
from enum import IntEnum

from bmgd.dataclass import dataclass
from bmgd.errors import ProtocolError
from bmgd.peers import ADDRESS_BYTES_MAX
from bmgd.secret import KEY_ID_BYTES, SECRETS_MAX
from bmgd.types import NO_ID, NODE_ID_MAX, Incarnation, NodeId

PROTOCOL_VERSION = 2
PROTOCOL_VERSION_LOWEST = 2
HELLO_BYTES_MAX = 512
CLUSTER_BYTES_MAX = 64
NONCE_BYTES = 16
OWN_NONCE_BYTES = 8
FINGERPRINT_BYTES = 16
PROOF_BYTES = 32
BINDING_BYTES = 32

MAGIC = b"BMGD"
RECORD = struct.Struct(">4sBH")
VERSIONS = struct.Struct(">HH")
_VERSION = struct.Struct(">H")
_FIXED = struct.Struct(">BI16sIIQQI16sI")
REFUSAL = struct.Struct(">BQ")
WELCOME = struct.Struct(">Q")
GRANT = struct.Struct(">I")
_KEYS_BYTES = range(KEY_ID_BYTES, (SECRETS_MAX + 1) * KEY_ID_BYTES, KEY_ID_BYTES)
_FLAG_SECRET = 0x01
_FLAG_JOINER = 0x02
_FLAG_RENEWS = 0x04
CRITICAL = 0x80
"""The bit in an extension's type with which a receiver that does not know the type must refuse."""


class HelloKind(IntEnum):
    """The records of a hello."""

    HELLO = 1
    PROOF = 2
    WELCOME = 3
    REFUSAL = 4
    PEERS = 5
    GRANT = 6


class Extension(IntEnum):
    """The types of extension that this version knows."""

    KEYS = 1
    BINDING = 2


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
    UNKNOWN_EXTENSION = 13
    WRONG_TLS = 14
    WRONG_CERTIFICATE = 15
    RETIRED = 16

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
        Refusal.UNKNOWN_EXTENSION,
        Refusal.WRONG_TLS,
        Refusal.WRONG_CERTIFICATE,
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
        secrets: the cluster's, the one to be used first; () for none; never sent.
        lowest, highest: the protocol versions that it speaks; 1..65535.
        features: a bit for each thing that it can do beyond the version; what both have is used.
        has_tls: whether its hellos are spoken under TLS only.
    """

    cluster: str
    founding_size: int
    fingerprint: bytes
    id: NodeId
    address: str
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    lowest: int = PROTOCOL_VERSION_LOWEST
    highest: int = PROTOCOL_VERSION
    features: int = 0
    has_tls: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """The TLS channel that a hello is spoken in.

    Args:
        binding: `BINDING_BYTES` that are those of this channel only: made of both certificates.
        names: what the other side's certificate says it is, ``CLUSTER/ID`` or ``CLUSTER/any``.
        names_required: whether a certificate that says nothing of the kind is refused.
        key: the name of this side's certificate.
    """

    binding: bytes
    names: tuple[str, ...]
    names_required: bool = False
    key: str = ""

    def misnames(self, hello: Hello, cluster: str, founding_size: int) -> str:
        """Why the certificate is not for who says this hello; "" if it is.

        "any" is for joiners, and for the ids that they are given: those above the founders'.
        """
        if not self.names:
            return "(it names no id)" if self.names_required else ""
        if hello.id != NO_ID and f"{cluster}/{hello.id}" in self.names:
            return ""
        is_no_founder = hello.is_joiner or hello.id >= founding_size
        if is_no_founder and f"{cluster}/any" in self.names:
            return ""
        return f"(it is for {', '.join(self.names)})"


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
        renews: whether the dialer wants this link to take the place of the one that is up.
        lowest, highest: the versions that the sender speaks.
        features: see `Identity`.
        extensions: (type, value) of each, types ascending; type 0..255, at most 255 bytes.
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
    renews: bool = False
    lowest: int = PROTOCOL_VERSION_LOWEST
    highest: int = PROTOCOL_VERSION
    features: int = 0
    extensions: tuple[tuple[int, bytes], ...] = ()

    def extension(self, kind: Extension) -> bytes:
        """The value of an extension; b"" if it is not there."""
        return dict(self.extensions).get(kind, b"")


def encode_hello(hello: Hello) -> bytes:
    """The body of a HELLO record."""
    cluster, address = hello.cluster.encode(), hello.address.encode()
    flags = _FLAG_SECRET if hello.has_secret else 0
    flags |= _FLAG_JOINER if hello.is_joiner else 0
    flags |= _FLAG_RENEWS if hello.renews else 0
    return b"".join(
        (
            VERSIONS.pack(hello.highest, hello.lowest),
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
                hello.features,
            ),
            bytes((len(cluster),)),
            cluster,
            bytes((len(address),)),
            address,
            *(bytes((kind, len(value))) + value for kind, value in hello.extensions),
        )
    )


def common_version(body: bytes, lowest: int, highest: int) -> int | None:
    """The highest version that both sides of a hello speak; None where there is none.

    Args:
        body: of the other side's HELLO, of whatever version: only its first four bytes are read.
        lowest, highest: what this side speaks.

    Raises:
        ProtocolError: the body is too short, or its range is none.
    """
    if len(body) < _VERSION.size:
        raise ProtocolError("hello too short")
    (theirs,) = _VERSION.unpack_from(body)
    if theirs < lowest:
        # Before version 2 there was no range, and other fields stand where its lower end is now.
        return None
    if len(body) < VERSIONS.size:
        raise ProtocolError("hello too short")
    _, their_lowest = VERSIONS.unpack_from(body)
    if their_lowest > theirs:
        raise ProtocolError("hello with a range of versions that is none")
    return min(theirs, highest) if their_lowest <= highest else None


def decode_hello(body: bytes) -> Hello:
    """Read the body of a HELLO record of a version that `common_version` found.

    Raises:
        ProtocolError: a length or a value is out of its range.
    """
    at = VERSIONS.size
    if len(body) < at + _FIXED.size + 2:
        raise ProtocolError("hello too short")
    highest, lowest = VERSIONS.unpack_from(body)
    (flags, last, fingerprint, own, expected, known, incarnation, number, nonce, features) = (
        _FIXED.unpack_from(body, at)
    )
    cluster, at = _short_text(body, at + _FIXED.size, CLUSTER_BYTES_MAX)
    address, at = _short_text(body, at, ADDRESS_BYTES_MAX)
    extensions = _extensions(body, at)
    is_joiner = bool(flags & _FLAG_JOINER)
    if last > NODE_ID_MAX or expected > NODE_ID_MAX:
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
        renews=bool(flags & _FLAG_RENEWS),
        lowest=lowest,
        highest=highest,
        features=features,
        extensions=extensions,
    )


def _extensions(body: bytes, at: int) -> tuple[tuple[int, bytes], ...]:
    found: list[tuple[int, bytes]] = []
    while at < len(body):
        if at + 2 > len(body):
            raise ProtocolError("hello extension cut short")
        kind, end = body[at], at + 2 + body[at + 1]
        if end > len(body):
            raise ProtocolError("hello extension cut short")
        if found and kind <= found[-1][0]:
            raise ProtocolError("hello extensions out of order")
        if kind == Extension.KEYS and body[at + 1] not in _KEYS_BYTES:
            raise ProtocolError("hello with key ids of a wrong length")
        if kind == Extension.BINDING and body[at + 1] != BINDING_BYTES:
            raise ProtocolError("hello with a binding of a wrong length")
        found.append((kind, body[at + 2 : end]))
        at = end
    return tuple(found)


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
