"""What daemons say to each other, as frozen dataclasses. How it looks on the wire: `codec.py`.

There are two families. *Link messages* are for the daemon at the other end of one link and never go
further. *Routed messages* carry a `Route` and are relayed hop by hop to the node that it names.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from bmgd.dataclass import dataclass
from bmgd.routing.branches import Branch
from bmgd.types import Incarnation, NodeId, Record

PAYLOAD_BYTES_MAX = 65_536
"""Of a message that goes whole, and of one piece of a longer one."""
SEGMENT_BYTES_MAX = PAYLOAD_BYTES_MAX + 5
"""The body of a segment: the longest message has five bytes of msgpack before it."""
MESSAGES_PER_SEGMENT_MAX = 65_535
LONG_BYTES_MAX = 2**40
"""The longest message."""
STREAM_ID_MAX = 2**32 - 1
INBOX_MAX = 2**32 - 1
QUESTION_MAX = 2**64 - 1
GAPS_MAX = 32
TOPIC_BYTES_MAX = 255
SEARCH_BYTES_MAX = 16_384
RECORDS_PER_NOTICE_MAX = 256
BUCKETS = 64
CONTROL_PRIORITY, HIGH_PRIORITY, NORMAL_PRIORITY, BULK_PRIORITY = range(4)
"""Of routed messages: what goes first where several wait for a link."""
ROUTE_IDS_MAX = 4096
REPORT_BYTES_MAX = 16_384
PROGRAMS_BYTES_MAX = 65_536
"""Of a page of a list of programs."""
PROBLEM_BYTES_MAX = 255
TRACE_MS_MAX = 60_000
BRANCHES_MAX = 1024
BRANCH_BYTES_MAX = 16_384 + 64
"""Of all covers of a frame together, as they are written, and 9 bytes for each branch."""
EXCEPTIONS_BYTES_MAX = 1100
SKIPS_MAX = 16
WATERMARKS_MAX = 256
OLDER_MEMBERS_MAX = 256
ENTRIES_MAX = 512
"""Destinations of a reliable multicast."""


# --- link messages ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life on a link.

    Args:
        sequence: counts the heartbeats of this link in this direction, from 1.
        echo: the highest sequence heard from the other side; 0 for none.
        digest: the sender's membership digest, 128 bits.
        answer: whether the receiver, if it sends none of its own accord, is to send one back.
    """

    sequence: int
    echo: int
    digest: int
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks the other side to show at once that it lives."""

    nonce: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answers a `Ping` with its nonce."""

    nonce: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Records on their way to everybody, at most `RECORDS_PER_NOTICE_MAX`, sorted by id."""

    records: tuple[tuple[NodeId, Record], ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The digests of the `BUCKETS` buckets by id, sent when digests stay unequal.

    Args:
        digests: `BUCKETS` integers of 128 bits.
        answer: whether the receiver is to send its own buckets back.
    """

    digests: tuple[int, ...]
    answer: bool


@dataclass(frozen=True, slots=True)
class PageAsk:
    """Asks for one page of the receiver's records; answered by a `RecordPage`.

    Args:
        after: the lowest id that the page may have.
        buckets: of which buckets records are wanted, one bit each, bit i for the ids i modulo 64.
    """

    after: NodeId
    buckets: int


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A part of the sender's records; it tells nobody else of it.

    Args:
        records: at most `RECORDS_PER_NOTICE_MAX`, sorted by id.
        retired: runs (first, last) of ids of joiners that have left for good, as many at most, sorted,
            none touching another.
        following: the lowest id that the next page may have; None if this is the last one.
    """

    records: tuple[tuple[NodeId, Record], ...]
    retired: tuple[tuple[NodeId, NodeId], ...] = ()
    following: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The sender does not want this link any more and closes it at an equal digest."""

    digest: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender closes the link on purpose: no evidence of a death."""

    reason: str


# --- routed messages ----------------------------------------------------------------------------


Visited = bytes | tuple[tuple[NodeId, NodeId], ...]
VISITED_RUN_BYTES = 11
"""The most bytes that one run of visited ids has in a frame."""


@dataclass(frozen=True, slots=True)
class Search:
    """The state of a depth-first search in careful mode (ISPA07 §5.1), carried by the message.

    Args:
        visited: a bitmap over ids, bit `id % 8` of byte `id // 8`; or runs (first, last) of ids,
            ascending, none touching another.
        stack: the ids on the way from the search's start to the sender, oldest first.
        restarts: how often the search began anew because the way back was gone.
    """

    visited: Visited
    stack: tuple[NodeId, ...]
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """The routing header of a message, and its search where it is in careful mode.

    Args:
        destination: the node id that the message is for.
        source: the node id that wrote it.
        source_incarnation: the whole incarnation of the source.
        destination_tag: `incarnation_tag` of the destination's life, 0 when not known yet.
        sequence: of a segment and its answers the stream and the number in it; of an `Ask` the
            number of the suspicion, of an `Answer` that of its ask.
        hop_budget: relays left before careful mode, 0..255.
        priority: see `CONTROL_PRIORITY`.
        record: every node on the way writes itself down.
        search: the state of careful mode, or None.
    """

    destination: NodeId
    source: NodeId
    source_incarnation: Incarnation
    destination_tag: int = 0
    sequence: int = 0
    hop_budget: int = 0
    priority: int = 0
    record: bool = False
    search: Search | None = None


class ResetReason(IntEnum):
    """Why a destination takes nothing more of a stream; the numbers are on the wire."""

    UNKNOWN = 1
    """It does not know the stream: nothing is said of what was taken."""
    FOREIGN_TAG = 2
    """It is another life than the one meant: nothing is said of what was taken."""
    LEAVING = 3
    NO_READER = 4
    """A long message, and nobody who could read it."""
    READER_LOST = 5
    """The reader of a long message went away before it had the whole."""


class SegmentFlag(IntEnum):
    """What is special about a segment; the bits are on the wire. No `IntFlag`: its operators are slow."""

    OPEN = 0x01
    """The first one of its stream: it carries the topic, and the stream that it replaces."""
    CLOSE = 0x02
    """The last one of its stream; empty."""
    FIRST = 0x04
    """The first piece of a long message."""
    LAST = 0x08
    """The last piece of a long message."""
    BEST_EFFORT = 0x10
    """At most once: of no stream, not acknowledged, and dropped where an outbox is full."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Some messages of one stream, or one piece of a long message.

    The route's sequence is ``stream << 32 | number``: segments of a stream are numbered from 1.

    Args:
        flags: of `SegmentFlag`.
        topic: of the stream where `OPEN` is set, or `BEST_EFFORT`; else "".
        replaces: with `OPEN`, the stream of the same source whose place this one takes, or 0.
        floor: the lowest stream id that the source still has open; those below may be forgotten.
        count: how many messages are in it; 0 of a piece, and of a `CLOSE`.
        size: of a piece, the length of the whole message in bytes; else 0.
        body: see `bmgd.wire.segments`; at most `SEGMENT_BYTES_MAX` bytes.
        inbox: of questions, where at the source their answers go; 0 of other messages.
        question: the number of the first question in it, or of the long one that it is a piece of.
    """

    route: Route
    flags: int
    topic: str
    replaces: int
    floor: int
    count: int
    size: int
    body: bytes = field(repr=False)
    inbox: int = 0
    question: int = 0


@dataclass(frozen=True, slots=True)
class SegmentAck:
    """What a destination has of a stream. The route's sequence is ``stream << 32 | next expected``.

    Args:
        tag: the destination's true tag.
        credit: up to which cost, counted from the stream's beginning, the source may send.
        full: the next segment came and there was no room: it was not taken.
        gaps: (first, last) of the segments beyond the next one that are there; they may be taken back.
    """

    route: Route
    tag: int
    credit: int
    full: bool
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The destination takes nothing more of a stream: not from the route's number on, but see reason.

    Args:
        tag: the destination's true tag.
        reason: a number of `ResetReason`; of an unknown stream, and a foreign tag,
            nothing is said of what was taken.
    """

    route: Route
    tag: int
    reason: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A relay's hint that it found no way for the message with the route's sequence.

    Args:
        target: the node id that it was for.
    """

    route: Route
    target: NodeId


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks for a `ProbeReply`; `passed` are the ids that it went through when recording."""

    route: Route
    passed: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """Answers a `Probe` with the way that it took, both ends included when it was recorded."""

    route: Route
    passed: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks a neighbor of a suspect whether it hears the suspect's life."""

    route: Route
    suspect: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers an `Ask`: `alive` is a veto, else the observer concurs."""

    route: Route
    suspect: NodeId
    incarnation: Incarnation
    alive: bool


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A contact asks the lowest live id to give a joiner an id.

    Args:
        incarnation: the joiner's life; it names the request.
        address: the joiner's.
        floor: the contact's id space: no id below is free.
    """

    route: Route
    incarnation: Incarnation
    address: str
    floor: int


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """Answers a `JoinRequest`: the joiner of that incarnation has this id, and everybody is told."""

    route: Route
    incarnation: Incarnation
    id: NodeId


@dataclass(frozen=True, slots=True)
class ReportAsk:
    """Asks a node for a report about itself; the route's sequence is the answer's too."""

    route: Route


@dataclass(frozen=True, slots=True)
class Report:
    """What a node tells of itself to one that asked.

    Args:
        body: a JSON object, see docs/operations.md; at most `REPORT_BYTES_MAX` bytes.
    """

    route: Route
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProgramAsk:
    """Asks a node for the list of its programs.

    Args:
        after: a page of those that started after this revision; 0 for the first page.
    """

    route: Route
    after: int


@dataclass(frozen=True, slots=True)
class ProgramList:
    """A page of the list of the programs that are registered at a node.

    Args:
        revision: of the list; pages of others do not belong to it.
        after: as it was asked for.
        is_last: whether no page follows.
        starts: packed, see `bmgd.wire.program_news`; at most `PROGRAMS_BYTES_MAX` bytes.
    """

    route: Route
    revision: int
    after: int
    is_last: bool
    starts: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TraceAsk:
    """Asks a node to trace the way from itself to another one.

    Args:
        target: where the way is to lead.
        timeout_ms: how long the probe may take, 1..60,000.
    """

    route: Route
    target: NodeId
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Answers a `TraceAsk`.

    Args:
        rtt_us: from sending the probe to its return.
        passed: the ids that it went through, both ends included.
        problem: why there is no way to show; "" where there is one.
    """

    route: Route
    rtt_us: int
    passed: tuple[NodeId, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class ReadersAsk:
    """Asks a node whether a program there reads a topic; the route's sequence is the answer's too."""

    route: Route
    topic: str


@dataclass(frozen=True, slots=True)
class ReadersAnswer:
    """Answers a `ReadersAsk`."""

    route: Route
    has_reader: bool


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A program's message to every reader of a topic, at most once.

    It goes from neighbor to neighbor. Whoever a branch names as its head takes the message, where the
    cover has its id, and sees to the rest of the cover; a branch with another head is passed on.

    Args:
        route: `destination` is who gets this copy, `sequence` counts the source's unconfirmed
            broadcasts and multicasts.
        tree: which of the two trees of ISPA07 §5.3: 0 closest-last, 1 closest-first.
        branches: at most `BRANCHES_MAX`, `BRANCH_BYTES_MAX` bytes in all.
    """

    route: Route
    topic: str
    payload: bytes = field(repr=False)
    tree: int
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Multicast:
    """A program's message to some nodes, to one reader of a topic at each, at most once.

    Args:
        route: as of a `Broadcast`, with the same count of sequences.
        branches: as of a `Broadcast`; heads pass the message on by shortest ways (ISPA07 §5.2).
    """

    route: Route
    topic: str
    payload: bytes = field(repr=False)
    branches: tuple[Branch, ...]


class Entry(NamedTuple):
    """One destination of a `SharedSegment`: what the segment has of its own there.

    Args:
        id: the destination.
        tag, sequence: as the route of a `Segment` to it has them.
        replaces, floor: as of a `Segment`.
    """

    id: NodeId
    tag: int
    sequence: int
    replaces: int
    floor: int


@dataclass(frozen=True, slots=True)
class SharedSegment:
    """A message to one reader of a topic at each of some nodes: a segment of a stream to each of them.

    It goes from neighbor to neighbor, and shares its body as long as the destinations share their way.
    What it is to each of them is a `Segment` with one whole message: acknowledged, refused, and sent
    again as one.

    Args:
        route: `destination` is the neighbor that gets this copy; never in careful mode.
        entries: at most `ENTRIES_MAX`, ascending by id; not empty.
        body: one message, as in a `Segment`.
    """

    route: Route
    topic: str
    entries: tuple[Entry, ...]
    body: bytes = field(repr=False)


class Skip(NamedTuple):
    """What a node need not wait for of a source's reliable broadcasts.

    Args:
        id: the node.
        first, last: counts of the source.
        missed: whether its programs have missed them: it was held dead when they were sent, or when
            they became stable. A life that began later has missed nothing.
    """

    id: NodeId
    first: int
    last: int
    missed: bool


@dataclass(frozen=True, slots=True)
class ReliableBroadcast:
    """A program's message to every reader of a topic: all nodes of its audience get it, or none.

    Args:
        route: as of a `Broadcast`; `sequence` counts the source life's reliable broadcasts, over all
            topics, from 1.
        id_space, exceptions: the audience, which never changes: the ids below the one, without the
            other, `EXCEPTIONS_BYTES_MAX` bytes of them.
        skips: of nodes of the audience, at most `SKIPS_MAX`; never changes either.
        stable: up to where everybody whom the source holds alive has everything.
    """

    route: Route
    topic: str
    payload: bytes = field(repr=False)
    tree: int
    branches: tuple[Branch, ...]
    id_space: int
    exceptions: int
    skips: tuple[Skip, ...]
    stable: int


class Piece(NamedTuple):
    """Where in a long broadcast a piece of it stands.

    Args:
        number: names the message among those of its source's life.
        at: how many bytes of it come before.
        size: how many it has in all.
    """

    number: int
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class BroadcastPiece(ReliableBroadcast):
    """A reliable broadcast whose payload is one piece of a longer message."""

    piece: Piece


@dataclass(frozen=True, slots=True)
class Watermark:
    """To a source: the sender has all of its reliable broadcasts up to here; the tag names its life.

    Args:
        stable: up to where the sender knows them to be stable.
        asks: whether it wants to be told what it skips, and what is stable.
    """

    route: Route
    watermark: int
    stable: int
    asks: bool


@dataclass(frozen=True, slots=True)
class Stable:
    """From a source to everybody: what is stable. `tree` and `branches` are as of a `Broadcast`."""

    route: Route
    tree: int
    branches: tuple[Branch, ...]
    stable: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """From a source to one node: what that node skips, and what is stable."""

    route: Route
    skips: tuple[Skip, ...]
    stable: int


class Held(NamedTuple):
    """What a node holds of a source's life.

    Args:
        watermark: it has all up to here, or skips it.
        stable: up to where the source told it that everybody has everything.
        highest: the highest count of which it has a copy, or the watermark.
    """

    source: NodeId
    incarnation: Incarnation
    watermark: int
    stable: int
    highest: int


@dataclass(frozen=True, slots=True)
class Watermarks:
    """To a neighbor: what the sender holds of sources that are gone, at most `WATERMARKS_MAX`.

    Args:
        asks: whether the neighbor is to tell of all other such lives too.
    """

    held: tuple[Held, ...]
    asks: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """Asks a neighbor for copies of a source's broadcasts from `first` on, `PULLED_MAX` at a time."""

    source: NodeId
    incarnation: Incarnation
    first: int


class MemberFeatures(NamedTuple):
    """What one life of a member can do, see `bmgd.wire.features`."""

    id: NodeId
    incarnation: Incarnation
    features: int


@dataclass(frozen=True, slots=True)
class OlderMembers:
    """To a neighbor: members that lack features, at most `OLDER_MEMBERS_MAX`, sorted by id."""

    members: tuple[MemberFeatures, ...]


LinkMessage = (
    Heartbeat
    | Ping
    | Pong
    | Notice
    | Buckets
    | PageAsk
    | RecordPage
    | Unwanted
    | Goodbye
    | Watermarks
    | Pull
    | OlderMembers
)
RoutedMessage = (
    Segment
    | SegmentAck
    | StreamReset
    | Unreachable
    | Probe
    | ProbeReply
    | Ask
    | Answer
    | JoinRequest
    | JoinGrant
    | ReportAsk
    | Report
    | TraceAsk
    | TraceAnswer
    | ReadersAsk
    | ReadersAnswer
    | ProgramAsk
    | ProgramList
    | Broadcast
    | Multicast
    | SharedSegment
    | ReliableBroadcast
    | BroadcastPiece
    | Watermark
    | Stable
    | Skipped
)
Message = LinkMessage | RoutedMessage
