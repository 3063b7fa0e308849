"""Past facts that the shell (or the simulator) tells the core."""

from __future__ import annotations

from typing import NamedTuple

from bmgd.core.commands import Command
from bmgd.dataclass import dataclass
from bmgd.peers import PeerList
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId, Record
from bmgd.wire.features import SPOKEN
from bmgd.wire.hello import Refusal
from bmgd.wire.messages import Message


@dataclass(frozen=True, slots=True)
class Received:
    """A message came on a link; for a routed one, the data plane left it to the core."""

    link: LinkId
    message: Message


@dataclass(frozen=True, slots=True)
class Heard:
    """Bytes came on these links that the data plane relayed without the core."""

    links: tuple[LinkId, ...]


class AbsorbedBeat(NamedTuple):
    """Heartbeats that an engine of links absorbed on one link.

    Attributes:
        at_ns: when the last one came.
        sequence, echo: the highest of them.
        heartbeats: how many.
    """

    link: LinkId
    at_ns: int
    sequence: int
    echo: int
    heartbeats: int


@dataclass(frozen=True, slots=True)
class HeartbeatsAbsorbed:
    """Heartbeats came as `AbsorbHeartbeats` said: told before any other event that follows them."""

    beats: tuple[AbsorbedBeat, ...]


@dataclass(frozen=True, slots=True)
class Greeted:
    """An authenticated hello waits for `Welcome` or `Refuse`.

    Args:
        address: the address that the newcomer advertises.
        known_of_me: the highest incarnation of this node that the newcomer knows; 0 for none.
        key: what the link is made under, see `KeysChanged`.
        renews: whether it is to take the place of the links that there are.
        features: what the other end can do, see `bmgd.wire.features`.
    """

    link: LinkId
    peer: NodeId
    incarnation: Incarnation
    address: str
    known_of_me: Incarnation
    dial_number: int
    key: str = ""
    renews: bool = False
    features: int = SPOKEN


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """An authenticated joiner waits for `Grant` or `Refuse`; `LinkDown` if it goes away before.

    Args:
        claimed: the id that it had in a former life, or None for a new one.
        incarnation: the life that it asks for.
        address: the address that it advertises.
    """

    link: LinkId
    claimed: NodeId | None
    incarnation: Incarnation
    address: str


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A dial of this node was welcomed; see `Greeted` for the fields."""

    link: LinkId
    peer: NodeId
    incarnation: Incarnation
    address: str
    known_of_me: Incarnation
    dial_number: int
    key: str = ""
    renews: bool = False
    features: int = SPOKEN


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link, or a hello that waited for its answer, is gone."""

    link: LinkId
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class DialFailed:
    """A dial came to nothing.

    Args:
        refusal: the other daemon's reason, with `Evidence.REJECTED`.
        known_of_me: the highest incarnation of this node that a refusal reported, or 0.
        proven: whoever refused has shown that it is a member, or none can here. Else anybody who
            answers at that address, or on the way to it, can have said so.
    """

    peer: NodeId
    evidence: Evidence
    refusal: Refusal | None = None
    known_of_me: Incarnation = UNKNOWN_INCARNATION
    proven: bool = True


@dataclass(frozen=True, slots=True)
class Backlog:
    """A link's outbox holds this many bytes (told when it crosses a bound, up or down)."""

    link: LinkId
    backlog_bytes: int


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """Links are made under other keys now.

    Args:
        keys: the names of those that are accepted, the one to be used first at the beginning;
            () for none.
    """

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommandIssued:
    """A program asks for something; `request` is unique in the daemon's life."""

    request: int
    command: Command


@dataclass(frozen=True, slots=True)
class Granted:
    """To a joiner: a contact told it its id and what a member must know.

    Args:
        records, retired: what the contact believes, sorted by id; see `RecordPage`.
    """

    id: NodeId
    founding_size: int
    peers: PeerList
    records: tuple[tuple[NodeId, Record], ...] = ()
    retired: tuple[tuple[NodeId, NodeId], ...] = ()


@dataclass(frozen=True, slots=True)
class AskFailed:
    """To a joiner: the contact did not let it join; see `DialFailed` for the fields."""

    evidence: Evidence
    refusal: Refusal | None = None
    proven: bool = True


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """`Node.deadline_ns` has passed, and every socket was drained first."""


Event = (
    Received
    | Heard
    | HeartbeatsAbsorbed
    | Greeted
    | JoinAsked
    | LinkUp
    | LinkDown
    | DialFailed
    | Granted
    | AskFailed
    | Backlog
    | KeysChanged
    | CommandIssued
    | DeadlineReached
)
