"""Joiners in virtual time: hosts whose process has no id yet, or has lost the one that it had.

A host begins with a `Joiner` instead of a `Node`, and is kept under a negative id until the cluster has
given it one. `Network.join` starts one; `Displaced` makes one of a member. How a contact is dialled is
in `wires.py`: like any other dial, but that it may lead to whoever is there.
"""

from __future__ import annotations

from random import Random

from bmgd.core.effects import AskContact, Dial, Joined
from bmgd.core.events import AskFailed, DialFailed, Event, Granted, Greeted, JoinAsked
from bmgd.core.joining.joiner import Joiner
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.routing import Snapshot
from bmgd.sim.host import Host
from bmgd.types import UNKNOWN_INCARNATION, Evidence, Incarnation, LinkId, NodeId, Record
from bmgd.wire.hello import Refusal


def common_key(dialer: Host, acceptor: Host) -> str | None:
    """What a link between two hosts is made under; None if it cannot be made."""
    if not dialer.keys and not acceptor.keys:
        return ""
    return next((key for key in acceptor.keys if key in dialer.keys), None)


def event_of_hello(host: Host, dial: Dial | AskContact, link: LinkId, key: str) -> Event:
    """What the acceptor's core is told when a host's hello has arrived on a link of its own."""
    if isinstance(dial, AskContact):
        return JoinAsked(link, dial.claimed, dial.incarnation, host.address)
    life, address = host.node.incarnation, host.address
    known, number = dial.known, dial.dial_number
    return Greeted(link, host.id, life, address, known, number, key, dial.renews, host.features)


def event_of_failure(
    dial: Dial | AskContact,
    evidence: Evidence,
    refusal: Refusal | None = None,
    known_of_me: Incarnation = UNKNOWN_INCARNATION,
    *,
    proven: bool = True,
) -> Event:
    """What the dialer's core is told when its dial came to nothing."""
    if isinstance(dial, AskContact):
        return AskFailed(evidence, refusal, proven)
    return DialFailed(dial.peer, evidence, refusal, known_of_me, proven)


def begin_joining(
    host: Host,
    settings: Settings,
    contacts: tuple[str, ...],
    claimed: Granted | None,
    counter: int,
    random: Random,
    local_ns: int,
) -> None:
    """Give a host a joiner's core.

    Args:
        host: whose process begins, or has lost its id.
        settings: of any node; the id is not looked at.
        contacts: addresses of members.
        claimed: what it kept of a former life, or None.
        counter: of its incarnation.
        random: draws the incarnation and the core's seed.
        local_ns: what its clock shows.
    """
    incarnation = Incarnation(counter << 32 | random.getrandbits(32))
    host.joiner = Joiner(
        settings,
        contacts,
        None if claimed is None else claimed.id,
        claimed,
        incarnation,
        Random(random.getrandbits(64)),
        local_ns,
    )


def everything_of(
    host: Host,
) -> tuple[tuple[tuple[NodeId, Record], ...], tuple[tuple[NodeId, NodeId], ...]]:
    """All records and retired ids of a contact, as a joiner asks for them: page by page, but at once."""
    records: list[tuple[NodeId, Record]] = []
    retired: list[tuple[NodeId, NodeId]] = []
    after: NodeId | None = NodeId(0)
    while after is not None:
        page = host.node.page(after)
        records += page.records
        retired += page.retired
        after = page.following
    return tuple(records), tuple(retired)


def become_member(host: Host, joined: Joined, random: Random, local_ns: int) -> None:
    """Make a node of a joiner, which inherits from the node that it was before."""
    former = host.member
    seed = random.getrandbits(64)
    settings = joined.settings
    node = Node(
        settings, joined.incarnation, Random(seed), local_ns, joined.records, joined.retired
    )
    if former is not None:
        node.inherit(former)
    host.member, host.joiner = node, None
    host.id = settings.id
    ids = max(settings.founding_size, settings.id + 1)
    host.snapshot = Snapshot(0, settings.id, ids, (), ())
    host.layer.publish(host.snapshot)
