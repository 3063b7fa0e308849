"""A contact gone wrong: what it grants a joiner, and the pages that it tells, good or malformed.

Theory of operation. An `Applicant` of the daemon is told the bytes of a contact in pieces, written from
the page alone: its hello, the list of the founders, the id, then a page for each that is asked for. What
must become of each the second reader of `witness/` says: the joiner asks for the next one, has all, or
closes.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any, Final

from bmgd.errors import ProtocolError
from bmgd.sim.witness.fields import ID_MAX, U64
from bmgd.sim.witness.frames import GOODBYE, HEADER, LENGTHS, READ, judge
from bmgd.sim.witness.hellos import GRANT, HELLO, NO_ID, PEERS, VERSION, Said, record
from bmgd.sim.witness.malformed import any_frame, frames_of, good_frame
from bmgd.sim.witness.packed import packed
from bmgd.types import Incarnation, NodeId
from bmgd.wire.applicant import Applicant
from bmgd.wire.handshake import HelloState
from bmgd.wire.hello import Identity

_PAGE_ASK: Final = 0x0C
_RECORD_PAGE: Final = 0x0D
_LENGTH_BYTES: Final = 4
Report = Callable[[str], None]


class OddContact:
    """The contact of one joiner.

    Args:
        random: chooses what it says.
        report: told what is done with it that must not be done.
    """

    def __init__(self, random: Random, report: Report) -> None:
        nonce = random.randbytes(16)
        identity = Identity("sim", 1, bytes(16), NodeId(NO_ID), "new:7400")
        self._random = random
        self._report = report
        self._applicant = Applicant(identity, Incarnation(2**32 + 5), nonce)
        self._applicant.take_output()
        self._asked_after = 0
        self._told: tuple[list[Any], list[Any]] = [], []

    def talk(self) -> None:
        """Grant an id, and tell some pages."""
        if not self._grant():
            return
        while self._random.random() < 0.6:
            if not self._tell(self._any_page()):
                return
        self._announce()

    def _grant(self) -> bool:
        """Say the hello, the founders and the id; whether they are good ones."""
        random, size = self._random, self._random.choice((1, 3, 8))
        listed = "\n".join(f"sim{number}:7400" for number in range(size)).encode()
        text, granted = random.choice((b"sim{id}:7400", listed)), random.choice((0, 7, ID_MAX))
        fingerprint = blake2b(text, digest_size=16).digest()
        is_good = random.random() < 0.7
        if not is_good:
            match random.randrange(4):
                case 0:
                    fingerprint = bytes(16)
                case 1:
                    granted = ID_MAX + 1
                case 2:
                    text = b"sim\xff{id}:7400"
                    fingerprint = blake2b(text, digest_size=16).digest()
                case _:
                    text = listed + b"\nmore:7400"
                    fingerprint = blake2b(text, digest_size=16).digest()
        hello = Said(
            *(VERSION, VERSION, 0, size - 1, fingerprint, 5, 0, 0, 2**32 + 9, 0),
            *(random.randbytes(16), 0x1F, b"sim", b"five:7400"),
        )
        at = random.randrange(1, len(text))
        pieces = record(PEERS, text[:at]) + record(PEERS, text[at:])
        said = record(HELLO, hello.body()) + pieces + record(GRANT, granted.to_bytes(4, "big"))
        goes_on = self._hear(said)
        if goes_on != is_good:
            self._report(f"a joiner {'goes on' if goes_on else 'closes'}, granted {said[7:]!r}")
        return goes_on and is_good and self._asks_for_more()

    def _any_page(self) -> bytes:
        random = self._random
        match random.randrange(6):
            case 0:
                return random.choice(list(frames_of(_RECORD_PAGE, random)))
            case 1:
                return any_frame(random)
        return good_frame(_RECORD_PAGE, random)

    def _tell(self, frame: bytes) -> bool:
        """Say a frame; whether the joiner asks for more, as it must then."""
        body = frame[_LENGTH_BYTES:]
        is_whole = int.from_bytes(frame[:_LENGTH_BYTES], "big") == len(body)
        verdict = judge(body) if is_whole else None
        goes_on = self._hear(frame)
        if verdict is None or verdict.what is not READ or verdict.kind != _RECORD_PAGE:
            if goes_on:
                self._report(f"a joiner reads what is no page: {frame[:80]!r}")
            return False
        records, retired, following = verdict.fields
        if following is not None and following <= self._asked_after:
            if goes_on:
                self._report(f"a joiner goes on from a page that leads back to {following}")
            return False
        self._told[0].extend(records)
        self._told[1].extend(retired)
        if not goes_on or self._has() != self._told:
            self._report(f"a joiner reads a page as another one, or not at all: {frame[:80]!r}")
            return False
        if following is None:
            self._look_at_end()
            return False
        self._asked_after = following
        return self._asks_for_more()

    def _has(self) -> tuple[list[Any], list[Any]]:
        applicant = self._applicant
        return [(node_id, *each) for node_id, each in applicant.records], list(applicant.retired)

    def _asks_for_more(self) -> bool:
        header = HEADER.pack(_PAGE_ASK, *([0] * 8))
        body = packed([header, self._asked_after, U64])
        wanted = len(body).to_bytes(_LENGTH_BYTES, "big") + body
        asked = self._applicant.take_output()
        if asked != wanted or self._applicant.state is not HelloState.WAITING:
            self._report(f"a joiner asks for the page at {self._asked_after} by {asked!r}")
            return False
        return True

    def _look_at_end(self) -> None:
        """It has read the last page."""
        said = judge(self._applicant.take_output()[_LENGTH_BYTES:])
        if self._applicant.state is not HelloState.UP or said.kind != GOODBYE:
            self._report("a joiner that was told all does not say goodbye")

    def _announce(self) -> None:
        """Say how long the next frame is, and no more."""
        length = self._random.choice((LENGTHS[0] - 1, LENGTHS[0], LENGTHS[-1], LENGTHS[-1] + 1))
        if self._hear(length.to_bytes(_LENGTH_BYTES, "big")) != (length in LENGTHS):
            self._report(
                f"a joiner {'closes at' if length in LENGTHS else 'awaits'} {length} bytes"
            )

    def _hear(self, data: bytes) -> bool:
        """Tell the joiner some bytes in two pieces; whether it goes on."""
        at = self._random.randrange(1, len(data) + 1)
        try:
            for piece in (data[:at], data[at:]):
                if piece:
                    self._applicant.receive(piece)
        except ProtocolError:
            return False
        return True
