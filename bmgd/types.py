"""The small types that every room shares: what an id, a rank and a life are."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""The stable number of a member, 0-based, never renumbered."""

Rank = NewType("Rank", int)
"""An id's position among the ids in the layout. Never travels on the wire."""

Incarnation = NewType("Incarnation", int)
"""One life of an id: unsigned 64 bits, a counter in the upper 32, boot-random bits in the lower."""

LinkId = NewType("LinkId", int)
"""Names one TCP connection of one daemon; never used again in that daemon's life."""

NODE_ID_MAX = 2**31 - 1
"""The highest id that a cluster can have; sizes go to 2**31."""

NO_ID = NodeId(2**32 - 1)
"""Stands for "none yet" where a joiner speaks of itself; no member has it."""

UNKNOWN_INCARNATION = Incarnation(0)
"""Stands for "not known yet"; no life has it."""


class Status(IntEnum):
    """What is believed of an id; the order is the order of the join."""

    EXPECTED = 0
    ALIVE = 1
    DEAD = 2
    EXCLUDED = 3
    LEFT = 4


class Record(NamedTuple):
    """What is known of an id. Records are joined by taking the greater, field by field.

    Args:
        incarnation: the life that the record speaks of; 0 before any is known.
        version: raised by a living node to refute a false accusation.
        status: see `Status`.
        address: where the daemon can be dialled, ``host:port``.
    """

    incarnation: Incarnation
    version: int
    status: Status
    address: str


class Evidence(Enum):
    """Why a link or a dial ended: what may be concluded depends on it, never on a text."""

    GOODBYE = "goodbye"
    EOF = "eof"
    RESET = "reset"
    REFUSED = "refused"
    NO_ANSWER = "no answer"
    TIMED_OUT = "timed out"
    PROTOCOL_ERROR = "protocol error"
    REJECTED = "rejected"
    OWN_LACK = "own lack"
    """This host has no descriptor, port or memory left: that says nothing of the peer."""


class NodeState(Enum):
    """What a daemon is doing, as `status` shows it."""

    STARTING = "starting"
    JOINING = "joining"
    READY = "ready"
    LEAVING = "leaving"


COUNTER_MAX = 2**32 - 1
"""The last counter of lives; behind it the lower half of the incarnation orders them."""


def counter_of(incarnation: Incarnation) -> int:
    """The upper half of an incarnation, which orders the lives of an id."""
    return incarnation >> 32


def outranks(known: Incarnation, own: Incarnation) -> bool:
    """Whether a life that a peer knows makes this one begin anew: another one, of no lower counter."""
    if counter_of(own) == COUNTER_MAX:
        # No counter is left: the whole number orders these lives.
        return known > own
    return known != own and counter_of(known) >= counter_of(own)


def incarnation_tag(incarnation: Incarnation) -> int:
    """32 bits that tell one life from another in a frame; 0 stands for "not known yet"."""
    if incarnation == UNKNOWN_INCARNATION:
        return 0
    return ((incarnation >> 32) ^ incarnation) & 0xFFFF_FFFF or 1
