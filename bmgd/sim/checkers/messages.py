"""Messages of programs: to whom, of which life, how often, in which order; and what programs are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.commands import MulticastTo, PutSegment, SendTo
from bmgd.core.effects import Deliver, Effect, Reply, StreamEnded, StreamMoved
from bmgd.core.events import CommandIssued, Event
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.topics.inboxes import is_inbox
from bmgd.errors import DeliveryError
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import copy_of, segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.sim.checkers.streams import StreamKey, stream_key
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.answers import NO_READER, READER_LOST, read_head
from bmgd.wire.batch import unpack_messages
from bmgd.wire.stream_messages import Segment, SegmentAck, SegmentFlag, SharedSegment

Owner = tuple[NodeId, Incarnation, object]
"""Whose messages are in order: a program's stream, or what one daemon was given to send singly."""


@dataclass(slots=True)
class _Message:
    """One payload, as its program gave it to its daemon.

    Args:
        addressed: the life of the destination that the source knew then; 0 for none.
        index: counts the messages of all programs.
        refused: the program was told that it was not taken, and never will be.
        taken: by whom it was taken, and in which life.
    """

    source: NodeId
    incarnation: Incarnation
    destination: NodeId
    addressed: Incarnation
    owner: Owner
    index: int
    best_effort: bool = False
    unique: bool = True
    refused: bool = False
    taken: list[tuple[NodeId, Incarnation]] = field(default_factory=list)


@dataclass(slots=True)
class _Put:
    """What a program put into its stream: the payloads of each segment, by number."""

    destination: NodeId
    best_effort: bool
    next: int = 1
    done: int = 1
    segments: dict[int, list[bytes]] = field(default_factory=dict)


class MessagesAreTakenOnce(Checker):
    """A message is taken at most once in all lives, by its destination, of the life it was for, in order.

    Not by a later life than the source knew when it was sent, not from an earlier life of its source
    than is known, nor from a later one than a record or a link has told of. Confirmed only if it was
    taken; never taken where its program was told that it was not. Payloads that are sent twice tell
    nothing.
    """

    name: ClassVar[str] = "messages-are-taken-once"
    events: ClassVar[Kinds] = (Segment, SharedSegment, CommandIssued)
    before_events: ClassVar[Kinds] = (Segment, SharedSegment, CommandIssued)
    effects: ClassVar[Kinds] = (Reply, Deliver, StreamMoved, StreamEnded, SegmentAck)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._messages: dict[bytes, _Message] = {}
        self._requests: dict[tuple[NodeId, int], bytes] = {}
        self._multicasts: dict[tuple[NodeId, int], bytes] = {}
        self._puts: dict[tuple[NodeId, int], _Put] = {}
        self._arrived: dict[StreamKey, dict[int, Segment]] = {}
        self._next: dict[StreamKey, int] = {}
        self._looked: dict[NodeId, tuple[Incarnation, list[StreamIn], list[int]]] = {}
        self._latest: dict[tuple[NodeId, Incarnation, Owner], int] = {}
        self._known: dict[NodeId, Incarnation] = {}
        self._vouched: dict[NodeId, Incarnation] = {}

    def before(self, journal: Journal, event: Event) -> None:
        inside = journal.inside
        for segment in segments_that_came(event)[:1]:
            source = segment.route.source
            self._known[source] = inside.membership.incarnation(source)
            self._vouched[source] = inside.membership.vouched(source)
        if isinstance(event, CommandIssued):
            self._note_command(journal, inside, event)

    def _note_command(self, journal: Journal, inside: Inside, issued: CommandIssued) -> None:
        me, request = journal.host.id, issued.request
        match issued.command:
            case SendTo(destination, topic, payload):
                owner: Owner = (me, inside.context.incarnation, (destination, topic))
                self._add(journal, inside, payload, destination, owner)
                self._requests[me, request] = payload
            case MulticastTo(destinations, topic, payload, reliable=True):
                for each in ids_in(destinations):
                    to = NodeId(each)
                    owner = me, inside.context.incarnation, (to, topic)
                    self._add(journal, inside, copy_of(payload, to), to, owner)
                self._multicasts[me, request] = payload
            case PutSegment(count, body):
                streams = [s for s in inside.streams_out() if s.owner == request]
                if not streams:
                    return
                stream = streams[0]
                put = self._puts.setdefault(
                    (me, request), _Put(stream.destination, stream.best_effort)
                )
                payloads = unpack_messages(body, count) if count else []
                put.segments[put.next] = payloads
                put.next += 1
                owner = me, inside.context.incarnation, request
                for payload in payloads:
                    self._add(journal, inside, payload, put.destination, owner, put.best_effort)

    def _add(
        self,
        journal: Journal,
        inside: Inside,
        payload: bytes,
        destination: NodeId,
        owner: Owner,
        best_effort: bool = False,
    ) -> None:
        known = self._messages.get(payload)
        if known is not None:
            known.unique = False
            return
        self._messages[payload] = _Message(
            journal.host.id,
            inside.context.incarnation,
            destination,
            inside.membership.incarnation(destination),
            owner,
            len(self._messages),
            best_effort,
        )

    # --- taking -------------------------------------------------------------------------------

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for segment in segments_that_came(event):
            self._note_arrival(journal, segment)
        self._follow(journal)
        for effect in effects:
            match effect:
                case Reply(request):
                    self._on_reply(journal, request, effect)
                case StreamMoved(request):
                    self._on_moved(journal, request, effect)
                case StreamEnded(request):
                    self._on_ended(journal, request, effect)
                case _:
                    pass

    def _note_arrival(self, journal: Journal, segment: Segment) -> None:
        route = segment.route
        if route.destination != journal.host.id:
            return
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return
        key = stream_key(journal, route.source, route.source_incarnation, route.sequence)
        arrived = self._arrived.setdefault(key, {})
        number = route.sequence & 0xFFFF_FFFF
        before = arrived.setdefault(number, segment)
        if route.destination_tag == incarnation_tag(journal.incarnation):
            # A copy before it may have been for no life: that one was not taken.
            arrived[number] = segment
        if (before.body, before.count) != (segment.body, segment.count):
            self.violate(journal, f"{route.source} uses a number of a stream for two segments")

    def _follow(self, journal: Journal) -> None:
        """What streams have passed since the last look was taken."""
        streams = journal.inside.streams_in()
        looked = journal.incarnation, streams, [stream.next for stream in streams]
        if looked == self._looked.get(journal.place):
            return
        self._looked[journal.place] = looked
        for stream in streams:
            key = stream_key(journal, stream.source, stream.incarnation, stream.id << 32)
            before = self._next.get(key, 1)
            if stream.next == before:
                continue
            self._next[key] = stream.next
            arrived = self._arrived.get(key, {})
            for number in range(before, stream.next):
                segment = arrived.get(number)
                if segment is None:
                    self.violate(journal, f"passed {number} of {stream.source}, which never came")
                    continue
                if segment.count:
                    self._on_taken(journal, stream, segment)

    def _on_taken(self, journal: Journal, stream: StreamIn, segment: Segment) -> None:
        me, route = journal.host.id, segment.route
        known = self._known.get(route.source, Incarnation(0))
        if stream.incarnation < known and stream.closed:
            return
        if 0 < self._vouched.get(route.source, 0) < stream.incarnation:
            self.violate(
                journal, f"took a message of a life of {route.source} that none vouches for"
            )
        if route.destination_tag != incarnation_tag(journal.incarnation):
            self.violate(journal, f"took a message of {route.source} for another life, or none")
        for payload in unpack_messages(segment.body, segment.count):
            if is_inbox(stream.topic) and read_head(payload)[0] in (READER_LOST, NO_READER):
                # Of the source's daemon itself; `RequestsHaveOneOutcome` looks at it.
                continue
            message = self._messages.get(payload) or self._messages.get(copy_of(payload, me))
            if message is None:
                self.violate(journal, f"took a message that {route.source} never sent")
            elif message.unique:
                self._check(journal, message, route.source, me)

    def _check(self, journal: Journal, message: _Message, source: NodeId, me: NodeId) -> None:
        if (message.source, message.destination) != (source, me):
            self.violate(journal, f"took a message of {message.source} to {message.destination}")
        if message.addressed and message.addressed < journal.incarnation:
            self.violate(journal, f"took a message of {source} for its former life")
        if message.taken:
            self.violate(journal, f"took a message again, first taken by {message.taken}")
        if message.refused:
            self.violate(journal, f"took a message that {source} was told is not sent")
        key = journal.place, journal.incarnation, message.owner
        latest = self._latest.get(key, -1)
        if message.index < latest:
            self.violate(journal, f"took a message of {source} out of order")
        self._latest[key] = max(latest, message.index)
        message.taken.append((me, journal.incarnation))

    # --- what programs are told ---------------------------------------------------------------

    def _on_reply(self, journal: Journal, request: int, reply: Reply) -> None:
        multicast = self._multicasts.pop((journal.host.id, request), None)
        if multicast is not None and reply.error is None:
            for node_id in reply.result["confirmed"]:
                self._on_done(journal, copy_of(multicast, node_id))
            for failure in reply.result["failed"]:
                if not failure["sent"]:
                    self._on_refused(journal, copy_of(multicast, failure["id"]))
        payload = self._requests.pop((journal.host.id, request), None)
        if payload is None:
            return
        if reply.error is None:
            self._on_done(journal, payload)
        elif not isinstance(reply.error, DeliveryError) or not reply.error.sent:
            self._on_refused(journal, payload)

    def _on_moved(self, journal: Journal, request: int, moved: StreamMoved) -> None:
        put = self._puts.get((journal.host.id, request))
        if put is None:
            return
        for number in moved.withdrawn:
            for payload in put.segments.pop(number, ()):
                self._on_refused(journal, payload)
        for number in moved.doubted:
            put.segments.pop(number, None)
        self._confirm(journal, put, moved.next)

    def _on_ended(self, journal: Journal, request: int, ended: StreamEnded) -> None:
        put = self._puts.pop((journal.host.id, request), None)
        if put is None:
            return
        self._confirm(journal, put, ended.next)
        for number, payloads in put.segments.items():
            if number >= ended.unsent:
                for payload in payloads:
                    self._on_refused(journal, payload)

    def _confirm(self, journal: Journal, put: _Put, following: int) -> None:
        if following > put.next:
            self.violate(journal, f"confirms up to {following}, {put.next} comes next")
        for number in [n for n in put.segments if n < following]:
            for payload in put.segments.pop(number):
                if not put.best_effort:
                    self._on_done(journal, payload)

    def _on_done(self, journal: Journal, payload: bytes) -> None:
        message = self._messages[payload]
        local = message.destination == message.source
        if message.unique and not local and not message.taken:
            self.violate(journal, f"a message to {message.destination} was confirmed, never taken")

    def _on_refused(self, journal: Journal, payload: bytes) -> None:
        message = self._messages.get(payload)
        if message is None or not message.unique:
            return
        message.refused = True
        if message.taken:
            self.violate(journal, f"a message was taken by {message.taken}, and told as not sent")
