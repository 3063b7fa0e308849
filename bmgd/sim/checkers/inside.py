"""The one place outside the core that looks into a node: its parts, to be read and never changed."""

from __future__ import annotations

from collections.abc import Collection

from bmgd.core.broadcast.heard import LifeKey
from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.context import Context
from bmgd.core.forwarding.flood import Flood
from bmgd.core.forwarding.forwarding import Forwarding
from bmgd.core.forwarding.probing import Probing
from bmgd.core.joining.growth import Growth
from bmgd.core.lifecycle import Lifecycle
from bmgd.core.links import Links
from bmgd.core.membership.contests import Contests
from bmgd.core.membership.membership import Membership
from bmgd.core.membership.notices import Notices
from bmgd.core.membership.quorum import Quorum
from bmgd.core.membership.retirement import Retirement
from bmgd.core.neighbors.detector import Detector
from bmgd.core.neighbors.dialling import Dialling
from bmgd.core.neighbors.greeting import Greeting
from bmgd.core.neighbors.healing_policy import Healing
from bmgd.core.neighbors.observer import Observer
from bmgd.core.neighbors.relayout import RELAYOUT_TIMER, Relayout
from bmgd.core.neighbors.renewal import Renewal
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.core.streams import table
from bmgd.core.streams.finding import Finding
from bmgd.core.streams.inbound import Inbound
from bmgd.core.streams.outbound import Outbound
from bmgd.core.streams.stream_in import StreamIn
from bmgd.core.streams.stream_out import StreamOut
from bmgd.core.survey import Survey
from bmgd.core.timers import TimerKey
from bmgd.core.topics.topics import Topics
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.segments import COST_MAX, cost_of


class Inside:
    """A node's parts.

    Args:
        node: the node to look into.
    """

    __slots__ = (
        "contests",
        "context",
        "detector",
        "dialling",
        "finding",
        "flood",
        "forwarding",
        "greeting",
        "growth",
        "healing",
        "inbound",
        "lifecycle",
        "links",
        "membership",
        "notices",
        "observer",
        "outbound",
        "probing",
        "quorum",
        "relayout",
        "renewal",
        "retirement",
        "settings",
        "survey",
        "to_many",
        "topics",
    )

    def __init__(self, node: Node) -> None:
        self.contests: Contests = node.parts.contests
        self.context: Context = node.parts.context
        self.detector: Detector = node.parts.detector
        self.dialling: Dialling = node.parts.dialling
        self.finding: Finding = node.parts.finding
        self.flood: Flood = node.parts.flood
        self.forwarding: Forwarding = node.parts.forwarding
        self.greeting: Greeting = node.parts.greeting
        self.growth: Growth = node.parts.growth
        self.healing: Healing = node.parts.healing
        self.inbound: Inbound = node.parts.inbound
        self.lifecycle: Lifecycle = node.parts.lifecycle
        self.links: Links = node.parts.links
        self.membership: Membership = node.parts.context.membership
        self.notices: Notices = node.parts.notices
        self.observer: Observer = node.parts.observer
        self.outbound: Outbound = node.parts.outbound
        self.probing: Probing = node.parts.probing
        self.quorum: Quorum = node.parts.quorum
        self.relayout: Relayout = node.parts.relayout
        self.renewal: Renewal = node.parts.renewal
        self.retirement: Retirement = node.parts.retirement
        self.settings: Settings = node.parts.context.settings
        self.survey: Survey = node.parts.survey
        self.to_many: ToMany = node.parts.to_many
        self.topics: Topics = node.parts.topics

    def timers(self) -> dict[TimerKey, int]:
        """Every deadline that is set, and when it is due."""
        return {key: at_ns for key, (at_ns, _) in self.context.timers._due.items()}

    def plans_relayout(self) -> bool:
        """Whether a relayout is planned."""
        return (RELAYOUT_TIMER, 0, 0) in self.context.timers

    def deadlines_set(self) -> int:
        """How many deadlines were ever set."""
        return self.context.timers._count

    def set_since(self, count: int) -> list[tuple[TimerKey, int]]:
        """The deadlines set after so many that still stand, and when they are due."""
        due = self.context.timers._due.items()
        return [(key, at_ns) for key, (at_ns, number) in due if number > count]

    def deadlines(self) -> Collection[TimerKey]:
        """What the deadlines that are set are for."""
        return self.context.timers._due.keys()

    def timer_entries(self) -> int:
        """How many entries the heap of deadlines has, cancelled ones included."""
        return len(self.context.timers._heap)

    def lives(self) -> dict[NodeId, Incarnation]:
        """The lives met on links (the membership's own table: do not change)."""
        return self.membership._lives

    def believes(self, node_id: NodeId, incarnation: Incarnation) -> bool:
        """Whether what names this life as its source's is taken: nothing says that it is over."""
        if self.membership.status_of(node_id) in (None, Status.LEFT):
            return False
        return self.membership.incarnation(node_id) == incarnation

    def suspects(self, peer: NodeId) -> bool:
        """Whether the node suspects a peer."""
        return peer in self.detector._suspicions

    def suspected(self) -> set[NodeId]:
        """Whom the node suspects."""
        return set(self.detector._suspicions)

    def asks(self) -> set[int]:
        """The numbers of others' asks that wait for their answer."""
        return set(self.observer._asks)

    def held(self) -> set[NodeId]:
        """Whose hello is held."""
        return set(self.greeting._held)

    def streams_out(self) -> list[StreamOut]:
        """Every stream out of this node."""
        return list(self.outbound.table.streams.values())

    def streams_in(self) -> list[StreamIn]:
        """Every stream into this node that is remembered."""
        return [s for source in self.inbound._sources.values() for s in source.streams.values()]

    def stream_in(self, source: NodeId, stream_id: int) -> StreamIn | None:
        """One of them."""
        known = self.inbound._sources.get(source)
        return known.streams.get(stream_id) if known else None

    def underway_count(self) -> int:
        """How many segments wait for their acknowledgement."""
        return sum(len(stream.underway) for stream in self.outbound.table.streams.values())

    def open_ids(self, peer: NodeId) -> dict[int, StreamOut]:
        """The streams to one destination that have an id."""
        known = self.outbound.table.peers.get(peer)
        return {} if known is None else known.open

    def waits_for_an_id(self, peer: NodeId, topic: str) -> bool:
        """Whether a stream to a peer waits because one with the lowest id must keep that."""
        known = self.outbound.table.peers.get(peer)
        if known is None or all(stream.topic != topic for stream in known.waiting.values()):
            return False
        lowest = known.open.get(known.floor)
        is_full = known.next_id - known.floor >= table.SPAN - 1
        return is_full and lowest is not None and bool(lowest.underway or lowest.is_within_long)

    def spans(self) -> list[int]:
        """How many ids lie between the lowest open one and the next, towards each destination."""
        return [peer.next_id - peer.floor for peer in self.outbound.table.peers.values()]

    def extra_bytes(self) -> tuple[int, int]:
        """What programs may put beyond one segment a stream: as counted, and as it is."""
        streams = self.outbound.table.streams.values()
        return self.outbound.table.extra_bytes, sum(s.extra for s in streams)

    def granted(self) -> list[int]:
        """The credit that each active stream in has left."""
        return [s.credit - s.taken for s in self.inbound.granting.active.values()]

    def kept_bytes(self) -> tuple[int, int]:
        """What waits behind gaps: as counted, and as it is."""
        keep = [stream.kept for stream in self.streams_in() if stream.kept]
        costs = [cost_of(segment.body) for kept in keep for segment in kept.values()]
        return self.inbound._kept_bytes, sum(costs)

    def stream_count(self) -> tuple[int, int]:
        """Streams in: as counted, and as they are."""
        return self.inbound._stream_count, len(self.streams_in())

    def waiting_for_room(self) -> tuple[dict[LifeKey, int], dict[LifeKey, int], dict[LifeKey, int]]:
        """When each life's copies began to wait, was refused room, became stable in part, at last."""
        reserve = self.to_many.retention.copies._reserve
        return reserve._since_ns, reserve._refused_ns, reserve._moved_ns

    def probes(self) -> set[int]:
        """The numbers of the probes underway."""
        return set(self.probing._open)

    def work_underway(self) -> set[str]:
        """The names of the work that goes on in turns."""
        return set(self.outbound.sending._work._underway)

    def searches_for_readers(self) -> int:
        """How many searches for the readers of a topic are underway."""
        return len(self.finding._open)

    def readers(self) -> list[tuple[int, int, int]]:
        """Of each subscription: the messages and the bytes that it has, and what it may have.

        One message, and one piece of each long message, it may have whatever they cost.
        """
        return [
            (s.count, s.bytes, s.credit_bytes + COST_MAX * (1 + len(s.longs)))
            for s in self.topics.table.subscriptions.values()
        ]

    def bound_to(self, long: int) -> int | None:
        """The reader of a long message, by the message's number; None where it is over."""
        for one in self.topics.longs.by_stream.values():
            if one.number == long:
                return one.reader.request
        return None

    def queues(self) -> list[tuple[int, int, int]]:
        """Of each topic: messages waiting, bytes as counted, bytes as they are."""
        return [
            (t.waiting_count, t.waiting_bytes, sum([m.cost for m in t.waiting]))
            for t in self.topics.table.topics.values()
        ]

    def awaited_messages(self) -> int:
        """Messages that wait in topics that have a reader, and long ones that are being read."""
        topics, readers = (
            self.topics.table.topics.values(),
            self.topics.table.subscriptions.values(),
        )
        waiting = sum(m.count for t in topics if t.readers for m in t.waiting)
        return waiting + sum(len(reader.longs) for reader in readers)

    def counted_bytes(self) -> int:
        """Bytes not yet consumed, as the node counts them."""
        return self.topics.table.held_bytes

    def handed_bytes(self) -> int:
        """Bytes that readers have and have not consumed, and those of long messages on their way."""
        subscriptions = self.topics.table.subscriptions.values()
        longs = self.topics.longs.by_stream.values()
        return sum([m.cost for s in subscriptions for m in s.unconsumed]) + sum(
            [piece.cost for long in longs for piece in (*long.waiting, *long.unconsumed)]
        )

    def subjects(self) -> tuple[tuple[str, Collection[int]], ...]:
        """What waits for a deadline of its own, by the deadline's purpose."""
        return (
            ("ask", self.detector._suspicions),
            ("answer", self.observer._asks),
            ("held", self.greeting._held),
            ("probe", self.probing._open),
            ("find readers", self.finding._open),
            ("trace", self.survey._traces),
            ("broadcast report", self.to_many.source.reports.awaited),
            ("grant", self.growth._granted),
            ("join ask", self.growth._by_number),
        )

    def ids_with_record(self) -> list[int]:
        """The ids of the records, as the membership lists them."""
        return self.membership._ids

    def unknown_ids(self) -> int:
        """How many ids below the id space nobody was given, as counted."""
        return self.membership._unknown_ids

    def former(self) -> tuple[NodeId, ...]:
        """The neighbors wanted before the last relayout."""
        return self.relayout._former

    def own_belief(self) -> Record | None:
        """What the node's own membership says of it; None while the baseline does."""
        return self.membership.exceptions().get(self.context.id)
