"""Messages from one node to many, along a tree, and what makes the reliable ones of them complete.

How they look on the wire: `broadcast_formats.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from bmgd.dataclass import dataclass
from bmgd.routing.branches import Branch
from bmgd.types import NodeId
from bmgd.wire.routes import Route


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A program's message to every reader of a topic, at most once.

    It goes from neighbor to neighbor. Whoever a branch names as its head takes the message, where the
    cover has its id, and sees to the rest of the cover; a branch with another head is passed on.

    Args:
        route: `destination` is who gets this copy, `sequence` counts the source's unconfirmed
            broadcasts and multicasts.
        tree: which of the two trees of ISPA07 §5.3: 0 closest-last, 1 closest-first.
        branches: at most `BRANCHES_MAX`, `BRANCH_BYTES_MAX` bytes in all, `COVERS_BYTES_MAX` when read.
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


BroadcastMessage = (
    Broadcast | Multicast | ReliableBroadcast | BroadcastPiece | Watermark | Stable | Skipped
)
