"""What a daemon can do beyond its protocol version: one bit each in a hello.

A message of a kind that not every release speaks needs a feature. Who must have it is its *scope*: the
neighbor that the frame is for, or every member, since a relay may have to look into the frame, and its
destination must. docs/wire-protocol.md has the bits, `tests/golden/previous.txt` the kinds that
need none.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from bmgd.dataclass import dataclass
from bmgd.wire.ask_messages import ProgramAsk, ProgramList, ReadersAnswer, ReadersAsk
from bmgd.wire.broadcast_messages import BroadcastPiece
from bmgd.wire.link_messages import OlderMembers
from bmgd.wire.messages import Message
from bmgd.wire.stream_messages import SharedSegment


class Feature(IntEnum):
    """The bits of the field *features* of a hello. A bit is never used for another thing.

    No `IntFlag`: its operators are slow.
    """

    OLDER_MEMBERS = 0x01
    """It tells its neighbors which members lack features."""
    REQUESTS = 0x02
    """Questions and answers, and who has a reader of a topic."""
    SHARED_SEGMENTS = 0x04
    """It takes frames of reliable multicasts, and passes them on."""
    PROGRAMS = 0x08
    """Reliable broadcasts of no topic, about registered programs, and lists of those."""
    BROADCAST_PIECES = 0x10
    """It takes broadcasts that come in pieces."""


SPOKEN: Final = sum(Feature)
"""All features of this release."""


class Scope(Enum):
    """Who must have a feature before it is used."""

    NEIGHBOR = "neighbor"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Need:
    """What a kind of message needs before it is sent."""

    feature: Feature
    scope: Scope


NEEDS: Final[dict[type[Message], Need]] = {
    OlderMembers: Need(Feature.OLDER_MEMBERS, Scope.NEIGHBOR),
    ReadersAsk: Need(Feature.REQUESTS, Scope.CLUSTER),
    ReadersAnswer: Need(Feature.REQUESTS, Scope.CLUSTER),
    ProgramAsk: Need(Feature.PROGRAMS, Scope.CLUSTER),
    ProgramList: Need(Feature.PROGRAMS, Scope.CLUSTER),
    SharedSegment: Need(Feature.SHARED_SEGMENTS, Scope.NEIGHBOR),
    BroadcastPiece: Need(Feature.BROADCAST_PIECES, Scope.CLUSTER),
}
"""Every kind that the release before this one does not speak. `Forwarding.originate` withholds a routed
message whose need is not met; who sends a link message looks at `Link.features`."""


def names_of(features: int) -> list[str]:
    """The features of a set as people and documents write them; bits that have no name are left out."""
    return [str(f.name).lower().replace("_", " ") for f in Feature if features & f]
