"""Between an engine of links and a core: frames become events, messages become frames.

The shell and the simulator both use it, so what it does with a frame is done once. A malformed frame
that only the neighbor can have written costs it the link. A malformed routed one may come from afar: it
is dropped and counted, and the relay that passed it on is not to blame (ADR 24).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator

from bmgd.core.events import (
    AbsorbedBeat,
    Backlog,
    Event,
    Heard,
    HeartbeatsAbsorbed,
    LinkDown,
    Received,
)
from bmgd.errors import ProtocolError
from bmgd.frameheader import FRAME_BYTES_MAX, LENGTH_BYTES
from bmgd.linklayer import LinkEngine, contract
from bmgd.linklayer.contract import Happening
from bmgd.linklayer.frames import is_routed
from bmgd.linklayer.heartbeats import DIGEST_BYTES
from bmgd.types import Evidence, LinkId
from bmgd.wire.codec import decode, encode
from bmgd.wire.holding import held_bytes
from bmgd.wire.link_messages import Notice
from bmgd.wire.messages import LinkMessage, Message

OWN_LACK = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EADDRNOTAVAIL,
    }
)
"""What a host says where it has no descriptor, memory, watch or local port left."""
RETURNED_COST_MAX = 8 << 20
"""In one turn of the core frames of links that ended find another way until they have cost so much. An
outbox can hold many times as much: seconds of work without a heartbeat, or gigabytes once it is read,
for what sources send again meanwhile."""
RETURNED_FRAME_COST = 4096
"""The core's time that each costs; what its message takes in memory beside the payload is added."""
PART_BYTES = 8 << 20
"""What the messages of a part of a poll may take beside their payloads, and one more."""


def evidence_of(number: int | None) -> Evidence:
    """The class of evidence that the number of a socket's error is; 0 is the end of the bytes."""
    match number:
        case 0:
            return Evidence.EOF
        case errno.ECONNREFUSED:
            return Evidence.REFUSED
        case errno.ECONNRESET | errno.EPIPE | errno.ECONNABORTED:
            return Evidence.RESET
        case errno.ETIMEDOUT:
            return Evidence.TIMED_OUT
        case errno.EPROTO:
            return Evidence.PROTOCOL_ERROR
        case number if number in OWN_LACK:
            return Evidence.OWN_LACK
        case _:
            return Evidence.NO_ANSWER


class LinkEvents:
    """What one engine tells one core, and the other way.

    Args:
        engine: of the links.
        on_gone: called once for each link that is gone, before the events about it are returned.
        on_written: called when a shut link without descriptor has nothing more to write.
        decode: reads the body of a frame.
        encode: makes a frame of a message.

    Attributes:
        malformed_frames: routed frames that were dropped because they cannot be read.
        unreturned_frames: routed frames that were dropped because more than `RETURNED_COST_MAX` came
            back in one turn.
        oversized_frames: routed frames that were dropped because nobody would read them.
    """

    def __init__(
        self,
        engine: LinkEngine,
        on_gone: Callable[[LinkId], None],
        on_written: Callable[[LinkId], None],
        decode: Callable[[bytes], Message] = decode,
        encode: Callable[[Message], bytes] = encode,
    ) -> None:
        self.malformed_frames = 0
        self.oversized_frames = 0
        self.unreturned_frames = 0
        self._engine = engine
        self._on_gone = on_gone
        self._on_written = on_written
        self._decode = decode
        self._encode = encode
        self._returned_cost = 0
        self._is_read = True
        self._heard_again: dict[LinkId, None] = {}
        # Of the notices of this turn: who brought each, the one that the core was told of first. And, by
        # `id`, those that it may not have seen yet.
        self._told: dict[bytes, dict[LinkId, None]] = {}
        self._unseen: dict[int, tuple[Notice, bytes]] = {}
        self._encoded: tuple[Message | None, bytes] = (None, b"")

    # --- up to the core -----------------------------------------------------------------------

    def of(self, happened: Iterable[Happening]) -> list[Event]:
        """The core's events for what one poll told, in order."""
        return [event for part in self.in_parts(happened) for event in part]

    def in_parts(self, happened: Iterable[Happening]) -> Iterator[list[Event]]:
        """The same in parts: the frames of the next one are read when the core has seen this one.

        What a poll brings is bounded as bytes; as messages it could be a thousand times as much.
        """
        events: list[Event] = []
        left = PART_BYTES
        lost: set[LinkId] = set()
        for number, what, detail in happened:
            link = LinkId(number)
            match what:
                case contract.FRAME:
                    assert isinstance(detail, bytes)
                    if self._told and detail in self._told:
                        # The engine absorbs it only from the next turn on.
                        self._heard_again[link] = None
                        self._told[detail][link] = None
                    elif link not in lost:
                        left -= self._take_frame(link, detail, events, lost)
                case contract.RETURNED:
                    assert isinstance(detail, bytes)
                    events += self._received(link, (detail,))
                case contract.GOODBYE:
                    self._on_gone(link)
                    events.append(LinkDown(link, Evidence.GOODBYE))
                case contract.MALFORMED:
                    self._on_gone(link)
                    events.append(LinkDown(link, Evidence.PROTOCOL_ERROR))
                case contract.END:
                    assert isinstance(detail, int)
                    self._on_gone(link)
                    events.append(LinkDown(link, evidence_of(detail)))
                case contract.BACKLOGGED | contract.WRITABLE:
                    assert isinstance(detail, int)
                    events.append(Backlog(link, detail))
                case contract.WRITTEN:
                    self._on_written(link)
                case contract.CLOSED:
                    self._on_gone(link)
            if left < 0:
                # All parts are one turn.
                self._is_read = False
                yield events
                events, left = [], PART_BYTES
        self._is_read = True
        yield events

    def _take_frame(
        self,
        link: LinkId,
        body: bytes,
        events: list[Event],
        lost: set[LinkId],
    ) -> int:
        """Read a frame; what its message takes beside what the frame has."""
        try:
            message = self._decode(body)
        except ProtocolError:
            if is_routed(body):
                self.malformed_frames += 1
            else:
                lost.add(link)
                events += self.lose(link, Evidence.PROTOCOL_ERROR)
            return 0
        if isinstance(message, Notice):
            self._told[body] = {link: None}
            self._unseen[id(message)] = message, body
        events.append(Received(link, message))
        return held_bytes(message)

    def _received(self, link: LinkId, bodies: Iterable[bytes]) -> list[Event]:
        """Routed frames that could not be passed on, for the core to find another way."""
        events: list[Event] = []
        for body in bodies:
            if self._returned_cost >= RETURNED_COST_MAX:
                self.unreturned_frames += 1
                continue
            self._returned_cost += RETURNED_FRAME_COST
            try:
                message = self._decode(body)
            except ProtocolError:
                self.malformed_frames += 1
                continue
            self._returned_cost += held_bytes(message)
            events.append(Received(link, message))
        return events

    def heard(self) -> list[Event]:
        """The links on which something came that the core did not see, if there are any."""
        told = self._engine.heard()
        if not told and not self._heard_again:
            return []
        heard = dict.fromkeys((*map(LinkId, told), *self._heard_again))
        self._heard_again.clear()
        return [Heard(tuple(heard))]

    def absorbed(self) -> list[Event]:
        """The heartbeats that the core did not see, as one event, if there are any."""
        told = self._engine.absorbed_heartbeats()
        if not told:
            return []
        beats = tuple(AbsorbedBeat(LinkId(link), *rest) for link, *rest in told)
        return [HeartbeatsAbsorbed(beats)]

    def end_turn(self) -> None:
        """The core has made its steps for all that it was told: the notices among it are known."""
        self._unseen.clear()
        if self._is_read:
            self._returned_cost = 0
            for body in self._told:
                self._engine.know(body)
            self._told.clear()

    # --- down from the core -------------------------------------------------------------------

    def send(self, link: LinkId, message: Message) -> list[Event]:
        """Put a message into a link's outbox; what that causes for the core."""
        # One notice goes to many links: the same object is encoded once.
        if self._encoded[0] is not message:
            self._encoded = (message, self._encode(message))
        frame = self._encoded[1]
        if isinstance(message, LinkMessage):
            kind = contract.CONTROL
        elif len(frame) > LENGTH_BYTES + FRAME_BYTES_MAX:
            # What grew on its way, such as a search: the next node would cut the link for it.
            self.oversized_frames += 1
            return []
        else:
            kind = contract.class_of_priority(message.route.priority)
        if self._engine.put(link, frame, kind) == contract.OVER_BOUND:
            return self.lose(link, Evidence.TIMED_OUT)
        return []

    def absorb_heartbeats(self, digest: int, links: tuple[LinkId, ...]) -> None:
        """Heartbeats with this digest on these links are no matter of the core's from now on."""
        self._engine.absorb_heartbeats(digest.to_bytes(DIGEST_BYTES, "big"), links)

    def overlook(self, notice: Notice) -> list[Event]:
        """The core has not looked at a notice: another link that brought it too counts instead; if there
        is none, it is not known."""
        if id(notice) not in self._unseen:
            return []
        _, body = self._unseen[id(notice)]
        links = self._told[body]
        del links[next(iter(links))]
        if links:
            return [Received(next(iter(links)), notice)]
        del self._told[body], self._unseen[id(notice)]
        return []

    def lose(self, link: LinkId, evidence: Evidence) -> list[Event]:
        """End a link that is given up: first the core hears of it, then its unsent frames come."""
        return [LinkDown(link, evidence), *self.end(link)]

    def end(self, link: LinkId) -> list[Event]:
        """End a link now; its unsent routed frames find another way."""
        unsent = self._engine.close(link)
        self._on_gone(link)
        return self._received(link, unsent)
