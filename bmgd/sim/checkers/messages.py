"""Messages of programs: to whom, of which life, how often; and the searches of careful mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from bmgd.core.commands import SendTo
from bmgd.core.effects import Deliver, Effect, Reply, Send
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.sim.checkers.inside import Inside
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, NodeId, incarnation_tag
from bmgd.wire.messages import Ack, Data, RoutedMessage, Search

RESTARTS_MAX = 3
BUDGET_MAX = 255


@dataclass(slots=True)
class _Message:
    """One payload on the topic, as its program gave it to its daemon.

    Args:
        addressed: the life of the destination that the source knew then; 0 for none.
        taken: by whom it was taken, and in which life.
    """

    source: NodeId
    incarnation: Incarnation
    destination: NodeId
    addressed: Incarnation
    unique: bool = True
    taken: list[tuple[NodeId, Incarnation]] = field(default_factory=list)


class MessagesAreTakenOnce(Checker):
    """A message is taken at most once in all lives, by its destination, of the life it was for.

    Not by a later life than the source knew when it was sent, not from an earlier life of its source
    than is known; and acknowledged only if it was taken. Payloads that are sent twice tell nothing.
    """

    name: ClassVar[str] = "messages-are-taken-once"
    events: ClassVar[Kinds] = (Data,)
    effects: ClassVar[Kinds] = (Reply,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._messages: dict[bytes, _Message] = {}
        self._requests: dict[tuple[NodeId, int], bytes] = {}
        self._known: Incarnation | None = None
        self._waiting = 0

    def before(self, journal: Journal, event: Event) -> None:
        inside = journal.inside
        self._known = None
        if isinstance(event, Received) and isinstance(event.message, Data):
            self._known = inside.membership.incarnation(event.message.route.source)
            self._waiting = inside.topics.waiting()
        elif isinstance(event, CommandIssued) and isinstance(event.command, SendTo):
            self._send(journal, inside, event.request, event.command)

    def _send(self, journal: Journal, inside: Inside, request: int, command: SendTo) -> None:
        known = self._messages.get(command.payload)
        if known is not None:
            known.unique = False
            return
        self._messages[command.payload] = _Message(
            journal.host.id,
            inside.context.incarnation,
            command.destination,
            inside.membership.incarnation(command.destination),
        )
        self._requests[journal.host.id, request] = command.payload

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received) and isinstance(event.message, Data):
            data = event.message
            handed = sum(1 for effect in effects if isinstance(effect, Deliver))
            # A queue for readers that come later: what waits more, or was handed out, was taken.
            taken = journal.inside.topics.waiting() + handed - self._waiting
            if taken > 0:
                self._on_taken(journal, data)
        for effect in effects:
            if isinstance(effect, Reply) and effect.error is None:
                self._on_done(journal, effect.request)

    def _on_taken(self, journal: Journal, data: Data) -> None:
        me, route = journal.host.id, data.route
        if route.destination != me:
            self.violate(journal, f"took a message for {route.destination}")
        if self._known is not None and route.source_incarnation < self._known:
            self.violate(journal, f"took a message of a former life of {route.source}")
        if route.destination_tag not in (0, incarnation_tag(journal.incarnation)):
            self.violate(journal, f"took a message of {route.source} for another life")
        message = self._messages.get(data.payload)
        if message is None:
            self.violate(journal, f"took a message that {route.source} never sent")
            return
        if not message.unique:
            return
        if (message.source, message.destination) != (route.source, me):
            self.violate(journal, f"took a message of {message.source} to {message.destination}")
        if message.addressed and message.addressed < journal.incarnation:
            self.violate(journal, f"took a message of {route.source} for its former life")
        if message.taken:
            self.violate(journal, f"took a message again, first taken by {message.taken}")
        message.taken.append((me, journal.incarnation))

    def _on_done(self, journal: Journal, request: int) -> None:
        payload = self._requests.pop((journal.host.id, request), None)
        if payload is None:
            return
        message = self._messages[payload]
        local = message.destination == message.source
        if message.unique and not local and not message.taken:
            self.violate(journal, f"a message to {message.destination} was confirmed, never taken")


class AcksAreHonest(Checker):
    """An acknowledgement answers a message that came in this step, to its source and its life."""

    name: ClassVar[str] = "acks-are-honest"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Ack,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if not isinstance(event, Received):
            return
        for effect in effects:
            if not (isinstance(effect, Send) and isinstance(effect.message, Ack)):
                continue
            ack = effect.message
            if ack.route.source != journal.host.id:
                continue
            data = event.message
            if isinstance(data, Ack):
                # Its own, on a search that came by here.
                continue
            if not isinstance(data, Data):
                self.violate(journal, "acknowledges, and nothing came")
                continue
            wanted = data.route.source, data.route.sequence
            if (ack.route.destination, ack.route.sequence) != wanted:
                self.violate(journal, f"acknowledges {ack.route}, what came was {wanted}")
            if ack.route.destination_tag != incarnation_tag(data.route.source_incarnation):
                self.violate(journal, "acknowledges to another life than the one that sent")
            if ack.tag != incarnation_tag(journal.incarnation):
                self.violate(journal, "acknowledges with a tag that is not its own")


class NothingUnansweredIsForgotten(Checker):
    """Whoever sends a message tells its destination to forget nothing that is still waited for.

    The floor in it, below which outcomes are forgotten and nothing is taken, is at most the lowest
    sequence that has no answer yet.
    """

    name: ClassVar[str] = "nothing-unanswered-is-forgotten"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = (Data,)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        floors = [
            (effect.message.route.destination, effect.message.floor)
            for effect in effects
            if isinstance(effect, Send)
            and isinstance(effect.message, Data)
            and effect.message.route.source == journal.host.id
            and effect.message.route.source_incarnation == journal.incarnation
        ]
        if not floors:
            return
        lowest: dict[NodeId, int] = {}
        for peer, sequence in journal.inside.underway():
            lowest[peer] = min(lowest.get(peer, sequence), sequence)
        for peer, floor in dict.fromkeys(floors):
            if floor > lowest.get(peer, floor):
                self.violate(journal, f"waits for {peer}'s {lowest[peer]}, its floor is {floor}")


class SearchesVisitOnce(Checker):
    """A search never hands a message to a node that had it, but the way back, and counts its restarts.

    Going on marks this node, and puts it on the stack; going back takes the top off; only where neither
    is possible it begins anew, three times at most.
    """

    name: ClassVar[str] = "searches-visit-once"
    events: ClassVar[Kinds] = ()
    effects: ClassVar[Kinds] = get_args(RoutedMessage)

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        came = event.message if isinstance(event, Received) else None
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, RoutedMessage):
                self._check(journal, came, effect)

    def _check(self, journal: Journal, came: object, send: Send) -> None:
        message = send.message
        assert isinstance(message, RoutedMessage)
        relayed = isinstance(came, RoutedMessage) and _same(came, message)
        route, me = message.route, journal.host.id
        if not 0 <= route.hop_budget <= BUDGET_MAX:
            self.violate(journal, f"a hop budget of {route.hop_budget}")
        link = journal.links.get(send.link)
        if link is None:
            return
        if route.search is None:
            if isinstance(came, RoutedMessage) and relayed:
                direct = link.peer == route.destination
                if came.route.search is not None:
                    self.violate(journal, "a search lost its state")
                elif not direct and route.hop_budget >= came.route.hop_budget:
                    self.violate(journal, "passed on with a hop budget that does not fall")
            return
        before = came.route.search if isinstance(came, RoutedMessage) and relayed else None
        self._check_search(journal, before, route.search, me, link.peer)

    def _check_search(
        self, journal: Journal, before: Search | None, now: Search, me: NodeId, peer: NodeId
    ) -> None:
        restarted = before is not None and now.restarts > before.restarts
        if now.restarts > RESTARTS_MAX:
            self.violate(journal, f"a search that began anew {now.restarts} times")
        had = frozenset[int]() if before is None or restarted else _marked(before.visited)
        stack = () if before is None or restarted else before.stack
        if stack[-1:] == (me,):
            # A link that ended gave it back: it has not gone on from here.
            stack = stack[:-1]
        marked = _marked(now.visited)
        if marked != had | {me}:
            self.violate(journal, f"a search marks {sorted(marked)}, had {sorted(had)}")
        if now.stack == (*stack, me):
            if peer in had:
                self.violate(journal, f"a search visits {peer} twice")
        elif stack and now.stack == stack[:-1]:
            if peer != stack[-1]:
                self.violate(journal, f"a search goes back to {peer}, it came from {stack[-1]}")
            left = {link.peer for link in journal.links.values()} - had - {me}
            if left:
                self.violate(journal, f"a search goes back, and has not tried {sorted(left)}")
        else:
            self.violate(journal, f"a search's stack is {now.stack} after {stack}")
        # Where two processes have one id, the way back can lead to the other one.
        is_twice = max(Counter(now.stack).values(), default=0) > 1
        if is_twice and self.scene.given_twice.isdisjoint(now.stack):
            self.violate(journal, f"a search's stack has a node twice: {now.stack}")


def _same(came: RoutedMessage, sent: RoutedMessage) -> bool:
    """Whether what is sent is what came, passed on."""
    a, b = came.route, sent.route
    return type(came) is type(sent) and (a.source, a.destination, a.sequence) == (
        b.source,
        b.destination,
        b.sequence,
    )


def _marked(bitmap: bytes) -> frozenset[int]:
    return frozenset(
        8 * at + bit for at, byte in enumerate(bitmap) for bit in range(8) if byte >> bit & 1
    )
