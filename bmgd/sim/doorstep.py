"""A stranger at the door: hellos by chance, good ones and malformed ones, and what is answered to them.

Theory of operation. An `Acceptor` of the daemon is told the bytes of a hello in pieces. What must become
of it the second reader of `witness/` says: the connection is closed without an answer, refused with a
code, or the core is told. Each answer is compared byte by byte. So is what a `Dialer` says. Some of these
hellos are spoken under TLS, of which there are no more here than what both certificates come to.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bmgd.errors import ProtocolError
from bmgd.sim.witness.hellos import (
    BINDING,
    BYTES_MAX,
    CLOSED,
    DUPLICATE,
    GREETED,
    HELLO,
    JOINER,
    KEYS,
    PROOF,
    SECRET,
    VERSION,
    WELCOME,
    WRONG_SECRET,
    WRONG_TLS,
    Certificate,
    Said,
    any_hello,
    judge_hello,
    key_id,
    proof,
    record,
    refusal,
)
from bmgd.types import Incarnation, NodeId
from bmgd.wire.handshake import Acceptor, Dialer, HelloState
from bmgd.wire.hello import Channel, Identity

_SECRETS: Final = (b"one of the secrets", b"another one")
_LIFE: Final = 2**32 + 7
_KNOWN: Final = 2**33 + 1
_SIZE: Final = 8
_NAMES: Final[tuple[tuple[str, ...], ...]] = (
    *((), ("sim/3",), ("sim/any",), ("sim/3", "sim/any"), ("sim/4", "sim/5", "sim/2147483647")),
    *(("other/3", "other/any"), ("sim/7", "other/any"), ("sim/4294967295",), ("sim/33", "sim/")),
)
"""Whom certificates of strangers are for; most strangers are 3."""
_STATES: Final = {CLOSED: "closed", GREETED: "greeted"}
Report = Callable[[str], None]


class Doorstep:
    """Says hellos to acceptors.

    Args:
        random: chooses them.
        report: told what is done with one that must not be done.
    """

    def __init__(self, random: Random, report: Report) -> None:
        self._random = random
        self._report = report

    def knock(self) -> None:
        """One stranger comes."""
        random = self._random
        secrets = random.choice(((), (), _SECRETS[:1], _SECRETS))
        certificate = self._certificate() if random.random() < 0.4 else None
        keys = [(KEYS, b"".join(map(key_id, secrets)))] if secrets else []
        if certificate is not None:
            keys.append((BINDING, certificate.binding))
        flags = SECRET if secrets else 0
        fingerprint = random.randbytes(16)
        head = (VERSION, VERSION, flags, _SIZE - 1, fingerprint)
        nonces = random.randbytes(16), random.randbytes(16)
        me = Said(*head, 5, 3, 0, _LIFE, 0, nonces[0], 0x1F, b"sim", b"five:7400", tuple(keys))
        good = Said(*head, 3, 5, 9, _KNOWN, 2, nonces[1], 0x1F, b"sim", b"three:7400", tuple(keys))
        self._look_at_dialer(good, secrets, certificate)
        identity = Identity(
            *("sim", _SIZE, fingerprint, NodeId(5), "five:7400", secrets), features=0x1F
        )
        acceptor = Acceptor(identity, Incarnation(_LIFE), nonces[0])
        if certificate is not None:
            acceptor.bind(_channel(certificate))
        elif random.random() < 0.03:
            acceptor.receive(b"\x16\x03\x01" + bytes(40))
            if acceptor.take_output() != refusal(WRONG_TLS, 0):
                self._report("bytes of TLS are not refused as such")
            return
        body = any_hello(good, nonces[0], random)
        outcome = judge_hello(body, me, secrets, certificate)
        if len(body) + 7 > BYTES_MAX:
            outcome = CLOSED
        kind = random.choice((HELLO,) * 9 + (0, PROOF, 7))
        said = record(kind, body) if random.random() < 0.97 else b"BMGE" + record(kind, body)[4:]
        if kind != HELLO or not said.startswith(b"BMGD"):
            outcome = CLOSED
        if secrets and outcome in (GREETED, DUPLICATE):
            self._prove(acceptor, said, body, me, secrets, outcome)
        elif self._expect(acceptor, said, outcome) and outcome == GREETED:
            self._welcome(acceptor, me, body)

    def _certificate(self) -> Certificate:
        """The stranger's, of a channel by chance."""
        random = self._random
        binding = random.choice((b"one channel ", b"another one ")) + b"." * 20
        return Certificate(binding, random.choice(_NAMES), random.random() < 0.5)

    def _look_at_dialer(
        self, good: Said, secrets: tuple[bytes, ...], certificate: Certificate | None
    ) -> None:
        identity = Identity(
            *("sim", _SIZE, good.fingerprint, NodeId(3), "three:7400", secrets),
            features=0x1F,
            has_tls=certificate is not None,
        )
        known = Incarnation(good.known)
        dialer = Dialer(identity, Incarnation(_KNOWN), NodeId(5), known, good.number, good.nonce)
        if certificate is not None:
            if dialer.take_output():
                self._report("a dialer speaks before its TLS channel is there")
            dialer.bind(_channel(certificate))
        if dialer.take_output() != record(HELLO, good.body()):
            self._report("a dialer says another hello than the page has")

    # --- the acceptor -------------------------------------------------------------------------

    def _hear(self, acceptor: Acceptor, data: bytes) -> bool:
        """Tell it some bytes in two pieces; whether it goes on."""
        at = self._random.randrange(1, len(data) + 1)
        try:
            acceptor.receive(data[:at])
            if data[at:] and acceptor.state in (HelloState.WAITING, HelloState.PROVING):
                acceptor.receive(data[at:])
        except ProtocolError:
            return False
        return True

    def _expect(self, acceptor: Acceptor, said: bytes, outcome: int) -> bool:
        """Say it; whether that came of it."""
        goes_on = self._hear(acceptor, said)
        answer = acceptor.take_output()
        if outcome == CLOSED:
            # What is cut short waits for the rest, and is closed in time.
            is_right = not answer and (not goes_on or acceptor.state is HelloState.WAITING)
        elif outcome == GREETED:
            is_right = goes_on and not answer and acceptor.state is HelloState.GREETED
        else:
            told = _LIFE if outcome == DUPLICATE else 0
            is_right = goes_on and answer == refusal(outcome, told)
        if not is_right:
            wanted = _STATES.get(outcome, f"refused with {outcome}")
            found = f"{acceptor.state.value}, answered {answer!r}" if goes_on else "closed"
            self._report(f"a hello to be {wanted} is {found}: {said[7:]!r}")
        return is_right

    def _prove(
        self,
        acceptor: Acceptor,
        said: bytes,
        body: bytes,
        me: Said,
        secrets: tuple[bytes, ...],
        outcome: int,
    ) -> None:
        """It proves the first of its secrets that the other names; then the other does, or lies."""
        goes_on = self._hear(acceptor, said)
        answer = acceptor.take_output()
        mine = self._answering(me, body, 0).body()
        proven = {
            secret: record(HELLO, mine) + record(PROOF, proof(secret, b"acceptor", body, mine))
            for secret in secrets
        }
        secret = next((one for one in secrets if proven[one] == answer), None)
        named = [one for one in secrets if key_id(one) in body]
        if not goes_on or secret is None or secret != named[0]:
            self._report(f"an acceptor with a secret answers {answer!r} to {body!r}")
            return
        right = proof(secret, b"dialer", body, mine)
        wrong = right[:-1], right[:-1] + bytes((right[-1] ^ 1,)), b"", bytes(32)
        if len(said) + len(record(PROOF, right)) > BYTES_MAX:
            self._expect(acceptor, record(PROOF, right), CLOSED)
        elif self._random.random() < 0.5:
            self._expect(acceptor, record(PROOF, self._random.choice(wrong)), WRONG_SECRET)
        elif self._expect(acceptor, record(PROOF, right), outcome) and outcome == GREETED:
            acceptor.welcome(Incarnation(_KNOWN))
            self._compare(acceptor, record(WELCOME, _KNOWN.to_bytes(8, "big")))

    def _welcome(self, acceptor: Acceptor, me: Said, body: bytes) -> None:
        """The core takes the link."""
        is_joiner = bool(body[4] & JOINER)
        if is_joiner:
            return
        acceptor.welcome(Incarnation(_KNOWN))
        mine = record(HELLO, self._answering(me, body, _KNOWN).body())
        self._compare(acceptor, mine + record(WELCOME, _KNOWN.to_bytes(8, "big")))

    def _answering(self, me: Said, body: bytes, known: int) -> Said:
        """What the acceptor says to this hello: it expects whoever it is."""
        is_joiner = bool(body[4] & JOINER)
        expected = 0 if is_joiner else int.from_bytes(body[25:29], "big")
        fields = (me.flags, me.last, me.fingerprint, me.id, expected, known, me.incarnation, 0)
        rest = (me.nonce, me.features, me.cluster, me.address, me.extensions)
        return Said(VERSION, VERSION, *fields, *rest)

    def _compare(self, acceptor: Acceptor, expected: bytes) -> None:
        answer = acceptor.take_output()
        if answer != expected:
            self._report(f"an acceptor welcomes by {answer!r}, not {expected!r}")


def _channel(certificate: Certificate) -> Channel:
    return Channel(certificate.binding, certificate.names, certificate.is_to_name)
