"""What a source knows of lives that are gone, and what a node asks of a source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from bmgd.core.broadcast.peers import TELL_MAX_NS, Peer
from bmgd.core.commands import BroadcastTo
from bmgd.core.context import RecordMoved
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.broadcast_messages import Skip, Watermark
from bmgd.wire.link_messages import Held, Watermarks
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, settle


def test_life_that_was_excluded_before_it_came_back_has_missed_what_was_sent_without_it() -> None:
    network = Network(3)
    settle(network)
    for _ in range(4):
        network.issue(0, BroadcastTo("news", b"x", True, 10 * S))
    network.run(1)
    peers = network.hosts[NodeId(0)].node.parts.to_many.source.peers
    peers.by_id.clear()
    second = Incarnation(2 << 32 | 7)
    dead = Record(second, 0, Status.DEAD, "c:1")
    excluded, alive = (
        Record(second, 1, Status.EXCLUDED, "c:1"),
        Record(second, 2, Status.ALIVE, "c:1"),
    )
    peers.on_record_moved(RecordMoved(NodeId(2), dead, excluded, None))
    peers.on_record_moved(RecordMoved(NodeId(2), excluded, alive, None))
    assert [(skip.first, skip.last, skip.missed) for skip in peers.by_id[NodeId(2)].skips] == [
        (1, 4, True)
    ]


class Asked(Watcher):
    """How often a node asked a source what it need not wait for."""

    def __init__(self, source: NodeId) -> None:
        self.source, self.count = source, 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            message = effect.message if isinstance(effect, Send) else None
            if isinstance(message, Watermark) and message.route.destination == self.source:
                self.count += message.asks


def test_node_asks_a_living_source_for_what_neighbors_do_not_keep_any_more() -> None:
    network = Network(3)
    settle(network)
    asked = Asked(NodeId(0))
    network.watchers.append(asked)
    host, life = network.hosts[NodeId(1)], network.hosts[NodeId(0)].node.incarnation
    link = host.node.parts.links.to(NodeId(2))
    assert link is not None
    told = Watermarks((Held(NodeId(0), life, 5, 5, 5),), asks=False)
    network._step(host, Received(link.id, told))
    network.run(0.9)
    assert asked.count == 0
    network.run(0.2)
    assert asked.count == 1


def test_skips_that_are_not_acknowledged_are_told_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them may be a search through all nodes, and every source tells some."""
    network = Network(3)
    settle(network)
    network.issue(0, BroadcastTo("news", b"x", True, 10 * S))
    network.run(1)
    host = network.hosts[NodeId(0)]
    peers = host.node.parts.to_many.source.peers
    told_ns: list[int] = []
    monkeypatch.setattr(
        peers._frames, "tell_skips", lambda *_: told_ns.append(host.node.parts.context.now_ns)
    )

    def lacks(node_id: NodeId) -> None:
        peers.by_id.setdefault(node_id, Peer()).skip(Skip(node_id, 1, 9, False))
        peers.plan_resending()

    lacks(NodeId(2))
    network.run(60)
    pauses_s = [(b - a) / S for a, b in pairwise(told_ns)]
    assert len(told_ns) < 16
    assert pauses_s == sorted(pauses_s)
    assert TELL_MAX_NS / S <= pauses_s[-1] < TELL_MAX_NS / S + 1
    # It is heard of, so there is a way to it.
    one = host.node.parts.context
    life = network.hosts[NodeId(2)].node.incarnation
    route = Route(NodeId(0), NodeId(2), life, one.own_tag, sequence=0, hop_budget=9)
    link = host.node.parts.links.to(NodeId(2))
    assert link is not None
    network._step(host, Received(link.id, Watermark(route, 0, 0, False)))
    again = len(told_ns)
    network.run(0.5)
    assert len(told_ns) > again
