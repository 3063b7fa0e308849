"""From one program to another node's daemon, once: acknowledged, sent again, told apart.

Theory of operation. Each destination has a stream of sequence numbers. A `Data` carries its sequence
and the stream's *floor*, the lowest sequence still waited for; the destination remembers the outcome
of every sequence from the floor up, answers a repeated one with the same `Ack`, and forgets what is
below. A message ends in exactly one of these:

    underway --Ack(taken)------------------------------> done
    underway --Ack(full), deadline, death, new life----> an error that names the destination
    underway --silence, Unreachable, a death elsewhere-> sent again

A frame names its destination's life by a tag. A life that followed another refuses tag 0 ("not known
yet") and tells its own; the source takes that tag over only when it had sent the message once, since
then no former life can have taken it. Whether it followed another a life hears from its neighbors: one
that has only begun, and has not met them all, leaves tag 0 unanswered for `join_ms`, and is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from bmgd.core.commands import SendTo
from bmgd.core.context import Context
from bmgd.core.effects import Reply
from bmgd.core.forwarding import Forwarding
from bmgd.core.show import gone_text
from bmgd.core.timers import TimerKey
from bmgd.core.topics import Taken, Topics
from bmgd.core.work import Work
from bmgd.errors import (
    BmgdError,
    DeadError,
    NewLifeError,
    NoQuorumError,
    QueueFullError,
    RequestError,
    UnreachableError,
)
from bmgd.types import Incarnation, NodeId, NodeState, incarnation_tag
from bmgd.wire.messages import PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX, Ack, Data, Unreachable

WINDOW = 1024
"""Sequences between a stream's floor and its end; one more is refused to the program."""
UNDERWAY_MAX = 8192
SOURCES_MAX = 65_536
"""Sources whose streams are remembered; a gone one makes room, else a new one is not answered."""
OUTCOMES_MAX = 2**20
"""Outcomes remembered in all; beyond, a new message is neither taken nor answered."""
RESEND_MIN_NS = 200_000_000
RESEND_MAX_NS = 2_000_000_000
RETRY_MIN_NS = 10_000_000
RESEND_TIMER = "resend"
DATA_PRIORITY = 1


class Outcome(IntEnum):
    """What a destination did with a message; the numbers are on the wire."""

    TAKEN = 0
    QUEUE_FULL = 1
    FOREIGN_TAG = 2
    LEAVING = 3


@dataclass(slots=True)
class _Underway:
    request: int
    command: SendTo
    sequence: int
    tag: int
    deadline_ns: int
    transmissions: int = 0
    hints: int = 0


@dataclass(slots=True)
class _Outbound:
    """The stream to one destination. It outlives the destination's death: after a false accusation the
    same life still remembers the outcomes of the sequences that were used."""

    next_sequence: int = 1
    underway: dict[int, _Underway] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        return next(iter(self.underway), self.next_sequence)


@dataclass(slots=True)
class _Inbound:
    """What one life of one source has sent here."""

    incarnation: Incarnation
    floor: int = 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class Delivery:
    """Messages underway from here, and those that came."""

    def __init__(
        self, context: Context, forwarding: Forwarding, topics: Topics, work: Work
    ) -> None:
        self._context = context
        self._work = work
        self._forwarding = forwarding
        self._topics = topics
        self._began_ns = context.now_ns
        self._outbound: dict[NodeId, _Outbound] = {}
        self._inbound: dict[NodeId, _Inbound] = {}
        self._count = 0
        self._outcome_count = 0

    @property
    def underway(self) -> int:
        """How many messages wait for their acknowledgement."""
        return self._count

    # --- sending ------------------------------------------------------------------------------

    def send(self, request: int, command: SendTo) -> None:
        """Take a message from a program; one `Reply` follows, at the latest at the deadline."""
        context, destination = self._context, command.destination
        error = self._refusal(command)
        if error is not None:
            context.emit(Reply(request, error=error))
            return
        if destination == context.id:
            self._send_to_self(request, command)
            return
        stream = self._outbound.setdefault(destination, _Outbound())
        message = _Underway(
            request,
            command,
            stream.next_sequence,
            incarnation_tag(context.membership.incarnation(destination)),
            context.now_ns + command.timeout_ns,
        )
        stream.underway[stream.next_sequence] = message
        stream.next_sequence += 1
        self._count += 1
        self._transmit(message)

    def _refusal(self, command: SendTo) -> BmgdError | None:
        destination, membership = command.destination, self._context.membership
        if len(command.payload) > PAYLOAD_BYTES_MAX:
            return RequestError(f"a payload holds at most {PAYLOAD_BYTES_MAX} bytes")
        if not 0 < len(command.topic.encode()) <= TOPIC_BYTES_MAX:
            return RequestError(f"a topic has 1 to {TOPIC_BYTES_MAX} bytes")
        if self._context.state is NodeState.LEAVING:
            return RequestError("this node is leaving")
        if self._context.stands_aside:
            return NoQuorumError(destination, "this node is in a minority, and stands aside")
        if membership.status_of(destination) is None:
            return RequestError(f"no node has the id {destination}")
        if membership.is_gone(destination):
            return DeadError(destination, gone_text(self._context.membership, destination))
        stream = self._outbound.get(destination)
        span = stream.next_sequence - stream.floor if stream else 0
        if self._count >= UNDERWAY_MAX or span >= WINDOW:
            return RequestError("too many messages underway")
        return None

    def _send_to_self(self, request: int, command: SendTo) -> None:
        taken = self._topics.take(command.topic, Taken(self._context.id, command.payload))
        full = QueueFullError(self._context.id, "its queue for that topic is full")
        self._context.emit(Reply(request, error=None if taken else full))

    def _transmit(self, message: _Underway) -> None:
        context, command = self._context, message.command
        if not message.tag and not message.transmissions:
            message.tag = incarnation_tag(context.membership.incarnation(command.destination))
        route = self._forwarding.route_to(
            command.destination,
            tag=message.tag,
            sequence=message.sequence,
            priority=DATA_PRIORITY,
        )
        floor = self._outbound[command.destination].floor
        data = Data(route, command.topic, command.payload, floor)
        if self._forwarding.originate(data):
            message.transmissions += 1
            pause_ns = min(RESEND_MIN_NS << min(message.transmissions - 1, 8), RESEND_MAX_NS)
            self._set_timer(message, context.jitter(pause_ns))
        else:
            self._retry_soon(message)

    def _retry_soon(self, message: _Underway) -> None:
        message.hints += 1
        pause_ns = min(RETRY_MIN_NS << min(message.hints - 1, 8), RESEND_MAX_NS)
        self._set_timer(message, self._context.jitter(pause_ns))

    def _set_timer(self, message: _Underway, pause_ns: int) -> None:
        at_ns = min(self._context.now_ns + pause_ns, message.deadline_ns)
        key = (RESEND_TIMER, message.command.destination, message.sequence)
        self._context.timers.set(key, at_ns)

    def on_resend_timer(self, key: TimerKey) -> None:
        """No acknowledgement yet: send again, or give up at the deadline."""
        destination = NodeId(key[1])
        message = self._outbound[destination].underway[key[2]]
        if self._context.now_ns >= message.deadline_ns:
            sent = "sent, never confirmed" if message.transmissions else "no way was found"
            self._end(message, UnreachableError(destination, f"{sent} before the deadline"))
        else:
            self._transmit(message)

    def _end(self, message: _Underway, error: BmgdError | None) -> None:
        destination = message.command.destination
        stream = self._outbound[destination]
        del stream.underway[message.sequence]
        self._count -= 1
        self._context.timers.cancel((RESEND_TIMER, destination, message.sequence))
        self._context.emit(Reply(message.request, error=error))

    # --- what becomes of it -------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        """The destination told an outcome."""
        if ack.route.destination_tag != self._context.own_tag:
            # For a former life of this node, which counted its sequences for itself.
            return
        source = ack.route.source
        message = self._find(source, ack.route.sequence)
        if message is None or ack.route.source_incarnation < self._known(source):
            return
        self._context.membership.learn_life(source, ack.route.source_incarnation)
        if ack.outcome == Outcome.FOREIGN_TAG:
            self._on_foreign_tag(message, ack.tag)
        elif message.tag not in (0, ack.tag):
            return
        elif ack.outcome == Outcome.TAKEN:
            self._end(message, None)
        elif ack.outcome == Outcome.LEAVING:
            self._end(message, DeadError(source, "it is leaving, and did not take the message"))
        else:
            self._end(message, QueueFullError(source, "its queue for that topic is full"))

    def _on_foreign_tag(self, message: _Underway, tag: int) -> None:
        if message.tag == tag:
            return
        if message.tag == 0 and message.transmissions == 1:
            message.tag = tag
            self._transmit(message)
        else:
            detail = "it began a new life; the former one may have taken the message"
            self._end(message, NewLifeError(message.command.destination, detail))

    def on_unreachable(self, hint: Unreachable) -> None:
        """A relay found no way: only a hint, try again shortly."""
        message = self._find(hint.target, hint.route.sequence)
        if message is not None:
            self._retry_soon(message)

    def on_gone(self, peer: NodeId) -> None:
        """A death is known: fail what was for that node, send the rest again at once."""
        stream = self._outbound.get(peer)
        if stream is not None:
            for message in list(stream.underway.values()):
                self._end(message, DeadError(peer, gone_text(self._context.membership, peer)))
        self._work.begin("resend", self._resends)

    def _resends(self) -> Iterator[None]:
        """Send everything underway again, one message a piece: a relay on its way may have died."""
        for stream in list(self._outbound.values()):
            for message in list(stream.underway.values()):
                if stream.underway.get(message.sequence) is message:
                    self._transmit(message)
                    yield

    def on_own_new_life(self) -> None:
        """This node began a new life: what the former one sent is no longer confirmed."""
        self.abandon("this node began a new life before the confirmation came")
        self._outbound.clear()
        self._inbound.clear()
        self._outcome_count = 0

    def abandon(self, why: str) -> None:
        """Give up everything that is underway; its programs are told."""
        for destination, stream in list(self._outbound.items()):
            for message in list(stream.underway.values()):
                self._end(message, UnreachableError(destination, why))

    def _find(self, destination: NodeId, sequence: int) -> _Underway | None:
        stream = self._outbound.get(destination)
        return stream.underway.get(sequence) if stream else None

    def _known(self, peer: NodeId) -> Incarnation:
        return self._context.membership.incarnation(peer)

    # --- receiving ----------------------------------------------------------------------------

    def on_data(self, data: Data) -> None:
        """A message for this node came: take it once, and acknowledge it each time."""
        context, route = self._context, data.route
        if context.membership.status_of(route.source) is None:
            return
        if route.source_incarnation < self._known(route.source):
            context.observe("stale source", route.source, route.source_incarnation)
            return
        context.membership.learn_life(route.source, route.source_incarnation)
        if not route.destination_tag and self._may_have_followed():
            return
        if route.destination_tag != context.own_tag and (route.destination_tag or context.followed):
            self._acknowledge(data, Outcome.FOREIGN_TAG)
            return
        stream = self._stream_from(route.source, route.source_incarnation)
        if stream is None:
            return
        if data.floor > stream.floor:
            stream.floor = data.floor
            for sequence in [s for s in stream.outcomes if s < data.floor]:
                del stream.outcomes[sequence]
                self._outcome_count -= 1
        if not stream.floor <= route.sequence < stream.floor + WINDOW:
            return
        outcome = stream.outcomes.get(route.sequence)
        if outcome is None:
            if self._outcome_count >= OUTCOMES_MAX:
                return
            self._outcome_count += 1
            outcome = self._take(data)
            stream.outcomes[route.sequence] = outcome
        self._acknowledge(data, outcome)

    def _may_have_followed(self) -> bool:
        """Whether this life knows of no former one, and is too young to have been told of one."""
        context = self._context
        is_young = context.now_ns - self._began_ns < context.settings.join_ns
        return context.state is NodeState.JOINING and is_young and not context.followed

    def _stream_from(self, source: NodeId, incarnation: Incarnation) -> _Inbound | None:
        """What is remembered of a source's life; None for a new source where there is no room."""
        stream = self._inbound.get(source)
        if stream is not None and stream.incarnation >= incarnation:
            return stream
        if stream is None and len(self._inbound) >= SOURCES_MAX:
            is_gone = self._context.membership.is_gone
            forgotten = next((known for known in self._inbound if is_gone(known)), None)
            if forgotten is None:
                return None
            stream = self._inbound.pop(forgotten)
        if stream is not None:
            self._outcome_count -= len(stream.outcomes)
        stream = self._inbound[source] = _Inbound(incarnation)
        return stream

    def _take(self, data: Data) -> Outcome:
        if self._context.state is NodeState.LEAVING:
            # Its programs may not live to read it, and the source can still be told.
            return Outcome.LEAVING
        taken = self._topics.take(data.topic, Taken(data.route.source, data.payload))
        return Outcome.TAKEN if taken else Outcome.QUEUE_FULL

    def _acknowledge(self, data: Data, outcome: Outcome) -> None:
        tag = incarnation_tag(data.route.source_incarnation)
        route = self._forwarding.route_to(data.route.source, tag=tag, sequence=data.route.sequence)
        self._forwarding.originate(Ack(route, outcome, self._context.own_tag))
