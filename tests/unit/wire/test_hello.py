"""The hello: who gets in, who is refused and why, and that nothing but a hello is read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from bmgd.errors import ProtocolError
from bmgd.secret import fingerprint, key_id
from bmgd.types import NO_ID, NODE_ID_MAX, Incarnation, NodeId
from bmgd.wire.handshake import Acceptor, Dialer, HelloState
from bmgd.wire.hello import (
    CLUSTER_BYTES_MAX,
    HELLO_BYTES_MAX,
    PROOF_BYTES,
    Channel,
    Hello,
    Identity,
    Refusal,
    decode_hello,
    encode_hello,
)

SECRET = b"correct horse battery staple"
EIGHT = tuple(f"secret number {i}".encode() for i in range(8))
KEYS_OF_SECRET = (1, key_id(SECRET))
ONE = Identity("blue", 8, b"F" * 16, NodeId(1), "host1:7400")
FIVE = Identity("blue", 8, b"F" * 16, NodeId(5), "host5:7400")
LIFE_OF_ONE = Incarnation(1 << 32 | 11)
LIFE_OF_FIVE = Incarnation(1 << 32 | 55)
KNOWN_OF_ONE = Incarnation(7)
KNOWN_OF_FIVE = Incarnation(9)
NONCE_OF_ONE = b"process1" + b"connect1"
NONCE_OF_FIVE = b"process5" + b"connect5"
HELLO, PROOF, WELCOME, REFUSAL = 1, 2, 3, 4

BLANK = Hello(
    has_secret=False,
    cluster="blue",
    founding_size=8,
    fingerprint=b"F" * 16,
    id=NodeId(5),
    expected=NodeId(1),
    known=Incarnation(0),
    incarnation=LIFE_OF_FIVE,
    dial_number=1,
    nonce=NONCE_OF_FIVE,
    address="host5:7400",
)

secrets = pytest.mark.parametrize("secret", [b"", SECRET], ids=["without secret", "with secret"])


def dialer(identity: Identity = FIVE, expected: int = 1, nonce: bytes = NONCE_OF_FIVE) -> Dialer:
    return Dialer(identity, LIFE_OF_FIVE, NodeId(expected), KNOWN_OF_ONE, 3, nonce)


def acceptor(identity: Identity = ONE, nonce: bytes = NONCE_OF_ONE) -> Acceptor:
    return Acceptor(identity, LIFE_OF_ONE, nonce)


def ring(secret: bytes) -> tuple[bytes, ...]:
    """The secrets of a side that has this one, or none."""
    return (secret,) if secret else ()


def pair(secret: bytes) -> tuple[Dialer, Acceptor]:
    return dialer(replace(FIVE, secrets=ring(secret))), acceptor(replace(ONE, secrets=ring(secret)))


def record(kind: int, body: bytes, magic: bytes = b"BMGD") -> bytes:
    return struct.pack(">4sBH", magic, kind, len(body)) + body


def records_of(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        _, kind, length = struct.unpack_from(">4sBH", data)
        found.append((kind, data[7 : 7 + length]))
        data = data[7 + length :]
    return found


def converse(one: Dialer, other: Acceptor, rest: bytes = b"") -> None:
    """Let both sides talk until neither has anything to say; the acceptor welcomes who is greeted."""
    for _ in range(4):
        to_acceptor = one.take_output()
        if to_acceptor:
            other.receive(to_acceptor)
        if other.state is HelloState.GREETED:
            other.welcome(KNOWN_OF_FIVE)
        to_dialer = other.take_output()
        if to_dialer:
            if other.state is HelloState.UP:
                to_dialer += rest
            one.receive(to_dialer)


# --- getting in -----------------------------------------------------------------------------------


@secrets
def test_hello_brings_both_sides_up(secret: bytes) -> None:
    one, other = pair(secret)
    converse(one, other)
    assert one.state is other.state is HelloState.UP
    assert one.peer is not None
    assert other.peer is not None
    assert (one.peer.id, one.peer.incarnation, one.peer.address) == (1, LIFE_OF_ONE, "host1:7400")
    assert (other.peer.id, other.peer.incarnation) == (5, LIFE_OF_FIVE)
    assert (other.peer.address, other.peer.dial_number) == ("host5:7400", 3)
    assert one.known_of_me == KNOWN_OF_FIVE
    assert other.known_of_me == KNOWN_OF_ONE


@secrets
def test_hello_hands_on_the_frames_behind_it(secret: bytes) -> None:
    one, other = pair(secret)
    converse(one, other, rest=b"BMGD" * 300)
    assert one.state is HelloState.UP
    assert one.take_rest() == b"BMGD" * 300
    assert one.take_rest() == b""


@secrets
def test_hello_keeps_the_secret_to_itself(secret: bytes) -> None:
    one, other = pair(secret)
    first = one.take_output()
    other.receive(first)
    assert SECRET not in first + other.take_output()
    assert SECRET.decode() not in repr(one.identity)


def test_hello_with_the_longest_texts_stays_within_its_bound() -> None:
    longest = replace(
        ONE, cluster="é" * (CLUSTER_BYTES_MAX // 2), address="a" * 255, secrets=(SECRET,)
    )
    longest = replace(longest, has_tls=True)
    one, other = dialer(replace(longest, id=NodeId(5))), acceptor(longest)
    one.bind(CHANNEL)
    other.bind(CHANNEL)
    sent = sent_by_dialer = 0
    for _ in range(2):
        output = one.take_output()
        other.receive(output)
        sent_by_dialer = sent_by_dialer + len(output)
        if other.state is HelloState.GREETED:
            other.welcome(KNOWN_OF_FIVE)
        output = other.take_output()
        one.receive(output)
        sent += len(output)
    assert one.state is HelloState.UP
    assert 400 < sent_by_dialer < sent <= HELLO_BYTES_MAX


def _streams(secret: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """(side, everything that it is sent, what it answers) of one conversation."""
    one, other = pair(secret)
    to_acceptor, to_dialer = b"", b""
    for _ in range(3):
        output = one.take_output()
        to_acceptor += output
        other.receive(output)
        if other.state is HelloState.GREETED:
            other.welcome(KNOWN_OF_FIVE)
        output = other.take_output()
        to_dialer += output
        if output:
            one.receive(output)
    yield "acceptor", to_acceptor, to_dialer
    yield "dialer", to_dialer, to_acceptor


@secrets
@pytest.mark.parametrize("seed", range(40))
def test_hello_does_not_depend_on_how_its_bytes_are_cut(secret: bytes, seed: int) -> None:
    random = Random(seed)
    for name, stream, answers in _streams(secret):
        one, other = pair(secret)
        side: Dialer | Acceptor = one if name == "dialer" else other
        at, output = 0, b""
        while at < len(stream):
            end = at + (1 if seed == 0 else random.randrange(1, 60))
            side.receive(stream[at:end])
            if isinstance(side, Acceptor) and side.state is HelloState.GREETED:
                side.welcome(KNOWN_OF_FIVE)
            output += side.take_output()
            at = end
        assert side.state is HelloState.UP
        assert output == answers


# --- refusals ---------------------------------------------------------------------------------------

MISFITS = {
    Refusal.WRONG_CLUSTER: replace(FIVE, cluster="red"),
    Refusal.WRONG_SIZE: replace(FIVE, founding_size=9),
    Refusal.WRONG_PEERS: replace(FIVE, fingerprint=b"G" * 16),
    Refusal.WRONG_SECRET: replace(FIVE, secrets=(SECRET,)),
    Refusal.WRONG_ID: replace(FIVE, id=NodeId(1)),
}


@pytest.mark.parametrize("refusal", MISFITS)
def test_hello_of_a_misfit_is_refused_with_the_reason(refusal: Refusal) -> None:
    # A dialer with the acceptor's id that expects it too asks who has its id there; see below.
    expected = 2 if refusal is Refusal.WRONG_ID else 1
    one, other = dialer(MISFITS[refusal], expected), acceptor()
    other.receive(one.take_output())
    assert other.state is HelloState.REFUSED
    assert other.refusal is refusal
    assert other.peer is None
    one.receive(other.take_output())
    assert one.state is HelloState.REFUSED
    assert one.refusal is refusal


@pytest.mark.parametrize("refusal", MISFITS)
def test_hello_of_a_misfit_that_accepts_is_refused_by_the_dialer(refusal: Refusal) -> None:
    one = dialer(replace(ONE, id=NodeId(5)))
    misfit = replace(MISFITS[refusal], id=NodeId(1), address="host1:7400")
    if refusal is Refusal.WRONG_ID:
        misfit = replace(misfit, id=NodeId(5))
    one.receive(record(HELLO, _own_hello(misfit, expected=5)))
    assert one.state is HelloState.REFUSED
    assert one.refusal is refusal


def _own_hello(identity: Identity, expected: int) -> bytes:
    side = Dialer(
        identity, LIFE_OF_ONE, NodeId(expected), Incarnation(0), 0, b"processX" + b"connectX"
    )
    return records_of(side.take_output())[0][1]


def test_hello_for_another_id_is_refused() -> None:
    one, other = dialer(expected=2), acceptor()
    other.receive(one.take_output())
    assert other.refusal is Refusal.WRONG_ID
    one = dialer(expected=2)
    one.receive(record(HELLO, _own_hello(ONE, expected=5)))
    assert one.refusal is Refusal.WRONG_ID


@secrets
def test_hello_of_a_dialer_that_reaches_itself_is_refused(secret: bytes) -> None:
    me = replace(FIVE, secrets=ring(secret))
    one = dialer(me, nonce=b"process5" + b"connectA")
    other = acceptor(me, nonce=b"process5" + b"connectB")
    other.receive(one.take_output())
    assert other.refusal is Refusal.OWN_ADDRESS
    one.receive(other.take_output())
    assert one.refusal is Refusal.OWN_ADDRESS


FOREIGN_VERSIONS = {
    "one above": b"\x00\x03\x00\x03",
    "the former one": b"\x00\x01",
    "none": b"\x00\x00",
    "the last": b"\xff\xff\x00\x03",
    "another layout behind": b"\x00\x04\x00\x03later",
}


@pytest.mark.parametrize("foreign", FOREIGN_VERSIONS.values(), ids=FOREIGN_VERSIONS)
def test_hello_of_another_version_is_refused_by_both_sides(foreign: bytes) -> None:
    for data in (foreign, foreign + encode_hello(BLANK)[len(foreign) :]):
        other = acceptor()
        other.receive(record(HELLO, data))
        assert other.refusal is Refusal.WRONG_VERSION
        assert other.detail == "it speaks others than 2 to 2"
        assert records_of(other.take_output()) == [(REFUSAL, b"\x01" + bytes(8))]
        one = dialer()
        one.receive(record(HELLO, data))
        assert one.refusal is Refusal.WRONG_VERSION


@pytest.mark.parametrize(
    ("mine", "theirs", "common"),
    [((2, 2), (2, 2), 2), ((2, 5), (4, 9), 5), ((4, 9), (2, 5), 5), ((2, 9), (3, 4), 4)],
)
def test_hello_uses_the_highest_version_that_both_speak(
    mine: tuple[int, int], theirs: tuple[int, int], common: int
) -> None:
    one = dialer(replace(FIVE, lowest=mine[0], highest=mine[1]))
    other = acceptor(replace(ONE, lowest=theirs[0], highest=theirs[1]))
    converse(one, other)
    assert one.state is other.state is HelloState.UP
    assert (one.version, other.version) == (common, common)


@pytest.mark.parametrize(("mine", "theirs"), [((2, 3), (4, 9)), ((5, 9), (2, 4))])
def test_hello_without_a_common_version_is_refused(
    mine: tuple[int, int], theirs: tuple[int, int]
) -> None:
    one = dialer(replace(FIVE, lowest=mine[0], highest=mine[1]))
    other = acceptor(replace(ONE, lowest=theirs[0], highest=theirs[1]))
    converse(one, other)
    assert one.refusal is other.refusal is Refusal.WRONG_VERSION


def test_hello_with_a_range_of_versions_that_is_none_is_no_hello() -> None:
    for side in (acceptor(), dialer()):
        with pytest.raises(ProtocolError, match="range"):
            side.receive(record(HELLO, b"\x00\x02\x00\x03" + encode_hello(BLANK)[4:]))


@secrets
def test_hello_uses_the_features_that_both_have(secret: bytes) -> None:
    one = dialer(replace(FIVE, secrets=ring(secret), features=0b1101))
    other = acceptor(replace(ONE, secrets=ring(secret), features=0b1000_0110))
    converse(one, other)
    assert (one.features, other.features) == (0b100, 0b100)


def test_hello_of_a_dial_that_renews_says_so() -> None:
    for renews in (False, True):
        one = Dialer(FIVE, LIFE_OF_FIVE, NodeId(1), KNOWN_OF_ONE, 3, NONCE_OF_FIVE, renews=renews)
        other = acceptor()
        converse(one, other)
        assert one.peer is not None
        assert other.peer is not None
        assert (one.peer.renews, other.peer.renews) == (False, renews)


# --- extensions -------------------------------------------------------------------------------------


def _extended(*extensions: tuple[int, bytes], secret: bytes = b"") -> bytes:
    keys = (KEYS_OF_SECRET,) if secret else ()
    return encode_hello(replace(BLANK, has_secret=bool(secret), extensions=(*keys, *extensions)))


@secrets
def test_hello_skips_an_extension_that_it_does_not_know(secret: bytes) -> None:
    body = _extended((0x70, b"later"), (0x7F, b""), secret=secret)
    other = acceptor(replace(ONE, secrets=ring(secret)))
    other.receive(record(HELLO, body))
    assert other.state is (HelloState.PROVING if secret else HelloState.GREETED)


def test_hello_refuses_a_critical_extension_that_it_does_not_know() -> None:
    other = acceptor()
    other.receive(record(HELLO, _extended((0x70, b"x"), (0xF0, b"later"))))
    assert other.refusal is Refusal.UNKNOWN_EXTENSION
    assert other.detail == "of type 240"
    one = dialer()
    one.receive(other.take_output())
    assert one.refusal is Refusal.UNKNOWN_EXTENSION
    answer = replace(
        decode_hello(_own_hello(ONE, expected=5)), nonce=NONCE_OF_ONE, extensions=((0x80, b""),)
    )
    one = dialer()
    one.receive(record(HELLO, encode_hello(answer)))
    assert one.refusal is Refusal.UNKNOWN_EXTENSION


@pytest.mark.parametrize(
    "area",
    [b"\x70", b"\x70\x01", b"\x70\x05late", b"\x70\x00\x70\x00", b"\x71\x00\x70\x00"],
    ids=["no length", "no value", "cut short", "twice", "out of order"],
)
def test_hello_with_extensions_that_are_none_is_no_hello(area: bytes) -> None:
    with pytest.raises(ProtocolError, match="extension"):
        acceptor().receive(record(HELLO, encode_hello(BLANK) + area))


@pytest.mark.parametrize("count", [0, 1, 3, 17, 18])
def test_hello_with_another_length_of_key_ids_is_no_hello(count: int) -> None:
    area = bytes((1, count)) + bytes(count)
    with pytest.raises(ProtocolError, match="key ids"):
        acceptor().receive(record(HELLO, encode_hello(BLANK) + area))


def test_hello_extensions_are_proven() -> None:
    one, other = pair(SECRET)
    hello = records_of(one.take_output())[0][1]
    other.receive(record(HELLO, hello + b"\x70\x03new"))
    one.receive(other.take_output())
    assert one.refusal is Refusal.WRONG_SECRET


def test_hello_versions_and_features_are_proven() -> None:
    for at in (1, 72):
        one = dialer(replace(FIVE, secrets=(SECRET,), highest=3, features=1))
        other = acceptor(replace(ONE, secrets=(SECRET,), highest=3, features=1))
        hello = bytearray(records_of(one.take_output())[0][1])
        hello[at] ^= 1
        other.receive(record(HELLO, bytes(hello)))
        one.receive(other.take_output())
        assert one.refusal is Refusal.WRONG_SECRET


@pytest.mark.parametrize("refusal", Refusal)
def test_hello_refusal_of_every_reason_reaches_the_dialer(refusal: Refusal) -> None:
    one, other = dialer(), acceptor()
    other.receive(one.take_output())
    assert other.state is HelloState.GREETED
    other.refuse(refusal, Incarnation(2**64 - 1))
    one.receive(other.take_output())
    assert one.state is HelloState.REFUSED
    assert one.refusal is refusal
    assert one.known_of_me == 2**64 - 1


def test_hello_refusal_with_an_unknown_code_is_no_hello() -> None:
    for body in (b"\x00" + bytes(8), b"\x11" + bytes(8), b"\xff" + bytes(8)):
        with pytest.raises(ProtocolError):
            dialer().receive(record(REFUSAL, body))


@secrets
def test_hello_that_asks_who_has_its_own_id_is_told_the_life_there(secret: bytes) -> None:
    other = replace(ONE, id=NodeId(5), address="elsewhere:7400", secrets=ring(secret))
    one = dialer(replace(FIVE, secrets=ring(secret)), expected=5)
    there = acceptor(other)
    converse(one, there)
    assert one.refusal is there.refusal is Refusal.DUPLICATE
    assert one.known_of_me == LIFE_OF_ONE
    one = dialer(replace(FIVE, secrets=ring(secret)), expected=5)
    converse(one, acceptor(replace(ONE, secrets=ring(secret))))
    assert one.refusal is Refusal.WRONG_ID


# --- secrets ------------------------------------------------------------------------------------------


def test_hello_with_a_secret_that_the_acceptor_does_not_have_is_refused() -> None:
    one = dialer(replace(FIVE, secrets=(b"wrong",)))
    other = acceptor(replace(ONE, secrets=(SECRET,)))
    converse(one, other)
    assert one.refusal is other.refusal is Refusal.WRONG_SECRET
    assert other.detail == "(none in common)"


def test_hello_with_a_wrong_secret_of_the_right_key_id_is_seen_by_the_dialer_first() -> None:
    wrong = next(s for i in range(2**20) if key_id(s := b"%d" % i) == key_id(SECRET))
    one = dialer(replace(FIVE, secrets=(wrong,)))
    other = acceptor(replace(ONE, secrets=(SECRET,)))
    other.receive(one.take_output())
    assert other.state is HelloState.PROVING
    one.receive(other.take_output())
    assert one.refusal is Refusal.WRONG_SECRET
    assert one.take_output() == b""


@pytest.mark.parametrize(
    ("of_dialer", "of_acceptor", "used"),
    [
        ((b"old",), (b"new", b"old"), b"old"),
        ((b"new", b"old"), (b"old",), b"old"),
        ((b"new",), (b"old", b"new"), b"new"),
        ((b"old", b"new"), (b"new",), b"new"),
        ((b"new", b"old"), (b"new", b"old"), b"new"),
        ((b"old", b"new"), (b"new", b"old"), b"new"),
        ((b"x", b"y", EIGHT[6]), EIGHT, EIGHT[6]),
    ],
)
def test_hello_uses_the_first_secret_of_the_acceptor_that_the_dialer_has(
    of_dialer: tuple[bytes, ...], of_acceptor: tuple[bytes, ...], used: bytes
) -> None:
    one, other = (
        dialer(replace(FIVE, secrets=of_dialer)),
        acceptor(replace(ONE, secrets=of_acceptor)),
    )
    converse(one, other)
    assert one.state is other.state is HelloState.UP
    assert one.key == other.key == fingerprint(used)


def test_hello_with_any_secret_that_both_have_but_no_common_one_is_refused() -> None:
    one, other = dialer(replace(FIVE, secrets=EIGHT[:4])), acceptor(replace(ONE, secrets=EIGHT[4:]))
    converse(one, other)
    assert one.refusal is other.refusal is Refusal.WRONG_SECRET
    assert one.key == other.key == ""


@pytest.mark.parametrize("length", [0, 1, 3])
def test_hello_with_key_ids_of_a_wrong_length_is_no_hello(length: int) -> None:
    body = encode_hello(replace(BLANK, has_secret=True, extensions=((1, bytes(length)),)))
    with pytest.raises(ProtocolError, match="key ids"):
        acceptor(replace(ONE, secrets=(SECRET,))).receive(record(HELLO, body))


def test_hello_key_ids_are_proven() -> None:
    one = dialer(replace(FIVE, secrets=(SECRET, b"a second one")))
    other = acceptor(replace(ONE, secrets=(SECRET,)))
    hello = bytearray(records_of(one.take_output())[0][1])
    hello[-1] ^= 1
    other.receive(record(HELLO, bytes(hello)))
    one.receive(other.take_output())
    assert one.refusal is Refusal.WRONG_SECRET


def test_hello_of_a_dialer_that_proves_wrongly_is_refused() -> None:
    one, other = pair(SECRET)
    other.receive(one.take_output())
    other.take_output()
    other.receive(record(PROOF, bytes(PROOF_BYTES)))
    assert other.refusal is Refusal.WRONG_SECRET
    assert records_of(other.take_output())[0][0] == REFUSAL


@pytest.mark.parametrize("length", [0, 1, PROOF_BYTES - 1, PROOF_BYTES + 1])
def test_hello_with_a_proof_of_another_length_is_refused(length: int) -> None:
    one, other = pair(SECRET)
    other.receive(one.take_output())
    to_dialer = records_of(other.take_output())
    one.receive(record(*to_dialer[0]) + record(PROOF, (to_dialer[1][1] * 2)[:length]))
    assert one.refusal is Refusal.WRONG_SECRET
    other.receive(record(PROOF, bytes(length)))
    assert other.refusal is Refusal.WRONG_SECRET


def test_hello_reflected_proof_is_refused() -> None:
    one, other = pair(SECRET)
    other.receive(one.take_output())
    acceptors_proof = records_of(other.take_output())[1]
    assert acceptors_proof[0] == PROOF
    other.receive(record(*acceptors_proof))
    assert other.refusal is Refusal.WRONG_SECRET


def test_hello_replayed_proof_is_refused() -> None:
    one, other = pair(SECRET)
    first = one.take_output()
    other.receive(first)
    one.receive(other.take_output())
    proof = one.take_output()
    again = acceptor(replace(ONE, secrets=(SECRET,)), nonce=b"process1" + b"connect2")
    again.receive(first)
    again.take_output()
    again.receive(proof)
    assert again.refusal is Refusal.WRONG_SECRET


def test_hello_replayed_acceptor_is_refused() -> None:
    one, other = pair(SECRET)
    other.receive(one.take_output())
    recorded = other.take_output()
    fresh = dialer(replace(FIVE, secrets=(SECRET,)), nonce=b"process5" + b"connect6")
    fresh.receive(recorded)
    assert fresh.refusal is Refusal.WRONG_SECRET


def test_hello_changed_on_its_way_does_not_prove() -> None:
    for at in range(2, len(encode_hello(BLANK)), 5):
        one, other = pair(SECRET)
        changed = bytearray(one.take_output())
        changed[7 + at] ^= 1
        try:
            other.receive(bytes(changed))
        except ProtocolError:
            continue
        if other.state is HelloState.PROVING:
            one.receive(other.take_output())
            assert one.refusal is Refusal.WRONG_SECRET
        else:
            assert other.state is HelloState.REFUSED


def test_hello_welcome_without_a_proof_is_out_of_turn() -> None:
    one, other = pair(SECRET)
    other.receive(one.take_output())
    hello = records_of(other.take_output())[0]
    with pytest.raises(ProtocolError):
        one.receive(record(*hello) + record(WELCOME, bytes(8)))


BELIEVED_UNPROVEN = {
    Refusal.WRONG_VERSION,
    Refusal.WRONG_CLUSTER,
    Refusal.WRONG_SIZE,
    Refusal.WRONG_PEERS,
    Refusal.WRONG_SECRET,
    Refusal.WRONG_ID,
    Refusal.OWN_ADDRESS,
    Refusal.UNKNOWN_EXTENSION,
    Refusal.WRONG_TLS,
    Refusal.WRONG_CERTIFICATE,
}


@pytest.mark.parametrize("refusal", Refusal)
def test_hello_with_a_secret_believes_a_stranger_only_that_the_two_do_not_fit(
    refusal: Refusal,
) -> None:
    one, _ = pair(SECRET)
    data = record(REFUSAL, bytes((refusal,)) + b"\xff" * 8)
    if refusal in BELIEVED_UNPROVEN:
        one.receive(data)
        assert one.refusal is refusal
        assert one.known_of_me == 0
    else:
        with pytest.raises(ProtocolError):
            one.receive(data)


def test_hello_proven_acceptor_is_believed_every_refusal() -> None:
    for refusal in Refusal:
        one, other = pair(SECRET)
        other.receive(one.take_output())
        one.receive(other.take_output())
        other.receive(one.take_output())
        other.refuse(refusal, Incarnation(6))
        one.receive(other.take_output())
        assert one.refusal is refusal
        assert one.known_of_me == 6


def test_hello_refusal_is_proven_by_whatever_a_member_has_to_prove() -> None:
    plain, _ = pair(b"")
    assert plain.is_proven, "nobody can prove anything"
    one, other = pair(SECRET)
    assert not one.is_proven
    other.receive(one.take_output())
    one.receive(other.take_output())
    assert one.is_proven
    under_tls = dialer(replace(FIVE, has_tls=True))
    assert not under_tls.is_proven
    under_tls.bind(CHANNEL)
    assert under_tls.is_proven
    with_both = dialer(replace(FIVE, has_tls=True, secrets=(SECRET,)))
    with_both.bind(CHANNEL)
    assert not with_both.is_proven


# --- bytes that are no hello ------------------------------------------------------------------------

FOREIGN = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(64),
    "one byte": b"\n",
    "a magic in small letters": record(HELLO, encode_hello(BLANK), magic=b"bmgd"),
    "a record too long": struct.pack(">4sBH", b"BMGD", HELLO, HELLO_BYTES_MAX + 1),
    "the longest record": struct.pack(">4sBH", b"BMGD", HELLO, 65_535),
    "a frame": b"\x00\x00\x00\x24\x92\xc4\x20\x02" + bytes(33),
    "no version": record(HELLO, b""),
    "half a version": record(HELLO, b"\x00"),
    "kind 0": record(0, b""),
    "kind 5": record(5, bytes(8)),
}


@pytest.mark.parametrize("name", FOREIGN)
@secrets
def test_hello_refuses_what_is_none(name: str, secret: bytes) -> None:
    for side in pair(secret):
        side.take_output()
        with pytest.raises(ProtocolError):
            side.receive(FOREIGN[name])
        assert side.state is HelloState.WAITING
        assert side.take_output() == b""


@secrets
def test_hello_in_tls_to_a_daemon_without_it_is_refused_with_the_reason(secret: bytes) -> None:
    one, other = pair(secret)
    other.receive(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64))
    assert other.refusal is Refusal.WRONG_TLS
    one.receive(other.take_output())
    assert one.refusal is Refusal.WRONG_TLS
    with pytest.raises(ProtocolError):
        dialer().receive(b"\x16\x03\x01\x02\x00\x01")


# --- TLS channels -----------------------------------------------------------------------------------

CHANNEL = Channel(b"B" * 32, (), key="cert")


def channelled(
    of_dialer: Channel, of_acceptor: Channel, secret: bytes, expected: int = 1
) -> tuple[Dialer, Acceptor]:
    one = dialer(replace(FIVE, has_tls=True, secrets=ring(secret)), expected)
    other = acceptor(replace(ONE, has_tls=True, secrets=ring(secret)))
    assert one.take_output() == b"", "before the channel is there"
    one.bind(of_dialer)
    other.bind(of_acceptor)
    converse(one, other)
    return one, other


@secrets
def test_hello_under_tls_is_bound_to_the_channel(secret: bytes) -> None:
    one, other = channelled(CHANNEL, CHANNEL, secret)
    assert one.state is other.state is HelloState.UP
    assert one.key == (fingerprint(secret) + "+cert" if secret else "cert")
    one, other = channelled(CHANNEL, replace(CHANNEL, binding=b"C" * 32), secret)
    assert one.refusal is other.refusal is Refusal.WRONG_CERTIFICATE


@secrets
def test_hello_with_a_binding_where_there_is_no_tls_is_refused(secret: bytes) -> None:
    one = dialer(replace(FIVE, has_tls=True, secrets=ring(secret)))
    one.bind(CHANNEL)
    other = acceptor(replace(ONE, secrets=ring(secret)))
    converse(one, other)
    assert other.refusal is one.refusal is Refusal.WRONG_CERTIFICATE


@pytest.mark.parametrize(
    ("of_five", "of_one", "required", "refused"),
    [
        (("blue/5",), ("blue/1",), True, False),
        (("blue/5", "blue/6"), ("blue/0", "blue/1"), True, False),
        ((), (), False, False),
        (("blue/5",), (), False, False),
        ((), ("blue/1",), True, True),
        (("blue/6",), ("blue/1",), False, True),
        (("red/5",), ("blue/1",), False, True),
        (("blue/any",), ("blue/1",), False, True),
        (("blue/5",), ("blue/5",), False, True),
    ],
)
def test_hello_under_tls_is_said_by_whom_the_certificate_names(
    of_five: tuple[str, ...], of_one: tuple[str, ...], required: bool, refused: bool
) -> None:
    seen_by_five = replace(CHANNEL, names=of_one, names_required=required)
    seen_by_one = replace(CHANNEL, names=of_five, names_required=required)
    one, _ = channelled(seen_by_five, seen_by_one, b"")
    assert (one.state is HelloState.UP) is not refused
    if refused:
        assert one.refusal is Refusal.WRONG_CERTIFICATE


def test_hello_under_tls_any_is_for_joiners_and_the_ids_they_are_given() -> None:
    channel = replace(CHANNEL, names=("blue/any",), names_required=True)
    hello = replace(BLANK, id=NodeId(8))
    assert channel.misnames(hello, "blue", 8) == ""
    assert channel.misnames(hello, "blue", 9) == "(it is for blue/any)"
    assert channel.misnames(replace(hello, is_joiner=True, id=NO_ID), "blue", 9) == ""
    assert channel.misnames(replace(hello, is_joiner=True, id=NodeId(8)), "red", 9)
    of_twelve = replace(CHANNEL, names=("blue/12",))
    assert of_twelve.misnames(replace(hello, is_joiner=True, id=NodeId(12)), "blue", 9) == ""
    assert of_twelve.misnames(replace(hello, is_joiner=True, id=NO_ID), "blue", 9)


def test_hello_without_an_id_is_a_joiners() -> None:
    joiner = replace(BLANK, is_joiner=True, id=NO_ID)
    assert decode_hello(encode_hello(joiner)) == joiner
    with pytest.raises(ProtocolError, match="out of range"):
        decode_hello(encode_hello(replace(joiner, is_joiner=False)))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_hello_with_a_binding_of_a_wrong_length_is_no_hello(length: int) -> None:
    body = encode_hello(replace(BLANK, extensions=((2, bytes(length)),)))
    with pytest.raises(ProtocolError, match="binding"):
        acceptor().receive(record(HELLO, body))


@secrets
def test_hello_out_of_turn_is_refused(secret: bytes) -> None:
    hello = record(HELLO, _extended(secret=secret))
    proof, welcome = record(PROOF, bytes(PROOF_BYTES)), record(WELCOME, bytes(8))
    refusal = record(REFUSAL, b"\x0b" + bytes(8))
    for data in (proof, welcome, refusal, hello + hello, hello + welcome, hello + refusal):
        with pytest.raises(ProtocolError):
            pair(secret)[1].receive(data)
    answer = record(HELLO, _own_hello(replace(ONE, secrets=ring(secret)), expected=5))
    for data in (proof, welcome, answer + answer):
        with pytest.raises(ProtocolError):
            pair(secret)[0].receive(data)


def test_hello_with_an_unasked_proof_is_out_of_turn() -> None:
    answer = record(HELLO, _own_hello(ONE, expected=5))
    with pytest.raises(ProtocolError):
        dialer().receive(answer + record(PROOF, bytes(PROOF_BYTES)))


@pytest.mark.parametrize("length", [0, 7, 9])
def test_hello_welcome_or_refusal_of_a_wrong_length_is_refused(length: int) -> None:
    answer = record(HELLO, _own_hello(ONE, expected=5))
    with pytest.raises(ProtocolError):
        dialer().receive(answer + record(WELCOME, bytes(length)))
    with pytest.raises(ProtocolError):
        dialer().receive(record(REFUSAL, b"\x02" + bytes(length)))


@pytest.mark.parametrize("seed", range(10))
def test_hello_never_takes_more_than_its_bound(seed: int) -> None:
    random = Random(seed)
    # A HELLO record that announces as much as it may, and never ends.
    endless = struct.pack(">4sBH", b"BMGD", HELLO, HELLO_BYTES_MAX) + bytes(4096)
    for side in pair(b""):
        taken = 0
        while taken <= HELLO_BYTES_MAX:
            piece = endless[taken : taken + random.randrange(1, 200)]
            taken += len(piece)
            if taken <= HELLO_BYTES_MAX:
                side.receive(piece)
        with pytest.raises(ProtocolError):
            side.receive(piece)
        assert side.state is HelloState.WAITING


def test_hello_counts_small_records_together() -> None:
    side = acceptor(replace(ONE, secrets=(SECRET,)))
    hello = record(HELLO, _extended(secret=SECRET))
    with pytest.raises(ProtocolError):
        side.receive(hello + record(PROOF, bytes(HELLO_BYTES_MAX - len(hello))))


# --- the body of a hello ------------------------------------------------------------------------------


def test_hello_body_reads_what_it_writes() -> None:
    highest = Hello(
        has_secret=True,
        cluster="é" * 32,
        founding_size=2**31,
        fingerprint=b"\xff" * 16,
        id=NodeId(NODE_ID_MAX),
        expected=NodeId(NODE_ID_MAX),
        known=Incarnation(2**64 - 1),
        incarnation=Incarnation(2**64 - 1),
        dial_number=2**32 - 1,
        nonce=b"\xff" * 16,
        address="a" * 255,
        lowest=2**16 - 1,
        highest=2**16 - 1,
        features=2**32 - 1,
        extensions=((0, b"x" * 40), (255, b"")),
        renews=True,
    )
    lowest = replace(BLANK, cluster="", address="", founding_size=1, dial_number=0, id=NodeId(0))
    for hello in (BLANK, highest, lowest):
        assert decode_hello(encode_hello(hello)) == hello


def test_hello_body_with_a_wrong_length_is_refused() -> None:
    body = encode_hello(BLANK)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            decode_hello(body[:end])
    with pytest.raises(ProtocolError):
        decode_hello(body + b"\x00")


# Offsets in the body: versions 0, flags 4, size-1 5, fingerprint 9, id 25, expected 29, known 33,
# incarnation 41, dial number 49, nonce 53, features 69, length of the cluster's name 73.
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (5, struct.pack(">I", 2**31)),
        (25, struct.pack(">I", 2**31)),
        (29, struct.pack(">I", 2**31)),
        (41, bytes(8)),
        (73, b"\x41"),
        (73, b"\xff"),
        (73, b"\x03"),
        (74, b"\xff"),
        (74, b"\xc3\x28"),
        (78, b"\x09"),
        (78, b"\xff"),
        (79, b"\xff"),
    ],
)
def test_hello_body_out_of_range_is_refused(at: int, value: bytes) -> None:
    body = encode_hello(BLANK)
    assert body[73:74] == b"\x04"
    assert body[78:79] == b"\x0a"
    with pytest.raises(ProtocolError):
        decode_hello(body[:at] + value + body[at + len(value) :])


# --- fuzz -----------------------------------------------------------------------------------------------


def _feed(side: Dialer | Acceptor, data: bytes, random: Random) -> None:
    """Feed data in random pieces until the side has decided."""
    at = 0
    while at < len(data) and side.state in (HelloState.WAITING, HelloState.PROVING):
        end = at + random.randrange(1, len(data) + 1)
        side.receive(data[at:end])
        at = end


@secrets
def test_hello_mutated_is_refused_or_read_and_nothing_else(secret: bytes) -> None:
    random = Random(f"mutated {secret!r}")
    streams = {name: stream for name, stream, _ in _streams(secret)}
    decided = dict.fromkeys(HelloState, 0)
    refused = 0
    for _ in range(6000):
        one, other = pair(secret)
        name = random.choice(("dialer", "acceptor"))
        side: Dialer | Acceptor = one if name == "dialer" else other
        data = bytearray(streams[name])
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(data))
            match random.randrange(3):
                case 0:
                    data[at] = random.randrange(256)
                case 1:
                    data[at:at] = random.randbytes(random.randrange(1, 5))
                case _:
                    del data[at : at + random.randrange(1, 5)]
        if data == streams[name]:
            continue
        try:
            _feed(side, bytes(data), random)
        except ProtocolError:
            refused += 1
        decided[side.state] += 1
    assert refused > 1000
    assert decided[HelloState.REFUSED] > 200
    if secret:
        # Whoever changes one bit of what is proven gets neither side past the proof.
        assert decided[HelloState.GREETED] == 0


def test_hello_random_bytes_are_refused() -> None:
    random = Random("random bytes")
    for _ in range(3000):
        side: Dialer | Acceptor = random.choice((dialer(), acceptor()))
        with pytest.raises(ProtocolError):
            _feed(side, random.randbytes(random.randrange(4, 600)), random)
