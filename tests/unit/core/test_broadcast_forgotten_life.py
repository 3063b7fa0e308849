"""A founder that begins again without its state, below its former life: what it is owed of broadcasts."""

from __future__ import annotations

from dataclasses import replace

from bmgd.core.broadcast.peers import BroadcastPeers
from bmgd.core.broadcast.window import BroadcastWindow
from bmgd.core.commands import BroadcastTo
from bmgd.core.events import CommandIssued, LinkUp, Received
from bmgd.core.node import Node
from bmgd.types import UNKNOWN_INCARNATION, Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.broadcast_messages import Skip, Watermark
from bmgd.wire.link_messages import Notice
from tests.unit.core.clusters import S
from tests.unit.core.test_bounds import LIFE, PEERS, node_of, route

PEER = NodeId(2)
FORMER, PRESENT = Incarnation(LIFE + 9), Incarnation(LIFE + 5)


class Source:
    """Node 0, linked to node 1, which broadcasts; it knows node 2 by nothing but what that says."""

    def __init__(self, size: int) -> None:
        self.node: Node = node_of(size)
        self.window: BroadcastWindow = self.node.parts.to_many.source.window
        self.peers: BroadcastPeers = self.node.parts.to_many.source.peers
        self.now_ns = 1

    def step(self, event: CommandIssued | LinkUp | Received) -> None:
        self.now_ns += 1
        self.node.step(self.now_ns, event)

    def broadcast(self) -> None:
        self.step(CommandIssued(self.now_ns, BroadcastTo("news", b"x", True, 60 * S)))

    def hear(self, peer: NodeId, life: Incarnation, watermark: int) -> None:
        """A peer acknowledges."""
        tag = self.node.parts.context.own_tag
        way = replace(route(peer), source_incarnation=life, destination_tag=tag)
        self.step(Received(LinkId(1), Watermark(way, watermark, 0, asks=False)))

    def link(self, life: Incarnation) -> None:
        """Node 2 is linked, in that life."""
        address = PEERS.address_of(PEER)
        self.step(LinkUp(LinkId(2), PEER, life, address, UNKNOWN_INCARNATION, 1))

    def tell(self, life: Incarnation, version: int, status: Status) -> None:
        """Node 1 tells of node 2."""
        record = Record(life, version, status, PEERS.address_of(PEER))
        self.step(Received(LinkId(1), Notice(((PEER, record),))))

    def lacking(self) -> list[int]:
        """Which of the broadcasts that are unstable node 2 is waited for."""
        return [sent.sequence for sent in self.window.unstable if sent.missing >> PEER & 1]


def test_founder_that_forgot_its_life_gets_what_that_acknowledged() -> None:
    source = Source(4)
    for _ in range(3):
        source.broadcast()
    source.hear(PEER, FORMER, 2)
    assert source.lacking() == [3]
    source.link(PRESENT)
    assert source.lacking() == [1, 2, 3]
    source.hear(PEER, PRESENT, 3)
    assert source.lacking() == []


def test_founder_that_forgot_its_life_skips_what_is_stable() -> None:
    source = Source(3)
    for _ in range(2):
        source.broadcast()
    source.hear(PEER, FORMER, 2)
    source.hear(NodeId(1), LIFE, 1)
    assert source.window.stable == 1
    source.link(PRESENT)
    peer = source.peers.by_id[PEER]
    assert (peer.life, peer.watermark, peer.skips) == (PRESENT, 0, [Skip(PEER, 1, 1, False)])
    assert source.lacking() == [2]


def test_founder_that_forgot_its_life_and_was_held_dead_misses_what_went_on() -> None:
    source = Source(3)
    source.broadcast()
    source.hear(PEER, FORMER, 1)
    source.hear(NodeId(1), LIFE, 1)
    source.tell(PRESENT, 0, Status.DEAD)
    source.broadcast()
    source.tell(PRESENT, 1, Status.ALIVE)
    peer = source.peers.by_id[PEER]
    assert (peer.life, peer.watermark, peer.skips) == (PRESENT, 0, [Skip(PEER, 1, 2, True)])
    assert source.lacking() == []
