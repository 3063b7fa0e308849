"""Reliable broadcasts at their source: what waits for room goes on, whoever is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from bmgd.core.broadcast.source import SENT_PER_STEP_MAX
from bmgd.core.commands import BroadcastTo, Leave
from bmgd.core.effects import Effect
from bmgd.core.events import Event, Received
from bmgd.core.node import Node
from bmgd.errors import UnreachableError
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status, incarnation_tag
from bmgd.wire.broadcast_messages import ReliableBroadcast, Watermark
from bmgd.wire.link_messages import Notice
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, settle

TOPIC = "news"
ORPHANS_GO_S = 60
"""Longer than copies of a source that is gone are kept, and until their holder asks again."""


def broadcast(network: Network, source: int, payload: bytes, timeout_s: float = 60) -> int:
    return network.issue(source, BroadcastTo(TOPIC, payload, True, int(timeout_s * S)))


def test_source_left_alone_settles_all_that_waited_for_room() -> None:
    network = Network(2, 1)
    settle(network)
    network.stop(1)
    requests = [broadcast(network, 0, bytes(60_000)) for _ in range(900)]
    shown = network.status(0)["to_many"]["reliable"]
    assert shown["waiting"] > 500
    network.kill(1)
    network.run(5)
    shown = network.status(0)["to_many"]["reliable"]
    assert (shown["stable"], shown["waiting"]) == (900, 0)
    replies = network.hosts[NodeId(0)].replies
    last = replies[requests[-1]].result
    assert last == {"confirmed": [0], "failed": []}


def test_source_left_alone_sends_a_bounded_part_of_what_waits_in_each_step() -> None:
    network = Network(2, 1)
    settle(network)
    network.stop(1)
    for _ in range(6000):
        broadcast(network, 0, b"x")
    steps = Sent(NodeId(0))
    network.watchers.append(steps)
    network.kill(1)
    network.run(5)
    assert network.status(0)["to_many"]["reliable"]["stable"] == 6000
    assert 0 < steps.most <= SENT_PER_STEP_MAX


def test_report_says_of_each_broadcast_whether_it_was_sent() -> None:
    network = Network(2, 1)
    settle(network)
    network.stop(1)
    requests = [broadcast(network, 0, bytes(60_000), 0.2) for _ in range(900)]
    network.run(0.3)
    replies = network.hosts[NodeId(0)].replies
    texts = [replies[request].result["failed"][0]["detail"] for request in requests]
    assert "sent, not confirmed" in texts[0]
    assert "no room in the window" in texts[-1]


class Sent(Watcher):
    """How many broadcasts a node has numbered in one step at most."""

    def __init__(self, number: NodeId) -> None:
        self.number, self.most, self.next = number, 0, 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        if host.id == self.number:
            following = host.node.parts.to_many.source.window.next
            if self.next:
                self.most = max(self.most, following - self.next)
            self.next = following


def outcomes(host: Host, requests: list[int]) -> list[bool]:
    """Whether each broadcast that failed was sent."""
    errors = [host.replies[request].error for request in requests]
    assert all(isinstance(error, UnreachableError) for error in errors)
    return [error.sent for error in errors if isinstance(error, UnreachableError)]


def displace(network: Network, host: Host) -> None:
    """Another life takes a joiner's id."""
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    notice = Received(LinkId(10**6), Notice(((host.id, rival),)))
    network._step(host, notice)


def test_joiner_that_loses_its_id_answers_its_broadcasts_and_says_which_were_sent() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    network.run(5)
    network.stop(6)
    requests = [broadcast(network, 8, bytes(65_000)) for _ in range(100)]
    sent = network.status(8)["to_many"]["reliable"]["sent"]
    assert 0 < sent < 100
    displace(network, joiner)
    assert outcomes(joiner, requests) == [True] * sent + [False] * (100 - sent)


def test_node_that_leaves_says_which_of_its_broadcasts_were_sent() -> None:
    network = Network(4)
    settle(network)
    network.stop(2)
    requests = [broadcast(network, 0, bytes(60_000)) for _ in range(300)]
    sent = network.status(0)["to_many"]["reliable"]["sent"]
    assert 0 < sent < 300
    network.issue(0, Leave(S // 5))
    network.run(0.5)
    assert outcomes(network.hosts[NodeId(0)], requests) == [True] * sent + [False] * (300 - sent)


def test_source_keeps_nothing_of_joiners_that_have_left() -> None:
    network = Network(2)
    settle(network)
    host = network.join(0)
    network.run(3)
    broadcast(network, 0, b"x")
    network.run(1)
    source = network.hosts[NodeId(0)]
    peers = source.node.parts.to_many.source.peers
    assert host.id in peers.by_id
    network.issue(host.id, Leave())
    network.run(3)
    assert network.status(0)["alive"] == [0, 1]
    assert sorted(peers.by_id) == [1]
    # What it acknowledged last may come after the news that it has left.
    tag = incarnation_tag(source.node.incarnation)
    late = Watermark(Route(NodeId(0), host.id, host.node.incarnation, tag, 1, 8, 0), 1, 0, False)
    link = next(iter(source.node.parts.links.table))
    network._step(source, Received(link, late))
    assert sorted(peers.by_id) == [1]


def test_copies_of_a_former_life_go_where_nothing_else_told_of_their_source() -> None:
    """Its holder asks that life; the source answers in its present one, which is then looked into."""
    network = Network(6)
    settle(network)
    source, holder = network.hosts[NodeId(5)], network.hosts[NodeId(2)]
    assert not holder.node.parts.context.membership.vouched(source.id)
    former = Incarnation(source.node.incarnation - 1)
    copy = ReliableBroadcast(
        Route(holder.id, source.id, former, 0, 1, 8, 0), TOPIC, b"x", 0, (), 6, 0, (), 0
    )
    network._step(holder, Received(next(iter(holder.node.parts.links.table)), copy))
    lives = holder.node.parts.to_many.retention.lives
    assert list(lives) == [(source.id, former)]
    network.run(ORPHANS_GO_S)
    assert former not in {life for _, life in lives}
    assert holder.node.parts.to_many.retention.copies.held_bytes == 0


def test_life_that_acknowledged_before_anything_was_sent_is_not_held_for_the_present_one() -> None:
    network = Network(4)
    settle(network)
    source, former = network.hosts[NodeId(0)], network.hosts[NodeId(3)].node.incarnation
    tag = incarnation_tag(source.node.incarnation)
    frame = Watermark(Route(NodeId(0), NodeId(3), former, tag, 0, 8), 0, 0, False)
    network._step(source, Received(LinkId(10**6), frame))
    network.kill(3)
    network.run(2)
    network.boot(3, counter=2)
    network.run(2)
    request = broadcast(network, 0, b"x")
    network.run(2)
    assert source.replies[request].result == {"confirmed": [0, 1, 2, 3], "failed": []}


def test_process_that_is_another_node_now_has_shown_what_former_lives_of_the_first_one_sent() -> (
    None
):
    network = Network(4)
    settle(network)
    host = network.hosts[NodeId(1)]
    first = host.node.incarnation
    broadcast(network, 1, b"x")
    broadcast(network, 1, b"y")
    network.run(1)
    dead = Record(Incarnation(first + 9), 0, Status.DEAD, host.node.parts.context.settings.address)
    network._step(
        host, Received(next(iter(host.node.parts.links.table)), Notice(((host.id, dead),)))
    )
    network.run(1)
    assert host.node.incarnation > first
    settings = replace(host.node.parts.context.settings, id=NodeId(2))
    node = Node(settings, Incarnation(9 << 32), Random(1), network.now_ns)
    node.inherit(host.node)
    heard = node.parts.to_many.retention.hear(host.id, first)
    assert heard is not None
    assert (heard.watermark, heard.given) == (2, True)


def test_process_that_is_another_node_remembers_of_the_latest_lives_how_far_readers_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(4)
    settle(network)
    former = network.hosts[NodeId(1)].node
    broadcast(network, 2, b"x")
    broadcast(network, 3, b"y")
    network.run(1)
    retention = former.parts.to_many.retention
    retention.on_own_life_over(Incarnation(1), 7)
    monkeypatch.setattr("bmgd.core.broadcast.retention.LIVES_MAX", 2)
    settings = replace(former.parts.context.settings, id=NodeId(0))
    node = Node(settings, Incarnation(9 << 32), Random(1), network.now_ns)
    node.inherit(former)
    lives = {(NodeId(i), network.hosts[NodeId(i)].node.incarnation): 1 for i in (2, 3)}
    assert node.parts.to_many.retention._inherited == lives
