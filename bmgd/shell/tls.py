"""Mutual TLS 1.3 under the hello: this daemon's certificate, and the session of one connection.

Theory of operation. A `TlsSession` stands between a socket and its frames. It turns ciphertext into plain
bytes and plain bytes into ciphertext, all in memory (`ssl.MemoryBIO`), so it never waits.

    HANDSHAKE --certificates checked--> OPEN --close_notify or the socket's end--> over
        |
        +--plain text, 16 KiB without an end, a bad certificate--> TlsRefused

Only TLS 1.3, and no session tickets: each connection proves itself anew. Whether a certificate may speak
for an id is decided with the hello (`Channel.misnames`), which is bound to both certificates. A
dialer knows before it whom it wants, and says nothing to another: an acceptor that heard its hello
would take the link for up.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from bmgd.config import Config
from bmgd.errors import ConfigError
from bmgd.types import NodeId
from bmgd.wire.hello import MAGIC, Channel, Refusal

HANDSHAKE_BYTES_MAX = 16 * 1024
READ_BYTES = 64 * 1024
_SCHEME = "bmgd:"
_KEY_DIGITS = 8
_FLIGHTS = 2
"""So often each end speaks until both have checked the other's certificate."""


class TlsRefused(Exception):
    """There is no channel; `refusal` and `detail` say why."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.refusal = refusal
        self.detail = detail


class TlsSide:
    """This daemon's certificate and key, and whom it trusts.

    Args:
        config: with `tls_cert`, `tls_key` and `tls_ca`.

    Attributes:
        key: the name of the certificate: 8 hexadecimal digits of its SHA-256.

    Raises:
        ConfigError: a file cannot be read, is none, or the key is not the certificate's.
    """

    def __init__(self, config: Config) -> None:
        paths = config.tls_paths()
        self._dialing = _context(ssl.PROTOCOL_TLS_CLIENT, paths)
        self._accepting = _context(ssl.PROTOCOL_TLS_SERVER, paths)
        # A ticket would let somebody back in whose certificate is no longer good.
        self._accepting.num_tickets = 0
        self._cert, self._path = _own_certificate(paths[0]), paths[0]
        self._fingerprint = hashlib.sha256(self._cert).digest()
        self.names_required = config.tls_ids == "required"
        self.key = self._fingerprint.hex()[:_KEY_DIGITS]

    def outside_dates(self, now_unix_s: float) -> str:
        """Why the certificate is not valid now, with its file; "" when it is. Others will refuse it."""
        # Imported when it is needed: a daemon without TLS pays nothing.
        from bmgd.shell.certificate_dates import outside_dates

        return outside_dates(self._cert, self._path, now_unix_s)

    def refuses_own(self, wanted: frozenset[str]) -> str:
        """Why this daemon itself would refuse the certificate, in brackets; "" when it would not.

        It speaks to itself, in memory. Others that trust the same authorities find the same.

        Args:
            wanted: of these the certificate must name one, if it names any; empty: it may name anybody.
        """
        dialer, acceptor = self.session(dials=True, wanted=wanted), self.session(dials=False)
        try:
            for _ in range(_FLIGHTS):
                acceptor.receive(dialer.take())
                dialer.receive(acceptor.take())
        except TlsRefused as error:
            return error.detail
        return ""

    def session(self, *, dials: bool, wanted: frozenset[str] = frozenset()) -> TlsSession:
        """A new connection's way through TLS; for `wanted` see `TlsSession`."""
        context = self._dialing if dials else self._accepting
        return TlsSession(self, context, self._fingerprint, dials=dials, wanted=wanted)


def _context(protocol: int, paths: tuple[str, str, str]) -> ssl.SSLContext:
    cert, key, ca = paths
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(cert, key, password=partial(_refuse_password, key))
    except ssl.SSLError as error:
        raise ConfigError(_unusable(cert, key, error)) from None
    except OSError as error:
        raise ConfigError(f"cannot read {cert} or {key}: {error.strerror}") from None
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ConfigError(f"cannot use {ca}: {_reason(error)}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {ca}: {error.strerror}") from None
    return context


def _refuse_password(key: str) -> str:
    # Without it OpenSSL asks at the terminal.
    raise ConfigError(f"{key} is a key with a password, which cannot be used")


def _own_certificate(path: str) -> bytes:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
        first = text[text.index(begin) : text.index(end) + len(end)]
        return ssl.PEM_cert_to_DER_cert(first)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read a certificate in {path}: {error}") from None


def _unusable(cert: str, key: str, error: ssl.SSLError) -> str:
    if error.reason:
        return f"cannot use {cert} with {key}: {_reason(error)}"
    # OpenSSL does not say which of the two it could not read.
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except ssl.SSLError:
        return f"cannot use {cert}: it does not hold whole certificates in PEM form"
    return f"cannot use {key}: it does not hold a whole private key in PEM form"


def _reason(error: ssl.SSLError) -> str:
    if error.reason is None:
        return "it does not hold whole certificates in PEM form"
    return error.reason.lower().replace("_", " ")


class TlsSession:
    """One connection's way through TLS.

    Args:
        side: this daemon's.
        context: as its dialer or acceptor.
        fingerprint: of its own certificate.
        dials: whether it connected.
        wanted: of these the other side's certificate must name one, if it names any; empty: it may
            name anybody.

    Attributes:
        channel: what a hello is bound to; None before the handshake's end.
        ended: the other side said that nothing follows.
    """

    __slots__ = (
        "_dials",
        "_fingerprint",
        "_head",
        "_incoming",
        "_outgoing",
        "_received_bytes",
        "_side",
        "_tls",
        "_wanted",
        "channel",
        "ended",
    )

    def __init__(
        self,
        side: TlsSide,
        context: ssl.SSLContext,
        fingerprint: bytes,
        *,
        dials: bool,
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        self._side = side
        self._wanted = wanted
        self._fingerprint = fingerprint
        self._dials = dials
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not dials)
        self._received_bytes = 0
        self._head = b""
        self.channel: Channel | None = None
        self.ended = False
        if dials:
            self._shake_hands()

    def take(self) -> bytes:
        """The ciphertext to send now; empties it."""
        return self._outgoing.read()

    def put(self, data: bytes) -> None:
        """Say plain bytes; `take` has them as ciphertext."""
        if data:
            self._tls.write(data)

    def receive(self, data: bytes) -> bytes:
        """Take ciphertext; returns the plain bytes that it completes.

        Raises:
            TlsRefused: there is no channel; `take` has what the other side is to be told.
            ssl.SSLError: the channel is broken.
        """
        if self.channel is None:
            self._look_at_head(data)
        self._incoming.write(data)
        if self.channel is None:
            # What comes with the handshake's last message is the hello's, and is bounded there.
            self._received_bytes += len(data)
            self._shake_hands()
            if self.channel is None:
                if self._received_bytes > HANDSHAKE_BYTES_MAX:
                    raise TlsRefused(Refusal.WRONG_TLS, "(a handshake without an end)")
                return b""
        return self._read()

    def say_end(self) -> None:
        """Tell the other side that nothing follows."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()

    def _look_at_head(self, data: bytes) -> None:
        if len(self._head) < len(MAGIC):
            self._head = (self._head + data)[: len(MAGIC)]
            if self._head == MAGIC:
                raise TlsRefused(Refusal.WRONG_TLS, "(it speaks without TLS)")

    def _shake_hands(self) -> None:
        if self._head and MAGIC.startswith(self._head):
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLCertVerificationError as error:
            detail = f"({error.verify_message})"
            raise TlsRefused(Refusal.WRONG_CERTIFICATE, detail) from None
        except ssl.SSLError as error:
            raise TlsRefused(*_told(error)) from None
        theirs = self._tls.getpeercert(binary_form=True)
        facts = self._tls.getpeercert()
        assert theirs is not None
        assert facts is not None
        names = names_in(facts)
        self._refuse_another(names)
        self.channel = Channel(
            self._binding(hashlib.sha256(theirs).digest()),
            names,
            self._side.names_required,
            self._side.key,
        )

    def _refuse_another(self, names: tuple[str, ...]) -> None:
        if not self._wanted:
            return
        if names and self._wanted.isdisjoint(names):
            raise TlsRefused(Refusal.WRONG_CERTIFICATE, f"(it is for {', '.join(names)})")
        if not names and self._side.names_required:
            raise TlsRefused(Refusal.WRONG_CERTIFICATE, "(it names no id)")

    def _binding(self, theirs: bytes) -> bytes:
        mine = self._fingerprint
        return hashlib.sha256(mine + theirs if self._dials else theirs + mine).digest()

    def _read(self) -> bytes:
        found: list[bytes] = []
        while True:
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                if found or "ALERT" not in (error.reason or ""):
                    raise
                raise TlsRefused(*_told(error)) from None
            if not data:
                self.ended = True
                break
            found.append(data)
        return b"".join(found)


def names_of(cluster: str, node_id: NodeId, founding_size: int) -> frozenset[str]:
    """A certificate must name one of these to speak for a node; see `Channel.misnames`."""
    own = f"{cluster}/{node_id}"
    return frozenset({own} if node_id < founding_size else {own, f"{cluster}/any"})


def names_in(facts: Mapping[str, object]) -> tuple[str, ...]:
    """Whom a certificate names: ``CLUSTER/ID`` of each ``URI:bmgd:CLUSTER/ID``."""
    named = facts.get("subjectAltName", ())
    assert isinstance(named, tuple)
    return tuple(
        value.removeprefix(_SCHEME)
        for kind, value in named
        if kind == "URI" and value.startswith(_SCHEME)
    )


def _told(error: ssl.SSLError) -> tuple[Refusal, str]:
    """What an error of the handshake means; an alert is the other side's word."""
    reason = error.reason or str(error)
    text = reason.lower().replace("_", " ")
    if "ALERT" not in reason:
        return Refusal.WRONG_TLS, f"({text})"
    is_of_certificate = any(word in reason for word in ("CERT", "UNKNOWN_CA"))
    refusal = Refusal.WRONG_CERTIFICATE if is_of_certificate else Refusal.WRONG_TLS
    return refusal, f"(the other end says: {text.partition('alert ')[2] or text})"
