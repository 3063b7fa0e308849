"""Reliable multicasts: frames carry on what came, over ways that they share, once over each link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bmgd.core.commands import MulticastTo
from bmgd.core.effects import Effect, ForwardingChanged, Send
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.routing import hop_count, rank_of
from bmgd.routing.id_sets import ids_in
from bmgd.sim.checkers.journal import Journal
from bmgd.sim.checkers.scene import Checker, Kinds, Scene
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.features import Feature
from bmgd.wire.messages import Message
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Segment, SegmentFlag, SharedSegment

Body = tuple[NodeId, Incarnation, bytes]
"""The source, its life, and the message."""


def segments_of(message: Message) -> list[Segment]:
    """The segments that a message is, one for each destination."""
    if isinstance(message, Segment):
        return [message]
    if not isinstance(message, SharedSegment):
        return []
    found = []
    for node_id, tag, sequence, replaces, floor in message.entries:
        is_first = sequence % 2**32 == 1
        route = message.route.__class__(
            destination=node_id,
            source=message.route.source,
            source_incarnation=message.route.source_incarnation,
            destination_tag=tag,
            sequence=sequence,
            hop_budget=message.route.hop_budget,
            priority=message.route.priority,
        )
        flags = int(SegmentFlag.OPEN) if is_first else 0
        topic = message.topic if is_first else ""
        replaced = replaces if is_first else 0
        found.append(Segment(route, flags, topic, replaced, floor, 1, 0, message.body))
    return found


def segments_that_came(event: Event) -> list[Segment]:
    """The segments that an event brings, for this node or for others."""
    return segments_of(event.message) if isinstance(event, Received) else []


def copy_of(payload: bytes, destination: NodeId) -> bytes:
    """The name of one destination's copy of a multicast's payload."""
    return payload + b"@%d" % destination


def _name(segment: Segment) -> tuple[object, ...]:
    """What of a segment never changes on its way."""
    route = segment.route
    return (
        route.destination,
        route.destination_tag,
        route.sequence,
        route.source,
        route.source_incarnation,
        segment.flags,
        segment.topic,
        segment.replaces,
        segment.floor,
        segment.body,
    )


class EntriesArePartedOnce(Checker):
    """Who passes a multicast on sends each entry on at most once, unchanged, with fewer hops left.

    Whom it is linked to it does not leave out. What is for one alone is no frame with entries.
    A source sends it to those alone whom its program named, once to each, and counts who gets it singly,
    behind a daemon of an older release. A frame never searches.
    """

    name: ClassVar[str] = "entries-are-parted-once"
    events: ClassVar[Kinds] = (SharedSegment, CommandIssued)
    before_events: ClassVar[Kinds] = (CommandIssued,)
    effects: ClassVar[Kinds] = ()

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._singly = 0

    def before(self, journal: Journal, event: Event) -> None:
        self._singly = journal.inside.to_many.multicasting.tally.singly

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        passed = event.message if isinstance(event, Received) else None
        for message in sent:
            # One that is passed on as a unicast is stays as it came.
            is_for_one = isinstance(message, SharedSegment) and len(message.entries) < 2
            if is_for_one and getattr(passed, "entries", ()) != getattr(message, "entries", ()):
                self.violate(journal, "sends a multicast for one alone as a frame with entries")
        match event:
            case Received(_, SharedSegment() as frame):
                self._check_passed(journal, frame, sent)
            case CommandIssued(_, MulticastTo(destinations, _, payload, reliable=True)):
                self._check_sent(journal, destinations, packed(payload), sent)
                self._check_singly(journal, packed(payload), effects)
            case _:
                pass

    def _check_passed(
        self, journal: Journal, frame: SharedSegment, sent: Iterable[Message]
    ) -> None:
        me = journal.host.id
        left = Counter(_name(each) for each in segments_of(frame) if each.route.destination != me)
        for message in sent:
            if not isinstance(message, Segment | SharedSegment) or message.body != frame.body:
                continue
            self._check_budget(journal, frame.route, message.route)
            if isinstance(message, SharedSegment) and message.route.search is not None:
                self.violate(journal, f"a multicast of {frame.route.source} searches")
            for segment in segments_of(message):
                name = _name(segment)
                if not left[name]:
                    text = f"to {segment.route.destination} again, or not as it came"
                    self.violate(journal, f"passes a multicast of {frame.route.source} on {text}")
                left[name] -= 1
        if frame.route.destination == me and frame.route.hop_budget:
            self._check_linked(journal, frame, {name for name, count in left.items() if count})

    def _check_linked(
        self, journal: Journal, frame: SharedSegment, left: Collection[tuple[object, ...]]
    ) -> None:
        opened = {link.peer for link in journal.links.values() if link.opened_ns < journal.now_ns}
        for segment in segments_of(frame):
            to = segment.route.destination
            if _name(segment) in left and to in opened:
                self.violate(
                    journal, f"does not pass a multicast of {frame.route.source} on to {to}"
                )

    def _check_budget(self, journal: Journal, came: Route, sent: Route) -> None:
        if came.hop_budget and sent.search is None and sent.hop_budget >= came.hop_budget:
            self.violate(journal, f"a multicast of {came.source} gains hops")

    def _check_sent(
        self, journal: Journal, destinations: int, body: bytes, sent: Iterable[Message]
    ) -> None:
        left = Counter(ids_in(destinations))
        for message in sent:
            if isinstance(message, Segment | SharedSegment) and message.body == body:
                for segment in segments_of(message):
                    if not left[segment.route.destination]:
                        text = f"to {segment.route.destination} twice, or unasked"
                        self.violate(journal, f"sends a multicast {text}")
                    left[segment.route.destination] -= 1

    def _check_singly(self, journal: Journal, body: bytes, effects: Sequence[Effect]) -> None:
        links = journal.links
        behind_older = sum(
            isinstance(effect, Send)
            and isinstance(effect.message, Segment)
            and effect.message.body == body
            and effect.link in links
            and not links[effect.link].features & Feature.SHARED_SEGMENTS
            for effect in effects
        )
        singly = journal.inside.to_many.multicasting.tally.singly - self._singly
        if behind_older > singly:
            self.violate(
                journal, f"sends {behind_older} of a multicast singly, and counts {singly}"
            )


@dataclass(slots=True)
class _Crossed:
    """Where one body went, since all was at rest when it was sent."""

    generation: int
    links: set[tuple[NodeId, LinkId]] = field(default_factory=set)


class BodiesCrossLinksOnce(Checker):
    """Where everybody has the same layout and all its links, a multicast's body crosses each link once.

    As long as no next hop changes anywhere. What is sent again is not counted, that is a unicast.
    """

    name: ClassVar[str] = "bodies-cross-links-once"
    events: ClassVar[Kinds] = (SharedSegment, CommandIssued)
    effects: ClassVar[Kinds] = (ForwardingChanged,)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._generation = 0
        self._crossed: dict[Body, _Crossed] = {}

    def on_boot(self, journal: Journal) -> None:
        self._generation += 1

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        if any(isinstance(effect, ForwardingChanged) for effect in effects):
            self._generation += 1
            self._crossed.clear()
        match event:
            case CommandIssued(_, MulticastTo(_, _, payload, reliable=True)):
                body = journal.host.id, journal.incarnation, packed(payload)
                if self._is_whole():
                    self._crossed[body] = _Crossed(self._generation)
            case Received(_, SharedSegment(route, _, _, content)):
                body = route.source, route.source_incarnation, content
            case _:
                return
        crossed = self._crossed.get(body)
        if crossed is None or crossed.generation != self._generation:
            return
        sent = [(effect.link, effect.message) for effect in effects if isinstance(effect, Send)]
        # Whose stream had others to send first follows behind them, alone.
        ahead: set[tuple[NodeId, int]] = set()
        for link, message in sent:
            if isinstance(message, Segment) and message.body != body[2]:
                ahead.add((message.route.destination, message.route.sequence >> 32))
                continue
            if isinstance(message, Segment | SharedSegment) and message.body == body[2]:
                stream = message.route.destination, message.route.sequence >> 32
                if isinstance(message, Segment) and stream in ahead:
                    continue
                key = journal.place, link
                if key in crossed.links:
                    text = f"sends the body of a multicast of {body[0]} over a link again"
                    self.violate(journal, text)
                crossed.links.add(key)

    def _is_whole(self) -> bool:
        """Whether all in the layout run, know the same, and have exactly its links."""
        running = [j for j in self.scene.journals.values() if j.host.alive and not j.exited]
        if len({j.inside.membership.digest for j in running}) != 1:
            return False
        for journal in running:
            inside, me = journal.inside, journal.host.id
            if not inside.membership.in_layout(me) or inside.membership.layout_size != len(running):
                return False
            if not inside.context.compatibility.own & Feature.SHARED_SEGMENTS:
                return False
            linked = inside.links.by_peer
            if any(other not in linked for other in inside.membership.neighbors(me)):
                return False
        return True


class WaysAreShared(Checker):
    """Of the neighbors that begin a shortest way the one is taken that most others can share.

    So whatever the choice began with, one of those neighbors that most destinations have in common has
    all of them. First it is among neighbors that get a copy anyway, then among the others. What goes
    alone is left out: it need not have been ready when the others were parted.
    """

    name: ClassVar[str] = "ways-are-shared"
    events: ClassVar[Kinds] = (SharedSegment, CommandIssued)
    effects: ClassVar[Kinds] = ()

    def after(self, journal: Journal, event: Event, effects: Sequence[Effect]) -> None:
        is_multicast = isinstance(event, Received) or (
            isinstance(event, CommandIssued) and isinstance(event.command, MulticastTo)
        )
        if not is_multicast or not journal.inside.membership.in_layout(journal.host.id):
            return
        peer_of: dict[NodeId, NodeId] = {}
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, SharedSegment):
                ids = [entry.id for entry in effect.message.entries]
                peer_of |= dict.fromkeys(ids, effect.message.route.destination)
        ways = {each: self._ways(journal, each) for each in peer_of if each != peer_of[each]}
        along = {each: found for each, hops in ways.items() if (found := hops & peer_of.keys())}
        apart = {each: hops for each, hops in ways.items() if hops and each not in along}
        for part in (along, apart):
            counts = Counter(hop for hops in part.values() for hop in hops)
            most = [hop for hop, count in counts.items() if count == max(counts.values())]
            if most and not any(_has_all(hop, part, peer_of) for hop in most):
                self.violate(journal, f"could send {sorted(part)} of a multicast over {most[0]}")

    @staticmethod
    def _ways(journal: Journal, destination: NodeId) -> set[NodeId]:
        """The linked neighbors that are one hop less away from a destination."""
        membership = journal.inside.membership
        if not membership.in_layout(destination):
            return set()
        size, end = membership.layout_size, rank_of(destination, membership.outside)

        def hops_from(node_id: NodeId) -> int:
            return hop_count(size, (end - rank_of(node_id, membership.outside)) % size)

        me = journal.host.id
        linked = [n for n in membership.neighbors(me) if n in journal.inside.links.by_peer]
        return {each for each in linked if hops_from(each) == hops_from(me) - 1}


def _has_all(
    hop: NodeId, part: Mapping[NodeId, Collection[NodeId]], peer_of: Mapping[NodeId, NodeId]
) -> bool:
    """Whether a neighbor is sent every destination that it begins a shortest way to."""
    return all(peer_of[each] == hop for each, hops in part.items() if hop in hops)
