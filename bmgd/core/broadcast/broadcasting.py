"""Broadcasts and multicasts at best effort: at most once, dropped where there is no room or no way.

Theory of operation. A source life counts what it sends this way. Whoever gets a copy takes it for its
programs if the cover has its id and the count was not seen, and sends the rest of the cover on
(`forwarding/branching.py`). Of each source's life the last `WINDOW` counts are told apart; what comes
later than that is dropped. Nothing is acknowledged, nothing sent again.

A broadcast goes to every reader of its topic, at the source's node too; a multicast to one reader of it.
A broadcast without a reader is counted and gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bmgd.core.broadcast.announcements import Announcement, Announcements
from bmgd.core.commands import BroadcastTo, MulticastTo
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding.branching import Branching
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.membership.membership import Standing
from bmgd.core.topics.topics import Topics
from bmgd.errors import BmgdError, LeavingError, NoQuorumError, RequestError
from bmgd.routing.branches import Branch
from bmgd.routing.id_sets import ID_SET_SPACE, without
from bmgd.types import Incarnation, NodeId, NodeState
from bmgd.wire.bounds import PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX
from bmgd.wire.broadcast_messages import Broadcast, Multicast
from bmgd.wire.routes import NORMAL_PRIORITY, Route

WINDOW = 1024
"""Counts of one source life that are told apart."""
SOURCES_MAX = 65_536
"""Sources whose counts are remembered; a gone one makes room, else a new one's messages are dropped."""


@dataclass(slots=True)
class _Seen:
    """Which counts of a source's life have come: the highest, and a bit for each below it."""

    incarnation: Incarnation
    highest: int = 0
    bits: int = 0

    def is_new(self, count: int) -> bool:
        """Whether a count comes for the first time; it is remembered."""
        if count > self.highest:
            shift = min(count - self.highest, WINDOW)
            self.bits = (self.bits << shift | 1) & ((1 << WINDOW) - 1)
            self.highest = count
            return True
        behind = self.highest - count
        if behind >= WINDOW or self.bits >> behind & 1:
            return False
        self.bits |= 1 << behind
        return True


@dataclass(slots=True)
class Tally:
    """What became of messages at best effort, for `status`."""

    sent: int = 0
    taken: int = 0
    no_reader: int = 0
    repeated: int = 0
    refused: int = 0


@dataclass(slots=True)
class Broadcasting:
    """Sends, takes and passes on what needs no confirmation."""

    context: Context
    forwarding: Forwarding
    branching: Branching
    topics: Topics
    announcements: Announcements
    tally: Tally = field(default_factory=Tally)
    _count: int = 0
    _seen: dict[NodeId, _Seen] = field(default_factory=dict)

    # --- sending ------------------------------------------------------------------------------

    def broadcast(self, request: int, command: BroadcastTo) -> None:
        """Send to every node of the layout; answered at once."""
        membership, me = self.context.membership, self.context.id
        error = refusal_of(self.context, command.topic, command.payload)
        if error is not None:
            self.context.emit(Reply(request, error=error))
            return
        everybody = membership.layout_set()
        message = Broadcast(self._route(), command.topic, command.payload, 0, ())
        self._announce(message)
        self.branching.send(message, [Branch(me, without(everybody, me))])
        self.context.emit(Reply(request, {"confirmed": [], "failed": []}))

    def multicast(self, request: int, command: MulticastTo) -> None:
        """Send to the ids that a program names; answered at once."""
        me = self.context.id
        error = refusal_of(self.context, command.topic, command.payload)
        if error is not None:
            self.context.emit(Reply(request, error=error))
            return
        message = Multicast(self._route(), command.topic, command.payload, ())
        if command.destinations >> me & 1:
            self._take(message)
        self.branching.send(message, [Branch(me, without(command.destinations, me))])
        self.context.emit(Reply(request, {"confirmed": [], "failed": []}))

    def _route(self) -> Route:
        self._count += 1
        self.tally.sent += 1
        route = self.forwarding.route_to(
            self.context.id, sequence=self._count, priority=NORMAL_PRIORITY
        )
        return self.branching.fresh(route)

    def on_own_new_life(self) -> None:
        """A new life counts from the beginning."""
        self._count = 0

    # --- receiving ----------------------------------------------------------------------------

    def on_message(self, message: Broadcast | Multicast) -> None:
        """A copy came: take it where it is new and for this node, and send on what it is to reach."""
        context, route = self.context, message.route
        if context.is_of_own_life(route):
            # This node lies on the way from one head to another.
            self.branching.send(message, _without(message.branches, context.id))
            return
        if context.membership.status_of(route.source) is None or route.source == context.id:
            self.tally.refused += 1
            return
        standing = context.standing(route.source, route.source_incarnation)
        if standing is Standing.FORMER:
            self.tally.refused += 1
            return
        own = sum(branch.cover >> context.id & 1 for branch in message.branches)
        if own and standing is Standing.UNVOUCHED:
            self.tally.refused += 1
        elif own and context.state is not NodeState.LEAVING:
            seen = self._seen_of(route.source, route.source_incarnation)
            if seen is None:
                self.tally.refused += 1
            elif not seen.is_new(route.sequence):
                self.tally.repeated += 1
            elif isinstance(message, Broadcast):
                self._announce(message)
            else:
                self._take(message)
        self.branching.send(message, _without(message.branches, context.id))

    def _seen_of(self, source: NodeId, incarnation: Incarnation) -> _Seen | None:
        seen = self._seen.get(source)
        if seen is not None and seen.incarnation == incarnation:
            return seen
        if seen is None and len(self._seen) >= SOURCES_MAX:
            is_gone = self.context.membership.is_gone
            forgotten = next((known for known in self._seen if is_gone(known)), None)
            if forgotten is None:
                return None
            del self._seen[forgotten]
        seen = self._seen[source] = _Seen(incarnation)
        return seen

    def _announce(self, message: Broadcast) -> None:
        route = message.route
        announcement = Announcement(
            route.source, route.source_incarnation, 0, message.topic, message.payload
        )
        if self.announcements.announce(announcement):
            self.tally.taken += 1
        else:
            self.tally.no_reader += 1

    def _take(self, message: Multicast) -> None:
        route = message.route
        if self.topics.take(message.topic, route.source, route.source_incarnation, message.payload):
            self.tally.taken += 1
        else:
            self.tally.refused += 1

    def show(self) -> dict[str, int]:
        """The part of `bmgd status --json` about broadcasts at best effort."""
        tally = self.tally
        return {
            "sent": tally.sent,
            "taken": tally.taken,
            "no_reader": tally.no_reader,
            "repeated": tally.repeated,
            "refused": tally.refused,
            "no_room": self.announcements.dropped,
            "no_way": self.branching.lost,
        }


def refusal_of(context: Context, topic: str, payload: bytes) -> BmgdError | None:
    """Why a message to many cannot be sent now; None where it can."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        return RequestError(f"a payload holds at most {PAYLOAD_BYTES_MAX} bytes")
    if not 0 < len(topic.encode()) <= TOPIC_BYTES_MAX:
        return RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes")
    if context.membership.id_space > ID_SET_SPACE:
        return RequestError(f"messages to many need an id space of at most {ID_SET_SPACE}")
    if context.state is NodeState.LEAVING:
        return LeavingError(context.id, "this daemon is leaving, and takes no new messages")
    if context.stands_aside:
        return NoQuorumError(context.id, "this node is in a minority, and stands aside")
    return None


def _without(branches: tuple[Branch, ...], own: NodeId) -> list[Branch]:
    """The branches without this node in their covers, and without those that covered nobody else."""
    left = (Branch(branch.head, without(branch.cover, own)) for branch in branches)
    return [branch for branch in left if branch.cover]
