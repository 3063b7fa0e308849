"""Hellos byte by byte: what the daemon's own two sides come to, beside each hello that is simulated.

Theory of operation. `wires.py` decides by itself what becomes of a dial, and sends no bytes for it. Here
a `Dialer`, or an `Applicant`, and an `Acceptor` of the same two hosts say all of it to each other, in
pieces of any size and at once; what the model tells the cores must be what these two would have told
them. What differs is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from bmgd.core.effects import AskContact, Dial
from bmgd.core.events import Event, Granted, Greeted, JoinAsked, LinkUp
from bmgd.core.settings import Settings
from bmgd.errors import BmgdError
from bmgd.secret import fingerprint
from bmgd.sim.host import End, Host
from bmgd.types import NO_ID, UNKNOWN_INCARNATION, Incarnation
from bmgd.wire.applicant import Applicant
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.handshake import Acceptor, Dialer, HelloState
from bmgd.wire.hello import NONCE_BYTES, OWN_NONCE_BYTES, Identity, Refusal
from bmgd.wire.link_messages import Goodbye, PageAsk
from bmgd.wire.messages import Message

_CLUSTER: Final = "simulated"
_OTHER_CLUSTER: Final = "another"

Report = Callable[[Host, str], None]


@dataclass(slots=True, eq=False)
class _Conversation:
    """The two sides of one hello."""

    dialer: Dialer
    acceptor: Acceptor


class HelloBytes:
    """All conversations of a network.

    Args:
        settings: of any node: size and list of the founders.
        random: for nonces, and the sizes of pieces.
        report: told what differs, and at which host.
    """

    def __init__(self, settings: Settings, random: Random, report: Report) -> None:
        self._settings = settings
        self._random = random
        self._report = report
        self._nonces: dict[Host, bytes] = {}
        self._waiting: dict[End, _Conversation] = {}
        self._names: dict[str, str] = {"": ""}
        """The simulated key that has a secret's name."""

    # --- what the model does ------------------------------------------------------------------

    def dialled(self, host: Host, theirs: End, dial: Dial | AskContact, hello: Event) -> None:
        """A hello is on its way to an acceptor whose core will be told this."""
        target = theirs.host
        talk = self._begin(host, target, dial, theirs.life)
        self._say(talk, target)
        peer = talk.acceptor.peer
        if talk.acceptor.state is not HelloState.GREETED or peer is None:
            self._differ(target, hello, talk.acceptor.refusal or talk.acceptor.state)
            return
        if peer.is_joiner:
            claimed = None if peer.id == NO_ID else peer.id
            told: Event = JoinAsked(theirs.link, claimed, peer.incarnation, peer.address)
        else:
            told = Greeted(
                *(theirs.link, peer.id, peer.incarnation, peer.address, peer.known),
                *(peer.dial_number, self._names[talk.acceptor.key], peer.renews, peer.features),
            )
        if told != hello:
            self._differ(target, hello, told)
        self._waiting[theirs] = talk

    def rejected(
        self,
        host: Host,
        target: Host,
        dial: Dial | AskContact,
        refusal: Refusal,
        *,
        proven: bool,
    ) -> None:
        """A dial is refused before any core hears of it."""
        cluster = _OTHER_CLUSTER if target.squatter else _CLUSTER
        life = UNKNOWN_INCARNATION if target.member is None else target.node.incarnation
        talk = self._begin(host, target, dial, Incarnation(max(1, life)), cluster)
        self._say(talk, target)
        if talk.dialer.state is not HelloState.REFUSED or talk.dialer.refusal is not refusal:
            self._differ(host, refusal, talk.dialer.refusal or talk.dialer.state)
        elif refusal is Refusal.DUPLICATE and talk.dialer.known_of_me != life:
            self._differ(host, life, talk.dialer.known_of_me)
        elif talk.dialer.is_proven != proven:
            self._differ(host, (refusal, proven), talk.dialer.is_proven)

    def welcomed(self, theirs: End, known: Incarnation) -> None:
        """The acceptor takes the link; `linked` follows where the dialer hears of it."""
        talk = self._waiting.get(theirs)
        if talk is not None:
            talk.acceptor.welcome(known)
            self._say(talk, theirs.host)

    def linked(self, mine: End, up: LinkUp) -> None:
        """The dialer's core is told that the link is up."""
        talk = None if mine.other is None else self._waiting.pop(mine.other, None)
        if talk is None:
            return
        dialer, peer = talk.dialer, talk.dialer.peer
        if dialer.state is not HelloState.UP or peer is None:
            self._differ(mine.host, up, dialer.refusal or dialer.state)
            return
        told = LinkUp(
            *(up.link, peer.id, peer.incarnation, peer.address, dialer.known_of_me),
            *(up.dial_number, self._names[dialer.key], up.renews, peer.features),
        )
        if told != up:
            self._differ(mine.host, up, told)

    def refused(self, theirs: End, refusal: Refusal, known: Incarnation) -> None:
        """The acceptor's core refuses the hello."""
        talk = self._waiting.pop(theirs, None)
        if talk is None:
            return
        talk.acceptor.refuse(refusal, known)
        self._say(talk, theirs.host)
        told = talk.dialer.refusal, talk.dialer.known_of_me, talk.dialer.is_proven
        if talk.dialer.state is not HelloState.REFUSED or told != (refusal, known, True):
            self._differ(theirs.host, (refusal, known, True), told)

    def granted(self, theirs: End, granted: Granted) -> None:
        """A joiner is told its id, the founders, and every record page by page."""
        talk = self._waiting.pop(theirs, None)
        if talk is None or not isinstance(talk.dialer, Applicant):
            return
        applicant = talk.dialer
        talk.acceptor.grant(granted.id, granted.peers.text)
        self._say(talk, theirs.host)
        founders = 0 if applicant.peer is None else applicant.peer.founding_size
        told = Granted(
            *(applicant.granted, founders, applicant.peers),
            *(tuple(applicant.records), tuple(applicant.retired)),
        )
        if applicant.state is not HelloState.UP or told != granted:
            self._differ(theirs.host, granted, told)

    # --- the two sides ------------------------------------------------------------------------

    def _begin(
        self,
        host: Host,
        target: Host,
        dial: Dial | AskContact,
        life: Incarnation,
        cluster: str = _CLUSTER,
    ) -> _Conversation:
        acceptor = Acceptor(self._identity(target, cluster), life, self._nonce(target))
        if isinstance(dial, AskContact):
            own = NO_ID if dial.claimed is None else dial.claimed
            identity = Identity(
                *(_CLUSTER, 1, bytes(16), own, host.address, self._secrets(host)),
                features=host.features,
            )
            return _Conversation(Applicant(identity, dial.incarnation, self._nonce(host)), acceptor)
        dialer = Dialer(
            *(self._identity(host, _CLUSTER), host.node.incarnation, dial.peer, dial.known),
            *(dial.dial_number, self._nonce(host)),
            renews=dial.renews,
        )
        return _Conversation(dialer, acceptor)

    def _identity(self, host: Host, cluster: str) -> Identity:
        settings = self._settings
        return Identity(
            *(cluster, settings.founding_size, settings.peers.fingerprint(), host.id),
            *(host.address, self._secrets(host)),
            features=host.features,
        )

    def _secrets(self, host: Host) -> tuple[bytes, ...]:
        secrets = tuple(key.encode() for key in host.keys)
        for key, secret in zip(host.keys, secrets, strict=True):
            self._names[fingerprint(secret)] = key
        return secrets

    def _nonce(self, host: Host) -> bytes:
        own = self._nonces.get(host)
        if own is None:
            own = self._nonces[host] = self._random.randbytes(OWN_NONCE_BYTES)
        return own + self._random.randbytes(NONCE_BYTES - OWN_NONCE_BYTES)

    def _say(self, talk: _Conversation, target: Host) -> None:
        """Let both sides talk until neither has anything to say."""
        dialer, acceptor = talk.dialer, talk.acceptor
        try:
            while True:
                asked, answered = dialer.take_output(), acceptor.take_output()
                if not asked and not answered:
                    return
                if acceptor.state is HelloState.UP:
                    answered += self._answer(asked, target)
                else:
                    self._give(acceptor, asked)
                if dialer.state is HelloState.WAITING:
                    self._give(dialer, answered)
        except BmgdError as error:
            self._differ(target, "a hello", error)

    def _give(self, side: Dialer | Acceptor, data: bytes) -> None:
        while data:
            size = self._random.randint(1, len(data))
            side.receive(data[:size])
            data = data[size:]

    def _answer(self, asked: bytes, target: Host) -> bytes:
        """What the contact's daemon answers a joiner that it has let in: pages, until it has all."""
        if not asked:
            return b""
        message: Message = decode(asked[LENGTH_BYTES:])
        if isinstance(message, PageAsk):
            return encode(target.node.page(message.after))
        if not isinstance(message, Goodbye):
            self._differ(target, "questions for pages", message)
        return b""

    def _differ(self, host: Host, modelled: object, spoken: object) -> None:
        self._report(host, f"{modelled} is told, by its bytes it is {spoken}")
