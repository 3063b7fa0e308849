"""The messages of streams from one node to another one: segments, and what comes back for them.

How they look on the wire: `stream_formats.py`; the body of a segment: `segments.py`.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from bmgd.dataclass import dataclass
from bmgd.types import NodeId
from bmgd.wire.routes import Route


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


StreamMessage = Segment | SegmentAck | StreamReset | Unreachable | SharedSegment
