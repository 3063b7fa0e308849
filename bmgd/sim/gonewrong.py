"""A neighbor gone wrong: it says what no daemon may say, on a link of its own beside those of a host.

Theory of operation. A `Listener` is the link layer of a daemon, and what makes events of its frames,
with no core above. It has two links: one of the neighbor, one of a bystander. What must become of a
frame the second reader of `witness/` says. One that is good must be read as what it is; one that is
malformed ends its own link, or is dropped and counted; and the bystander's link carries on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from bmgd.core.events import Event, HeartbeatsAbsorbed, LinkDown, Received
from bmgd.linkevents import LinkEvents
from bmgd.linklayer import LinkLayer
from bmgd.sim.witness.frames import CLOSE, DROP, GOODBYE, READ, Verdict, differences, judge
from bmgd.sim.witness.malformed import any_frame, frames_of
from bmgd.types import Evidence, LinkId
from bmgd.wire.codec import encode
from bmgd.wire.link_messages import Ping

BYSTANDER: Final = LinkId(1)
_LENGTH_BYTES: Final = 4
_HEARTBEAT: Final = 0x01
_NOTICE: Final = 0x04
Report = Callable[[str], None]


class Listener:
    """Hears frames by chance.

    Args:
        random: chooses them.
        report: told what is done with one that must not be done.
    """

    def __init__(self, random: Random, report: Report) -> None:
        self._random = random
        self._report = report
        self._layer = LinkLayer()
        self._gone: list[LinkId] = []
        self._events = LinkEvents(self._layer, self._gone.append, lambda link: None)
        self._layer.adopt(-1, BYSTANDER, 1)
        self._links = int(BYSTANDER)
        self._pings = 0
        self._notices: set[bytes] = set()

    def hear(self) -> None:
        """A neighbor says a frame on a link of its own."""
        self._hear(any_frame(self._random))

    def hear_all(self, number: int) -> None:
        """It says one of a kind after the other, each with another thing wrong or at its bound."""
        for frame in frames_of(number, self._random):
            self._hear(frame)

    def _hear(self, frame: bytes) -> None:
        self._links += 1
        link = LinkId(self._links)
        self._layer.adopt(-1, link, 2)
        self.hear_on(link, frame)
        if link not in self._gone:
            self._events.end(link)
        self._gone.clear()

    def hear_on(self, link: LinkId, frame: bytes) -> None:
        """The same of a certain frame, with its length in front of it, on a link that is up."""
        body = frame[_LENGTH_BYTES:]
        is_whole = int.from_bytes(frame[:_LENGTH_BYTES], "big") == len(body)
        verdict = judge(body) if is_whole else Verdict(CLOSE, "a wrong length")
        absorbs = self._absorb_some(link, verdict)
        malformed_before = self._events.malformed_frames
        at = self._random.randrange(len(frame) + 1)
        # Bytes that cannot begin a frame end the link before the rest of it comes.
        self._layer.feed(link, frame[:at])
        self._layer.feed(link, frame[at:])
        told = self._told()
        text = self._wrong_with(verdict, link, body, told, absorbs=absorbs)
        dropped = self._events.malformed_frames - malformed_before
        if dropped != (verdict.what is DROP):
            text = text or f"{dropped} malformed frames were counted"
        if not text and (link in self._gone) != _ends(verdict):
            text = "the link is up" if _ends(verdict) else "the link is gone"
        if not text and not _ends(verdict):
            text = self._ping(link)
        text = text or self._ping(BYSTANDER)
        if text:
            wanted = f"{verdict.what} ({verdict.why})" if verdict.why else verdict.what
            self._report(f"a frame to {wanted}: {text}: {body[:80]!r}")

    def _absorb_some(self, link: LinkId, verdict: Verdict) -> bool:
        """Let the layer absorb heartbeats like this one, now and then; whether it may do so."""
        is_beat = verdict.what is READ and verdict.kind == _HEARTBEAT
        if self._random.random() < 0.5:
            self._events.absorb_heartbeats(0, ())
            return False
        digest = int(verdict.fields[2]) if is_beat else 0
        other = digest ^ (1 << self._random.randrange(128) if self._random.random() < 0.3 else 0)
        self._events.absorb_heartbeats(other, (link,))
        return is_beat and other == digest

    def _told(self) -> list[Event]:
        events = self._events.of(self._layer.poll(0))
        self._events.end_turn()
        return [*self._events.absorbed(), *events]

    def _wrong_with(
        self, verdict: Verdict, link: LinkId, body: bytes, told: list[Event], *, absorbs: bool
    ) -> str:
        """What must not be among the events, or is missing."""
        if verdict.kind == GOODBYE and _ends(verdict):
            expected: list[Event] = [LinkDown(link, Evidence.GOODBYE)]
        elif verdict.what is CLOSE:
            expected = [LinkDown(link, Evidence.PROTOCOL_ERROR)]
        elif verdict.what is DROP:
            expected = []
        elif body in self._notices and not told:
            # One that was looked at need not be told again.
            return ""
        else:
            if verdict.kind == _NOTICE:
                self._notices.add(body)
            return _unlike(verdict, link, body, told, absorbs=absorbs)
        return "" if told == expected else f"told {told!r}"[:300]

    def _ping(self, link: LinkId) -> str:
        """A link that is up carries what comes next."""
        self._pings += 1
        self._layer.feed(link, encode(Ping(self._pings)))
        told = self._told()
        expected = [Received(link, Ping(self._pings))]
        return "" if told == expected else f"then link {link} tells {told!r}"[:300]


def _ends(verdict: Verdict) -> bool:
    """Whether the link ends: by what cannot be read, or by a goodbye."""
    return verdict.what is CLOSE or verdict.kind == GOODBYE


def _unlike(
    verdict: Verdict, link: LinkId, body: bytes, told: list[Event], *, absorbs: bool
) -> str:
    """In what the event is not what a good frame says."""
    match told:
        case [HeartbeatsAbsorbed((beat,))] if absorbs:
            found: Any = beat.link, beat.sequence, beat.echo, beat.heartbeats
            return "" if found == (link, *verdict.fields[:2], 1) else f"absorbed as {beat!r}"
        case [Received(came, message)] if came == link:
            if absorbs and verdict.is_shortest:
                return "it is not absorbed"
            again = encode(message)[_LENGTH_BYTES:]
            return differences(message, body, is_own=False) or differences(
                message, again, is_own=True
            )
    return f"told {told!r}"[:300]
