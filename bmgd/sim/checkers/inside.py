"""The one place outside the core that looks into a node: its parts, to be read and never changed."""

from __future__ import annotations

from collections.abc import Collection

from bmgd.core.context import Context
from bmgd.core.delivery import Delivery
from bmgd.core.detector import Detector
from bmgd.core.dialling import Dialling
from bmgd.core.forwarding import Forwarding
from bmgd.core.greeting import Greeting
from bmgd.core.links import Links
from bmgd.core.membership import Membership
from bmgd.core.node import Node
from bmgd.core.probing import Probing
from bmgd.core.relayout import RELAYOUT_TIMER, Relayout
from bmgd.core.settings import Settings
from bmgd.core.timers import TimerKey
from bmgd.core.topics import Topics
from bmgd.types import Incarnation, NodeId, Record


class Inside:
    """A node's parts.

    Args:
        node: the node to look into.
    """

    __slots__ = (
        "context",
        "delivery",
        "detector",
        "dialling",
        "forwarding",
        "greeting",
        "links",
        "membership",
        "probing",
        "relayout",
        "settings",
        "topics",
    )

    def __init__(self, node: Node) -> None:
        self.context: Context = node._context
        self.delivery: Delivery = node._delivery
        self.detector: Detector = node._detector
        self.dialling: Dialling = node._dialling
        self.forwarding: Forwarding = node._forwarding
        self.greeting: Greeting = node._greeting
        self.links: Links = node._links
        self.membership: Membership = node._context.membership
        self.probing: Probing = node._probing
        self.relayout: Relayout = node._relayout
        self.settings: Settings = node._context.settings
        self.topics: Topics = node._topics

    def timers(self) -> dict[TimerKey, int]:
        """Every deadline that is set, and when it is due."""
        return {key: at_ns for key, (at_ns, _) in self.context.timers._due.items()}

    def plans_relayout(self) -> bool:
        """Whether a relayout is planned."""
        return (RELAYOUT_TIMER, 0, 0) in self.context.timers

    def deadlines(self) -> Collection[TimerKey]:
        """What the deadlines that are set are for."""
        return self.context.timers._due.keys()

    def timer_entries(self) -> int:
        """How many entries the heap of deadlines has, cancelled ones included."""
        return len(self.context.timers._heap)

    def lives(self) -> dict[NodeId, Incarnation]:
        """The lives met on links and messages (the membership's own table: do not change)."""
        return self.membership._lives

    def suspects(self, peer: NodeId) -> bool:
        """Whether the node suspects a peer."""
        return peer in self.detector._suspicions

    def suspected(self) -> set[NodeId]:
        """Whom the node suspects."""
        return set(self.detector._suspicions)

    def asks(self) -> set[int]:
        """The numbers of others' asks that wait for their answer."""
        return set(self.detector._asks)

    def held(self) -> set[NodeId]:
        """Whose hello is held."""
        return set(self.greeting._held)

    def underway(self) -> dict[tuple[NodeId, int], int]:
        """(destination, sequence) of each message underway, with its deadline."""
        if not self.delivery.underway and not self.underway_count():
            return {}
        return {
            (peer, sequence): message.deadline_ns
            for peer, stream in self.delivery._outbound.items()
            for sequence, message in stream.underway.items()
        }

    def underway_count(self) -> int:
        """How many messages are underway."""
        return sum(len(stream.underway) for stream in self.delivery._outbound.values())

    def spans(self) -> list[int]:
        """How many sequences each outbound stream spans."""
        return [s.next_sequence - s.floor for s in self.delivery._outbound.values()]

    def outcomes(self) -> list[int]:
        """How many outcomes are remembered of each source."""
        return [len(stream.outcomes) for stream in self.delivery._inbound.values()]

    def probes(self) -> set[int]:
        """The numbers of the probes underway."""
        return set(self.probing._open)

    def readers(self) -> list[tuple[int, int]]:
        """The credit left and the messages unconsumed of each subscription."""
        return [(s.credit, len(s.unconsumed)) for s in self.topics._subscriptions.values()]

    def queues(self) -> list[tuple[int, int, int]]:
        """Of each topic: messages waiting, bytes as counted, bytes as they are."""
        return [
            (len(t.waiting), t.waiting_bytes, sum(len(m.payload) for m in t.waiting))
            for t in self.topics._topics.values()
        ]

    def counted_bytes(self) -> int:
        """Bytes not yet consumed, as the node counts them."""
        return self.topics._held_bytes

    def handed_bytes(self) -> int:
        """Bytes that readers have and have not consumed."""
        subscriptions = self.topics._subscriptions.values()
        return sum(len(message.payload) for s in subscriptions for message in s.unconsumed)

    def changes(self) -> tuple[int, ...]:
        """Others when the deadlines, or anything that waits for one, became more or less."""
        return (
            len(self.context.timers),
            len(self.detector._suspicions),
            len(self.detector._asks),
            len(self.greeting._held),
            len(self.probing._open),
            self.delivery.underway,
        )

    def unknown_ids(self) -> int:
        """How many ids below the id space nobody was given, as counted."""
        return self.membership._unknown_ids

    def former(self) -> tuple[NodeId, ...]:
        """The neighbors wanted before the last relayout."""
        return self.relayout._former

    def own_belief(self) -> Record | None:
        """What the node's own membership says of it; None while the baseline does."""
        return self.membership.exceptions().get(self.context.id)
