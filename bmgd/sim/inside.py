"""What a simulation reads in a node's core and never changes."""

from __future__ import annotations

from collections.abc import Collection

from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.source import BroadcastSource
from bmgd.core.context import Link
from bmgd.core.membership.membership import Membership
from bmgd.core.neighbors.detector import ASK_LEGS, DIAL_LEGS, SILENCE_TIMER
from bmgd.core.node import Node
from bmgd.routing.id_sets import id_set
from bmgd.types import Incarnation, NodeId
from bmgd.wire.features import Feature
from bmgd.wire.stream_messages import Segment


def membership_of(node: Node) -> Membership:
    """What a node believes of every id."""
    return node.parts.context.membership


def known_life(node: Node, peer: NodeId) -> Incarnation:
    """The highest incarnation of a peer that a node knows; 0 for none."""
    if peer == node.parts.context.id:
        return node.incarnation
    return node.parts.context.membership.incarnation(peer)


def sent_to(node: Node, peer: NodeId, life: Incarnation) -> int:
    """How many broadcasts a node has sent, where that life of a peer has acknowledged each; else 0."""
    source = node.parts.to_many.source
    known, sent = source.peers.by_id.get(peer), source.window.next - 1
    if source.underway or known is None or known.life != life or known.skips:
        return 0
    return sent if known.watermark == sent else 0


def silence_due_ns(node: Node) -> int:
    """By when a node that now ceases to hear somebody suspects it: its own lag makes that later."""
    context, detector = node.parts.context, node.parts.detector
    due_ns, _ = context.timers._due.get((SILENCE_TIMER, 0, 0), (0, 0))
    return max(due_ns, context.now_ns + detector.timeout_ns)


def answers_due_ns(node: Node) -> int:
    """How long a node that now dials somebody, and then asks others about it, waits for all of that."""
    settings, detector = node.parts.context.settings, node.parts.detector
    return detector.patience_ns(settings.dial_ns, DIAL_LEGS) + detector.patience_ns(
        settings.ask_ns, ASK_LEGS
    )


def unsettled_broadcast(node: Node, connected: Collection[NodeId]) -> str:
    """Why a node still has to tell or to ask others about reliable broadcasts; "" when it need not.

    Args:
        connected: who runs and whom the graph connects with this node, itself among them.

    A source that is there sends again until all have it, and tells what is stable; who is not told asks,
    every 8 s at the latest. Of a source that is gone neighbors tell and ask each other, for 30 s: so
    long they also wait for what nobody has any more (ADR 33).

    Without healing who is not connected may be held alive for ever. A source waits for it without end,
    and that is kept, but all who are connected have it; of such a source nothing can come.
    """
    to_many = node.parts.to_many
    source, retention, orphans = to_many.source, to_many.retention, to_many.orphans
    away = source.window.living() & ~id_set(connected)
    if _owes(source, away) or source.window.told_stable < source.window.stable:
        return "its own broadcasts are not stable, or not told to be"
    # While a member is of a release without lists, they are wanted, and nobody is asked.
    asks = node.parts.context.compatibility.common & Feature.PROGRAMS
    rows = to_many.programs._rows
    if asks and any(r.wanted and r.shown and not away >> i & 1 for i, r in rows.items()):
        return "it asks for lists of programs"
    for heard in retention.lives.values():
        if heard.key in orphans._orphans:
            if _compares(node, heard):
                return f"what it has of {heard.source}'s former broadcasts, others have not, or it lacks"
        elif not (retention.is_orphan(heard) or away >> heard.source & 1) and (
            _keeps(heard, away) or heard.asking or heard.stable > heard.watermark
        ):
            return f"it keeps or lacks broadcasts of {heard.source}"
    return ""


def _owes(source: BroadcastSource, away: int) -> bool:
    """Whether anybody but those who are away still lacks what a source sent, or is to be told."""
    window, is_gone = source.window, source._context.membership.is_gone
    others = window.living() & ~away
    if any(sent.missing & others for sent in window.unstable):
        return True
    # They come to be stable in order, and the window may be full of what is not.
    unstable = window.unstable
    if not unstable[0].missing & away if unstable else window.waiting:
        return True
    peers = source.peers.by_id.items()
    return any(peer.skips and not (is_gone(i) or away >> i & 1) for i, peer in peers)


def awaits_the_unseen(node: Node, connected: Collection[NodeId]) -> bool:
    """Whether a source sends or tells again, without end, to nodes that do not run and are held alive.

    Without healing such a node may be held alive for ever, where all its neighbors are dead too.

    Args:
        connected: who runs and whom the graph connects with this node, itself among them.
    """
    source = node.parts.to_many.source
    away = source.window.living() & ~id_set(connected)
    if any(sent.missing & away for sent in source.window.unstable):
        return True
    return any(peer.skips and away >> i & 1 for i, peer in source.peers.by_id.items())


def _keeps(heard: Heard, away: int) -> bool:
    """Whether copies are kept for others than those who are away."""
    return any(not away or count <= heard.stable for count in heard.copies)


def _compares(node: Node, heard: Heard) -> bool:
    """Whether a node has not yet got, or told, all that its neighbors have of a source that is gone."""
    reach = heard.reach
    if heard.skips or reach[1] > reach[0]:
        return True
    orphans = node.parts.to_many.orphans
    for peer in node.parts.links.by_peer:
        told = heard.told.get(peer, (0, 0))
        # Where there are too many to tell all at once, some wait for their turn.
        if orphans._is_news(heard, peer):
            return True
        if told[0] > reach[0] or told[1] > reach[1]:
            return True
        if heard.copies and told < reach and peer != heard.source:
            return True
    return False


def has_passed(node: Node, segment: Segment) -> bool:
    """Whether a stream into a node has gone on beyond a segment: it was taken."""
    source, stream_id = segment.route.source, segment.route.sequence >> 32
    known = node.parts.inbound._sources.get(source)
    stream = known.streams.get(stream_id) if known else None
    return (
        stream is not None
        and stream.incarnation == segment.route.source_incarnation
        and stream.next > segment.route.sequence & 0xFFFF_FFFF
    )


def has_stream_of(node: Node, request: int) -> bool:
    """Whether a program's stream out of a node is open."""
    return request in node.parts.outbound.table.owned


def unread_bodies(node: Node) -> list[tuple[int, bytes]]:
    """What a node has taken and not handed out: of each segment how many messages, and its body."""
    return [
        (segment.count, segment.body)
        for topic in node.parts.topics.table.topics.values()
        for segment in topic.waiting
    ]


def is_told_ways(node: Node) -> bool:
    """Whether others measure ways for this node: it waits for twice as long as they do."""
    return bool(node.parts.survey._traces)


def being_read(node: Node) -> int:
    """How many messages, and pieces of long ones that have come, readers have to consume."""
    topics = node.parts.topics
    pieces = sum(
        len(each.waiting) + len(each.unconsumed) for each in topics.longs.by_stream.values()
    )
    unfinished = sum(len(reader.longs) for reader in topics.table.subscriptions.values())
    return (
        topics.table.being_read()
        - unfinished
        + pieces
        + node.parts.to_many.announcements.being_read()
    )


def linked_peers(node: Node) -> dict[NodeId, int]:
    """How many links a node has to each peer."""
    return {peer: len(links) for peer, links in node.parts.links.by_peer.items()}


def links_of(node: Node) -> list[Link]:
    """The links of a node."""
    return list(node.parts.links.table.values())


def wanted_peers(node: Node) -> tuple[NodeId, ...]:
    """Whom a node wants to be linked to."""
    return node.parts.dialling.wanted
