"""One simulated machine: its daemon's core, its clock, its ends of connections, what it has shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bmgd.core.effects import (
    Announce,
    AskContact,
    Deliver,
    Dial,
    Exit,
    Observed,
    RecordChanged,
    Reply,
    TellMissed,
)
from bmgd.core.events import Event
from bmgd.core.joining.joiner import Joiner
from bmgd.core.node import Node
from bmgd.errors import InvariantError
from bmgd.linkevents import LinkEvents
from bmgd.linklayer import LinkEngine, LinkLayer
from bmgd.routing import Snapshot
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId
from bmgd.wire.features import SPOKEN

Happening: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""Something that is to happen at a host, and with what it is called."""
NEVER = 1 << 62
_MILLION = 1_000_000


@dataclass(slots=True, eq=False)
class End:
    """One end of a connection, and the way of bytes from it to the other end.

    Attributes:
        up: the hello was answered.
        closing: this end said goodbye, and reads on until the other has closed too.
        last_ns: when the last thing sent arrives; nothing sent later arrives before.
        sent, arrived: count the things sent to the other end.
        cut_off: what was sent after this one is lost.
        held: what waits, in order, for the end of a cut.
        doubted_ns: since when bytes are unacknowledged because of a cut; 0 for not.
        dead: the connection has died without anybody being told (half-open).
        in_pipe_bytes: written by this end, and not yet known to be read by the other.
        is_full: it filled the pipe, and waits until enough of that is free.
        writes_later: it writes on when its kernel takes more.
        over: its kernel knows that the connection is over, so it tells the other nothing more.
        life: what the accepting side's hello says of itself.
        key: what the connection was proven by.
    """

    host: Host
    link: LinkId
    other: End | None = None
    dial: Dial | AskContact | None = None
    open: bool = True
    up: bool = False
    closing: bool = False
    last_ns: int = 0
    sent: int = 0
    arrived: int = 0
    cut_off: int = NEVER
    held: list[tuple[int, Callable[..., None], tuple[Any, ...]]] | None = None
    doubted_ns: int = 0
    dead: bool = False
    in_pipe_bytes: int = 0
    is_full: bool = False
    writes_later: bool = False
    over: bool = False
    life: Incarnation = UNKNOWN_INCARNATION
    key: str = ""


Waiting: TypeAlias = "tuple[Host, Dial | AskContact, int]"
"""Who dials, how, and until when it waits for an answer."""


@dataclass(slots=True, eq=False)
class Host:
    """One simulated machine with one process.

    Attributes:
        member: its node; None before it is a member.
        place: its number among the hosts if that is not its id, which two of them may have at a time.
        joiner: its core while it has no id, else None.
        address: where it listens.
        alive: its process runs (or is stopped).
        features: what its release can do, see `bmgd.wire.features`.
        ends: its open connections by link id.
        closing: the connections that it closes gracefully.
        held_back: what happened to it while it was stopped or busy.
        backlog: who dialled it while it was a joiner.
        layer: its links that are up.
        link_events: from what the layer tells to the core's events.
        busy: a step takes its time; what happens meanwhile waits in `held_back`.
        crash_after: dies after so many more effects; None for not.
        accepts_until_ns: until then its dead listener still accepts.
        keys: what its links are proven by, the one to be used first at the beginning; () for nothing.
        squatter: another process has its address: "silent" or "cluster"; "" for none.
        delivered: the `Deliver` effects of its core, in order.
        announced: the `Announce` and `TellMissed` effects of its core, in order.
        replies: the last `Reply` for each request.
        observed: what its core wanted an operator to see, with virtual times.
        records: the changed records.
        reports: the last report of each node that it asked.
        sent_messages: of its core's, to other hosts.
        bytes: sent to other hosts.
    """

    id: NodeId
    member: Node | None
    snapshot: Snapshot
    address: str
    joiner: Joiner | None = None
    place: NodeId | None = None
    alive: bool = True
    stopped: bool = False
    wake_planned_ns: int | None = None
    features: int = SPOKEN
    ends: dict[LinkId, End] = field(default_factory=dict)
    closing: dict[LinkId, End] = field(default_factory=dict)
    held_back: deque[Happening] = field(default_factory=deque)
    events: deque[Event] = field(default_factory=deque)
    stepping: bool = False
    backlog: list[Waiting] = field(default_factory=list)
    layer: LinkEngine = field(default_factory=LinkLayer)
    link_events: LinkEvents | None = None
    busy: bool = False
    offset_ns: int = 0
    drift_ppm: int = 0
    crash_after: int | None = None
    accepts_until_ns: int = 0
    proxied: bool = False
    keys: tuple[str, ...] = ()
    squatter: str = ""
    delivered: list[Deliver] = field(default_factory=list)
    announced: list[Announce | TellMissed] = field(default_factory=list)
    replies: dict[int, Reply] = field(default_factory=dict)
    observed: list[tuple[int, Observed]] = field(default_factory=list)
    records: list[RecordChanged] = field(default_factory=list)
    reports: dict[NodeId, bytes] = field(default_factory=dict)
    exit: Exit | None = None
    sent_messages: int = 0
    bytes: int = 0

    @property
    def messages(self) -> int:
        """How many messages it sent and runs it relayed to other hosts."""
        return self.sent_messages + self.layer.totals()["relayed_runs"]

    @property
    def pauses(self) -> bool:
        """Whether what happens to it waits."""
        return self.stopped or self.busy

    @property
    def answers_programs(self) -> bool:
        """Whether it is a member whose process runs; a step that goes on only delays its answer."""
        return self.joiner is None and self.alive and not self.stopped

    @property
    def node(self) -> Node:
        """The core of a member.

        Raises:
            InvariantError: this host is a joiner that has never been one.
        """
        if self.member is None:
            raise InvariantError("a joiner is asked for its node")
        return self.member

    @property
    def core(self) -> Node | Joiner:
        """Whatever runs here."""
        return self.node if self.joiner is None else self.joiner

    @property
    def where(self) -> NodeId:
        """Its number among the hosts: its id, unless it was given a place of its own."""
        return self.id if self.place is None else self.place

    def local_ns(self, now_ns: int) -> int:
        """What its monotonic clock shows at a moment of virtual time."""
        if not self.drift_ppm:
            return now_ns + self.offset_ns
        return now_ns * (_MILLION + self.drift_ppm) // _MILLION + self.offset_ns

    def virtual_ns(self, local_ns: int) -> int:
        """The first moment of virtual time at which its clock shows at least this."""
        shown = local_ns - self.offset_ns
        if not self.drift_ppm:
            return shown
        return -(-shown * _MILLION // (_MILLION + self.drift_ppm))
