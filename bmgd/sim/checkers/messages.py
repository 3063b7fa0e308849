"""Messages of programs: to whom, of which life, how often, in which order; and what programs are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.commands import MulticastTo, PutSegment, SendTo
from bmgd.core.effects import Deliver, Effect, Reply, Send, StreamEnded, StreamMoved
from bmgd.core.events import Backlog, CommandIssued, Event, Received
from bmgd.core.inbound import StreamIn
from bmgd.core.inboxes import is_inbox
from bmgd.errors import DeliveryError
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.multicasts import copy_of, segments_of, segments_that_came
from bmgd.sim.checkers.scene import Checker, Kinds, Scene, is_deadline
from bmgd.types import Incarnation, LinkId, NodeId, incarnation_tag
from bmgd.wire.answers import NO_READER, READER_LOST, read_head
from bmgd.wire.batch import unpack_messages
from bmgd.wire.messages import Segment, SegmentAck, SegmentFlag, SharedSegment
from bmgd.wire.segments import OVERHEAD_BYTES, cost_of

SPAN = 4096
SENT_BY_EVENT_MAX = 64
"""A burst of one stream, what a search or an unsent frame brings back, and acknowledgements."""
SENT_MAX = 640
"""Deadlines, pieces of work and acknowledgements of one step, and some room."""
HANDED_MAX = 1024

Owner = tuple[NodeId, Incarnation, object]
"""Whose messages are in order: a program's stream, or what one daemon was given to send singly."""
StreamKey = tuple[NodeId, Incarnation, NodeId, Incarnation, int]
"""The place and life of one end, the other end and its life, and the stream's id."""


def _key(journal: Journal, peer: NodeId, life: Incarnation, sequence: int) -> StreamKey:
    return journal.place, journal.incarnation, peer, life, sequence >> 32


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
        key = _key(journal, route.source, route.source_incarnation, route.sequence)
        arrived = self._arrived.setdefault(key, {})
        before = arrived.setdefault(route.sequence & 0xFFFF_FFFF, segment)
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
            key = _key(journal, stream.source, stream.incarnation, stream.id << 32)
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
        if route.destination_tag not in (0, incarnation_tag(journal.incarnation)):
            self.violate(journal, f"took a message of {route.source} for another life")
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


@dataclass(slots=True)
class _Arrived:
    """Which numbers of a stream have come.

    Args:
        whole: all up to this one.
        beyond: the others.
    """

    whole: int = 0
    beyond: set[int] = field(default_factory=set)

    def add(self, number: int) -> None:
        """One has come."""
        if number > self.whole:
            self.beyond.add(number)
        while self.whole + 1 in self.beyond:
            self.whole += 1
            self.beyond.remove(self.whole)

    def missing(self, first: int, last: int) -> list[int]:
        """Those of a range that have not come."""
        first = max(first, self.whole + 1)
        return [number for number in range(first, last + 1) if number not in self.beyond]


_StreamName = tuple[NodeId, Incarnation, NodeId, int]
"""The place and life of one end, the other end, and the stream's id, which lives use again."""


class AcksAreHonest(Checker):
    """An acknowledgement says what came, to its source's life, and with the own tag."""

    name: ClassVar[str] = "acks-are-honest"
    events: ClassVar[Kinds] = (Segment, SharedSegment)
    effects: ClassVar[Kinds] = (SegmentAck,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._arrived: dict[_StreamName, dict[Incarnation, _Arrived]] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        for segment in segments_that_came(event):
            route = segment.route
            name = self._name(journal, route.source, route.sequence)
            lives = self._arrived.setdefault(name, {})
            lives.setdefault(route.source_incarnation, _Arrived()).add(route.sequence & 0xFFFF_FFFF)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, SegmentAck):
                self._check(journal, event, effect.message)

    @staticmethod
    def _name(journal: Journal, peer: NodeId, sequence: int) -> _StreamName:
        return journal.place, journal.incarnation, peer, sequence >> 32

    def _check(self, journal: Journal, event: Event, ack: SegmentAck) -> None:
        route = ack.route
        came = event.message if isinstance(event, Received) else None
        if route.source != journal.host.id or isinstance(came, SegmentAck):
            # Another's, or its own on a search that came by here.
            return
        following = route.sequence & 0xFFFF_FFFF
        if ack.tag != incarnation_tag(journal.incarnation):
            self.violate(journal, "acknowledges with a tag that is not its own")
        lives = self._arrived.get(self._name(journal, route.destination, route.sequence), {})
        named = [life for life in lives if incarnation_tag(life) == route.destination_tag]
        if not named:
            self.violate(
                journal, f"acknowledges to a life of {route.destination} that sent nothing"
            )
            return
        arrived = lives[named[-1]]
        missing = arrived.missing(1, following - 1)
        if missing:
            self.violate(journal, f"acknowledges {missing[:4]} of {route.destination}, not come")
        for first, last in ack.gaps:
            if arrived.missing(first, last):
                self.violate(journal, f"says to have {first} to {last}, which have not come")


class SourcesKeepTheirCredit(Checker):
    """Beyond one segment nothing is sent above the credit told, and none before the first answer.

    What is sent names a floor above no stream that waits for an answer, and is within the span.
    """

    name: ClassVar[str] = "sources-keep-their-credit"
    events: ClassVar[Kinds] = (SegmentAck,)
    effects: ClassVar[Kinds] = (Segment, SharedSegment)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._told: dict[StreamKey, tuple[int, int]] = {}
        self._sent: dict[StreamKey, tuple[int, int]] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received) and isinstance(event.message, SegmentAck):
            ack = event.message
            key = _key(journal, ack.route.source, Incarnation(0), ack.route.sequence)
            credit, following = self._told.get(key, (0, 1))
            number = ack.route.sequence & 0xFFFF_FFFF
            self._told[key] = max(credit, ack.credit), max(following, number)
        for effect in effects:
            for segment in segments_of(effect.message) if isinstance(effect, Send) else ():
                self._check(journal, segment)

    def _check(self, journal: Journal, segment: Segment) -> None:
        route = segment.route
        if (route.source, route.source_incarnation) != (journal.host.id, journal.incarnation):
            return
        if segment.flags & SegmentFlag.BEST_EFFORT:
            return
        stream_id, number = route.sequence >> 32, route.sequence & 0xFFFF_FFFF
        key = _key(journal, route.destination, Incarnation(0), route.sequence)
        highest, cost = self._sent.get(key, (0, 0))
        credit, following = self._told.get(key, (0, 1))
        if number > highest:
            cost += cost_of(segment.body)
            self._sent[key] = number, cost
            if number > highest + 1:
                self.violate(journal, f"sends {number} to {route.destination} after {highest}")
            if number > following and cost > credit:
                self.violate(journal, f"sends {cost} bytes on a credit of {credit}")
        for open_id, stream in journal.inside.open_ids(route.destination).items():
            if stream.underway and open_id < segment.floor:
                self.violate(journal, f"waits on stream {open_id}, its floor is {segment.floor}")
        if stream_id >= segment.floor + SPAN:
            self.violate(journal, f"stream {stream_id} is beyond the span of {segment.floor}")


class StepsOfStreamsAreBounded(Checker):
    """One step sends and hands out a bounded number of segments, whatever waits."""

    name: ClassVar[str] = "steps-of-streams-are-bounded"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Segment, SegmentAck, Deliver)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        sent = handed = 0
        for effect in effects:
            if isinstance(effect, Deliver):
                handed += 1
            elif isinstance(effect, Send) and isinstance(effect.message, Segment | SegmentAck):
                sent += 1
        most = SENT_MAX if is_deadline(event) else SENT_BY_EVENT_MAX
        if sent > most:
            self.violate(journal, f"sends {sent} segments in a step, at most {most}")
        if handed > HANDED_MAX:
            self.violate(journal, f"hands out {handed} segments in a step, at most {HANDED_MAX}")


class OwnBulkWaits(Checker):
    """A node sends nothing new of a stream of the bulk class over a link that has much to write, but for
    a byte for seven that its other streams send over it meanwhile.
    """

    name: ClassVar[str] = "own-bulk-waits"
    events: ClassVar[Kinds] = (Backlog,)
    effects: ClassVar[Kinds] = (Segment,)

    LOW_BYTES: ClassVar[int] = 64 * 1024
    SHARE: ClassVar[int] = 7
    BULK: ClassVar[int] = 3

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._passed: dict[NodeId, dict[LinkId, int]] = {}
        """Of each link that has much to write: what went past the bulk that waits for it, in bytes."""
        self._highest: dict[StreamKey, int] = {}

    def on_boot(self, journal: Journal) -> None:
        self._passed[journal.place] = {}

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        passed = self._passed[journal.place]
        if isinstance(event, Backlog) and event.backlog_bytes > self.LOW_BYTES:
            passed.setdefault(event.link, 0)
        elif isinstance(event, Backlog):
            passed.pop(event.link, None)
        for effect in effects:
            if not isinstance(effect, Send) or not isinstance(effect.message, Segment):
                continue
            route = effect.message.route
            if route.source == journal.host.id and route.sequence:
                self._check(journal, effect.link, effect.message)

    def _check(self, journal: Journal, link: LinkId, segment: Segment) -> None:
        route, passed = segment.route, self._passed[journal.place]
        cost = len(segment.body) + OVERHEAD_BYTES
        if route.priority != self.BULK:
            if link in passed:
                passed[link] += cost
            return
        key = _key(journal, route.destination, Incarnation(0), route.sequence)
        highest, number = self._highest.get(key, 0), route.sequence & 0xFFFF_FFFF
        self._highest[key] = max(highest, number)
        if link not in passed or number <= highest:
            return
        passed[link] -= self.SHARE * cost
        if passed[link] < 0:
            passed[link] = 0
            self.violate(journal, f"sends bulk to {route.destination} over a link that is full")
