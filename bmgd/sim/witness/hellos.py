"""Hellos as docs/wire-protocol.md has them: their bytes, and what an acceptor makes of them."""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

MAGIC: Final = b"BMGD"
HELLO, PROOF, WELCOME, REFUSAL, PEERS, GRANT = 1, 2, 3, 4, 5, 6
BYTES_MAX: Final = 512
VERSION: Final = 2
ID_MAX: Final = 2**31 - 1
NO_ID: Final = 2**32 - 1
SECRET, JOINER = 0x01, 0x02
KEYS: Final = 1
BINDING: Final = 2
_FIXED: Final = struct.Struct(">HHBI16sIIQQI16sI")

CLOSED: Final = 0
GREETED: Final = -1
"""What becomes of a hello, beside the codes of refusals: no answer, and the core is told."""
WRONG_VERSION, WRONG_CLUSTER, WRONG_SIZE, WRONG_PEERS, WRONG_SECRET = 1, 2, 3, 4, 5
WRONG_ID, OWN_ADDRESS, DUPLICATE, UNKNOWN_EXTENSION, WRONG_TLS = 6, 7, 9, 13, 14
WRONG_CERTIFICATE: Final = 15


@dataclass(frozen=True, slots=True)
class Said:
    """The fields of a HELLO, in the order of the page; texts as bytes."""

    highest: int
    lowest: int
    flags: int
    last: int
    fingerprint: bytes
    id: int
    expected: int
    known: int
    incarnation: int
    number: int
    nonce: bytes
    features: int
    cluster: bytes
    address: bytes
    extensions: tuple[tuple[int, bytes], ...] = ()

    def body(self) -> bytes:
        """The body of the record."""
        fixed = _FIXED.pack(
            *(self.highest, self.lowest, self.flags, self.last, self.fingerprint, self.id),
            *(self.expected, self.known, self.incarnation, self.number, self.nonce, self.features),
        )
        parts = [bytes((len(text),)) + text for text in (self.cluster, self.address)]
        parts += [bytes((kind, len(value))) + value for kind, value in self.extensions]
        return fixed + b"".join(parts)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The other side's certificate, and the channel of both.

    Args:
        binding: what BINDING says of this channel.
        names: whom the certificate is for, ``CLUSTER/ID`` or ``CLUSTER/any``.
        is_to_name: whether one that names nobody is refused.
    """

    binding: bytes
    names: tuple[str, ...]
    is_to_name: bool

    def is_for(self, said: Said, me: Said) -> bool:
        """Whether who says this may have it."""
        if not self.names:
            return not self.is_to_name
        is_joiner = bool(said.flags & JOINER)
        good = {f"{me.cluster.decode()}/any"} if is_joiner or said.id > me.last else set()
        if said.id <= ID_MAX:
            good.add(f"{me.cluster.decode()}/{said.id}")
        return not good.isdisjoint(self.names)


def record(kind: int, body: bytes) -> bytes:
    """A record."""
    return MAGIC + bytes((kind,)) + len(body).to_bytes(2, "big") + body


def refusal(code: int, known: int) -> bytes:
    """The record by which an acceptor refuses."""
    return record(REFUSAL, bytes((code,)) + known.to_bytes(8, "big"))


def key_id(secret: bytes) -> bytes:
    """By which a secret is named."""
    return hmac.new(secret, b"bmgd key id", hashlib.sha256).digest()[:2]


def proof(secret: bytes, direction: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    """What proves a secret, over both bodies."""
    text = direction + len(dialer).to_bytes(2, "big") + dialer + acceptor
    return hmac.new(secret, text, hashlib.sha256).digest()


def judge_hello(
    body: bytes, me: Said, secrets: tuple[bytes, ...], certificate: Certificate | None = None
) -> int:
    """What an acceptor that would say `me` makes of the body of a HELLO, before any proof.

    Args:
        certificate: the dialer's, where the two speak under TLS.
    """
    if len(body) < 2:
        return CLOSED
    highest = int.from_bytes(body[:2], "big")
    if highest < VERSION:
        return WRONG_VERSION
    if len(body) < 4:
        return CLOSED
    lowest = int.from_bytes(body[2:4], "big")
    if lowest > highest:
        return CLOSED
    if lowest > VERSION:
        return WRONG_VERSION
    said = _read(body)
    return CLOSED if said is None else _judge(said, me, secrets, certificate)


def _judge(
    said: Said, me: Said, secrets: tuple[bytes, ...], certificate: Certificate | None
) -> int:
    extensions = dict(said.extensions)
    if any(kind >= 128 for kind in extensions):
        return UNKNOWN_EXTENSION
    if said.cluster != me.cluster:
        return WRONG_CLUSTER
    if extensions.get(BINDING) != (None if certificate is None else certificate.binding):
        return WRONG_CERTIFICATE
    if certificate is not None and not certificate.is_for(said, me):
        return WRONG_CERTIFICATE
    keys = extensions.get(KEYS, b"")
    theirs = {keys[at : at + 2] for at in range(0, len(keys), 2)}
    if bool(said.flags & SECRET) != bool(secrets):
        return WRONG_SECRET
    if secrets and not theirs & {key_id(secret) for secret in secrets}:
        return WRONG_SECRET
    if said.nonce[:8] == me.nonce[:8]:
        return OWN_ADDRESS
    if said.flags & JOINER:
        return GREETED
    if said.id == me.id and said.expected != me.id:
        return WRONG_ID
    if said.last != me.last:
        return WRONG_SIZE
    if said.fingerprint != me.fingerprint:
        return WRONG_PEERS
    if said.expected != me.id:
        return WRONG_ID
    return DUPLICATE if said.id == me.id else GREETED


def _read(body: bytes) -> Said | None:
    """The fields; None where a length or a value is out of its range."""
    if len(body) < _FIXED.size:
        return None
    fields = _FIXED.unpack_from(body)
    texts: list[bytes] = []
    at = _FIXED.size
    for high in (64, 255):
        text = body[at + 1 : at + 1 + body[at]] if at < len(body) else b""
        if at >= len(body) or len(text) < body[at] or len(text) > high or not _is_text(text):
            return None
        texts.append(text)
        at += 1 + len(text)
    extensions: list[tuple[int, bytes]] = []
    while at < len(body):
        value = body[at + 2 : at + 2 + body[at + 1]] if at + 1 < len(body) else b""
        if at + 1 >= len(body) or len(value) < body[at + 1]:
            return None
        extensions.append((body[at], value))
        at += 2 + len(value)
    values: tuple[Any, ...] = (*fields, *texts, tuple(extensions))
    said = Said(*values)
    return said if _is_in_range(said) else None


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_in_range(said: Said) -> bool:
    kinds = [kind for kind, _ in said.extensions]
    lengths = {KEYS: range(2, 17, 2), BINDING: range(32, 33)}
    return (
        said.last <= ID_MAX
        and (said.id <= ID_MAX or (said.id == NO_ID and bool(said.flags & JOINER)))
        and said.expected <= ID_MAX
        and said.incarnation != 0
        and kinds == sorted(set(kinds))
        and all(len(value) in lengths.get(kind, range(256)) for kind, value in said.extensions)
    )


_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    *({"highest": 1}, {"highest": 1, "lowest": 1}, {"highest": 3}, {"highest": 9, "lowest": 3}),
    *({"lowest": 3}, {"lowest": 0}, {"lowest": 1}, {"flags": 0x01}, {"flags": 0xF8}, {"flags": 0}),
    *({"flags": 0x04}, {"flags": 0x02}, {"flags": 0x02, "id": NO_ID}, {"id": NO_ID}),
    *({"last": 6}, {"last": 0}, {"last": ID_MAX}, {"last": ID_MAX + 1}, {"fingerprint": bytes(16)}),
    *({"id": ID_MAX}, {"id": ID_MAX + 1}, {"id": 5}, {"id": 5, "expected": 5}, {"expected": 4}),
    *({"expected": ID_MAX}, {"expected": ID_MAX + 1}, {"known": 2**64 - 1}, {"incarnation": 0}),
    *({"incarnation": 1}, {"incarnation": 2**64 - 1}, {"number": 0}, {"number": 2**32 - 1}),
    *({"features": 0}, {"features": 2**32 - 1}, {"cluster": b""}, {"cluster": b"c" * 64}),
    *({"cluster": b"c" * 65}, {"cluster": b"\xff"}, {"address": b""}, {"address": b"a" * 255}),
    *({"address": b"\xc3"}, {"address": "é".encode() * 127}, {"cluster": b"", "address": b""}),
    *({"extensions": ((3, b""),)}, {"extensions": ((127, b"x" * 20),)}),
    *({"extensions": ((128, b""),)}, {"extensions": ((3, b""), (3, b""))}),
    *({"extensions": ((4, b""), (3, b""))}, {"extensions": ((2, bytes(32)),)}),
    *({"extensions": ((2, bytes(31)),)}, {"extensions": ((2, bytes(33)),)}),
    *(
        {"extensions": ((1, b""),)},
        {"extensions": ((1, b"abc"),)},
        {"extensions": ((1, bytes(2)),)},
    ),
    *({"extensions": ((1, bytes(16)),)}, {"extensions": ((1, bytes(18)),)}),
)
"""What a hello may say otherwise than another one."""


def any_hello(good: Said, own_nonce: bytes, random: Random) -> bytes:
    """The body of a hello that says something else than a good one, or is cut, or too long."""
    said = good
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        changes = dict(random.choice(_CHANGES))
        if "extensions" in changes and random.random() < 0.5:
            kinds = {kind for kind, _ in changes["extensions"]}
            before = tuple(each for each in good.extensions if each[0] not in kinds)
            changes["extensions"] = before + changes["extensions"]
        said = replace(said, **changes)
    if random.random() < 0.05:
        said = replace(said, nonce=own_nonce)
    body = said.body()
    match random.randrange(12):
        case 0:
            return body[: random.randrange(len(body))]
        case 1:
            return body + random.choice((b"\x00", b"\x05", b"\x05\x03ab", b"\xff\x00", b"\x05\x00"))
        case 2:
            # Unknown extensions up to the bound of a hello, or one byte beyond.
            left = BYTES_MAX - 7 - len(body) + random.choice((0, 0, 1))
            first = min(255, max(0, left - 4))
            filled = b"\x50" + bytes((first,)) + bytes(first)
            second = left - len(filled) - 2
            more = b"\x51" + bytes((second,)) + bytes(second) if 0 <= second <= 255 else b""
            return body + filled + more
    return body
