"""What the parts of one core share, and how a lower part tells the node what happened.

A part may call the parts below it. Upwards it speaks only by *facts*: it appends one, and the node,
which knows them all, hands it to whoever must react (`reactions.py`). So no two parts know each other in
both directions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from random import Random

from bmgd.core.counts import Counts
from bmgd.core.effects import Effect, Exit, Observed, Send
from bmgd.core.membership.compatibility import Compatibility
from bmgd.core.membership.membership import Membership, Standing
from bmgd.core.settings import Settings
from bmgd.core.timers import Timers
from bmgd.dataclass import dataclass
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    NodeState,
    Record,
    Status,
    counter_of,
    incarnation_tag,
)
from bmgd.wire.features import NEEDS
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route


@dataclass(slots=True, eq=False)
class Link:
    """One TCP connection to a peer that is up.

    Args:
        id: names the connection.
        peer: the id at the other end.
        incarnation: the life at the other end.
        address: what the other end advertises.
        dialled_by: the id that connected.
        dial_number: the dialer's count of its dials.
        heard_ns: when the last byte came.
        opened_ns: when it came up.
        known_of_me: the highest incarnation of this node that the other end knew; 0 for none.
        sequence: of the last heartbeat sent.
        echo: the highest heartbeat sequence that came.
        watched_ns: since when silence on it counts; 0 while it is only tried in turn.
        unechoed: (sequence, time) of heartbeats that the peer has yet to echo, oldest first.
        mismatches: heartbeats in a row whose digest differed.
        unwanted: the digest at which the peer would close, or None.
        unwanted_sent: the digest of the last `Unwanted` sent, or None.
        accused_ns: when the peer was told over this link that it is declared dead, or 0.
        agreed: whether its digest was equal once.
        probe: the nonce of the ping that decides between two links of one pair, or 0.
        key: what it was made under, see `KeysChanged`.
        renews: it takes the place of the other links of its pair, and has not yet.
        features: what the other end can do, see `bmgd.wire.features`.
    """

    id: LinkId
    peer: NodeId
    incarnation: Incarnation
    address: str
    dialled_by: NodeId
    dial_number: int
    heard_ns: int
    opened_ns: int = 0
    known_of_me: Incarnation = UNKNOWN_INCARNATION
    sequence: int = 0
    echo: int = 0
    watched_ns: int = 0
    unechoed: deque[tuple[int, int]] = field(default_factory=deque)
    mismatches: int = 0
    unwanted: int | None = None
    unwanted_sent: int | None = None
    accused_ns: int = 0
    agreed: bool = False
    probe: int = 0
    key: str = ""
    renews: bool = False
    features: int = 0

    def knows(self, kind: type[Message]) -> bool:
        """Whether the other end knows a kind of message; what it does not know it is not sent."""
        need = NEEDS.get(kind)
        return need is None or bool(self.features & need.feature)


@dataclass(frozen=True, slots=True)
class RecordMoved:
    """A record changed; it came over `link`, or is this node's own word (None)."""

    id: NodeId
    before: Record | None
    after: Record
    link: LinkId | None


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """A link entered the table."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A link left the table, closed by the other side or by the network."""

    link: Link
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Vetoed:
    """An observer heard from a suspect: only the link to it is broken."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class QuestionsLost:
    """Questions of one asker get no answer from this node.

    Args:
        source, incarnation, inbox: who asked.
        questions: their numbers.
        handed: whether a program had them; else there was none to take them.
    """

    source: NodeId
    incarnation: Incarnation
    inbox: int
    questions: tuple[int, ...]
    handed: bool


@dataclass(frozen=True, slots=True)
class IdLost:
    """Another life has the id of this node, which takes a new one.

    Args:
        told_by: who refused this node for it, or None.
    """

    why: str
    told_by: NodeId | None = None


@dataclass(frozen=True, slots=True)
class AccusedSelf:
    """Somebody's record says that this node is gone, or that another life has its id.

    Args:
        told_by: the neighbor that it came from, or None.
    """

    record: Record
    told_by: NodeId | None = None


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Others have a record of this node, in its first life, of which none was needed before.

    They may have held it dead before they heard of it: it says again that it lives, and refutes nothing.
    """


@dataclass(frozen=True, slots=True)
class LongSettled:
    """A reader has taken a whole long message, or went away before.

    Args:
        source, stream: whose it is; of this node's own messages the stream's number in `Outbound`.
        taken: whether the reader has it all.
    """

    source: NodeId
    stream: int
    taken: bool


@dataclass(frozen=True, slots=True)
class RoomFreed:
    """A topic that had no room has some again."""

    topic: str


@dataclass(frozen=True, slots=True)
class LifeContested:
    """A routed message named a life of a node that nothing vouches for, and another is believed."""

    id: NodeId


Fact = (
    LongSettled
    | RoomFreed
    | RecordMoved
    | LinkOpened
    | LinkLost
    | Vetoed
    | AccusedSelf
    | FirstRecord
    | QuestionsLost
    | IdLost
    | LifeContested
)


class Context:
    """The state that all parts of one core share.

    Attributes:
        now_ns: the time of the step under way.
        incarnation, version: of this node.
        renew_above: a life of this id above which a new one must begin; 0 for none.
        renew_why: who knows of it.
        has_quorum: whether this node's side may go on (always, unless a majority is asked for).
        stands_aside: whether programs are refused because that has been lost for a while.
        began_ns: when this core began.
        moved_ns: since when each id has the status that it has; those without an entry since `began_ns`.
        followed: whether a former life of this id is known.
        has_been_ready: whether this node has joined, whatever its state is now.
        keys: what links are made under, see `KeysChanged`; None before they changed.
        effects: the orders of the step under way, in order.
        counts: what this core has counted.
    """

    def __init__(self, settings: Settings, incarnation: Incarnation, random: Random) -> None:
        self.settings = settings
        self.random = random
        self.timers = Timers()
        self.membership = Membership(settings.founding_size, settings.peers)
        self.compatibility = Compatibility(settings.features, self.membership)
        self.state = NodeState.STARTING
        self.incarnation = incarnation
        self.version = 0
        self.has_quorum = True
        self.stands_aside = False
        self.followed = counter_of(incarnation) > 1
        self.has_been_ready = False
        self.renew_above = UNKNOWN_INCARNATION
        self.renew_why = ""
        self.keys: tuple[str, ...] | None = None
        self.now_ns = 0
        self.began_ns = 0
        self.moved_ns: dict[NodeId, int] = {}
        self.effects: list[Effect] = []
        self.facts: deque[Fact] = deque()
        self.counts = Counts()

    @property
    def id(self) -> NodeId:
        """This node's id."""
        return self.settings.id

    def emit(self, effect: Effect) -> None:
        """Give an order to the shell."""
        self.effects.append(effect)
        self.counts.effect(effect)

    def send(self, link: LinkId, message: Message) -> None:
        """Order a message onto a link."""
        self.effects.append(Send(link, message))
        self.counts.sent[type(message)] += 1

    def tell(self, fact: Fact) -> None:
        """Let the node know what happened; it reacts after the part under way has finished."""
        self.facts.append(fact)

    def observe(
        self,
        event: str,
        peer: NodeId | None = None,
        incarnation: Incarnation | None = None,
        detail: str = "",
    ) -> None:
        """Show an operator what happened."""
        self.emit(Observed(event, peer, incarnation, detail))

    def standing(self, node_id: NodeId, incarnation: Incarnation) -> Standing:
        """What the life is that a routed message names; one that nothing vouches for is looked into."""
        found = self.membership.standing(node_id, incarnation)
        if found is Standing.UNVOUCHED:
            self.tell(LifeContested(node_id))
        return found

    def is_of_own_life(self, route: Route) -> bool:
        """Whether a routed message is one of this node's, of its present life."""
        return route.source == self.id and route.source_incarnation == self.incarnation

    def lose_id(self, why: str, told_by: NodeId | None = None) -> None:
        """Another life has this node's id: a joiner takes a new one, a founder ends.

        Args:
            told_by: who refused this node for it; it is asked first for the new one.
        """
        if not self.settings.takes_new_id:
            self.emit(Exit(1, why))
        elif self.state is not NodeState.LEAVING:
            self.tell(IdLost(why, told_by))

    def begin_above(self, known: Incarnation, why: str) -> None:
        """At the end of the step a life above this one begins; `why` says who knows of it."""
        if known > self.renew_above:
            self.renew_above, self.renew_why = known, why

    def own_record(self, status: Status = Status.ALIVE) -> Record:
        """What this node says of itself."""
        return Record(self.incarnation, self.version, status, self.settings.address)

    @property
    def first_key(self) -> str | None:
        """What new links are made under where the other end can; None before that changed."""
        return (self.keys or ("",))[0] if self.keys is not None else None

    @property
    def own_tag(self) -> int:
        """The tag that messages to this life carry."""
        return incarnation_tag(self.incarnation)

    def jitter(self, duration_ns: int) -> int:
        """A duration between 75 and 125 percent of the given one."""
        return duration_ns * self.random.randrange(768, 1280) // 1024
