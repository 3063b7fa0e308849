"""Copies of a source that is gone, pulled over slow links: each about once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from bmgd.core.broadcast.heard import Heard
from bmgd.core.broadcast.orphans import PULLS_MAX
from bmgd.core.broadcast.to_many import ToMany
from bmgd.core.effects import Effect, Send
from bmgd.core.events import Event, Received
from bmgd.sim import Network
from bmgd.sim.blockade import Slowness
from bmgd.sim.conditions import Conditions
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, LinkId, NodeId
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.routes import Route
from tests.unit.core.clusters import settle

SOURCE, SIZE = NodeId(0), 4
COUNT, PAYLOAD_BYTES = 60, 40_000


class Copies(Watcher):
    """How many copies nodes send."""

    def __init__(self) -> None:
        self.sent = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        frames = [each.message for each in effects if isinstance(each, Send)]
        self.sent += sum(isinstance(frame, ReliableBroadcast) for frame in frames)


def take(network: Network, number: int, counts: Iterable[int] = range(1, COUNT + 1)) -> None:
    """A node gets the source's broadcasts, and nobody else does."""
    host, life = network.hosts[NodeId(number)], network.hosts[SOURCE].node.incarnation
    for count in counts:
        route = Route(host.id, SOURCE, life, 0, count, 0, 1)
        frame = ReliableBroadcast(route, "t", bytes(PAYLOAD_BYTES), 0, (), network.size, 0, (), 0)
        network._step(host, Received(LinkId(10**6), frame))


def watermarks(network: Network) -> list[int]:
    """Up to where each survivor has them."""
    key = SOURCE, network.hosts[SOURCE].node.incarnation
    lives = [network.hosts[NodeId(i)].node.parts.to_many.retention.lives for i in range(1, SIZE)]
    return [known[key].watermark if key in known else 0 for known in lives]


def heard_at_node_2() -> tuple[ToMany, Heard]:
    """What a node of a small cluster knows of the source's broadcasts: there may be some."""
    network = Network(SIZE)
    settle(network)
    to_many = network.hosts[NodeId(2)].node.parts.to_many
    heard = to_many.retention.hear(SOURCE, network.hosts[SOURCE].node.incarnation)
    assert heard is not None
    return to_many, heard


def test_copies_that_come_slowly_are_not_asked_for_again_and_again() -> None:
    network = Network(SIZE, conditions=Conditions(pipe_bytes=100_000))
    settle(network)
    copies = Copies()
    take(network, 1)
    network.watchers.append(copies)
    for number in range(SIZE):
        network.blockade.slow_node(NodeId(number), Slowness(0, 1_000_000))
    network.kill(SOURCE)
    network.run(10)
    assert watermarks(network) == [COUNT] * (SIZE - 1)
    assert copies.sent <= 2 * COUNT * (SIZE - 2)


def test_copies_of_which_links_drop_most_come_in_time() -> None:
    network = Network(SIZE, conditions=Conditions(pipe_bytes=100_000, bulk_bytes_max=150_000))
    settle(network)
    take(network, 1)
    network.kill(SOURCE)
    network.run(20)
    assert watermarks(network) == [COUNT] * (SIZE - 1)


def test_copies_that_who_is_further_has_skipped_come_from_another() -> None:
    network = Network(SIZE)
    settle(network)
    key = SOURCE, network.hosts[SOURCE].node.incarnation
    skipping, lacking = (network.hosts[NodeId(i)].node.parts.to_many.retention for i in (1, 2))
    take(network, 1, range(21, COUNT + 1))
    skipping.skip(skipping.lives[key], 1, 20)
    take(network, 2, [COUNT])
    take(network, 3, [*range(2, 21), COUNT])
    network.kill(SOURCE)
    network.run(15)
    assert sorted(lacking.lives[key].copies) == list(range(2, COUNT + 1))


@pytest.mark.parametrize(("size", "holder", "lacking"), [(16, 3, 9), (64, 3, 31)])
def test_copies_come_through_nodes_that_skip_them(size: int, holder: int, lacking: int) -> None:
    """All between began later, as far as they know: none of them keeps a copy."""
    network = Network(size)
    settle(network)
    life = network.hosts[SOURCE].node.incarnation
    linked = network.hosts[NodeId(lacking)].node.parts.links.by_peer
    assert NodeId(holder) not in linked
    for number in set(range(1, size)) - {holder, lacking}:
        retention = network.hosts[NodeId(number)].node.parts.to_many.retention
        heard = retention.hear(SOURCE, life)
        assert heard is not None
        retention.skip(heard, 1, COUNT)
    take(network, holder)
    network.kill(SOURCE)
    network.run(5)
    retention = network.hosts[NodeId(lacking)].node.parts.to_many.retention
    assert sorted(retention.lives[SOURCE, life].copies) == list(range(1, COUNT + 1))


def test_longest_wait_is_for_copies_that_were_asked_for() -> None:
    heard = Heard(SOURCE, Incarnation(1), asked=NodeId(1), asked_ns=100, awaited=2)
    heard.note_came(130)
    heard.note_came(200)
    assert heard.gap_ns == 70
    heard.note_came(10_000)
    assert (heard.came, heard.came_ns, heard.gap_ns) == (3, 10_000, 70)


def test_neighbors_are_asked_anew_when_all_were_asked_in_vain_as_often_as_may_be() -> None:
    to_many, heard = heard_at_node_2()
    heard.told = {NodeId(1): (5, 5), NodeId(3): (5, 5)}
    heard.pulled = {NodeId(1): PULLS_MAX + 1, NodeId(3): PULLS_MAX}
    to_many.orphans._ask_anew(heard)
    assert heard.pulled, "node 3 may be asked once more"
    heard.pulled[NodeId(3)] += 1
    to_many.orphans._ask_anew(heard)
    assert not heard.pulled


def test_neighbor_without_a_link_does_not_hold_up_that_others_are_asked_anew() -> None:
    to_many, heard = heard_at_node_2()
    assert NodeId(SIZE) not in to_many.orphans._links.by_peer
    heard.told = {NodeId(1): (5, 5), NodeId(SIZE): (5, 5)}
    heard.pulled = {NodeId(1): PULLS_MAX + 1}
    to_many.orphans._ask_anew(heard)
    assert not heard.pulled
