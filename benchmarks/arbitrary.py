"""Arbitrary messages and commands: valid by type and range, meaningless or hostile otherwise.

Values come from small pools, so that they often fit what the node knows: ids in and around the
cluster, lives that exist, numbers that were used, the ends of each range. `Arbitrary.message` invents a
message of any kind; `Arbitrary.like` turns one that the node itself wrote into an answer, or changes a
field of it. Whatever comes out has gone through the codec, both ways: it is what a peer can send.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import Any, get_args, get_origin, get_type_hints

from bmgd.core.commands import (
    BroadcastTo,
    CloseStream,
    Command,
    Evict,
    FindReaders,
    Leave,
    MulticastTo,
    OpenAnswers,
    OpenInbox,
    OpenQuestions,
    OpenStream,
    ProbeTo,
    PutSegment,
    SendTo,
    ShowLinks,
    ShowMembers,
    ShowReport,
    ShowStatus,
    Subscribe,
    TraceFrom,
    Unsubscribe,
    Withdraw,
)
from bmgd.errors import ProtocolError
from bmgd.frameheader import FRAME_BYTES_MAX
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, id_set, ids_between
from bmgd.types import NODE_ID_MAX, Incarnation, NodeId, Record, Status, incarnation_tag
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
from bmgd.wire.bounds import (
    LONG_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    RECORDS_PER_NOTICE_MAX,
    REPORT_BYTES_MAX,
    TRACE_MS_MAX,
)
from bmgd.wire.broadcast_messages import (
    Broadcast,
    BroadcastPiece,
    Multicast,
    Piece,
    ReliableBroadcast,
    Skip,
    Skipped,
    Stable,
    Watermark,
)
from bmgd.wire.codec import LENGTH_BYTES, decode, encode
from bmgd.wire.features import SPOKEN
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
from bmgd.wire.routes import Route, Search, Visited
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import (
    Entry,
    Segment,
    SegmentAck,
    SharedSegment,
    StreamReset,
    Unreachable,
)

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
TOPICS = ("jobs", "logs", "a", "é" * 120)
MS = 1_000_000
KEPT = 256
"""Messages and numbers that are remembered, to be used again."""


class Arbitrary:
    """Invents what peers and programs can say to one node.

    Args:
        random: decides everything.
        own: the node's id.
        founding_size: of its cluster.
    """

    def __init__(self, random: Random, own: NodeId, founding_size: int) -> None:
        self.random = random
        # Says when a message is as long as can be: a seed without one stays what it was.
        self.large = Random(f"{own} {founding_size} {random.getstate()[1][:9]}")
        self.own = own
        self.founding_size = founding_size
        self.lives: deque[int] = deque((1 << 32, (1 << 32) + 1), KEPT)
        self.numbers: deque[int] = deque((1, 2), KEPT)
        self.sent: deque[Message] = deque(maxlen=KEPT)
        self.inboxes: deque[int] = deque(maxlen=8)
        self.readers: deque[int] = deque(maxlen=8)
        self._kinds = self._link_kinds() + self._routed_kinds()
        named = {type(make()) for make in self._kinds}
        self._kinds += [partial(self._of, kind) for kind in get_args(Message) if kind not in named]

    # --- values -----------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """True in this share of the calls."""
        return self.random.random() < share

    def id(self) -> NodeId:
        """An id: mostly in the cluster, or just above; rarely any."""
        chosen = self.random.randrange(20)
        if chosen < 12:
            return NodeId(self.random.randrange(self.founding_size))
        if chosen < 15:
            return self.own
        if chosen < 18:
            return NodeId(self.founding_size + self.random.randrange(12))
        if chosen == 18:
            return NodeId(self.random.choice((4095, 4096, 32_767, 32_768, ID_SET_SPACE - 1)))
        return NodeId(
            self.random.choice((NODE_ID_MAX, NODE_ID_MAX - 1, self.random.getrandbits(31)))
        )

    def other(self) -> NodeId:
        """An id that is not the node's own."""
        while (found := self.id()) == self.own:
            pass
        return found

    def life(self) -> Incarnation:
        """A life: mostly one that was met."""
        if self.chance(0.9):
            return Incarnation(self.random.choice(self.lives))
        return Incarnation(
            self.random.choice(
                (0, 1, 1 << 32, U64_MAX, U64_MAX - 1, U32_MAX << 32, self.random.getrandbits(64))
            )
        )

    def number(self, low: int = 0, high: int = U64_MAX) -> int:
        """A number in a range: small, met before, next to one, or an end of the range."""
        chosen = self.random.randrange(10)
        if chosen < 4:
            found = self.random.randrange(12)
        elif chosen < 8:
            found = self.random.choice(self.numbers) + self.random.randrange(-1, 3)
        elif chosen == 8:
            found = self.random.choice((low, high, high - 1, U32_MAX, 1 << 32, 4096, 1 << 20))
        else:
            found = self.random.getrandbits(self.random.choice((8, 16, 32, 48, 64)))
        return min(max(found, low), high)

    def digest(self) -> int:
        """128 random bits."""
        return self.random.getrandbits(128)

    def stream_number(self) -> int:
        """A route's sequence as segments have it."""
        if self.chance(0.5):
            return self.number()
        return self.number(0, U32_MAX) << 32 | self.number(0, U32_MAX)

    def tag(self) -> int:
        """The tag of a life, or any."""
        return incarnation_tag(self.life()) if self.chance(0.8) else self.number(0, U32_MAX)

    def topic(self) -> str:
        """One of a few topics."""
        return self.random.choice(TOPICS)

    def payload(self) -> bytes:
        """Mostly short; sometimes the longest."""
        size = self.random.choice((0, 1, 5, 40, 40, 900))
        return bytes(PAYLOAD_BYTES_MAX if self.chance(0.01) else size)

    def ids(self, most: int = 6) -> tuple[NodeId, ...]:
        """Some ids, in any order."""
        return tuple(self.id() for _ in range(self.random.randrange(most)))

    def id_set(self) -> int:
        """A set of ids below `ID_SET_SPACE`."""
        chosen = self.random.randrange(4)
        if chosen == 0:
            return ids_between(0, self.founding_size)
        if chosen == 1:
            first = self.random.randrange(self.founding_size)
            return ids_between(first, first + self.random.choice((1, 2, 40, 5000)))
        return id_set(each for each in self.ids() if each < ID_SET_SPACE)

    def branches(self) -> tuple[Branch, ...]:
        """Some branches of a broadcast."""
        return tuple(
            Branch(self.id(), self.id_set()) for _ in range(self.random.choice((0, 1, 1, 2, 3, 9)))
        )

    def runs(self) -> tuple[tuple[NodeId, NodeId], ...]:
        """Ascending runs of ids, none touching another."""
        ends = sorted({2 * each for each in self.ids(8) if each < NODE_ID_MAX // 2})
        return tuple((NodeId(a), NodeId(b)) for a, b in zip(ends[::2], ends[1::2], strict=False))

    def record(self) -> Record:
        """What somebody could claim of an id."""
        return Record(
            self.life(),
            self.number(0, U32_MAX) if self.chance(0.3) else self.random.randrange(3),
            self.random.choice(tuple(Status)),
            self.address(),
        )

    def records(self) -> tuple[tuple[NodeId, Record], ...]:
        """Records of some ids, in order."""
        most = 300 if self.chance(0.01) else 5
        known = {each: self.record() for each in self.ids(most)}
        return tuple(sorted(known.items())[:RECORDS_PER_NOTICE_MAX])

    def address(self) -> str:
        """An address as peers tell it: any text of at most 255 bytes."""
        return self.random.choice(
            (
                "127.0.0.1:7401",
                "127.0.0.1:7402",
                "10.0.0.9:1",
                "[::1]:7400",
                "",
                "nonsense",
                "x" * 255,
            )
        )

    def skips(self) -> tuple[Skip, ...]:
        """Ranges that nodes skip."""
        found = []
        for _ in range(self.random.choice((0, 0, 1, 2, 16))):
            first = self.number(1)
            found.append(Skip(self.id(), first, self.number(first), self.chance(0.5)))
        return tuple(found)

    def search(self) -> Search:
        """The state of a search in careful mode."""
        visited: Visited = (
            bytes(self.random.getrandbits(8) for _ in range(self.random.choice((0, 1, 2, 9, 400))))
            if self.chance(0.6)
            else self.runs()
        )
        return Search(visited, self.ids(9), self.random.choice((0, 1, 2, 3, 4, 255)))

    def route(self) -> Route:
        """A route: mostly to this node, from a life that it may know."""
        return Route(
            destination=self.own if self.chance(0.8) else self.id(),
            source=self.id(),
            source_incarnation=self.life(),
            destination_tag=self.tag() if self.chance(0.8) else 0,
            sequence=self.stream_number(),
            hop_budget=self.random.choice((0, 1, 9, 255)),
            priority=self.random.choice((0, 1, 2, 3, 255)),
            record=self.chance(0.1),
            search=self.search() if self.chance(0.1) else None,
        )

    # --- messages ---------------------------------------------------------------------------------

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

    def features(self) -> int:
        """What somebody says that it can do."""
        return self.random.choice((0, SPOKEN, U32_MAX, self.random.getrandbits(32)))

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

    # --- commands ---------------------------------------------------------------------------------

    def _timeout_ns(self) -> int:
        return self.random.choice((0, 1, MS, 50 * MS, 2000 * MS, 86_400_000 * MS))

    def request(self) -> Command:
        """A command that begins something; its number is new."""
        destination, topic, timeout_ns = self.id(), self.topic(), self._timeout_ns()
        reliable = self.chance(0.7)
        makers: Sequence[Callable[[], Command]] = (
            ShowStatus,
            ShowMembers,
            ShowLinks,
            ShowReport,
            *[lambda: SendTo(destination, topic, self.payload(), timeout_ns)] * 4,
            *[lambda: BroadcastTo(topic, self.payload(), reliable, timeout_ns)] * 3,
            lambda: MulticastTo(self.id_set() or 1, topic, self.payload(), reliable, timeout_ns),
            *[lambda: OpenStream(destination, topic, self.random.randrange(1, 4), not reliable)]
            * 3,
            *[
                lambda: Subscribe(
                    topic,
                    self.random.choice((1, 1, 16, 2**20)),
                    self.random.choice((1, 1 << 20)),
                    self.chance(0.5),
                )
            ]
            * 2,
            lambda: ProbeTo(destination, reliable, timeout_ns),
            lambda: OpenInbox(self.random.choice((1, 1 << 20, 64 << 20))),
            lambda: FindReaders(topic, max(1, timeout_ns)),
            lambda: OpenAnswers(
                destination,
                Incarnation(max(1, self.life())),
                self.number(1, U32_MAX),
                self.random.choice(self.readers or (1,)),
            ),
            *[
                lambda: (
                    OpenQuestions(
                        destination,
                        topic,
                        self.random.randrange(1, 4),
                        self.random.choice(self.inboxes),
                    )
                    if self.inboxes
                    else OpenInbox(1 << 20)
                )
            ]
            * 2,
            lambda: TraceFrom(destination, self.id(), max(MS, min(timeout_ns, TRACE_MS_MAX * MS))),
        )
        if self.chance(0.004):
            return Evict(destination, timeout_ns)
        if self.chance(0.0005):
            return Leave()
        return self.random.choice(makers)()

    def follow_up(self) -> Command:
        """A command about a request that was made before, of whatever kind, and over or not."""
        shape = self.random.randrange(9)
        timeout_ns = self._timeout_ns()
        if shape < 4:
            count = self.random.choice((1, 1, 3))
            answers = tuple(self.number(1) for _ in range(self.random.choice((0, 0, 0, 1, 3))))
            body = packed(self.payload()[:900]) * count
            return PutSegment(count, body, timeout_ns=timeout_ns, answers=answers)
        if shape < 6:
            body = self.payload() or b"x"
            size = self.number(len(body), LONG_BYTES_MAX)
            return PutSegment(0, body, size, self.chance(0.5), self.chance(0.5), timeout_ns)
        if shape == 6:
            return Withdraw(self.number(1, 2**48))
        if shape == 7:
            return CloseStream(abandon=self.chance(0.5))
        return Unsubscribe()


def _sendable(message: Message) -> Message | None:
    """As the other side reads it; None if it cannot be written or read."""
    try:
        body = encode(message)[LENGTH_BYTES:]
        return decode(body)
    except (ProtocolError, struct.error, OverflowError, ValueError):
        return None
