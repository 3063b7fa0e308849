"""The joiner's conversation: what it is told, in whatever pieces, and what it does not believe."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from dataclasses import replace

import pytest

from bmgd.errors import ProtocolError
from bmgd.frameheader import BODY_BYTES_MIN, FRAME_BYTES_MAX
from bmgd.peers import PeerList
from bmgd.types import NO_ID, Incarnation, NodeId, Record, Status
from bmgd.wire.applicant import Applicant
from bmgd.wire.codec import encode
from bmgd.wire.handshake import Acceptor, HelloState
from bmgd.wire.hello import GRANT, RECORD, Identity, Refusal
from bmgd.wire.link_messages import BUCKETS, Goodbye, PageAsk, Ping, RecordPage

SECRET = b"correct horse battery staple"
LISTED = PeerList(listed=tuple(f"a-rather-long-name-{i}.example.org:7400" for i in range(30)))
CONTACT = Identity("blue", 30, LISTED.fingerprint(), NodeId(7), "host7:7400")
NEW = Identity("blue", 1, bytes(16), NO_ID, "new:7400")
LIFE = Incarnation(1 << 32 | 77)
RECORDS = [
    (NodeId(i), Record(Incarnation(2**32 + i), 0, Status.ALIVE, f"new{i}:7400"))
    for i in range(30, 330)
]

secrets = pytest.mark.parametrize("secret", [b"", SECRET], ids=["without secret", "with secret"])


def ring(secret: bytes) -> tuple[bytes, ...]:
    """The secrets of a side that has this one, or none."""
    return (secret,) if secret else ()


def pair(secret: bytes, new: Identity = NEW) -> tuple[Applicant, Acceptor]:
    applicant = Applicant(replace(new, secrets=ring(secret)), LIFE, b"process9connect9")
    contact = replace(CONTACT, secrets=ring(secret))
    return applicant, Acceptor(contact, Incarnation(1 << 32), b"process7connect7")


def greeted(applicant: Applicant, contact: Acceptor) -> None:
    """Let them talk until the contact's core is asked."""
    for _ in range(2):
        output = applicant.take_output()
        if output and contact.state is not HelloState.GREETED:
            contact.receive(output)
        answered = contact.take_output()
        if answered:
            applicant.receive(answered)
    assert contact.state is HelloState.GREETED


def pages() -> list[RecordPage]:
    """What a contact believes, in pages."""
    return [
        RecordPage(tuple(RECORDS[:256]), ((NodeId(400), NodeId(500)),), RECORDS[256][0]),
        RecordPage(tuple(RECORDS[256:]), ((NodeId(600), NodeId(999)),)),
    ]


def told(contact: Acceptor, peers: str = LISTED.text, node_id: int = 1000) -> bytes:
    """What a contact says once its core has decided."""
    contact.grant(NodeId(node_id), peers)
    return contact.take_output() + b"".join(map(encode, pages()))


@secrets
@pytest.mark.parametrize("piece", [13, 511, 513, 10**6])
def test_applicant_is_told_in_pieces_of_any_length(secret: bytes, piece: int) -> None:
    applicant, contact = pair(secret)
    greeted(applicant, contact)
    assert contact.peer is not None
    assert (contact.peer.is_joiner, contact.peer.id) == (True, NO_ID)
    assert (contact.peer.incarnation, contact.peer.address) == (LIFE, "new:7400")
    data = told(contact)
    for at in range(0, len(data), piece):
        assert applicant.state is HelloState.WAITING
        applicant.receive(data[at : at + piece])
    assert applicant.state is HelloState.UP
    assert (applicant.granted, applicant.peers, applicant.records) == (1000, LISTED, RECORDS)
    assert applicant.retired == [(400, 500), (600, 999)]
    assert applicant.peer is not None
    assert applicant.peer.founding_size == 30
    asked = [encode(PageAsk(after, 2**BUCKETS - 1)) for after in (NodeId(0), RECORDS[256][0])]
    assert applicant.take_output() == b"".join(asked) + encode(Goodbye("all is known"))


def test_applicant_is_not_led_back() -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    contact.grant(NodeId(1000), LISTED.text)
    applicant.receive(contact.take_output())
    applicant.receive(encode(RecordPage((), (), NodeId(5))))
    with pytest.raises(ProtocolError, match="leads back"):
        applicant.receive(encode(RecordPage((), (), NodeId(5))))


def test_applicant_may_claim_the_id_that_it_had() -> None:
    applicant, contact = pair(b"", replace(NEW, id=NodeId(812)))
    greeted(applicant, contact)
    assert contact.peer is not None
    assert contact.peer.id == 812


@pytest.mark.parametrize(
    ("mine", "refusal"),
    [
        ({"cluster": "red"}, Refusal.WRONG_CLUSTER),
        ({"secrets": (SECRET,)}, Refusal.WRONG_SECRET),
    ],
)
def test_applicant_of_another_cluster_is_refused(mine: dict[str, object], refusal: Refusal) -> None:
    contact = pair(b"")[1]
    new = replace(NEW, **mine)  # type: ignore[arg-type]
    applicant = Applicant(new, LIFE, b"process9connect9")
    contact.receive(applicant.take_output())
    assert contact.refusal is refusal
    applicant.receive(contact.take_output())
    assert (applicant.state, applicant.refusal) == (HelloState.REFUSED, refusal)


@secrets
def test_applicant_and_contact_use_the_highest_version_that_both_speak(secret: bytes) -> None:
    applicant, contact = pair(secret, replace(NEW, lowest=2, highest=6, features=3))
    contact.identity = replace(contact.identity, lowest=4, highest=9, features=6)
    greeted(applicant, contact)
    applicant.receive(told(contact))
    assert applicant.state is HelloState.UP
    assert (applicant.version, contact.version) == (6, 6)
    assert (applicant.features, contact.features) == (2, 2)


def test_applicant_of_other_versions_is_refused() -> None:
    applicant, contact = pair(b"", replace(NEW, lowest=3, highest=6))
    contact.receive(applicant.take_output())
    applicant.receive(contact.take_output())
    assert applicant.refusal is contact.refusal is Refusal.WRONG_VERSION


def test_applicant_with_another_secret_is_not_greeted() -> None:
    applicant = Applicant(replace(NEW, secrets=(b"another",)), LIFE, b"process9connect9")
    contact = Acceptor(
        replace(CONTACT, secrets=(SECRET,)), Incarnation(1 << 32), b"process7connect7"
    )
    contact.receive(applicant.take_output())
    applicant.receive(contact.take_output())
    assert applicant.refusal is Refusal.WRONG_SECRET


def test_applicant_that_reaches_itself_is_refused() -> None:
    applicant = Applicant(NEW, LIFE, b"process7connect9")
    contact = pair(b"")[1]
    contact.receive(applicant.take_output())
    assert contact.refusal is Refusal.OWN_ADDRESS


def test_applicant_does_not_believe_a_list_of_another_fingerprint() -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    with pytest.raises(ProtocolError, match="fingerprint"):
        applicant.receive(told(contact, LISTED.text.replace("name-0.", "name-x.")))


@pytest.mark.parametrize("peers", ["", "one:7400", "host{id}", "\x00", f"h:{{{'9' * 5000}+id}}"])
def test_applicant_does_not_believe_a_list_that_is_none(peers: str) -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    with pytest.raises(ProtocolError, match="peer list"):
        applicant.receive(told(contact, peers))


def test_applicant_takes_no_other_frame() -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    contact.grant(NodeId(4), LISTED.text)
    with pytest.raises(ProtocolError, match="records, nothing else"):
        applicant.receive(contact.take_output() + encode(Ping(1)))


@secrets
def test_applicant_bounds_what_it_reads(secret: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmgd.wire.applicant.JOIN_BYTES_MAX", 100_000)
    applicant, contact = pair(secret)
    greeted(applicant, contact)
    contact.grant(NodeId(4), LISTED.text)
    applicant.receive(contact.take_output())
    notices = b"".join(map(encode, pages())) * 20
    assert len(notices) > 100_000
    with pytest.raises(ProtocolError, match="too much"):
        applicant.receive(notices)


def test_applicant_reads_little_before_the_proof() -> None:
    applicant, _ = pair(SECRET)
    with pytest.raises(ProtocolError, match="too long"):
        applicant.receive(b"BMGD\x01\x02\x00" + bytes(506))


@secrets
def test_applicant_is_refused_by_the_core_with_a_reason(secret: bytes) -> None:
    applicant, contact = pair(secret)
    greeted(applicant, contact)
    contact.refuse(Refusal.BUSY)
    applicant.receive(contact.take_output())
    assert (applicant.state, applicant.refusal) == (HelloState.REFUSED, Refusal.BUSY)


def test_welcome_is_no_answer_to_an_applicant() -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    contact.welcome(Incarnation(0))
    with pytest.raises(ProtocolError):
        applicant.receive(contact.take_output())


def test_applicant_takes_a_list_without_copying_what_it_has_of_it() -> None:
    """A copy for each part that comes would take time in proportion to the square of its length."""
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    contact.grant(NodeId(4), "x" * 2**21)
    data = contact.take_output()[: -RECORD.size - GRANT.size]
    tracemalloc.start()
    try:
        for at in range(0, len(data), 65_536):
            applicant.receive(data[at : at + 65_536])
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) <= most_bytes < 1.5 * len(data)


@pytest.mark.parametrize(
    ("length", "is_refused"),
    [
        (BODY_BYTES_MIN - 1, True),
        (BODY_BYTES_MIN, False),
        (FRAME_BYTES_MAX, False),
        (FRAME_BYTES_MAX + 1, True),
    ],
)
def test_applicant_waits_for_a_frame_of_a_length_that_there_can_be(
    length: int, is_refused: bool
) -> None:
    applicant, contact = pair(b"")
    greeted(applicant, contact)
    contact.grant(NodeId(1000), LISTED.text)
    applicant.receive(contact.take_output())
    with pytest.raises(ProtocolError, match="wrong length") if is_refused else nullcontext():
        applicant.receive(length.to_bytes(4, "big"))
    assert applicant.state is HelloState.WAITING


def test_applicant_has_not_dialled_as_a_member_yet() -> None:
    applicant, contact = pair(b"")
    contact.receive(applicant.take_output())
    assert contact.peer is not None
    assert contact.peer.dial_number == 0
