"""What a failed send says of itself: perhaps taken if it was put on a link, and not sent if it was not.

That what is told as not sent was not taken, and never is, `MessagesAreTakenOnce` sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.commands import MulticastTo, PutSegment, SendTo
from bmgd.core.effects import Effect, Reply, Send, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.errors import DeliveryError
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import segments_of
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import NodeId
from bmgd.wire.batch import unpack_messages
from bmgd.wire.stream_messages import Segment, SegmentAck, SharedSegment, StreamReset

_Request = tuple[NodeId, int]
"""The place of a process, and a request of one of its programs."""
_Name = tuple[int, int]
"""The id of a stream, and the number of a segment in it."""


@dataclass(slots=True)
class _Put:
    """What a program has put into its stream, by number, and of which it has not heard the end.

    Args:
        first: the number of the first piece of the long message that was put last.
        given_up: the first pieces of those of which any piece was told as not confirmed.
    """

    destination: NodeId
    next: int = 1
    bodies: dict[int, bytes] = field(default_factory=dict)
    first: int = 0
    firsts: dict[int, int] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)

    def put(self, command: PutSegment) -> None:
        """The program puts the next one; the further pieces of what is given up are ignored."""
        number = self.next
        self.next += 1
        if command.size:
            self.first = number if command.first else self.first
            if self.first in self.given_up:
                return
            self.firsts[number] = self.first
        self.bodies[number] = command.body

    def end(self, number: int) -> bytes | None:
        """The program hears that one is not confirmed: nothing more is told of a long message."""
        first = self.firsts.get(number)
        body = self.bodies.pop(number, None)
        if first is not None:
            self.given_up.add(first)
            for other in [each for each, of in self.firsts.items() if of == first]:
                del self.firsts[other]
                self.bodies.pop(other, None)
        return body


@dataclass(slots=True)
class _Left:
    """What left a process.

    Args:
        bodies: to whom, and a message or the body of a segment, with the ids of its streams.
        refused: the streams, by destination and id, of which anything was answered with FULL.
        names: of each body, the segments that it left in: the stream's id, and the number.
        turned_down: the segments, by destination, that were refused as often as they left.
    """

    bodies: dict[tuple[NodeId, bytes], set[int]] = field(default_factory=dict)
    refused: set[tuple[NodeId, int]] = field(default_factory=set)
    names: dict[tuple[NodeId, bytes], set[_Name]] = field(default_factory=dict)
    turned_down: set[tuple[NodeId, _Name]] = field(default_factory=set)


class DoubtHasAReason(Checker):
    """A message that is told as perhaps taken left its daemon once; else to send it again is safe.

    And what is told as not sent never left, or its destination said that it did not take it; what that
    said of each copy is told so. Not looked
    at are messages of a node to itself: they cross no link; nor are answers that may be given again.
    """

    name: ClassVar[str] = "doubt-has-a-reason"
    events: ClassVar[Kinds] = (CommandIssued, SegmentAck)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = (Reply, StreamMoved, StreamEnded, Segment, SharedSegment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._singles: dict[_Request, tuple[NodeId, bytes]] = {}
        self._multicasts: dict[_Request, bytes] = {}
        self._puts: dict[_Request, _Put] = {}
        self._left: dict[NodeId, _Left] = {}

    def on_boot(self, journal: Journal) -> None:
        self._left[journal.place] = _Left()

    def before(self, journal: Journal, event: Event) -> None:
        if not isinstance(event, CommandIssued):
            return
        key, me = (journal.place, event.request), journal.host.id
        match event.command:
            case SendTo(destination, _, payload) if destination != me:
                self._singles[key] = destination, payload
            case MulticastTo(_, _, payload, reliable=True):
                self._multicasts[key] = payload
            case PutSegment() as put:
                if key not in self._puts:
                    streams = journal.inside.streams_out()
                    found = [s for s in streams if s.owner == event.request]
                    if not found or found[0].destination == me or found[0].best_effort:
                        return
                    self._puts[key] = _Put(found[0].destination)
                if put.answers:
                    self._puts[key].next += 1
                else:
                    self._puts[key].put(put)
            case _:
                pass

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        left = self._left[journal.place]
        message = event.message if isinstance(event, Received) else None
        if isinstance(message, SegmentAck) and message.full:
            left.refused.add((message.route.source, message.route.sequence >> 32))
            self._note_refused(journal, left, message.route.source, message.route.sequence)
        for effect in effects:
            for segment in segments_of(effect.message) if isinstance(effect, Send) else ():
                self._note_sent(journal, left, segment)
        is_reset = isinstance(message, StreamReset)
        for effect in effects:
            match effect:
                case Reply(request):
                    self._on_reply(journal, request, effect, is_reset=is_reset)
                case StreamMoved(request):
                    self._on_moved(journal, request, effect)
                case StreamEnded(request):
                    self._on_ended(journal, request, effect, is_reset=is_reset)
                case _:
                    pass

    @staticmethod
    def _note_refused(journal: Journal, left: _Left, peer: NodeId, sequence: int) -> None:
        name = stream_id, number = sequence >> 32, sequence & 0xFFFF_FFFF
        stream = journal.inside.open_ids(peer).get(stream_id)
        sending = stream.underway.get(number) if stream is not None else None
        if sending is not None and sending.fulls >= sending.transmissions:
            left.turned_down.add((peer, name))

    @staticmethod
    def _note_sent(journal: Journal, left: _Left, segment: Segment) -> None:
        route = segment.route
        if route.source != journal.host.id:
            return
        name = route.sequence >> 32, route.sequence & 0xFFFF_FFFF
        left.turned_down.discard((route.destination, name))
        bodies = [segment.body]
        if segment.count:
            bodies += unpack_messages(segment.body, segment.count)
        for body in bodies:
            streams = left.bodies.setdefault((route.destination, body), set())
            streams.add(route.sequence >> 32)
            left.names.setdefault((route.destination, body), set()).add(name)

    # --- what programs are told ---------------------------------------------------------------

    def _on_reply(self, journal: Journal, request: int, reply: Reply, *, is_reset: bool) -> None:
        multicast = self._multicasts.pop((journal.place, request), None)
        if multicast is not None and reply.error is None:
            for failure in reply.result["failed"]:
                if failure["id"] != journal.host.id:
                    # Others may have failed in steps before.
                    self._check(journal, failure["id"], multicast, failure["sent"], is_reset=True)
        single = self._singles.pop((journal.place, request), None)
        if single is None or reply.error is None:
            return
        is_sent = isinstance(reply.error, DeliveryError) and reply.error.sent
        self._check(journal, *single, is_sent, is_reset=is_reset)

    def _on_moved(self, journal: Journal, request: int, moved: StreamMoved) -> None:
        put = self._puts.get((journal.place, request))
        if put is None:
            return
        for numbers, is_sent in ((moved.doubted, True), (moved.withdrawn, False)):
            for number in numbers:
                body = put.end(number)
                if body is not None:
                    self._check(journal, put.destination, body, is_sent, is_reset=False)
        for number in [number for number in put.bodies if number < moved.next]:
            del put.bodies[number]

    def _on_ended(
        self, journal: Journal, request: int, ended: StreamEnded, *, is_reset: bool
    ) -> None:
        put = self._puts.pop((journal.place, request), None)
        if put is None:
            return
        for number, body in put.bodies.items():
            if number >= ended.next:
                is_sent = number < ended.unsent
                self._check(journal, put.destination, body, is_sent, is_reset=is_reset)

    def _check(
        self, journal: Journal, destination: NodeId, body: bytes, is_sent: bool, *, is_reset: bool
    ) -> None:
        left = self._left[journal.place]
        streams = left.bodies.get((destination, body))
        if is_sent and streams is None:
            text = f"a message to {destination} was told as perhaps taken"
            self.violate(journal, f"{text}, and never left")
        elif is_sent and all(
            (destination, name) in left.turned_down for name in left.names[destination, body]
        ):
            text = f"a message to {destination} was told as perhaps taken"
            self.violate(journal, f"{text}, and was refused each time that it left")
        elif is_sent or is_reset or streams is None:
            return
        elif not any((destination, stream) in left.refused for stream in streams):
            text = f"a message to {destination} was told as not sent"
            self.violate(journal, f"{text}, and left, and nobody refused it")
