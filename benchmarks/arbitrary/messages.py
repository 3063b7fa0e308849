"""Arbitrary messages: valid by type and range, meaningless or hostile otherwise.

`Messages.message` invents a message of any kind; `Messages.like` turns one that the node itself wrote
into an answer, or changes a field of it. Whatever comes out has gone through the codec, both ways: it is
what a peer can send.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import Any, get_args, get_origin, get_type_hints

from benchmarks.arbitrary.values import KEPT, U32_MAX, Values
from bmgd.errors import ProtocolError
from bmgd.frameheader import FRAME_BYTES_MAX
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId, Record, incarnation_tag
from bmgd.wire.ask_messages import (
    Answer,
    Ask,
    JoinGrant,
    JoinRequest,
    Probe,
    ProbeReply,
    ReadersAnswer,
    ReadersAsk,
    Report,
    ReportAsk,
    TraceAnswer,
    TraceAsk,
)
from bmgd.wire.bounds import LONG_BYTES_MAX, PAYLOAD_BYTES_MAX, REPORT_BYTES_MAX, TRACE_MS_MAX
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.link_messages import (
    BUCKETS,
    Buckets,
    Goodbye,
    Heartbeat,
    Held,
    MemberFeatures,
    Notice,
    OlderMembers,
    PageAsk,
    Ping,
    Pong,
    Pull,
    RecordPage,
    Unwanted,
    Watermarks,
)
from bmgd.wire.messages import LinkMessage, Message, RoutedMessage
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import (
    Entry,
    Segment,
    SegmentAck,
    SharedSegment,
    StreamReset,
    Unreachable,
)


class Messages(Values):
    """Invents what peers can say to one node.

    Args: as `Values`.

    Attributes:
        sent: what the node wrote, see `note`.
    """

    def __init__(self, random: Random, own: NodeId, founding_size: int) -> None:
        super().__init__(random, own, founding_size)
        # Says when a message is as long as can be: a seed without one stays what it was.
        self.large = Random(f"{own} {founding_size} {random.getstate()[1][:9]}")
        self.sent: deque[Message] = deque(maxlen=KEPT)
        self._kinds = self._link_kinds() + self._routed_kinds()
        named = {type(make()) for make in self._kinds}
        self._kinds += [partial(self._of, kind) for kind in get_args(Message) if kind not in named]

    def message(self) -> Message:
        """A message of any kind."""
        while True:
            made = self._longest if self.large.random() < 0.01 else self.random.choice(self._kinds)
            found = _sendable(made())
            if found is not None:
                return found

    def _of(self, kind: type[Message]) -> Message:
        """A message of a kind that has no line below: each field by its type."""
        hints = get_type_hints(kind)
        made: Message = kind(**{name: self._by_type(hint) for name, hint in hints.items()})
        return made

    def _by_type(self, hint: Any) -> Any:
        known: dict[Any, Callable[[], Any]] = {
            Route: self.route,
            NodeId: self.id,
            Incarnation: self.life,
            Record: self.record,
            bool: lambda: self.chance(0.5),
            int: self.number,
            str: self.topic,
            bytes: self.payload,
        }
        if hint in known:
            return known[hint]()
        if get_origin(hint) is tuple:
            item = get_args(hint)[0]
            return tuple(sorted(self._by_type(item) for _ in range(self.random.randrange(4))))
        return hint(*(self._by_type(each) for each in get_type_hints(hint).values()))

    def like(self) -> Message:
        """Made of a message that the node sent: an answer to it, an echo, or one field changed."""
        if not self.sent:
            return self.message()
        former = self.random.choice(self.sent)
        if not isinstance(former, LinkMessage) and self.chance(0.7):
            former = self._answer(former) if self.chance(0.5) else self._turned(former)
        if self.chance(0.4):
            former = self._changed(former)
        return _sendable(former) or self.message()

    def note(self, message: Message) -> None:
        """The node sent this."""
        self.sent.append(message)
        if isinstance(message, LinkMessage):
            return
        self.numbers.append(message.route.sequence)
        self.numbers.append(message.route.sequence >> 32)

    def _turned(self, message: RoutedMessage) -> RoutedMessage:
        route = message.route
        turned = replace(
            route,
            destination=self.own,
            source=route.destination,
            source_incarnation=self.life(),
            destination_tag=incarnation_tag(route.source_incarnation),
        )
        return replace(message, route=turned)

    def _answer(self, message: RoutedMessage) -> Message:
        route = self._turned(message).route
        stream = route.sequence & ~U32_MAX
        match message:
            case Segment():
                number = min((route.sequence & U32_MAX) + self.random.randrange(-1, 3), U32_MAX)
                route = replace(route, sequence=stream | max(number, 0))
                if self.chance(0.8):
                    credit = self.random.choice((0, self.number(), 1 << 20))
                    return SegmentAck(route, self.tag(), credit, self.chance(0.1), self._gaps())
                return StreamReset(route, self.tag(), self.random.choice((1, 2, 3, 4, 5, 9)))
            case Probe():
                return ProbeReply(route, (*message.passed, self.own))
            case Ask():
                return Answer(route, message.suspect, message.incarnation, self.chance(0.5))
            case JoinRequest():
                return JoinGrant(route, message.incarnation, self.id())
            case ReliableBroadcast():
                return Watermark(route, self.number(), self.number(), self.chance(0.5))
            case ReportAsk():
                return Report(route, self.payload()[:99])
            case TraceAsk():
                return TraceAnswer(route, self.number(), self.ids(), "")
            case _:
                return Unreachable(route, self.id())

    def _changed(self, message: Message) -> Message:
        if not isinstance(message, LinkMessage) and self.chance(0.4):
            chosen = self.random.choice(fields(Route)).name
            return replace(
                message, route=replace(message.route, **{chosen: getattr(self.route(), chosen)})
            )
        names = [each.name for each in fields(message) if each.name != "route"]
        if not names:
            return message
        name = self.random.choice(names)
        return replace(message, **{name: self._other_value(getattr(message, name))})

    def _other_value(self, value: Any) -> Any:
        match value:
            case bool():
                return not value
            case int():
                return (
                    self.number()
                    if self.chance(0.5)
                    else self.random.choice((value + 1, self.id()))
                )
            case bytes():
                return value[: self.random.randrange(len(value) + 1)]
            case str():
                return self.random.choice(("", self.topic(), self.address()))
            case tuple() if value:
                at = self.random.randrange(len(value))
                return (
                    value[:at]
                    + value[at + self.random.randrange(2) :]
                    + value[: self.random.randrange(2)]
                )
        return value

    def _gaps(self) -> tuple[tuple[int, int], ...]:
        numbers = sorted(
            self.number(1, U32_MAX) for _ in range(2 * self.random.choice((0, 0, 1, 3, 32)))
        )
        return tuple(zip(numbers[::2], numbers[1::2], strict=True))

    def _segment(self) -> Segment:
        flags = self.random.choice(
            (0, 0, 1, 1, 1, 3, 2, 4, 5, 8, 12, 13, 16, self.random.randrange(256))
        )
        topic = self.topic() if flags & 0x11 else ""
        shape = self.random.randrange(4)
        count = size = 0
        body = b""
        if shape < 2:
            count = self.random.choice((1, 1, 2, 7))
            body = b"".join(packed(self.payload()[:9000]) for _ in range(count))
        elif shape == 2:
            body = self.payload() or b"x"
            size = self.number(1, LONG_BYTES_MAX)
        floor, replaces = self.number(0, U32_MAX), self.number(0, U32_MAX)
        inbox = self.random.choice((0, 0, 0, 1, self.number(0, U32_MAX)))
        question = self.number(1) if inbox else 0
        route = self.route()
        return Segment(route, flags, topic, replaces, floor, count, size, body, inbox, question)

    def _shared(self) -> SharedSegment:
        ids = sorted(set(self.ids(9))) or [self.own]
        entries = tuple(
            Entry(each, self.tag(), self.stream_number(), self.number(0, U32_MAX), 1)
            for each in ids
        )
        body = packed(self.payload()[:900])
        return SharedSegment(replace(self.route(), search=None), self.topic(), entries, body)

    def _reliable(self) -> ReliableBroadcast:
        return ReliableBroadcast(
            self.route(),
            self.topic(),
            self.payload(),
            self.random.randrange(2),
            self.branches(),
            self.random.choice((1, self.founding_size, self.number(1, ID_SET_SPACE))),
            self.id_set() if self.chance(0.3) else 0,
            self.skips(),
            self.number(),
        )

    def _longest(self) -> Broadcast | BroadcastPiece:
        """A message to many that takes nearly a whole frame, and may have to search for its way."""
        left = FRAME_BYTES_MAX - PAYLOAD_BYTES_MAX - self.large.randrange(70, 200)
        first = self.large.randrange(left // 2, ID_SET_SPACE // 8)
        branches = tuple(
            Branch(self.id(), self.large.getrandbits(8 * size)) for size in (first, left - first)
        )
        route = replace(self.route(), destination=self.id(), hop_budget=0, search=None)
        payload = bytes(PAYLOAD_BYTES_MAX)
        if self.large.random() < 0.5:
            return Broadcast(route, "a", payload, 0, branches)
        piece = Piece(1, 0, 2 * PAYLOAD_BYTES_MAX)
        return BroadcastPiece(route, "a", payload, 0, branches, self.founding_size, 0, (), 0, piece)

    def _older(self) -> OlderMembers:
        lives = {each: Incarnation(max(1, self.life())) for each in self.ids(9)}
        return OlderMembers(
            tuple(
                MemberFeatures(each, life, self.features()) for each, life in sorted(lives.items())
            )
        )

    def _held(self) -> tuple[Held, ...]:
        return tuple(
            Held(self.id(), Incarnation(max(1, self.life())), *(self.number() for _ in range(3)))
            for _ in range(self.random.choice((0, 1, 3, 40)))
        )

    def _link_kinds(self) -> list[Callable[[], Message]]:
        number, digest = self.number, self.digest
        return [
            lambda: Heartbeat(number(1), number(), digest(), self.chance(0.5)),
            lambda: Ping(number()),
            lambda: Pong(number()),
            lambda: Notice(self.records()),
            lambda: Notice(self.records()),
            lambda: Buckets(tuple(digest() for _ in range(BUCKETS)), self.chance(0.5)),
            lambda: PageAsk(self.id(), number(1)),
            lambda: RecordPage(
                self.records(), self.runs(), self.id() if self.chance(0.5) else None
            ),
            lambda: Unwanted(digest()),
            lambda: Goodbye("enough"),
            lambda: Watermarks(self._held(), self.chance(0.5)),
            self._older,
            lambda: Pull(self.id(), Incarnation(max(1, self.life())), number(1)),
        ]

    def _routed_kinds(self) -> list[Callable[[], Message]]:
        route, number = self.route, self.number
        return [
            *[self._segment] * 6,
            *[self._reliable] * 3,
            self._shared,
            lambda: ReadersAsk(route(), self.topic()),
            lambda: ReadersAnswer(route(), self.chance(0.5)),
            lambda: SegmentAck(route(), self.tag(), number(), self.chance(0.1), self._gaps()),
            lambda: StreamReset(route(), self.tag(), self.random.randrange(7)),
            lambda: Unreachable(route(), self.id()),
            lambda: Probe(route(), self.ids()),
            lambda: ProbeReply(route(), self.ids()),
            lambda: Ask(route(), self.id(), self.life()),
            lambda: Answer(route(), self.id(), self.life(), self.chance(0.5)),
            lambda: JoinRequest(
                route(),
                Incarnation(max(1, self.life())),
                self.address(),
                number(0, NODE_ID_MAX + 1),
            ),
            lambda: JoinGrant(route(), Incarnation(max(1, self.life())), self.id()),
            lambda: ReportAsk(route()),
            lambda: Report(route(), self.payload()[:REPORT_BYTES_MAX]),
            lambda: TraceAsk(route(), self.id(), number(1, TRACE_MS_MAX)),
            lambda: TraceAnswer(route(), number(), self.ids(), self.random.choice(("", "no way"))),
            lambda: Broadcast(
                route(), self.topic(), self.payload(), self.random.randrange(2), self.branches()
            ),
            lambda: Multicast(route(), self.topic(), self.payload(), self.branches()),
            lambda: Watermark(route(), number(), number(), self.chance(0.5)),
            lambda: Stable(route(), self.random.randrange(2), self.branches(), number()),
            lambda: Skipped(route(), self.skips(), number()),
        ]


def _sendable(message: Message) -> Message | None:
    """As the other side reads it; None if it cannot be written or read."""
    try:
        body = encode(message)[LENGTH_BYTES:]
        return decode(body)
    except (ProtocolError, struct.error, OverflowError, ValueError):
        return None
