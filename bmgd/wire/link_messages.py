"""What a daemon says to the one at the other end of a link: these messages never go further.

How they look on the wire: `link_formats.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from bmgd.dataclass import dataclass
from bmgd.types import Incarnation, NodeId, Record

BUCKETS = 64


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
    """To a neighbor: members that lack features, or whose former lives did, sorted by id.

    At most `OLDER_MEMBERS_MAX`.
    """

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
