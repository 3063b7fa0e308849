"""Frames and hellos with changed bytes, and which of them are lies rather than broken."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

from benchmarks.arbitrary.messages import Messages
from bmgd.errors import ProtocolError
from bmgd.frameheader import BODY_BYTES_MIN
from bmgd.linklayer.frames import is_routed
from bmgd.peers import PeerList
from bmgd.types import Incarnation, NodeId
from bmgd.wire.ask_messages import Answer, JoinRequest
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.hello import RECORD, Hello, HelloKind, decode_hello, encode_hello
from bmgd.wire.link_messages import Notice, OlderMembers, RecordPage, Watermarks
from bmgd.wire.messages import LinkMessage, Message

ATTACKERS, TARGET = tuple(map(NodeId, range(4, 8))), NodeId(1)
SIZE = 4 + len(ATTACKERS)
MAGIC = b"BMGD"
TELLING = (Notice, RecordPage, Watermarks, JoinRequest, Answer, OlderMembers)
"""Kinds that say something of others."""
EDGES = (0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC4, 0xC6, 0xCF, 0xD9, 0xDC, 0xDD, 0xDF, 0xFF)


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """Up to eight changes of some bytes; `other` is what a part may be taken from."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randrange(len(found) + 1)
        match random.randrange(8):
            case 0 if found:
                found[at % len(found)] ^= 1 << random.randrange(8)
            case 1 if found:
                found[at % len(found)] = random.choice(EDGES)
            case 2:
                found[at:at] = random.randbytes(random.choice((1, 1, 2, 4, 40)))
            case 3:
                del found[at : at + random.choice((1, 1, 2, 4, 40))]
            case 4:
                del found[at:]
            case 5:
                width = random.choice((2, 4, 8))
                found[at : at + width] = random.choice((0, 1, 2 ** (8 * width) - 1)).to_bytes(
                    width, "big"
                )
            case 6:
                start = random.randrange(len(other) + 1)
                found[at : at + 8] = other[start : start + random.choice((4, 8, 32))]
            case _:
                found[at:at] = found[at : at + random.choice((1, 8, 64))]
    return bytes(found)


def is_lie(message: Message, attacker: NodeId, life: int) -> bool:
    """Whether a frame is sound, and speaks of others, or for another or a later life than this one."""
    if isinstance(message, TELLING):
        return True
    if isinstance(message, LinkMessage):
        return False
    return message.route.source != attacker or message.route.source_incarnation > life


class Cases:
    """The cases of one thousand.

    Args:
        number: of the thousand; decides all of them.
        base_port: of the cluster.
        attacker: for whom they speak.
    """

    def __init__(self, number: int, base_port: int, attacker: NodeId) -> None:
        self.attacker = attacker
        self.random = Random(number)
        self.peers = PeerList.parse(f"127.0.0.1:{{{base_port}+id}}", SIZE)
        self.arbitrary = Messages(self.random, TARGET, SIZE)
        self.lies = 0
        self.life = 1
        self._former = b"\0"

    def hello(self, life: int) -> bytes:
        """A sound hello of the attacker to node 1."""
        body = encode_hello(
            Hello(
                has_secret=False,
                cluster="bmgd",
                founding_size=SIZE,
                fingerprint=self.peers.fingerprint(),
                id=self.attacker,
                expected=TARGET,
                known=Incarnation(0),
                incarnation=Incarnation(life),
                dial_number=1,
                nonce=self.random.randbytes(16),
                address=self.peers.address_of(self.attacker),
            )
        )
        return RECORD.pack(MAGIC, HelloKind.HELLO, len(body)) + body

    def bad_hello(self, life: int) -> bytes:
        """A hello with changes, which sometimes change nothing that matters."""
        while True:
            found = mutated(self.random, self.hello(life), self._former)
            if not self._is_lying_hello(found, life):
                return found
            self.lies += 1

    def _is_lying_hello(self, data: bytes, life: int) -> bool:
        """Whether a hello is sound, and speaks for another, or of lives that are not."""
        if len(data) < RECORD.size or data[:4] != MAGIC:
            return False
        _, kind, length = RECORD.unpack_from(data)
        if kind != HelloKind.HELLO or len(data) < RECORD.size + length:
            return False
        try:
            hello = decode_hello(data[RECORD.size : RECORD.size + length])
        except ProtocolError:
            return False
        sound = hello.id == self.attacker and not hello.known and hello.incarnation <= life
        return not sound or hello.is_joiner

    def bad_frame(self) -> tuple[bytes, bool]:
        """A frame with changes, and whether it must end the link."""
        while True:
            message = self.arbitrary.message()
            if not isinstance(message, LinkMessage):
                life = Incarnation(self.life)
                route = replace(message.route, source=self.attacker, source_incarnation=life)
                message = replace(message, route=route)
            body = encode(message)[LENGTH_BYTES:]
            body, self._former = mutated(self.random, body, self._former), body
            if self.random.random() < 0.03:
                length = self.random.choice((0, 1, 2**31, 2**32 - 1, len(body) + 1, len(body) // 2))
                return struct.pack(">I", length) + body, True
            ends = self._ends(body)
            if ends is not None:
                return struct.pack(">I", len(body)) + body, ends

    def _ends(self, body: bytes) -> bool | None:
        """Whether this body must end the link; None for a lie."""
        try:
            message = decode(body)
        except ProtocolError:
            return len(body) < BODY_BYTES_MIN or not is_routed(body)
        if is_lie(message, self.attacker, self.life):
            self.lies += 1
            return None
        return type(message).__name__ == "Goodbye"
