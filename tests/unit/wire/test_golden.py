"""The bytes of the wire protocol, as tests/golden/wire.txt pins them, in both directions.

A change of these bytes is a change of the contract. When one is meant, write the file anew and read
the difference:

    python -m tests.unit.wire.test_golden > tests/golden/wire.txt
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

import pytest

from bmgd.peers import PeerList
from bmgd.types import NO_ID, Incarnation, NodeId
from bmgd.wire.applicant import Applicant
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.handshake import Acceptor, Dialer, HelloState
from bmgd.wire.hello import Hello, Identity, Refusal, decode_hello, encode_hello
from bmgd.wire.link_messages import RecordPage
from bmgd.wire.messages import RoutedMessage
from tests.unit.wire.examples import MESSAGES, RECORD

WIRE: Final = Path(__file__).parents[2] / "golden" / "wire.txt"
LINE_BYTES: Final = 48
SHORT_BYTES: Final = 1400
RECORD_HEADER_BYTES: Final = 7

SECRET: Final = b"not a good secret"
HELLO: Final = Hello(
    has_secret=False,
    cluster="blue",
    founding_size=8,
    fingerprint=bytes(range(16)),
    id=NodeId(5),
    expected=NodeId(1),
    known=Incarnation(0x0000_0002_0000_00AA),
    incarnation=Incarnation(0x0000_0003_DEAD_BEEF),
    dial_number=3,
    nonce=b"process5connect5",
    address="host5:7400",
)

HEADING: Final = """\
# Protocol version 2, byte by byte: docs/wire-protocol.md explains it, tests/unit/wire/test_golden.py
# holds the code against it and says how to write this file anew.
#
# A name, a colon, then the bytes in hexadecimal. "frame NAME" is a whole frame with its length;
# "hello NAME" a whole record of the hello; what each of them says is in tests/unit/wire/examples.py
# and in test_golden.py. The secret of the hellos "with secret" is: not a good secret
"""


def golden() -> dict[str, bytes]:
    """What the file holds, by name."""
    found: dict[str, bytes] = {}
    name = ""
    for line in WIRE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if line.endswith(":"):
            name = line[:-1]
            assert name not in found
            found[name] = b""
        else:
            found[name] += bytes.fromhex(line)
    return found


def frames() -> dict[str, bytes]:
    """The frames that the file pins: every kind, without the longest."""
    encoded = {f"frame {name}": encode(message) for name, message in MESSAGES.items()}
    return {name: frame for name, frame in encoded.items() if len(frame) <= SHORT_BYTES}


def sides(secret: bytes) -> tuple[Dialer, Acceptor]:
    """Two sides whose every byte is decided."""
    ring = (secret,) if secret else ()
    of_dialer = Identity("blue", 8, bytes(range(16)), NodeId(5), "host5:7400", ring)
    of_acceptor = Identity("blue", 8, bytes(range(16)), NodeId(1), "host1:7400", ring)
    return (
        Dialer(of_dialer, HELLO.incarnation, HELLO.expected, HELLO.known, 3, HELLO.nonce),
        Acceptor(of_acceptor, Incarnation(0x0000_0002_0000_00AA), b"process1connect1"),
    )


def records_of(data: bytes) -> list[bytes]:
    """The records in a stream, each with its header."""
    found = []
    while data:
        end = RECORD_HEADER_BYTES + int.from_bytes(data[5:7], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def conversation(secret: bytes) -> dict[str, bytes]:
    """Every record of one hello that succeeds."""
    dialer, acceptor = sides(secret)
    how = "with secret" if secret else "without secret"
    found: dict[str, bytes] = {}

    def keep(speaker: str, data: bytes) -> None:
        for record in records_of(data):
            kind = {1: "hello", 2: "proof", 3: "welcome"}[record[4]]
            found[f"hello {how}, {speaker}: {kind}"] = record

    for _ in range(2):
        said = dialer.take_output()
        keep("dialer", said)
        acceptor.receive(said)
        if acceptor.state is HelloState.GREETED:
            acceptor.welcome(Incarnation(0x0000_0002_0000_0000))
        answered = acceptor.take_output()
        keep("acceptor", answered)
        if answered:
            dialer.receive(answered)
    assert dialer.state is acceptor.state is HelloState.UP
    return found


def joining(secret: bytes) -> dict[str, bytes]:
    """Every record and frame by which a joiner becomes a member."""
    _, contact = sides(secret)
    joiner = Identity("blue", 1, bytes(16), NO_ID, "new:7400", (secret,) if secret else ())
    peers = PeerList.parse("host{id}:7400", 8)
    contact.identity = replace(contact.identity, fingerprint=peers.fingerprint())
    applicant = Applicant(joiner, Incarnation(0x0000_0001_0000_0077), b"process9connect9")
    how = "with secret" if secret else "without secret"
    found: dict[str, bytes] = {}
    kinds = {1: "hello", 2: "proof", 5: "peers", 6: "grant"}
    for _ in range(2):
        if applicant.granted != NO_ID:
            break
        said = applicant.take_output()
        found |= {f"join {how}, joiner: {kinds[r[4]]}": r for r in records_of(said)}
        if said:
            contact.receive(said)
        if contact.state is HelloState.GREETED:
            contact.grant(NodeId(17), peers.text)
        answered = contact.take_output()
        found |= {f"join {how}, contact: {kinds[r[4]]}": r for r in records_of(answered)}
        applicant.receive(answered)
    applicant.receive(encode(RecordPage(((NodeId(3), RECORD),))))
    assert applicant.state is HelloState.UP
    assert (applicant.granted, applicant.records) == (17, [(3, RECORD)])
    return found


def refusals() -> dict[str, bytes]:
    """A refusal of every reason."""
    found: dict[str, bytes] = {}
    for refusal in Refusal:
        _, acceptor = sides(b"")
        acceptor.refuse(refusal, Incarnation(0x0000_0004_0000_0001))
        found[f"hello refusal, {refusal.text}"] = acceptor.take_output()
    return found


def everything() -> dict[str, bytes]:
    """What the file should hold."""
    return (
        frames()
        | conversation(b"")
        | conversation(SECRET)
        | joining(b"")
        | joining(SECRET)
        | refusals()
    )


def write(out: TextIO) -> None:
    """Write the file anew."""
    out.write(HEADING)
    for name, data in everything().items():
        out.write(f"\n{name}:\n")
        for at in range(0, len(data), LINE_BYTES):
            out.write(data[at : at + LINE_BYTES].hex() + "\n")


def test_golden_file_names_exactly_what_is_pinned() -> None:
    assert golden().keys() == everything().keys()


def test_golden_file_has_every_kind() -> None:
    in_file = {data[LENGTH_BYTES + 3] for name, data in golden().items() if name[:6] == "frame "}
    assert in_file == {encode(message)[LENGTH_BYTES + 3] for message in MESSAGES.values()}


@pytest.mark.parametrize("name", frames())
def test_golden_frame_is_what_encode_writes(name: str) -> None:
    assert encode(MESSAGES[name.removeprefix("frame ")]).hex() == golden()[name].hex()


@pytest.mark.parametrize("name", frames())
def test_golden_frame_is_read_as_the_message(name: str) -> None:
    message = MESSAGES[name.removeprefix("frame ")]
    assert decode(golden()[name][LENGTH_BYTES:]) == message


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["without secret", "with secret"])
def test_golden_hello_is_what_both_sides_write(secret: bytes) -> None:
    pinned = golden()
    for name, record in conversation(secret).items():
        assert record.hex() == pinned[name].hex(), name


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["without secret", "with secret"])
def test_golden_hello_is_taken_by_both_sides(secret: bytes) -> None:
    pinned, how = golden(), "with secret" if secret else "without secret"
    spoken = {n: data for n, data in pinned.items() if n.startswith(f"hello {how}, ")}
    dialer, acceptor = sides(secret)
    dialer.receive(b"".join(d for n, d in spoken.items() if ", acceptor: " in n))
    assert dialer.state is HelloState.UP
    assert dialer.known_of_me == 0x0000_0002_0000_0000
    acceptor.receive(b"".join(d for n, d in spoken.items() if ", dialer: " in n))
    assert acceptor.state is HelloState.GREETED


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["without secret", "with secret"])
def test_golden_join_is_what_both_sides_write(secret: bytes) -> None:
    pinned = golden()
    for name, record in joining(secret).items():
        assert record.hex() == pinned[name].hex(), name


def test_golden_hello_body_is_the_hello() -> None:
    record = golden()["hello without secret, dialer: hello"]
    assert encode_hello(HELLO) == record[RECORD_HEADER_BYTES:]
    assert decode_hello(record[RECORD_HEADER_BYTES:]) == HELLO


@pytest.mark.parametrize("refusal", Refusal)
def test_golden_refusal_is_written_and_taken(refusal: Refusal) -> None:
    name = f"hello refusal, {refusal.text}"
    assert refusals()[name].hex() == golden()[name].hex()
    dialer, _ = sides(b"")
    dialer.receive(golden()[name])
    assert dialer.refusal is refusal
    assert dialer.known_of_me == 0x0000_0004_0000_0001


def test_golden_routed_frames_carry_their_ids_where_relays_read_them() -> None:
    pinned = golden()
    for name, message in MESSAGES.items():
        if isinstance(message, RoutedMessage) and f"frame {name}" in pinned:
            header = pinned[f"frame {name}"][7:39]
            assert int.from_bytes(header[4:8], "big") == message.route.destination
            assert int.from_bytes(header[8:12], "big") == message.route.source
            assert header[3] == message.route.hop_budget


if __name__ == "__main__":
    write(sys.stdout)
