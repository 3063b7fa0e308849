"""TLS in memory: who gets through, who is refused and why, and nothing but 1.3."""

from __future__ import annotations

import ssl
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bmgd.config import Config
from bmgd.errors import ConfigError
from bmgd.peers import PeerList
from bmgd.shell.becoming import Becoming
from bmgd.shell.certificate_dates import outside_dates, validity
from bmgd.shell.tls import HANDSHAKE_BYTES_MAX, TlsRefused, TlsSession, TlsSide
from bmgd.wire.hello import Refusal
from tests.certificates import Certificate, Root, sign_later

DAY_S = 86_400


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def root(directory: Path) -> Root:
    return Root(directory)


@pytest.fixture(scope="module")
def one(root: Root) -> Certificate:
    return root.sign("blue/1")


@pytest.fixture(scope="module")
def five(root: Root) -> Certificate:
    return root.sign("blue/5", "blue/any")


def side(certificate: Certificate, ca: Path | None = None, ids: str = "optional") -> TlsSide:
    cert, key = str(certificate.cert), str(certificate.key)
    trusted = str(ca or certificate.ca)
    config = Config(0, 1, PeerList(), tls_cert=cert, tls_key=key, tls_ca=trusted, tls_ids=ids)
    return TlsSide(config)


def converse(dialer: TlsSession, acceptor: TlsSession, piece: int = 10**6) -> tuple[bytes, bytes]:
    """Carry everything between two sessions; returns what each has heard, as plain bytes."""
    heard = {dialer: b"", acceptor: b""}
    for _ in range(10):
        for source, target in ((dialer, acceptor), (acceptor, dialer)):
            data = source.take()
            for at in range(0, len(data), piece):
                heard[target] += target.receive(data[at : at + piece])
    return heard[dialer], heard[acceptor]


def feed(session: TlsSession, *pieces: bytes) -> bytes:
    """Let a session take pieces; returns what it has heard."""
    return b"".join([session.receive(piece) for piece in pieces])


def pair(one: TlsSide, five: TlsSide) -> tuple[TlsSession, TlsSession]:
    return five.session(dials=True), one.session(dials=False)


def test_tls_side_knows_why_others_would_refuse_its_certificate(
    root: Root, directory: Path, one: Certificate, five: Certificate
) -> None:
    elsewhere = Root(directory, "its-own-root")
    assert side(one).refuses_own(frozenset({"blue/1"})) == ""
    assert side(five).refuses_own(frozenset({"blue/9", "blue/any"})) == ""
    assert side(one).refuses_own(frozenset()) == ""
    assert side(one).refuses_own(frozenset({"blue/2"})) == "(it is for blue/1)"
    assert side(one, elsewhere.cert).refuses_own(frozenset()).startswith("(unable to get local")
    assert (
        side(root.sign("blue/1", days=-1)).refuses_own(frozenset()) == "(certificate has expired)"
    )
    nameless = root.sign()
    assert side(nameless).refuses_own(frozenset({"blue/1"})) == ""
    required = side(nameless, ids="required")
    assert required.refuses_own(frozenset({"blue/1"})) == "(it names no id)"


def named_one(certificate: Certificate, digest: bytes) -> Config:
    """What node 1 of 3 is told whose files hold this certificate."""
    cert, key = str(certificate.cert), str(certificate.key)
    config = Config(1, 3, PeerList(), cluster="blue", tls_cert=cert, tls_key=key)
    return replace(config, tls_ca=str(certificate.ca), tls_digest=digest)


def test_certificate_that_others_would_refuse_is_not_used(
    root: Root, one: Certificate, five: Certificate
) -> None:
    becoming = Becoming(named_one(one, b"1"))
    used = becoming.tls
    for number, bad in enumerate((five, root.sign("blue/1", days=-1))):
        with pytest.raises(ConfigError, match="others would refuse the certificate in"):
            becoming.use(named_one(bad, b"bad %d" % number))
        assert becoming.tls is used
    becoming.use(named_one(root.sign("blue/1"), b"2"))
    assert becoming.tls is not used


def test_certificate_that_expired_in_use_keeps_no_secret_from_being_changed(root: Root) -> None:
    config = named_one(root.sign("blue/1", days=-1), b"1")
    becoming = Becoming(config)
    becoming.use(replace(config, secrets=(b"b",)))
    assert becoming.config.secrets == (b"b",)


@pytest.mark.parametrize("piece", [1, 7, 1000, 10**6])
def test_tls_carries_bytes_both_ways(one: Certificate, five: Certificate, piece: int) -> None:
    dialer, acceptor = pair(side(one), side(five))
    converse(dialer, acceptor, piece)
    dialer.put(b"from five" * 9000)
    acceptor.put(b"from one")
    assert converse(dialer, acceptor, piece) == (b"from one", b"from five" * 9000)
    acceptor.say_end()
    converse(dialer, acceptor)
    assert dialer.ended


def test_tls_channel_is_the_same_at_both_ends_and_names_the_other(
    one: Certificate, five: Certificate
) -> None:
    dialer, acceptor = pair(side(one), side(five))
    converse(dialer, acceptor)
    assert dialer.channel is not None
    assert acceptor.channel is not None
    assert dialer.channel.binding == acceptor.channel.binding
    assert dialer.channel.names == ("blue/1",)
    assert acceptor.channel.names == ("blue/5", "blue/any")
    assert dialer.channel.key == side(five).key != acceptor.channel.key
    back, again = pair(side(five), side(one))
    converse(back, again)
    assert back.channel is not None
    assert back.channel.binding != dialer.channel.binding, "the direction is not in it"


def refused(dialer: TlsSession, acceptor: TlsSession) -> tuple[TlsRefused, TlsRefused]:
    """Who refuses, and what the other one makes of it."""
    found: list[TlsRefused] = []
    for _ in range(10):
        for source, target in ((dialer, acceptor), (acceptor, dialer)):
            data = source.take()
            if not data:
                continue
            try:
                target.receive(data)
            except TlsRefused as error:
                found.append(error)
                if len(found) == 2:
                    return found[0], found[1]
    raise AssertionError(f"refused by {found}")


def test_tls_refuses_certificates_that_are_not_good(
    directory: Path, root: Root, one: Certificate, five: Certificate
) -> None:
    elsewhere = Root(directory, "elsewhere")
    cases = {
        "certificate has expired": root.sign("blue/5", days=-1),
        "certificate is not yet valid": sign_later(root, directory, "later"),
        "unable to get local issuer certificate": elsewhere.sign("blue/5"),
    }
    for why, bad in cases.items():
        # As the dialer's, which the acceptor refuses, and as the acceptor's.
        for dialer, acceptor in (
            pair(side(one), side(bad, root.cert)),
            pair(side(bad, root.cert), side(five)),
        ):
            first, second = refused(dialer, acceptor)
            assert first.refusal is second.refusal is Refusal.WRONG_CERTIFICATE
            assert why in first.detail
            assert "the other end says" in second.detail


@pytest.mark.parametrize(
    ("names", "ids", "why"),
    [
        (("blue/2",), "optional", "(it is for blue/2)"),
        (("red/1", "blue/any"), "optional", "(it is for red/1, blue/any)"),
        ((), "required", "(it names no id)"),
    ],
)
def test_tls_dialer_says_nothing_to_another_than_it_wants(
    root: Root, five: Certificate, names: tuple[str, ...], ids: str, why: str
) -> None:
    # An acceptor that heard the hello took the link for up, until the dialer closed it.
    dialer = side(five, ids=ids).session(dials=True, wanted=frozenset({"blue/1"}))
    acceptor = side(root.sign(*names)).session(dials=False)
    heard = acceptor.receive(dialer.take())
    with pytest.raises(TlsRefused) as caught:
        dialer.receive(acceptor.take())
    assert (caught.value.refusal, caught.value.detail) == (Refusal.WRONG_CERTIFICATE, why)
    assert dialer.channel is None
    assert heard + acceptor.receive(dialer.take()) == b""


def test_tls_dialer_speaks_to_whom_it_wants(
    root: Root, one: Certificate, five: Certificate
) -> None:
    cases = ((one, "blue/1"), (five, "blue/any"), (root.sign(), "blue/1"))
    for theirs, name in cases:
        dialer = side(one).session(dials=True, wanted=frozenset({name}))
        converse(dialer, side(theirs).session(dials=False))
        assert dialer.channel is not None


def test_tls_side_says_which_own_certificate_is_not_valid_now(
    directory: Path, root: Root, one: Certificate
) -> None:
    expired, later = root.sign("blue/5", days=-1), sign_later(root, directory, "dated")
    # Now is after they were signed: the first is valid from then on, if it were not for its end.
    now_s = time.time()
    assert not side(one).outside_dates(now_s)
    said = side(expired).outside_dates(now_s)
    assert said.startswith(f"the certificate in {expired.cert} has expired at 20")
    said = side(later).outside_dates(now_s)
    assert said.startswith(f"the certificate in {later.cert} is not valid before 20")
    assert not side(later).outside_dates(now_s + 11 * DAY_S)
    assert "has expired" in side(later).outside_dates(now_s + 31 * DAY_S)


def test_certificate_dates_are_those_that_openssl_shows(root: Root) -> None:
    for days in (30, 365 * 40, 365 * 500):
        cert = root.sign("blue/1", days=days).cert
        words = ["openssl", "x509", "-noout", "-dates", "-in", str(cert)]
        shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        dates = [line.partition("=")[2] for line in shown.splitlines()]
        read = validity(ssl.PEM_cert_to_DER_cert(cert.read_text()))
        # `ssl` counts the seconds of such a text.
        assert [moment.timestamp() for moment in read] == [
            ssl.cert_time_to_seconds(date) for date in dates
        ]


@pytest.mark.parametrize("der", [b"", b"0", bytes(50), b"\x30\x82", b"\x30" * 99])
def test_certificate_dates_that_cannot_be_read_are_no_problem(der: bytes) -> None:
    assert outside_dates(der, "file", time.time()) == ""


def test_tls_refuses_who_shows_no_certificate(one: Certificate, root: Root) -> None:
    acceptor = side(one).session(dials=False)
    context = ssl.create_default_context(cafile=str(root.cert))
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    nobody = context.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        nobody.do_handshake()
    acceptor.receive(outgoing.read())
    incoming.write(acceptor.take())
    nobody.do_handshake()
    with pytest.raises(TlsRefused, match="did not return a certificate"):
        acceptor.receive(outgoing.read())


def test_tls_speaks_1_3_only(one: Certificate) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    outgoing = ssl.MemoryBIO()
    old = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        old.do_handshake()
    acceptor = side(one).session(dials=False)
    with pytest.raises(TlsRefused) as raised:
        acceptor.receive(outgoing.read())
    assert raised.value.refusal is Refusal.WRONG_TLS
    assert "unsupported protocol" in raised.value.detail


def test_tls_gives_no_tickets(one: Certificate, five: Certificate) -> None:
    dialer, acceptor = pair(side(one), side(five))
    converse(dialer, acceptor)
    assert dialer._tls.session is None or not dialer._tls.session.has_ticket


@pytest.mark.parametrize("piece", [1, 3, 4, 500])
@pytest.mark.parametrize("dials", [False, True])
def test_tls_knows_plain_text(one: Certificate, dials: bool, piece: int) -> None:
    session = side(one).session(dials=dials)
    session.take()
    data = b"BMGD\x01\x00\x10" + bytes(16)
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    with pytest.raises(TlsRefused, match="without TLS") as raised:
        feed(session, *pieces)
    assert raised.value.refusal is Refusal.WRONG_TLS
    assert session.take() == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes(500), b"BMG!" + bytes(50)])
def test_tls_refuses_what_is_none(one: Certificate, data: bytes) -> None:
    with pytest.raises(TlsRefused):
        side(one).session(dials=False).receive(data)


def test_tls_bounds_the_handshake(one: Certificate) -> None:
    session = side(one).session(dials=False)
    # Handshake records that are whole, of a message that announces more than follows.
    record = b"\x16\x03\x01\x04\x00"
    message = b"\x01\x00\xf0\x00\x03\x03" + bytes(1018)
    rest = [record + bytes(1024)] * (HANDSHAKE_BYTES_MAX // 1024 + 2)
    with pytest.raises(TlsRefused):
        feed(session, record + message, *rest)


@pytest.mark.parametrize("at", [0, 3, 40, -1])
def test_tls_does_not_take_altered_bytes(one: Certificate, five: Certificate, at: int) -> None:
    dialer, acceptor = pair(side(one), side(five))
    converse(dialer, acceptor)
    dialer.put(b"something to be altered on its way, long enough")
    data = bytearray(dialer.take())
    data[at] ^= 1
    try:
        assert acceptor.receive(bytes(data)) == b""
        assert acceptor.receive(bytes(1000)) == b""
    except (ssl.SSLError, TlsRefused):
        return
    raise AssertionError("it was taken")


def test_tls_does_not_take_replayed_or_reordered_bytes(one: Certificate, five: Certificate) -> None:
    for order in ((0, 0), (1, 0)):
        dialer, acceptor = pair(side(one), side(five))
        converse(dialer, acceptor)
        records = []
        for text in (b"first", b"second"):
            dialer.put(text)
            records.append(dialer.take())
        with pytest.raises((ssl.SSLError, TlsRefused)):
            feed(acceptor, *(records[index] for index in order))


def test_tls_files_that_cannot_be_used_are_said(
    directory: Path, one: Certificate, five: Certificate
) -> None:
    nothing = directory / "nothing.pem"
    nothing.write_text("nothing")
    cut = directory / "cut.pem"
    cut.write_bytes(one.cert.read_bytes()[:200])
    for bad, why in (
        (Certificate(one.cert, five.key, one.ca), "key values mismatch"),
        (Certificate(directory / "missing", one.key, one.ca), "No such file"),
        (Certificate(nothing, one.key, one.ca), f"cannot use {nothing}: it .* certificates in PEM"),
        (Certificate(cut, one.key, one.ca), f"cannot use {cut}: it .* certificates in PEM"),
        (Certificate(one.key, one.key, one.ca), f"cannot use {one.key}: it .* certificates in PEM"),
        (Certificate(one.cert, nothing, one.ca), f"cannot use {nothing}: it .* private key in PEM"),
        (Certificate(one.cert, one.cert, one.ca), f"cannot use {one.cert}: it .* key in PEM"),
        (Certificate(one.cert, one.key, cut), f"cannot use {cut}: it .* certificates in PEM"),
        (Certificate(one.cert, one.key, nothing), f"cannot use {nothing}: no certificate"),
        (Certificate(one.cert, one.key, directory / "missing"), "No such file"),
    ):
        with pytest.raises(ConfigError, match=why):
            side(bad)
