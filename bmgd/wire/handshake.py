"""The conversation that begins every link, from both sides.

Theory of operation. A hello is a few binary records, each ``magic(4) kind(1) length(2) body``. The
dialer speaks first; what follows depends on whether the cluster has a secret:

    without a secret:   dialer  HELLO ->            <- HELLO WELCOME  acceptor
    with a secret:      dialer  HELLO ->            <- HELLO PROOF    acceptor
                                PROOF ->            <- WELCOME
    refused:                                        <- REFUSAL, then the acceptor closes

A joiner, which has no id yet, asks a member to become one; `Applicant` in `applicant.py` is its side:

    instead of WELCOME:     <- PEERS … PEERS GRANT, then frames: NOTICE … NOTICE GOODBYE

Each hello names its sender's secrets by short key ids; the acceptor's first that the dialer has too is
used. A proof is HMAC-SHA256 with it over both hello bodies and the prover's direction, so it can neither
be replayed (each body has a fresh nonce) nor reflected. Nothing of a newcomer reaches the
core before its proof was checked, and a dialer believes a stranger no refusal but that the two do not
fit together. Each side is a `Dialer` or an `Acceptor`: bytes go in by
`receive`, bytes to send come out of `take_output`, and the attribute `state` says how far it is:

    Dialer:    WAITING --hello ok--> (PROVEN) --welcome--> UP         any --refusal--> REFUSED
    Acceptor:  WAITING --hello ok--> (PROVING --proof ok-->) GREETED --welcome()--> UP
                                                                     --grant()---> UP
                                                                     --refuse()--> REFUSED

No I/O, no clock: the shell bounds time (3 s) and the number of waiting connections, this module
bounds bytes (`HELLO_BYTES_MAX` in each direction).
"""

from __future__ import annotations

import hmac
from enum import Enum

from bmgd.errors import ProtocolError
from bmgd.secret import KEY_ID_BYTES, fingerprint, key_id
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, NodeId
from bmgd.wire.hello import (
    CRITICAL,
    GRANT,
    HELLO_BYTES_MAX,
    MAGIC,
    MISCONFIGURED,
    OWN_NONCE_BYTES,
    RECORD,
    REFUSAL,
    WELCOME,
    Channel,
    Extension,
    Hello,
    HelloKind,
    Identity,
    Refusal,
    common_version,
    decode_hello,
    encode_hello,
)

TLS_RECORD = b"\x16\x03"
"""What a TLS connection begins with; whoever says so to a daemon without TLS is told."""
_BELIEVED_UNPROVEN = MISCONFIGURED | {Refusal.WRONG_ID, Refusal.OWN_ADDRESS}
"""Refusals that come before the acceptor's proof: whoever listens at an address can send them."""


class HelloState(Enum):
    """How far one side of a hello is."""

    WAITING = "waiting"
    PROVING = "proving"
    GREETED = "greeted"
    UP = "up"
    REFUSED = "refused"


class _Side:
    """What both ends share: framing of records, bounds, proofs.

    Attributes:
        version: the one that both sides speak, 0 before the other's hello.
        features: those that both sides have.
        channel: the TLS channel that the hello is spoken in, or None.
        detail: what a refusal by this side rests on, for a line of log.
    """

    _is_joiner = False
    _renews = False

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        self.identity = identity
        self.state = HelloState.WAITING
        self.peer: Hello | None = None
        self.refusal: Refusal | None = None
        self.known_of_me = UNKNOWN_INCARNATION
        self.version = 0
        self.features = 0
        self.detail = ""
        self.channel: Channel | None = None
        self._secret_name = ""
        self._secret = b""
        self._nonce = nonce
        self._input = bytearray()
        self._received_bytes = 0
        self._bytes_max = HELLO_BYTES_MAX
        self._output = bytearray()
        self._own_body = b""
        self._peer_body = b""

    @property
    def key(self) -> str:
        """What the link is made under: the secret that was proven, this side's certificate."""
        names = self._secret_name, "" if self.channel is None else self.channel.key
        return "+".join(name for name in names if name)

    def bind(self, channel: Channel) -> None:
        """The TLS channel is there; the hello begins."""
        self.channel = channel

    def give_up(self, refusal: Refusal, detail: str) -> None:
        """There will be no hello: what is under it failed."""
        self.refusal = refusal
        self.detail = detail
        self.state = HelloState.REFUSED

    def take_output(self) -> bytes:
        """The bytes to send now; empties them."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def take_rest(self) -> bytes:
        """What the peer sent behind its last hello record: the first frames. Call once, when up."""
        rest = bytes(self._input)
        self._input.clear()
        return rest

    def _records(self, data: bytes) -> list[tuple[int, bytes]]:
        self._input += data
        self._received_bytes += len(data)
        found: list[tuple[int, bytes]] = []
        while len(self._input) >= RECORD.size:
            magic, kind, length = RECORD.unpack_from(self._input)
            if magic != MAGIC or length > HELLO_BYTES_MAX:
                raise ProtocolError("not a bmgd hello")
            end = RECORD.size + length
            if len(self._input) < end:
                break
            found.append((kind, bytes(self._input[RECORD.size : end])))
            del self._input[:end]
            if kind in (HelloKind.WELCOME, HelloKind.GRANT, HelloKind.REFUSAL):
                return found
        if not MAGIC.startswith(self._input[: len(MAGIC)]):
            raise ProtocolError("not a bmgd hello")
        if self._received_bytes > self._bytes_max:
            raise ProtocolError("hello too long")
        return found

    def _put(self, kind: HelloKind, body: bytes) -> None:
        self._output += RECORD.pack(MAGIC, kind, len(body)) + body

    def _put_hello(
        self, expected: NodeId, known: Incarnation, incarnation: Incarnation, number: int
    ) -> None:
        me = self.identity
        self._own_body = encode_hello(
            Hello(
                has_secret=bool(me.secrets),
                cluster=me.cluster,
                founding_size=me.founding_size,
                fingerprint=me.fingerprint,
                id=me.id,
                expected=expected,
                known=known,
                incarnation=incarnation,
                dial_number=number,
                nonce=self._nonce,
                address=me.address,
                is_joiner=self._is_joiner,
                renews=self._renews,
                lowest=me.lowest,
                highest=me.highest,
                features=me.features,
                extensions=self._extensions(),
            )
        )
        self._put(HelloKind.HELLO, self._own_body)

    def _extensions(self) -> tuple[tuple[int, bytes], ...]:
        found: list[tuple[int, bytes]] = []
        if self.identity.secrets:
            found.append((Extension.KEYS, b"".join(map(key_id, self.identity.secrets))))
        if self.channel is not None:
            found.append((Extension.BINDING, self.channel.binding))
        return tuple(found)

    def _proof(self, direction: bytes, dialer_body: bytes, acceptor_body: bytes) -> bytes:
        transcript = b"".join(
            (direction, len(dialer_body).to_bytes(2, "big"), dialer_body, acceptor_body)
        )
        return hmac.digest(self._secret, transcript, "sha256")

    def _mismatch(self, hello: Hello) -> Refusal | None:
        return self._stranger(hello) or self._misfit(hello)

    def _stranger(self, hello: Hello) -> Refusal | None:
        """What a member and a joiner must agree on."""
        me = self.identity
        foreign = [kind for kind, _ in hello.extensions if kind & CRITICAL]
        if foreign:
            self.detail = f"of type {foreign[0]}"
            return Refusal.UNKNOWN_EXTENSION
        if hello.cluster != me.cluster:
            return Refusal.WRONG_CLUSTER
        binding = b"" if self.channel is None else self.channel.binding
        if hello.extension(Extension.BINDING) != binding:
            self.detail = "(the hello is not for this TLS channel)"
            return Refusal.WRONG_CERTIFICATE
        if self.channel is not None:
            self.detail = self.channel.misnames(hello, me.cluster, self._founders(hello))
            if self.detail:
                return Refusal.WRONG_CERTIFICATE
        if hello.has_secret != bool(me.secrets):
            self.detail = "(only one of the two has any)"
            return Refusal.WRONG_SECRET
        if me.secrets and not self._common_secrets(hello):
            self.detail = "(none in common)"
            return Refusal.WRONG_SECRET
        if hello.nonce[:OWN_NONCE_BYTES] == self._nonce[:OWN_NONCE_BYTES]:
            return Refusal.OWN_ADDRESS
        return None

    def _common_secrets(self, hello: Hello) -> list[bytes]:
        """Those of this side that the other side's key ids name, in this side's order."""
        keys = hello.extension(Extension.KEYS)
        theirs = {keys[at : at + KEY_ID_BYTES] for at in range(0, len(keys), KEY_ID_BYTES)}
        return [secret for secret in self.identity.secrets if key_id(secret) in theirs]

    def _founders(self, hello: Hello) -> int:
        return self.identity.founding_size

    def _misfit(self, hello: Hello) -> Refusal | None:
        """What two members must agree on beyond that."""
        me = self.identity
        if hello.id == me.id and hello.expected != me.id:
            # One of the two is an impostor, and this side cannot know which: "duplicate", which ends
            # the one who hears it, is for the core to say, from a link to the living one.
            return Refusal.WRONG_ID
        if hello.founding_size != me.founding_size:
            return Refusal.WRONG_SIZE
        if hello.fingerprint != me.fingerprint:
            return Refusal.WRONG_PEERS
        return None

    def _read_hello(self, body: bytes) -> Hello | None:
        """The other side's hello; None if the two have no version in common."""
        me = self.identity
        version = common_version(body, me.lowest, me.highest)
        if version is None:
            self.detail = f"it speaks others than {me.lowest} to {me.highest}"
            return None
        self._peer_body = body
        hello = decode_hello(body)
        self.version = version
        self.features = hello.features & me.features
        return hello


class Dialer(_Side):
    """The side that connected.

    Args:
        identity: own identity.
        incarnation: own life.
        expected: the id that is dialled.
        known: the highest incarnation of it that is known; 0 for none.
        dial_number: see `Hello`.
        nonce: 8 random bytes of this process, by which it knows itself, and 8 fresh ones.
        renews: see `Hello`.
    """

    def __init__(
        self,
        identity: Identity,
        incarnation: Incarnation,
        expected: NodeId,
        known: Incarnation,
        dial_number: int,
        nonce: bytes,
        *,
        renews: bool = False,
    ) -> None:
        super().__init__(identity, nonce)
        self._renews = renews
        self._expected = expected
        self._proven = not identity.secrets
        self._begins_with = expected, known, incarnation, dial_number
        if not identity.has_tls:
            self._put_hello(*self._begins_with)

    @property
    def is_proven(self) -> bool:
        """Whether the other end is a member as far as can be known: without secret and TLS anybody is.

        Under TLS nothing is proven before the channel is there, and with a secret only by both.
        """
        return self._proven and (self.channel is not None or not self.identity.has_tls)

    def bind(self, channel: Channel) -> None:
        """The TLS channel is there: speak first."""
        super().bind(channel)
        self._put_hello(*self._begins_with)

    def receive(self, data: bytes) -> None:
        """Take bytes from the acceptor.

        Raises:
            ProtocolError: they are not a hello; close the connection.
        """
        for kind, body in self._records(data):
            if kind == HelloKind.REFUSAL:
                self._on_refusal(body)
            elif kind == HelloKind.HELLO and self.peer is None:
                self._on_hello(body)
            elif kind == HelloKind.PROOF and self.peer is not None and not self._proven:
                self._on_proof(body)
            elif self.peer is not None and self._proven:
                self._on_answer(kind, body)
            else:
                raise ProtocolError("a hello record out of turn")
            if self.state is not HelloState.WAITING:
                return

    def _on_answer(self, kind: int, body: bytes) -> None:
        if kind != HelloKind.WELCOME:
            raise ProtocolError("a hello record out of turn")
        if len(body) != WELCOME.size:
            raise ProtocolError("welcome of a wrong length")
        self.known_of_me = Incarnation(WELCOME.unpack(body)[0])
        self.state = HelloState.UP

    def _on_refusal(self, body: bytes) -> None:
        if len(body) != REFUSAL.size:
            raise ProtocolError("refusal of a wrong length")
        code, known = REFUSAL.unpack(body)
        try:
            refusal = Refusal(code)
        except ValueError as error:
            raise ProtocolError(f"refused with an unknown code {code}") from error
        if self._proven:
            self.known_of_me = Incarnation(known)
        elif refusal not in _BELIEVED_UNPROVEN:
            raise ProtocolError(f"refused without a proof: {refusal.text}")
        self._fail(refusal)

    def _on_hello(self, body: bytes) -> None:
        self.peer = self._read_hello(body)
        if self.peer is None:
            self._fail(Refusal.WRONG_VERSION)
            return
        mismatch = self._mismatch(self.peer)
        if mismatch is not None:
            self._fail(mismatch)

    def _misfit(self, hello: Hello) -> Refusal | None:
        if self._expected == hello.id == self.identity.id:
            # This side asks who has its own id there; it will be told by a refusal.
            return None
        mismatch = super()._misfit(hello)
        return Refusal.WRONG_ID if mismatch is None and hello.id != self._expected else mismatch

    def _on_proof(self, body: bytes) -> None:
        assert self.peer is not None
        for secret in self._common_secrets(self.peer):
            self._secret = secret
            proof = self._proof(b"acceptor", self._own_body, self._peer_body)
            if hmac.compare_digest(body, proof):
                break
        else:
            self._fail(Refusal.WRONG_SECRET)
            return
        self._proven = True
        self._secret_name = fingerprint(self._secret)
        self._put(HelloKind.PROOF, self._proof(b"dialer", self._own_body, self._peer_body))

    def _fail(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.state = HelloState.REFUSED


class Acceptor(_Side):
    """The side that listened.

    Args:
        identity: own identity.
        incarnation: own life.
        nonce: 8 random bytes of this process, by which it knows itself, and 8 fresh ones.
    """

    def __init__(self, identity: Identity, incarnation: Incarnation, nonce: bytes) -> None:
        super().__init__(identity, nonce)
        self.incarnation = incarnation

    def receive(self, data: bytes) -> None:
        """Take bytes from the dialer; afterwards `state` may be GREETED or REFUSED.

        Raises:
            ProtocolError: they are not a hello; close the connection.
        """
        if self.state is HelloState.WAITING and not self._input and data.startswith(TLS_RECORD):
            self.detail = "(it speaks TLS)"
            self.refuse(Refusal.WRONG_TLS)
            return
        for kind, body in self._records(data):
            if kind == HelloKind.HELLO and self.state is HelloState.WAITING:
                self._on_hello(body)
            elif kind == HelloKind.PROOF and self.state is HelloState.PROVING:
                self._on_proof(body)
            else:
                raise ProtocolError("a hello record out of turn")
            if self.refusal is not None:
                return

    def welcome(self, known: Incarnation) -> None:
        """Accept the dialer; `known` is the highest incarnation of it that is known."""
        assert self.peer is not None
        if not self.identity.secrets:
            self._put_hello(self.peer.id, known, self.incarnation, 0)
        self._put(HelloKind.WELCOME, WELCOME.pack(known))
        self.state = HelloState.UP

    def grant(self, node_id: NodeId, peers: str) -> None:
        """Tell a joiner which id it has, and where the founders are (`PeerList.text`)."""
        if not self.identity.secrets:
            self._put_hello(NodeId(0), UNKNOWN_INCARNATION, self.incarnation, 0)
        text = peers.encode()
        for at in range(0, len(text), HELLO_BYTES_MAX):
            self._put(HelloKind.PEERS, text[at : at + HELLO_BYTES_MAX])
        self._put(HelloKind.GRANT, GRANT.pack(node_id))
        self.state = HelloState.UP

    def refuse(self, refusal: Refusal, known: Incarnation = UNKNOWN_INCARNATION) -> None:
        """Refuse the dialer, telling it the highest incarnation of it that is known."""
        self._put(HelloKind.REFUSAL, REFUSAL.pack(refusal, known))
        self.refusal = refusal
        self.state = HelloState.REFUSED

    def _on_hello(self, body: bytes) -> None:
        peer = self._read_hello(body)
        if peer is None:
            self.refuse(Refusal.WRONG_VERSION)
            return
        if peer.is_joiner:
            mismatch = self._stranger(peer)
        else:
            mismatch = self._mismatch(peer)
            if mismatch is None and peer.expected != self.identity.id:
                mismatch = Refusal.WRONG_ID
        if mismatch is not None:
            self.refuse(mismatch)
            return
        self.peer = peer
        self.known_of_me = peer.known
        if not self.identity.secrets:
            self._on_greeted()
            return
        self._secret = self._common_secrets(peer)[0]
        expected = NodeId(0) if peer.is_joiner else peer.id
        self._put_hello(expected, UNKNOWN_INCARNATION, self.incarnation, 0)
        self._put(HelloKind.PROOF, self._proof(b"acceptor", body, self._own_body))
        self.state = HelloState.PROVING

    def _on_greeted(self) -> None:
        """The dialer has proven itself: it waits, or is told at once that its own id is here, too."""
        assert self.peer is not None
        if self.peer.id == self.identity.id and not self.peer.is_joiner:
            self.detail = "(it asked who has its id here)"
            self.refuse(Refusal.DUPLICATE, self.incarnation)
        else:
            self.state = HelloState.GREETED

    def _on_proof(self, body: bytes) -> None:
        expected = self._proof(b"dialer", self._peer_body, self._own_body)
        if hmac.compare_digest(body, expected):
            self._secret_name = fingerprint(self._secret)
            self._on_greeted()
        else:
            self.refuse(Refusal.WRONG_SECRET)
