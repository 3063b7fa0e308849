"""Broadcasts and multicasts at best effort, in virtual time: whom they reach, by how many frames."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from bmgd.core.broadcast.announcements import CREDIT, QUEUE_MAX
from bmgd.core.commands import (
    BroadcastTo,
    Consumed,
    ConsumedAnnouncements,
    Leave,
    MulticastTo,
    Subscribe,
    Unsubscribe,
)
from bmgd.core.effects import Announce, Effect, Send
from bmgd.core.events import Event
from bmgd.errors import LeavingError, RequestError
from bmgd.routing import hop_count
from bmgd.routing.id_sets import id_set, ids_between, ids_in
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import NodeId
from bmgd.wire.broadcast_messages import Broadcast, Multicast
from tests.unit.core.clusters import S, settle
from tests.unit.segments import payloads_of


class Frames(Watcher):
    """Counts the frames of messages to many."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Broadcast | Multicast]] = []

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Broadcast | Multicast):
                self.sent.append((host.id, effect.message))


def read(size: int, topic: str = "news") -> tuple[Network, Frames]:
    """A cluster at rest, of which every node has one reader."""
    network = Network(size)
    settle(network)
    for number in range(size):
        network.issue(number, Subscribe(topic, 64))
    frames = Frames()
    network.watchers.append(frames)
    return network, frames


def broadcast(network: Network, source: int, payload: bytes = b"x") -> None:
    request = network.issue(source, BroadcastTo("news", payload, False, S))
    assert network.hosts[NodeId(source)].replies[request].error is None


def announced(network: Network, number: int) -> list[bytes]:
    items = network.hosts[NodeId(number)].announced
    return [item.payload for item in items if isinstance(item, Announce)]


@pytest.mark.parametrize("size", [1, 2, 3, 12, 16, 33])
def test_broadcast_reaches_every_reader_once_by_one_frame_each(size: int) -> None:
    network, frames = read(size)
    broadcast(network, size // 2)
    network.run(1)
    assert all(announced(network, number) == [b"x"] for number in range(size))
    assert len(frames.sent) == size - 1


def test_broadcast_goes_around_dead_nodes_to_their_children() -> None:
    random = Random(7)
    for size in (8, 16, 23):
        for _ in range(4):
            network, _ = read(size)
            source, *dead = random.sample(range(size), random.randrange(2, 5))
            for number in dead:
                network.kill(number)
            # The neighbors know, and their links are not healed yet.
            network.run(0.004)
            broadcast(network, source)
            network.run(2)
            missed = [
                number
                for number in range(size)
                if number not in dead and announced(network, number) != [b"x"]
            ]
            assert len(missed) < size / 2
            broadcast(network, source, b"y")
            network.run(1)
            assert all(
                announced(network, number).count(b"y") == 1
                for number in range(size)
                if number not in dead
            )


def test_broadcast_reaches_all_that_live_when_nobody_left_the_layout() -> None:
    """Healing is off: the dead keep their ranks, and their children get it from their parents."""
    for seed in range(6):
        network = Network(16, seed, configured={"healing": "off"})
        settle(network)
        for number in range(16):
            network.issue(number, Subscribe("news", 64))
        dead = Random(seed).sample(range(1, 16), 3)
        for number in dead:
            network.kill(number)
        network.run(5)
        broadcast(network, 0)
        network.run(1)
        living = [number for number in range(16) if number not in dead]
        assert [announced(network, number) for number in living] == [[b"x"]] * len(living)


def test_broadcast_that_has_no_budget_left_is_ended_by_careful_unicasts() -> None:
    network, _ = read(16)
    for host in network.hosts.values():
        host.node.parts.to_many.broadcasting.branching.hop_budget = lambda: 1  # type: ignore[method-assign]
    broadcast(network, 3)
    network.run(1)
    assert all(announced(network, number) == [b"x"] for number in range(16))


def test_multicast_shares_frames_and_reaches_one_reader_of_each() -> None:
    network, frames = read(64)
    network.issue(9, Subscribe("news", 64))
    targets = ids_between(8, 16) | 1 << 40 | 1 << 5
    request = network.issue(5, MulticastTo(targets, "news", b"m", False, S))
    network.run(1)
    assert network.hosts[NodeId(5)].replies[request].error is None
    for number in range(64):
        handed = network.hosts[NodeId(number)].delivered
        taken = [payload for each in handed for payload in payloads_of(each)]
        assert taken == ([b"m"] if targets >> number & 1 else [])
    alone = sum(hop_count(64, target - 5) for target in ids_in(targets & ~(1 << 5)))
    # The way of node 40 is not shared: relays pass its copy on without the core.
    assert len(frames.sent) == 9 < alone


def test_broadcast_is_taken_once_though_it_comes_twice() -> None:
    network, frames = read(4)
    broadcast(network, 0)
    network.run(1)
    (again,) = [frame for sender, frame in frames.sent if frame.route.destination == 1]
    host = network.hosts[NodeId(1)]
    host.node.parts.to_many.on_message(again)
    assert announced(network, 1) == [b"x"]
    assert host.node.parts.to_many.broadcasting.tally.repeated == 1


def test_broadcast_of_a_former_life_is_refused() -> None:
    network, frames = read(4)
    broadcast(network, 0)
    network.run(1)
    (former,) = [frame for sender, frame in frames.sent if frame.route.destination == 1]
    network.kill(0)
    network.run(3)
    network.boot(0, counter=2)
    network.run(5)
    host = network.hosts[NodeId(1)]
    host.node.parts.to_many.on_message(former)
    assert host.node.parts.to_many.broadcasting.tally.refused == 1


def test_broadcast_goes_to_every_reader_of_its_topic_and_is_gone_without_one() -> None:
    network, _ = read(3)
    extra = network.issue(2, Subscribe("news", 1))
    network.issue(2, Subscribe("other", 1))
    broadcast(network, 0)
    network.run(1)
    assert announced(network, 2) == [b"x", b"x"]
    request = network.issue(0, BroadcastTo("nobody", b"z", False, S))
    network.run(1)
    assert network.hosts[NodeId(0)].replies[request].error is None
    assert network.hosts[NodeId(1)].node.parts.to_many.broadcasting.tally.no_reader == 1
    network.issue_as(network.hosts[NodeId(2)], extra, Unsubscribe())
    broadcast(network, 1)
    network.run(1)
    assert announced(network, 2) == [b"x"] * 3


def test_broadcasts_wait_for_credit_of_their_own_and_slow_readers_stall_nobody() -> None:
    network = Network(2)
    settle(network)
    reader = network.issue(1, Subscribe("news", 1))
    extra = 10
    for number in range(CREDIT + QUEUE_MAX + extra):
        broadcast(network, 0, b"%d" % number)
        network.run(0.01)
    host = network.hosts[NodeId(1)]
    assert len(announced(network, 1)) == CREDIT
    assert host.node.parts.to_many.announcements.dropped == extra
    network.issue_as(host, reader, Consumed(1))
    assert len(announced(network, 1)) == CREDIT
    for _ in range(QUEUE_MAX // CREDIT):
        network.issue_as(host, reader, ConsumedAnnouncements(CREDIT))
    assert announced(network, 1) == [b"%d" % number for number in range(CREDIT + QUEUE_MAX)]
    network.issue_as(host, reader, ConsumedAnnouncements(CREDIT))
    assert host.node.parts.to_many.announcements.held_bytes == 0


def test_broadcast_is_refused_with_a_reason() -> None:
    network = Network(2)
    settle(network)
    for topic, payload in (("t", bytes(65_537)), ("", b"x"), ("t" * 256, b"x")):
        request = network.issue(0, BroadcastTo(topic, payload, False, S))
        assert isinstance(network.hosts[NodeId(0)].replies[request].error, RequestError)
    network.issue(0, Leave())
    request = network.issue(0, MulticastTo(id_set([1]), "t", b"x", False, S))
    assert isinstance(network.hosts[NodeId(0)].replies[request].error, LeavingError)
