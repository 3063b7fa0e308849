"""What happened to a cluster: facts in the order of time, the same from a simulator and a real one.

Two kinds of facts lie side by side. *Truth* is what was done, known to whoever did it: a life began,
died, was stopped. *Reports* are what a daemon or a program said: it took a message, believed a
record, declared a neighbor dead. Checkers hold the one against the other.

Times are nanoseconds since the run began, on one clock; real reports of equal times may stand in
another order than it came about. A file of facts has one JSON object per line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from bmgd.errors import PlanError
from bmgd.types import Incarnation, NodeId, Status


@dataclass(frozen=True, slots=True)
class Began:
    """Truth: a life began (a founder, a joiner or a restart)."""

    at_ns: int
    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Renewed:
    """Report: a process began a new life without ending; the former incarnation is over."""

    at_ns: int
    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Died:
    """Truth: a process was killed, or crashed."""

    at_ns: int
    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Exited:
    """Truth: a process ended by itself; 0 after leaving, else by its daemon's own decision."""

    at_ns: int
    node: NodeId
    incarnation: Incarnation
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """Truth: a process was stopped."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Resumed:
    """Truth: a stopped process goes on."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """Truth: a node was asked to leave."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """Truth: a joiner was started; `Began` follows when it has an id."""

    at_ns: int
    node: NodeId
    through: NodeId


@dataclass(frozen=True, slots=True)
class EvictAsked:
    """Truth: `by` was asked to evict `node`."""

    at_ns: int
    node: NodeId
    by: NodeId


@dataclass(frozen=True, slots=True)
class LieTold:
    """Truth: `told` was told something about `node` that is not so, as if a member had said it."""

    at_ns: int
    node: NodeId
    told: NodeId


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Truth: a step of the plan was carried out; `fault` is its JSON text."""

    at_ns: int
    fault: str


@dataclass(frozen=True, slots=True)
class Mended:
    """Truth: everything was mended and continued; from here on the cluster must come to rest."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Report: a program gave a message to its daemon.

    Args:
        node, incarnation: the source and its life.
        request: unique among this source's life.
        destination: whom it is for.
        addressed: the incarnation of it that the source knew at that moment; 0 for none.
        payload_id: unique in the whole history.
        kind: what its program did, of `bmgd.chaos.plan.KINDS`.
        flow: what is sent in one flow to one node is read there in that order; 0 for none.
    """

    at_ns: int
    node: NodeId
    incarnation: Incarnation
    request: int
    destination: NodeId
    addressed: Incarnation
    payload_id: int
    kind: str = "send"
    flow: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Report: the source's daemon says that the destination took the message."""

    at_ns: int
    node: NodeId
    request: int
    payload_id: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Report: the source's daemon gave the message up.

    Args:
        error: the error's class.
        sent: whether the destination may have it all the same, as the error said.
    """

    at_ns: int
    node: NodeId
    request: int
    payload_id: int
    error: str
    sent: bool = True


@dataclass(frozen=True, slots=True)
class Delivered:
    """Report: a program read a message.

    Args:
        node, incarnation: the reader and its life.
        source: who wrote it, as its daemon says.
        known: the incarnation of the source that this node knew at that moment; 0 for none.
    """

    at_ns: int
    node: NodeId
    incarnation: Incarnation
    source: NodeId
    known: Incarnation
    payload_id: int


@dataclass(frozen=True, slots=True)
class Reads:
    """Truth: from here on a program at this node reads the messages."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Unread:
    """Truth: what a daemon had taken, and no program had read, when it or its process ended.

    Only a simulator can tell. In a history that has any of these, every end of a process has one.

    Args:
        node, incarnation: the daemon and its last life.
        payload_ids: sorted.
    """

    at_ns: int
    node: NodeId
    incarnation: Incarnation
    payload_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Believed:
    """Report: a record of `about` changed at `node`; `revision` counts this node's changes."""

    at_ns: int
    node: NodeId
    about: NodeId
    incarnation: Incarnation
    version: int
    status: Status
    address: str
    revision: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """Report: `node` asks others about `about`."""

    at_ns: int
    node: NodeId
    about: NodeId
    why: str


@dataclass(frozen=True, slots=True)
class DeclaredDead:
    """Report: `node` declared a life of `about` dead."""

    at_ns: int
    node: NodeId
    about: NodeId
    incarnation: Incarnation
    why: str


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """Report: a link came up."""

    at_ns: int
    node: NodeId
    peer: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class LinkLost:
    """Report: a link went down that this node did not close."""

    at_ns: int
    node: NodeId
    peer: NodeId
    incarnation: Incarnation
    evidence: str


@dataclass(frozen=True, slots=True)
class LinkedExactly:
    """Report: a node's links are exactly those that it wants."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class BecameReady:
    """Report: a node has joined."""

    at_ns: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class Noted:
    """Report: anything else that a core observed, by its event's name."""

    at_ns: int
    node: NodeId
    event: str
    detail: str


@dataclass(frozen=True, slots=True)
class Showed:
    """Report: what a daemon showed of itself, by its status.

    Args:
        state: of its life, such as ``ready``.
        alive: the ids that it holds neither dead nor left, sorted.
        layout_size: how many ids its graph is over.
        neighbors: the ids that it wants links to, sorted.
        links: the ids that it has links to, sorted; twice where there are two.
        digest: of its membership, in hexadecimal.
    """

    at_ns: int
    node: NodeId
    state: str
    alive: tuple[NodeId, ...]
    layout_size: int
    neighbors: tuple[NodeId, ...]
    links: tuple[NodeId, ...]
    digest: str


Fact = (
    Began
    | Renewed
    | Died
    | Exited
    | Stopped
    | Resumed
    | LeaveAsked
    | JoinAsked
    | EvictAsked
    | LieTold
    | Disturbed
    | Mended
    | Sent
    | Acknowledged
    | Failed
    | Delivered
    | Reads
    | Unread
    | Believed
    | Suspected
    | DeclaredDead
    | LinkOpened
    | LinkLost
    | LinkedExactly
    | BecameReady
    | Noted
    | Showed
)

_CLASSES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in getattr(Fact, "__args__", ())
}


def to_line(fact: Fact) -> str:
    """A fact as one line of JSON, keys sorted as the class has them."""
    row = {"fact": type(fact).__name__}
    row |= {f.name: getattr(fact, f.name) for f in fields(fact)}
    return json.dumps(row, separators=(",", ":"))


def from_line(line: str) -> Fact:
    """Read `to_line`'s output.

    Raises:
        PlanError: it is not a fact.
    """
    try:
        row = json.loads(line)
        kind = _CLASSES[row.pop("fact")]
        row = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
        if "status" in row:
            row["status"] = Status(row["status"])
        fact: Fact = kind(**row)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PlanError(f"not a fact: {line[:80]!r} ({error})") from None
    return fact


class History:
    """Facts in the order of time."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self.facts: list[Fact] = list(facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def add(self, fact: Fact) -> None:
        """Append a fact; its time is not before the last one's."""
        self.facts.append(fact)

    def of(self, *kinds: type[Any]) -> Iterator[Any]:
        """The facts of these classes, oldest first."""
        return (fact for fact in self.facts if isinstance(fact, kinds))

    def sort(self) -> None:
        """Bring facts of many recorders into the order of time; equal times keep theirs."""
        self.facts.sort(key=lambda fact: fact.at_ns)
