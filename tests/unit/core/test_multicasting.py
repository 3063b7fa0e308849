"""Reliable multicasts in virtual time: who gets them, how often a body crosses a link, what is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from bmgd.core.broadcast.multicasting import unicast
from bmgd.core.commands import MulticastTo, SendTo, Subscribe
from bmgd.core.effects import Effect, Send
from bmgd.core.events import CommandIssued, Event, Received
from bmgd.core.forwarding.branching import CAREFUL_MAX
from bmgd.errors import RequestError
from bmgd.routing import hop_count
from bmgd.routing.id_sets import id_set, ids_between, ids_in
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, NodeId
from bmgd.wire.bounds import ENTRIES_MAX
from bmgd.wire.features import SPOKEN
from bmgd.wire.routes import Route
from bmgd.wire.segments import packed
from bmgd.wire.stream_messages import Entry, Segment, SegmentFlag, SharedSegment
from tests.unit.core.clusters import S, reply_to, settle
from tests.unit.segments import payloads_of

TOPIC = "jobs"


class Bodies(Watcher):
    """Counts what cores send of multicasts, by link and body."""

    def __init__(self) -> None:
        self.crossed: Counter[tuple[NodeId, int, bytes]] = Counter()
        self.frames = 0
        self.resent = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        is_new = isinstance(event, CommandIssued) or (
            isinstance(event, Received) and isinstance(event.message, SharedSegment)
        )
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, SharedSegment | Segment):
                if is_new:
                    self.crossed[host.id, effect.link, effect.message.body] += 1
                    self.frames += isinstance(effect.message, SharedSegment)
                elif isinstance(effect.message, Segment) and not isinstance(event, Received):
                    self.resent += 1


def cluster(size: int) -> tuple[Network, Bodies]:
    """A cluster at rest, of which every node has one reader."""
    network = Network(size)
    settle(network)
    for number in range(size):
        network.issue(number, Subscribe(TOPIC, 64))
    bodies = Bodies()
    network.watchers.append(bodies)
    return network, bodies


def multicast(targets: int, payload: bytes = b"m", timeout_ns: int = 10 * S) -> MulticastTo:
    return MulticastTo(targets, TOPIC, payload, True, timeout_ns)


def taken(network: Network, number: int) -> list[bytes]:
    handed = network.hosts[NodeId(number)].delivered
    return [payload for each in handed for payload in payloads_of(each)]


def everybody(size: int, but: int = -1) -> int:
    return id_set(number for number in range(size) if number != but)


@pytest.mark.parametrize("size", [2, 5, 16, 33, 64])
def test_multicast_reaches_one_reader_of_each_and_says_who_confirmed(size: int) -> None:
    network, _ = cluster(size)
    reply = reply_to(network, 1, multicast(everybody(size)))
    assert reply.result == {"confirmed": list(range(size)), "failed": []}
    assert all(taken(network, number) == [b"m"] for number in range(size))


def test_multicast_crosses_each_link_once_and_takes_shortest_ways() -> None:
    random = Random(5)
    for size in (16, 33, 64, 100):
        network, bodies = cluster(size)
        for turn in range(12):
            source = random.randrange(size)
            targets = random.sample(range(size), random.randrange(2, size))
            payload = b"%d" % turn
            reply = reply_to(network, source, multicast(id_set(targets), payload))
            assert reply.result["confirmed"] == sorted(targets)
        assert max(bodies.crossed.values()) == 1
        assert bodies.resent == 0


def test_multicast_sends_fewer_bodies_than_unicasts_and_the_farthest_first() -> None:
    network, bodies = cluster(64)
    targets = everybody(64, but=0)
    assert reply_to(network, 0, multicast(targets)).error is None
    alone = sum(hop_count(64, target) for target in ids_in(targets))
    assert sum(bodies.crossed.values()) <= 63 < alone
    hops = []
    for peer, ids in network.hosts[NodeId(0)].node.parts.to_many.branching.ways(
        [NodeId(each) for each in ids_in(targets)]
    )[0]:
        assert peer in [link["id"] for link in network.status(0)["links"]]
        hops.append(max(hop_count(64, each) for each in ids))
    assert hops == sorted(hops, reverse=True)


def test_multicast_is_in_order_with_what_is_sent_to_the_same_topic() -> None:
    network, _ = cluster(8)
    replies = network.hosts[NodeId(0)].replies
    requests = []
    for turn in range(6):
        payload = b"%d" % turn
        command = (
            SendTo(NodeId(5), TOPIC, payload, 10 * S)
            if turn % 2
            else multicast(everybody(8), payload)
        )
        requests.append(network.issue(0, command))
    network.run_until(lambda: all(request in replies for request in requests), 10)
    assert taken(network, 5) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert taken(network, 3) == [b"0", b"2", b"4"]


def test_destination_with_a_closed_window_follows_as_unicast() -> None:
    network, _ = cluster(16)
    # The first segment of a stream waits for its answer: the window is closed until then.
    first = network.issue(0, SendTo(NodeId(9), TOPIC, b"first", 10 * S))
    second = network.issue(0, multicast(everybody(16, but=0), b"second"))
    tally = network.hosts[NodeId(0)].node.parts.to_many.multicasting.tally
    assert tally.singly == 1
    replies = network.hosts[NodeId(0)].replies
    network.run_until(lambda: first in replies and second in replies, 10)
    assert replies[second].result["confirmed"] == list(range(1, 16))
    assert taken(network, 9) == [b"first", b"second"]


def test_multicast_past_daemons_of_an_older_release_goes_singly() -> None:
    network = Network(16, start=False)
    for number in range(16):
        network.boot(number, features=0 if number in (2, 8, 9) else SPOKEN)
    settle(network)
    for number in range(16):
        network.issue(number, Subscribe(TOPIC, 64))
    reply = reply_to(network, 0, multicast(everybody(16)))
    assert reply.result == {"confirmed": list(range(16)), "failed": []}
    received = {
        number: network.hosts[NodeId(number)].node.counts.received[SharedSegment]
        for number in range(16)
    }
    assert not any(received[number] for number in (2, 8, 9))
    assert any(received.values())
    # What cannot go along goes at once, not when its stream has waited in vain.
    tally = network.hosts[NodeId(0)].node.parts.to_many.multicasting.tally
    assert (tally.shared, tally.singly) == (7, 6)
    assert network.hosts[NodeId(0)].node.counts.plain["stream_silences"] == 0


def test_multicast_to_the_dead_fails_for_them_alone() -> None:
    network, _ = cluster(16)
    for number in (3, 12):
        network.kill(number)
    settle(network, dead=(3, 12))
    reply = reply_to(network, 5, multicast(everybody(16)))
    assert reply.result["confirmed"] == [each for each in range(16) if each not in (3, 12)]
    assert [(f["id"], f["error"], f["sent"]) for f in reply.result["failed"]] == [
        (3, "DeadError", False),
        (12, "DeadError", False),
    ]


def test_multicast_around_nodes_that_die_meanwhile_reaches_all_that_live() -> None:
    random = Random(3)
    for _ in range(8):
        network, _ = cluster(16)
        source, *dead = random.sample(range(16), 4)
        for number in dead:
            network.kill(number)
        reply = reply_to(network, source, multicast(everybody(16), timeout_ns=20 * S))
        living = [each for each in range(16) if each not in dead]
        assert reply.result["confirmed"] == living
        assert [failure["id"] for failure in reply.result["failed"]] == sorted(dead)
        assert all(taken(network, number) == [b"m"] for number in living)


def test_multicast_without_budget_is_ended_by_careful_unicasts_within_a_bound() -> None:
    network, _ = cluster(64)
    host = network.hosts[NodeId(7)]
    entries = tuple(Entry(NodeId(each), 0, 1 << 32 | 1, 0, 1) for each in range(64) if each != 7)
    entries += tuple(Entry(NodeId(each), 0, 1 << 32 | 1, 0, 1) for each in range(64, 200))
    route = Route(NodeId(7), NodeId(1), host.node.incarnation, hop_budget=0, priority=2)
    frame = SharedSegment(route, TOPIC, entries, packed(b"x"))
    link = next(iter(host.node.parts.links.table))
    effects = host.node.step(network.now_ns, Received(link, frame))
    sent = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Segment)]
    assert 0 < len(sent) <= CAREFUL_MAX
    assert not any(isinstance(e, Send) and isinstance(e.message, SharedSegment) for e in effects)
    assert host.node.parts.to_many.multicasting.tally.lost == len(entries) - CAREFUL_MAX


def test_frame_that_comes_back_from_a_lost_link_goes_another_way() -> None:
    network, _ = cluster(16)
    node = network.hosts[NodeId(0)].node
    lost = NodeId(8)
    entries = (Entry(NodeId(9), 0, 1 << 32 | 1, 0, 1), Entry(NodeId(10), 0, 1 << 32 | 1, 0, 1))
    route = Route(lost, NodeId(0), node.incarnation, hop_budget=5, priority=2)
    link = node.parts.links.to(lost)
    assert link is not None
    effects = node.step(
        network.now_ns, Received(link.id, SharedSegment(route, TOPIC, entries, packed(b"x")))
    )
    reached = set()
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, SharedSegment):
            assert effect.message.route.hop_budget == 4
            assert effect.message.route.search is None
            reached |= {entry.id for entry in effect.message.entries}
        elif isinstance(effect, Send) and isinstance(effect.message, Segment):
            reached.add(effect.message.route.destination)
    assert reached == {9, 10}


def test_unicast_of_an_entry_opens_its_stream_with_the_first_number_only() -> None:
    life = Incarnation(1 << 32 | 5)
    route = Route(NodeId(4), NodeId(1), life)
    first = Entry(NodeId(9), 77, 3 << 32 | 1, 2, 3)
    frame = SharedSegment(route, TOPIC, (first, first._replace(sequence=3 << 32 | 2)), packed(b"x"))
    opening, following = (unicast(frame, entry) for entry in frame.entries)
    assert (opening.topic, opening.replaces, opening.floor) == (TOPIC, 2, 3)
    assert opening.flags == SegmentFlag.OPEN
    assert opening.route.destination_tag == 77
    assert (following.topic, following.replaces, following.flags) == ("", 0, 0)
    assert following.route.source_incarnation == life
    assert (following.route.destination, following.count) == (9, 1)


def test_multicast_to_too_many_or_unknown_sends_nothing() -> None:
    network, bodies = cluster(4)
    unknown = reply_to(network, 0, multicast(id_set([1, 9])))
    assert isinstance(unknown.error, RequestError)
    many = reply_to(network, 0, multicast(ids_between(0, ENTRIES_MAX + 1)))
    assert isinstance(many.error, RequestError)
    assert not bodies.crossed


def test_multicasts_leave_no_stream_behind_that_waits() -> None:
    network, _ = cluster(16)
    for turn in range(20):
        reply_to(network, 2, multicast(everybody(16), b"%d" % turn))
    table = network.hosts[NodeId(2)].node.parts.outbound.table
    assert (table.sent_count, table.gatherings) == (0, {})
    assert all(stream.is_idle for stream in table.streams.values())
