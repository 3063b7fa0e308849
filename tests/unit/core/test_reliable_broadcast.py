"""Reliable broadcasts, in virtual time: all or none, in order, with every exception shown."""

from __future__ import annotations

from typing import Any

import pytest

from bmgd.core.broadcast import announcements
from bmgd.core.broadcast.delivery import REFUTED_NS, SKIPS_KEPT_MAX
from bmgd.core.broadcast.orphans import ORPHAN_NS
from bmgd.core.broadcast.watermarks import REMIND_TIMER
from bmgd.core.commands import BroadcastTo, ConsumedAnnouncements, Leave, Subscribe
from bmgd.core.effects import Announce, Effect, TellMissed
from bmgd.core.events import LinkDown, Received
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.types import Evidence, Incarnation, LinkId, NodeId, Record, Status, counter_of
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skip
from bmgd.wire.link_messages import Held, Notice, Watermarks
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, observed, settle
from tests.unit.core.test_broadcasting import Frames

TOPIC = "news"


def read(size: int, seed: int = 0, **settings: Any) -> Network:
    """A cluster at rest, of which every node has one reader."""
    network = Network(size, seed, **settings)
    settle(network)
    for number in range(size):
        network.issue(number, Subscribe(TOPIC, 64))
    return network


def broadcast(network: Network, source: int, payload: bytes, timeout_s: float = 10) -> int:
    return network.issue(source, BroadcastTo(TOPIC, payload, True, int(timeout_s * S)))


def report(network: Network, source: int, request: int) -> tuple[list[int], dict[int, str]]:
    reply = network.hosts[NodeId(source)].replies[request]
    assert reply.error is None, reply.error
    failed = {row["id"]: row["error"] for row in reply.result["failed"]}
    return reply.result["confirmed"], failed


def items(network: Network, number: int) -> list[bytes | tuple[int, int, int]]:
    """What a reader got: payloads, and (source, first, last) of what was missed."""
    return [
        item.payload if isinstance(item, Announce) else (item.source, item.first, item.last)
        for item in network.hosts[NodeId(number)].announced
        if isinstance(item, Announce | TellMissed)
    ]


def reliable(network: Network, number: int) -> dict[str, Any]:
    shown: dict[str, Any] = network.status(number)["to_many"]["reliable"]
    return shown


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 33])
def test_reliable_broadcast_reaches_all_is_confirmed_and_becomes_stable(size: int) -> None:
    network = read(size)
    frames = Frames()
    network.watchers.append(frames)
    source = size // 3
    requests = [broadcast(network, source, b"%d" % number) for number in range(5)]
    network.run(0.05)
    for request in requests:
        assert report(network, source, request) == (list(range(size)), {})
    for number in range(size):
        assert items(network, number) == [b"%d" % number for number in range(5)]
    network.run(1)
    assert all(reliable(network, number)["copies"] == 0 for number in range(size))
    assert reliable(network, source)["stable"] == 5
    assert reliable(network, source)["resent"] == 0


def test_reliable_broadcast_is_sent_again_to_whom_it_misses() -> None:
    network = read(8)
    network.cut(0, 4)
    request = broadcast(network, 0, b"x")
    network.run(6)
    assert report(network, 0, request)[0] == list(range(8))
    assert all(items(network, number) == [b"x"] for number in range(8))
    assert reliable(network, 0)["resent"] > 0
    network.mend()
    network.run(2)
    assert all(items(network, number) == [b"x"] for number in range(8))


def test_death_of_a_receiver_is_reported_and_holds_nobody_up() -> None:
    network = read(8)
    network.kill(5)
    request = broadcast(network, 0, b"x")
    network.run(3)
    confirmed, failed = report(network, 0, request)
    assert confirmed == [0, 1, 2, 3, 4, 6, 7]
    assert failed == {5: "DeadError"}
    assert reliable(network, 0)["stable"] == 1


def test_time_is_over_before_all_confirmed_and_it_stays_on_its_way() -> None:
    network = read(4)
    network.stop(2)
    request = broadcast(network, 0, b"x", timeout_s=0.3)
    network.run(0.4)
    assert report(network, 0, request) == ([0, 1, 3], {2: "UnreachableError"})
    network.resume(2)
    network.run(3)
    assert items(network, 2) == [b"x"]
    assert reliable(network, 0)["stable"] == 1


@pytest.mark.parametrize("size", range(3, 13))
def test_source_killed_after_telling_k_children_leaves_all_or_none(size: int) -> None:
    for told in range(size.bit_length() + 1):
        network = read(size, seed=told)
        network.hosts[NodeId(0)].crash_after = told
        broadcast(network, 0, b"x")
        if network.hosts[NodeId(0)].alive:
            network.kill(0)
        network.run(8)
        got = [items(network, number) for number in range(1, size)]
        assert got in ([[b"x"]] * (size - 1), [[]] * (size - 1)), told
        network.run(40)
        assert all(reliable(network, number)["copies"] == 0 for number in range(1, size))


def test_orphans_come_together_from_what_each_survivor_has() -> None:
    """The source reaches one child with the first and another one with the second broadcast."""
    network = read(8)
    network.cut(0, 4)
    broadcast(network, 0, b"a")
    network.mend()
    network.cut(0, 1)
    network.cut(0, 2)
    broadcast(network, 0, b"b")
    network.run(0.05)
    network.kill(0)
    network.mend()
    network.run(10)
    got = [items(network, number) for number in range(1, 8)]
    assert got == [got[0]] * 7
    assert got[0] in ([b"a", b"b"], [b"a"], [])


def test_who_was_held_dead_and_returns_is_told_what_it_missed() -> None:
    network = read(8)
    broadcast(network, 0, b"1")
    network.run(1)
    network.stop(3)
    network.run(4)
    assert 3 in network.status(0)["dead"]
    for number in (b"2", b"3"):
        broadcast(network, 0, number)
    network.run(1)
    network.resume(3)
    network.run(5)
    broadcast(network, 0, b"4")
    network.run(2)
    assert items(network, 3) == [b"1", (0, 2, 3), b"4"]
    assert items(network, 5) == [b"1", b"2", b"3", b"4"]
    assert reliable(network, 0)["stable"] == 4


def test_who_was_held_dead_is_told_though_the_source_is_gone() -> None:
    network = read(8)
    broadcast(network, 0, b"1")
    network.run(1)
    network.stop(3)
    network.run(4)
    broadcast(network, 0, b"2")
    network.run(1)
    network.kill(0)
    network.run(1)
    network.resume(3)
    network.run(8)
    assert items(network, 3) == [b"1", (0, 2, 2)]


def with_unheard_founder() -> Network:
    """A cluster with readers that holds node 3 dead, which nobody has heard of; it missed one."""
    network = Network(8, 0)
    for number in range(8):
        network.issue(number, Subscribe(TOPIC, 64))
        if number != 3:
            network.cut(3, number)
    network.run(0.1)
    broadcast(network, 0, b"1")
    network.run_until(lambda: 3 in network.status(0)["dead"])
    network.run(1)
    assert reliable(network, 0)["stable"] == 1
    return network


def test_founder_held_dead_before_it_was_heard_of_is_told_what_it_missed() -> None:
    network = with_unheard_founder()
    network.mend()
    network.run_until(lambda: 3 not in network.status(0)["dead"])
    network.run(1)
    broadcast(network, 0, b"2")
    network.run(1)
    assert items(network, 3) == [(0, 1, 1), b"2"]


def test_founder_held_dead_before_it_was_heard_of_is_told_though_the_source_is_gone() -> None:
    """No record accuses its life, so it has nothing to refute."""
    network = with_unheard_founder()
    network.kill(0)
    network.run(1)
    network.mend()
    network.run(8)
    assert not observed(network, 3, "refuted")
    broadcast(network, 1, b"2")
    network.run(1)
    assert items(network, 3) == [(0, 1, 1), b"2"]


@pytest.mark.parametrize("counts", [[3] * 100, list(range(3, 400, 2))], ids=["same", "many"])
def test_skips_above_a_gap_leave_room_for_the_one_that_closes_it(counts: list[int]) -> None:
    network = read(2)
    source = network.hosts[NodeId(0)].node
    retention = network.hosts[NodeId(1)].node.parts.to_many.retention
    heard = retention.hear(NodeId(0), source.incarnation)
    assert heard is not None
    for count in counts:
        retention.skip(heard, count, count)
    assert len(heard.skips) <= SKIPS_KEPT_MAX
    retention.skip(heard, 1, 2)
    assert heard.watermark == 3


def restarted(network: Network, number: int) -> Host:
    """A node's next life, with a reader; the others know of it."""
    network.kill(number)
    network.run(3)
    host = network.boot(number, counter=2)
    network.issue(number, Subscribe(TOPIC, 64))
    network.run(3)
    return host


def test_new_life_of_a_receiver_begins_where_it_is_known() -> None:
    network = read(8)
    for number in range(3):
        broadcast(network, 0, b"%d" % number)
    network.run(1)
    network.kill(5)
    network.run(3)
    broadcast(network, 0, b"3")
    network.run(1)
    network.boot(5, counter=2)
    network.run(3)
    network.issue(5, Subscribe(TOPIC, 64))
    request = broadcast(network, 0, b"4")
    network.run(1)
    assert report(network, 0, request) == (list(range(8)), {})
    assert items(network, 5) == [b"4"]


def test_joiner_begins_with_the_first_that_is_sent_to_it() -> None:
    network = read(4)
    broadcast(network, 0, b"1")
    network.run(1)
    host = network.join(1)
    network.run(3)
    assert host.id == 4
    network.issue(4, Subscribe(TOPIC, 64))
    request = broadcast(network, 0, b"2")
    network.run(1)
    assert report(network, 0, request) == ([0, 1, 2, 3, 4], {})
    assert items(network, 4) == [b"2"]


def test_new_life_of_the_source_counts_anew_and_its_former_one_is_settled() -> None:
    network = read(8)
    broadcast(network, 0, b"1")
    network.run(0.01)
    network.kill(0)
    network.boot(0, counter=2)
    network.run(4)
    network.issue(0, Subscribe(TOPIC, 64))
    request = broadcast(network, 0, b"2")
    network.run(1)
    assert report(network, 0, request) == (list(range(8)), {})
    assert all(items(network, number) == [b"1", b"2"] for number in range(1, 8))


def test_copies_of_a_life_that_was_followed_are_shared_though_no_record_told_so() -> None:
    network = read(4)
    network.stop(2)
    for payload in (b"1", b"2"):
        broadcast(network, 0, payload)
    network.run(0.1)
    node = network.hosts[NodeId(1)].node
    retention, orphans = node.parts.to_many.retention, node.parts.to_many.orphans
    (heard,) = retention.by_source[NodeId(0)].values()
    assert len(heard.copies) == 2
    network.kill(0)
    # A message of the next life comes before its record, then one of the former life.
    node.parts.context.membership.meet_life(NodeId(0), Incarnation(heard.incarnation + 1))
    retention._learn_stable(heard, 1)
    assert len(heard.copies) == 1
    assert (REMIND_TIMER, *heard.key) in node.parts.context.timers
    retention.on_remind_timer((REMIND_TIMER, *heard.key))
    orphans.on_changed()
    assert heard.key in orphans._orphans


def test_window_holds_back_what_has_no_room() -> None:
    network = read(4)
    network.stop(2)
    payload = bytes(65_536)
    window = network.hosts[NodeId(0)].node.parts.to_many.source.window
    window.bytes_max = lambda: 200_000  # type: ignore[method-assign]
    requests = [broadcast(network, 0, payload, timeout_s=60) for _ in range(6)]
    network.run(0.2)
    assert reliable(network, 0)["sent"] == 3
    assert reliable(network, 0)["waiting"] == 3
    network.resume(2)
    network.run(5)
    for request in requests:
        assert report(network, 0, request)[0] == [0, 1, 2, 3]
    assert len(items(network, 2)) == 6


def test_slow_reader_misses_and_stalls_nobody() -> None:
    network = read(3)
    for number in range(1500):
        broadcast(network, 0, b"%d" % number)
        network.run(0.002)
    network.run(1)
    assert reliable(network, 0)["stable"] == 1500
    reader = network.hosts[NodeId(1)]
    for _ in range(30):
        for request in list(reader.node.parts.to_many.announcements._readers):
            network.issue_as(reader, request, ConsumedAnnouncements(64))
    got = items(network, 1)
    assert got[:1088] == [b"%d" % number for number in range(1088)]
    assert got[1088:] == [(0, 1089, 1500)]


def test_leaver_drains_what_it_has_broadcast() -> None:
    network = read(8)
    network.cut(0, 4)
    request = broadcast(network, 0, b"x")
    network.issue(0, Leave())
    network.run(0.1)
    assert network.hosts[NodeId(0)].alive
    network.mend()
    # Its own reader consumes nothing: it is waited for as long as leaving may take.
    network.run(6)
    assert not network.hosts[NodeId(0)].alive
    assert report(network, 0, request)[0] == list(range(8))
    assert all(items(network, number) == [b"x"] for number in range(1, 8))


def test_two_halves_settle_each_on_its_own_and_say_what_was_missed() -> None:
    network = read(8)
    broadcast(network, 0, b"1")
    network.run(1)
    for a in range(4):
        for b in range(4, 8):
            network.cut(a, b)
    network.run(6)
    broadcast(network, 0, b"2")
    network.run(2)
    network.mend()
    network.run(15)
    broadcast(network, 0, b"3")
    network.run(2)
    for number in range(4):
        assert items(network, number) == [b"1", b"2", b"3"]
    for number in range(4, 8):
        assert items(network, number) == [b"1", (0, 2, 2), b"3"]


def refute_death(network: Network, host: Host) -> None:
    """The second life of node 1 is held dead for a while, and says that it lives."""
    network.stop(1)
    network.run(5)
    network.resume(1)
    network.run(5)
    assert (counter_of(host.node.incarnation), host.node.parts.context.version) == (2, 1)


def pass_on(network: Network, host: Host, copy: ReliableBroadcast) -> list[Effect]:
    """Node 2 passes a broadcast of node 0 on to node 1."""
    link = next(link for link, end in host.ends.items() if end.other and end.other.host.id == 2)
    return host.node.step(host.local_ns(network.now_ns), Received(link, copy))


def copy_for_others(network: Network, count: int) -> ReliableBroadcast:
    """A broadcast of node 0 that has not node 1 in its audience."""
    life = network.hosts[NodeId(0)].node.incarnation
    route = Route(NodeId(1), NodeId(0), life, 0, count, 0, 1)
    return ReliableBroadcast(route, TOPIC, b"without it", 0, (), 3, 1 << 1, (), count - 1)


def test_new_life_that_was_told_where_it_begins_is_told_of_what_it_then_misses() -> None:
    """It was held dead meanwhile, and the source died: neighbors have copies that are not for it."""
    network = read(3)
    broadcast(network, 0, b"before")
    network.run(1)
    host = restarted(network, 1)
    life = network.hosts[NodeId(0)].node.incarnation
    heard = host.node.parts.to_many.retention.lives[NodeId(0), life]
    assert (heard.watermark, heard.given) == (1, False)
    pass_on(network, host, copy_for_others(network, 2))
    assert heard.watermark == 2
    broadcast(network, 2, b"after")
    network.run(1)
    assert items(network, 1) == [(0, 2, 2), b"after"]


def test_new_life_that_refuted_its_death_is_told_of_what_is_not_for_it() -> None:
    """It had heard nothing of the source, which sent meanwhile and died: a neighbor has a copy."""
    network = read(3)
    host = restarted(network, 1)
    refute_death(network, host)
    pass_on(network, host, copy_for_others(network, 1))
    broadcast(network, 2, b"after")
    network.run(1)
    assert items(network, 1) == [(0, 1, 1), b"after"]


@pytest.mark.parametrize("waits_s", [0, 2 * REFUTED_NS // 10**9])
def test_life_that_refutes_its_death_is_told_of_what_was_just_passed_over(waits_s: int) -> None:
    """What came in its first moments may have been sent before it; what came just now was not."""
    network = read(3)
    host = restarted(network, 1)
    pass_on(network, host, copy_for_others(network, 1))
    assert items(network, 1) == []
    network.run(waits_s)
    refute_death(network, host)
    broadcast(network, 2, b"after")
    network.run(1)
    assert items(network, 1) == [*([] if waits_s else [(0, 1, 1)]), b"after"]


def test_who_was_told_that_it_missed_one_is_told_of_all_that_follow() -> None:
    """The source joined it to its audience later, and knew nothing of what a neighbor had passed on."""
    network = read(3)
    host = restarted(network, 1)
    refute_death(network, host)
    pass_on(network, host, copy_for_others(network, 1))
    life = network.hosts[NodeId(0)].node.incarnation
    route, skip = Route(NodeId(1), NodeId(0), life, 0, 4, 0, 1), Skip(NodeId(1), 1, 3, missed=False)
    copy = ReliableBroadcast(route, TOPIC, b"for it", 0, (), 3, 0, (skip,), 0)
    effects = pass_on(network, host, copy)
    missed = [(e.first, e.last) for e in effects if isinstance(e, TellMissed)]
    assert missed in ([(1, 3)], [(1, 1), (2, 3)])
    assert [e.payload for e in effects if isinstance(e, Announce)] == [b"for it"]


def test_orphans_are_pulled_from_who_has_them_though_others_who_skipped_them_are_further() -> None:
    """Most neighbors of node 1 began later and have no copy; node 15 has them, and is behind those."""
    network = read(16)
    life = network.hosts[NodeId(0)].node.incarnation
    for number in (2, 3, 5, 9, 13):
        heard = network.hosts[NodeId(number)].node.parts.to_many.retention.hear(NodeId(0), life)
        assert heard is not None
        heard.watermark = 9
    take(network, 1, life, 9)
    network.kill(0)
    network.run(5)
    for count in (1, 2, 3):
        take(network, 15, life, count)
    network.run(10)
    assert items(network, 1)[:3] == [b"1", b"2", b"3"]


def test_orphans_below_those_that_are_here_are_pulled_from_who_is_no_further() -> None:
    """The source reached one node with the earlier and another one with the later of them."""
    network = read(16)
    life = network.hosts[NodeId(0)].node.incarnation
    for number, counts in ((1, (3, 4)), (2, (5, 6))):
        for count in counts:
            take(network, number, life, count)
    network.kill(0)
    network.run(45)
    for number in range(1, 16):
        assert items(network, number) == [(0, 1, 2), b"3", b"4", b"5", b"6"], number


def test_former_life_of_which_all_is_stable_is_forgotten_when_copies_would_go() -> None:
    network = read(4)
    life = network.hosts[NodeId(0)].node.incarnation
    broadcast(network, 0, b"1")
    network.run(5)
    heards = [network.hosts[NodeId(i)].node.parts.to_many.retention.lives for i in (1, 2, 3)]
    assert [heard[NodeId(0), life].copies for heard in heards] == [{}, {}, {}]
    network.kill(0)
    network.boot(0, counter=2)
    network.run(25)
    assert all((NodeId(0), life) in heard for heard in heards)
    network.run(10)
    assert not any((NodeId(0), life) in heard for heard in heards)


def test_neighbor_that_told_of_a_life_before_it_was_over_is_told_how_far_this_node_has_it() -> None:
    network = read(4)
    life = network.hosts[NodeId(0)].node.incarnation
    broadcast(network, 0, b"1")
    network.run(5)
    host = network.hosts[NodeId(1)]
    link = host.node.parts.links.to(NodeId(2))
    assert link is not None
    held = Held(NodeId(0), life, 1, 1, 1)
    network._step(host, Received(link.id, Watermarks((held,), asks=False)))
    network.kill(0)
    network.run(0.5)
    heard = host.node.parts.to_many.retention.lives[NodeId(0), life]
    assert heard.said == {NodeId(2): (1, 1)}


def test_orphans_that_no_neighbor_sends_are_told_as_missed_up_to_the_last() -> None:
    """A neighbor began later and has none of them, and knows how many there were."""
    network = read(4)
    life = network.hosts[NodeId(0)].node.incarnation
    heard = network.hosts[NodeId(2)].node.parts.to_many.retention.hear(NodeId(0), life)
    assert heard is not None
    heard.watermark = 9
    for number in (1, 3):
        take(network, number, life, 1)
    network.kill(0)
    network.run(45)
    assert items(network, 1) == [b"1", (0, 2, 9)]


@pytest.mark.parametrize("link_ends", [False, True])
@pytest.mark.parametrize("number", [1, 4])
def test_founder_that_got_none_of_the_orphans_missed_them_and_a_joiner_did_not(
    number: int, link_ends: bool
) -> None:
    """A neighbor tells how many there were, and sends none; the joiner waits for its source's word."""
    network = read(4)
    network.join(2)
    network.run_until(lambda: NodeId(4) in network.hosts)
    network.run(1)
    if number == 4:
        network.issue(4, Subscribe(TOPIC, 64))
    host, life = network.hosts[NodeId(number)], network.hosts[NodeId(0)].node.incarnation
    heard = network.hosts[NodeId(2)].node.parts.to_many.retention.hear(NodeId(0), life)
    assert heard is not None
    heard.watermark = 9
    network.kill(0)
    network.run(1)
    link = host.node.parts.links.to(NodeId(2))
    assert link is not None
    network._step(
        host, Received(link.id, Watermarks((Held(NodeId(0), life, 9, 0, 9),), asks=False))
    )
    if link_ends:
        # What it told is known, though its copies are gone when there is a link again.
        network._step(host, LinkDown(link.id, Evidence.RESET))
    network.run(45)
    missed = number == 1
    assert host.node.parts.to_many.retention.lives[NodeId(0), life].watermark == (
        9 if missed else 0
    )
    broadcast(network, 2, b"after")
    network.run(1)
    assert items(network, number) == ([(0, 1, 9)] if missed else []) + [b"after"]


def take(network: Network, number: int, life: Incarnation, count: int) -> None:
    """A node gets a copy of a broadcast of node 0, for all of 16."""
    host = network.hosts[NodeId(number)]
    route = Route(NodeId(number), NodeId(0), life, 0, count, 0, 1)
    host.node.parts.to_many.retention.on_broadcast(
        ReliableBroadcast(route, TOPIC, b"%d" % count, 0, (), 16, 0, (), 0)
    )


def test_readers_of_a_process_that_takes_another_id_are_told_what_they_missed_meanwhile() -> None:
    network = Network(8)
    settle(network)
    joiner = network.join(5)
    network.run_until(lambda: joiner.id == 8)
    network.run(1)
    network.issue(8, Subscribe(TOPIC, 64))
    broadcast(network, 0, b"1")
    network.run(1)
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(joiner, Received(LinkId(10**6), Notice(((NodeId(8), rival),))))
    broadcast(network, 0, b"2")
    network.run(10)
    assert joiner.id == 9
    broadcast(network, 0, b"3")
    network.run(1)
    assert items(network, 9) == [b"1", (0, 2, 2), b"3"]


def test_source_that_returns_after_its_copies_went_is_asked_again() -> None:
    """It had been asked before it was held dead, and had not answered."""
    network = read(2)
    broadcast(network, 0, b"1")
    network.run(1)
    node = network.hosts[NodeId(1)].node
    (heard,) = node.parts.to_many.retention.by_source[NodeId(0)].values()
    heard.asking = True
    broadcast(network, 0, b"2")
    network.run(0.01)
    assert heard.copies
    network.cut(0, 1)
    network.run(3 * ORPHAN_NS / S)
    assert 0 in network.status(1)["dead"]
    assert not heard.copies
    network.mend()
    network.run_until(lambda: 0 not in network.status(1)["dead"])
    network.run(10)
    assert (heard.asking, heard.orphan_ns) == (False, 0)


def test_reliable_broadcasts_for_which_a_reader_has_no_room_are_counted_as_reliable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcements, "QUEUE_MAX", 2)
    network = read(2)
    for number in range(announcements.CREDIT + 5):
        broadcast(network, 0, b"%d" % number)
    network.run(1)
    assert len(items(network, 1)) == announcements.CREDIT
    shown = network.status(1)["to_many"]
    assert (shown["reliable"]["no_room"], shown["best_effort"]["no_room"]) == (3, 0)
