"""What a simulation reads in a node's core and never changes."""

from __future__ import annotations

from bmgd.core.broadcast_orphans import ORPHAN_NS, TELL_AGAIN_NS
from bmgd.core.detector import ASK_LEGS, DIAL_LEGS, SILENCE_TIMER
from bmgd.core.membership import Membership
from bmgd.core.node import Node
from bmgd.types import Incarnation, NodeId


def membership_of(node: Node) -> Membership:
    """What a node believes of every id."""
    return node._context.membership


def known_life(node: Node, peer: NodeId) -> Incarnation:
    """The highest incarnation of a peer that a node knows; 0 for none."""
    if peer == node._context.id:
        return node.incarnation
    return node._context.membership.incarnation(peer)


def silence_due_ns(node: Node) -> int:
    """By when a node that now ceases to hear somebody suspects it: its own lag makes that later."""
    context, detector = node._context, node._detector
    due_ns, _ = context.timers._due.get((SILENCE_TIMER, 0, 0), (0, 0))
    return max(due_ns, context.now_ns + detector.timeout_ns)


def answers_due_ns(node: Node) -> int:
    """How long a node that now dials somebody, and then asks others about it, waits for all of that."""
    settings, detector = node._context.settings, node._detector
    return detector.patience_ns(settings.dial_ns, DIAL_LEGS) + detector.patience_ns(
        settings.ask_ns, ASK_LEGS
    )


def gaps_due_ns(node: Node) -> int:
    """By when a node has given up what is missing before broadcasts of sources that are gone; or 0."""
    orphans = node._to_many.orphans
    waiting = [
        heard.orphan_ns + ORPHAN_NS + TELL_AGAIN_NS
        for heard in (orphans._retention.lives[key] for key in orphans._orphans)
        if heard.reach[1] > heard.watermark
    ]
    return max(waiting, default=0)


def linked_peers(node: Node) -> dict[NodeId, int]:
    """How many links a node has to each peer."""
    return {peer: len(links) for peer, links in node._links.by_peer.items()}


def wanted_peers(node: Node) -> tuple[NodeId, ...]:
    """Whom a node wants to be linked to."""
    return node._dialling.wanted
