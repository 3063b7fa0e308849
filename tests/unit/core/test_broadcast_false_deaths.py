"""Reliable broadcasts that are sent in the step in which somebody is held dead by mistake, or is back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bmgd.core.broadcast.source import BroadcastSource
from bmgd.core.commands import BroadcastTo, Leave, Register, Subscribe, Unregister
from bmgd.core.effects import Announce
from bmgd.core.events import Received
from bmgd.sim import Network
from bmgd.types import Incarnation, NodeId, Record, Status
from bmgd.wire.bounds import SKIPS_MAX
from bmgd.wire.broadcast_messages import ReliableBroadcast, Skip, Skipped, Watermark
from bmgd.wire.features import SPOKEN, Feature
from bmgd.wire.link_messages import Notice
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S, linked, reply_to, settle

SIZE, SOURCE, VICTIM, STOPPED, LEAVER = 8, 2, 5, 4, 3


@pytest.fixture
def network() -> Network:
    """A cluster at rest."""
    network = Network(SIZE)
    settle(network)
    return network


def source_of(network: Network) -> BroadcastSource:
    """What the source broadcasts from."""
    return network.hosts[NodeId(SOURCE)].node.parts.to_many.source


def broadcast(network: Network, payload: bytes) -> None:
    """The source broadcasts, and has its outcome."""
    reply_to(network, SOURCE, BroadcastTo("t", payload, True, 5 * S))


def believed(network: Network, number: int) -> Record:
    """What the source holds of a node."""
    membership = network.hosts[NodeId(SOURCE)].node.parts.context.membership
    record = membership.get(NodeId(number))
    assert record is not None
    return record


def held_dead(network: Network, *victims: int) -> list[tuple[NodeId, Record]]:
    """The records that say that these are dead; those that live refute them."""
    return [
        (NodeId(each), believed(network, each)._replace(status=Status.DEAD)) for each in victims
    ]


def tell(network: Network, *records: tuple[NodeId, Record]) -> None:
    """One notice with these records comes to the source."""
    host = network.hosts[NodeId(SOURCE)]
    link = next(iter(host.node.parts.links.table))
    network._step(host, Received(link, Notice(records)))


def acknowledge(network: Network, number: int, life: Incarnation) -> None:
    """A life of a node tells the source that it has nothing of it."""
    tag = network.hosts[NodeId(SOURCE)].node.parts.context.own_tag
    route = Route(NodeId(SOURCE), NodeId(number), life, tag, 0, 9)
    assert source_of(network).peers.on_watermark(Watermark(route, 0, 0, asks=True))


def fill_window(network: Network) -> None:
    """Node 4 stops, and what the source broadcasts to it leaves no room for all of it."""
    network.stop(STOPPED)
    for _ in range(90):
        network.issue(SOURCE, BroadcastTo("t", bytes(60_000), True, 30 * S))
    network.run(0.5)


def assert_all_confirm(network: Network, missing: set[int]) -> None:
    """A broadcast reaches everybody but these, and nothing stays unstable."""
    reply = reply_to(network, SOURCE, BroadcastTo("news", b"after", True, 5 * S))
    assert reply.error is None
    assert set(reply.result["confirmed"]) == set(range(SIZE)) - missing
    network.run(5)
    window = source_of(network).window
    assert window.stable == window.next - 1


def test_program_news_that_a_false_death_releases_holds_nothing_up(network: Network) -> None:
    program = network.issue(SOURCE, Register("a"))
    network.run(1)
    network.kill(VICTIM)
    network.run(3)
    network.boot(VICTIM, counter=2, features=SPOKEN & ~Feature.PROGRAMS)
    network.run(5)
    network.issue_as(network.hosts[NodeId(SOURCE)], program, Unregister(0))
    network.run(1)
    tell(network, *held_dead(network, VICTIM))
    network.run(1)
    assert_all_confirm(network, set())


def test_broadcasts_that_one_of_two_deaths_lets_go_hold_nothing_up_when_the_other_is_false(
    network: Network,
) -> None:
    network.issue(VICTIM, Subscribe("news", 64))
    network.run(1)
    reply_to(network, SOURCE, BroadcastTo("news", b"first", True, 5 * S))
    fill_window(network)
    tell(network, *held_dead(network, STOPPED, VICTIM))
    network.run(3)
    assert_all_confirm(network, {STOPPED})


@pytest.mark.parametrize("began", [True, False])
def test_broadcasts_that_a_death_lets_go_are_for_who_returns_by_the_same_notice(
    network: Network, began: bool
) -> None:
    """Whether the source has broadcast something before it was held dead, or not."""
    network.issue(VICTIM, Subscribe("t", 64))
    if began:
        broadcast(network, b"first")
    network.stop(VICTIM)
    network.run(6)
    fill_window(network)
    host = network.hosts[NodeId(VICTIM)]
    network.resume(VICTIM)
    window = source_of(network).window
    first = window.next
    record = Record(
        host.node.incarnation,
        believed(network, VICTIM).version + 1,
        Status.ALIVE,
        host.address,
    )
    tell(network, *held_dead(network, STOPPED), (NodeId(VICTIM), record))
    last = window.next - 1
    assert first < last
    network.run(10)
    got = [item.sequence for item in host.announced if isinstance(item, Announce)]
    assert got == [1][:began] + list(range(first, last + 1))


def test_broadcasts_that_a_death_lets_go_are_confirmed_by_who_joins_by_the_same_notice(
    network: Network,
) -> None:
    fill_window(network)
    window = source_of(network).window
    first = window.next
    joiner = Record(Incarnation(1 << 32 | 7), 0, Status.ALIVE, "joiner:7400")
    tell(network, *held_dead(network, STOPPED, VICTIM), (NodeId(SIZE), joiner))
    assert window.next > first
    assert all(sent.missing >> SIZE & 1 for sent in window.unstable)
    assert not any(sent.restarted for sent in window.unstable)


@pytest.mark.parametrize("dies", [False, True])
def test_new_life_of_who_left_begins_behind_what_its_former_one_has(
    network: Network, dies: bool
) -> None:
    network.issue(SOURCE, BroadcastTo("t", b"first", True, 5 * S))
    network.run(1)
    network.stop(STOPPED)
    for _ in range(5):
        network.issue(SOURCE, BroadcastTo("t", b"x", True, 30 * S))
    network.run(0.5)
    window = source_of(network).window
    network.issue(LEAVER, Leave())
    network.run(0.2)
    assert believed(network, LEAVER).status is Status.LEFT
    if dies:
        # One life in between ends before anybody hears more of it.
        record = believed(network, LEAVER)._replace(incarnation=Incarnation(2 << 32 | 7))
        tell(network, (NodeId(LEAVER), record._replace(status=Status.DEAD)))
    network.boot(LEAVER, counter=3)
    network.issue(LEAVER, Subscribe("t", 64))
    network.run_until(lambda: believed(network, LEAVER).status is Status.ALIVE)
    behind = window.next - 1
    assert window.unstable
    assert behind > window.stable
    network.run(10)
    assert_all_confirm(network, {STOPPED})
    items = network.hosts[NodeId(LEAVER)].announced
    assert all(isinstance(item, Announce) and item.sequence > behind for item in items)


def test_life_that_is_linked_did_not_begin_anew_when_its_id_is_told_to_have_left() -> None:
    network = Network(SIZE)
    settle(network)
    source = network.hosts[NodeId(SOURCE)].node.parts.to_many.source
    baseline, life = believed(network, LEAVER), Incarnation(2 << 32)
    network.hosts[NodeId(SOURCE)].node.parts.context.membership.meet_life(NodeId(LEAVER), life)
    assert not baseline.incarnation
    request = network.issue(SOURCE, BroadcastTo("t", b"first", True, 5 * S))
    sent = source.reports.awaited[request]
    tell(network, (NodeId(LEAVER), baseline._replace(version=1, status=Status.LEFT)))
    tell(network, (NodeId(LEAVER), baseline._replace(incarnation=life, status=Status.ALIVE)))
    assert source.peers.by_id[NodeId(LEAVER)].skips == []
    assert not sent.restarted
    assert sent.missing >> LEAVER & 1


@pytest.mark.parametrize("again", [False, True])
def test_life_that_is_told_to_miss_a_broadcast_after_it_had_left_has_not_confirmed_it(
    network: Network, again: bool
) -> None:
    """It refutes that it has left, and acknowledges what it may skip; it may leave once more."""
    broadcast(network, b"first")
    network.stop(STOPPED)
    network.stop(VICTIM)
    request = network.issue(SOURCE, BroadcastTo("t", b"missed", True, S // 2))
    life = network.hosts[NodeId(VICTIM)].node.incarnation
    record = believed(network, VICTIM)._replace(incarnation=life)
    tell(network, (NodeId(VICTIM), record._replace(status=Status.LEFT)))
    tell(network, (NodeId(VICTIM), record._replace(version=record.version + 1)))
    acknowledge(network, VICTIM, record.incarnation)
    if again:
        tell(network, (NodeId(VICTIM), believed(network, VICTIM)._replace(status=Status.LEFT)))
    replies = network.hosts[NodeId(SOURCE)].replies
    network.run_until(lambda: request in replies, 5)
    failed = {each["id"]: each for each in replies[request].result["failed"]}
    assert set(failed) == {STOPPED, VICTIM}
    why = "it is left" if again else "it was known to have left before it confirmed"
    assert failed[VICTIM] == {"id": VICTIM, "error": "DeadError", "detail": why, "sent": True}


def test_broadcasts_that_a_death_lets_go_are_for_a_new_life_that_is_back_by_the_same_notice(
    network: Network,
) -> None:
    leaver = 6
    fill_window(network)
    network.issue(leaver, Leave())
    network.run(0.2)
    source = source_of(network)
    first = source.window.next
    record = believed(network, leaver)
    assert record.status is Status.LEFT
    alive = record._replace(incarnation=Incarnation(2 << 32 | 7), version=0, status=Status.ALIVE)
    tell(network, *held_dead(network, STOPPED, VICTIM), (NodeId(leaver), alive))
    sent = [each for each in source.window.unstable if each.sequence >= first]
    assert sent
    assert all(each.missing >> leaver & 1 for each in sent)
    (skip,) = source.peers.by_id[NodeId(leaver)].skips
    assert skip.last == first - 1


@pytest.mark.parametrize("acknowledges", [False, True])
def test_new_life_of_who_left_that_was_first_heard_of_as_dead_misses_nothing_of_before(
    network: Network, acknowledges: bool
) -> None:
    source = source_of(network)
    broadcast(network, b"first")
    network.issue(LEAVER, Leave())
    network.run(0.5)
    broadcast(network, b"second")
    life = Incarnation(2 << 32 | 7)
    left = believed(network, LEAVER)
    assert left.status is Status.LEFT
    dead = left._replace(incarnation=life, version=0, status=Status.DEAD)
    tell(network, (NodeId(LEAVER), dead))
    broadcast(network, b"third")
    if acknowledges:
        acknowledge(network, LEAVER, life)
    tell(network, (NodeId(LEAVER), dead._replace(version=1, status=Status.ALIVE)))
    assert set(source.peers.by_id[NodeId(LEAVER)].skips) == {
        Skip(NodeId(LEAVER), 1, 2, False),
        Skip(NodeId(LEAVER), 3, 3, True),
    }


def test_founder_that_was_evicted_unheard_and_then_held_dead_misses_what_went_on(
    network: Network,
) -> None:
    source = source_of(network)
    baseline = believed(network, LEAVER)
    network.kill(LEAVER)
    tell(network, (NodeId(LEAVER), baseline._replace(version=2**32 - 1, status=Status.LEFT)))
    broadcast(network, b"first")
    life = network.hosts[NodeId(LEAVER)].node.incarnation
    dead = baseline._replace(incarnation=life, version=0, status=Status.DEAD)
    tell(network, (NodeId(LEAVER), dead))
    tell(network, (NodeId(LEAVER), dead._replace(version=1, status=Status.ALIVE)))
    assert set(source.peers.by_id[NodeId(LEAVER)].skips) == {Skip(NodeId(LEAVER), 1, 1, True)}


@pytest.mark.parametrize("acknowledges", [False, True])
def test_joiner_that_was_first_heard_of_as_dead_misses_nothing_of_before(
    network: Network, acknowledges: bool
) -> None:
    source = source_of(network)
    broadcast(network, b"first")
    life = Incarnation(1 << 32 | 7)
    dead = Record(life, 0, Status.DEAD, "joiner:7400")
    tell(network, (NodeId(SIZE), dead))
    broadcast(network, b"second")
    if acknowledges:
        acknowledge(network, SIZE, life)
    tell(network, (NodeId(SIZE), dead._replace(version=1, status=Status.ALIVE)))
    assert set(source.peers.by_id[NodeId(SIZE)].skips) == {
        Skip(NodeId(SIZE), 1, 1, False),
        Skip(NodeId(SIZE), 2, 2, True),
    }


@pytest.mark.parametrize("known", ["alive", "dead", "dead before anything was sent"])
def test_new_life_that_is_first_heard_of_as_dead_misses_what_was_sent_since_then_alone(
    network: Network, known: str
) -> None:
    source = source_of(network)
    if known == "dead before anything was sent":
        network.kill(VICTIM)
        network.run(3)
    broadcast(network, b"first")
    if known == "dead":
        network.kill(VICTIM)
        network.run(3)
    life = Incarnation(2 << 32 | 7)
    dead = Record(life, 0, Status.DEAD, believed(network, VICTIM).address)
    tell(network, (NodeId(VICTIM), dead))
    network.issue(SOURCE, BroadcastTo("t", b"second", True, 5 * S))
    tell(network, (NodeId(VICTIM), dead._replace(version=1, status=Status.ALIVE)))
    peer = source.peers.by_id[NodeId(VICTIM)]
    assert peer.life == life
    assert set(peer.skips) == {
        Skip(NodeId(VICTIM), 1, 1, False),
        Skip(NodeId(VICTIM), 2, 2, True),
    }


def test_life_that_is_linked_did_not_begin_anew_when_the_death_of_a_former_one_is_told(
    network: Network,
) -> None:
    source = source_of(network)
    baseline, life = believed(network, LEAVER), network.hosts[NodeId(LEAVER)].node.incarnation
    assert LEAVER in linked(network, SOURCE)
    request = network.issue(SOURCE, BroadcastTo("t", b"first", True, 5 * S))
    former = Incarnation(1 << 32)
    assert former < life
    tell(network, (NodeId(LEAVER), baseline._replace(incarnation=former, status=Status.DEAD)))
    tell(network, (NodeId(LEAVER), baseline._replace(incarnation=life, status=Status.ALIVE)))
    assert source.peers.by_id[NodeId(LEAVER)].skips == []
    network.run(1)
    assert network.hosts[NodeId(SOURCE)].replies[request].result == {
        "confirmed": list(range(SIZE)),
        "failed": [],
    }


@pytest.mark.parametrize("ends", [(), (Status.DEAD,), (Status.LEFT,)])
@pytest.mark.parametrize("known", ["nothing", "that it skips one", "that it acknowledges"])
def test_life_that_is_linked_did_not_begin_anew_when_a_former_one_is_told_to_live(
    network: Network, known: str, ends: tuple[Status, ...]
) -> None:
    peers, leaver = source_of(network).peers, NodeId(LEAVER)
    baseline, life = believed(network, LEAVER), network.hosts[leaver].node.incarnation
    assert LEAVER in linked(network, SOURCE)
    network.issue(SOURCE, BroadcastTo("t", b"first", True, 5 * S))
    if known == "that it skips one":
        peers.pass_over(leaver, 1)
    elif known == "that it acknowledges":
        acknowledge(network, LEAVER, life)
    assert (leaver in peers.by_id) is (known != "nothing")
    request = network.issue(SOURCE, BroadcastTo("t", b"second", True, 5 * S))
    former = Incarnation(1 << 32)
    assert former < life
    # A life is given what was sent in the very step that it is heard of.
    network.run(1e-6)
    for status in (Status.ALIVE, *ends):
        tell(network, (leaver, baseline._replace(incarnation=former, status=status)))
    tell(network, (leaver, baseline._replace(incarnation=life, status=Status.ALIVE)))
    network.run(1)
    assert network.hosts[NodeId(SOURCE)].replies[request].result == {
        "confirmed": list(range(SIZE)),
        "failed": [],
    }


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("end", [Status.DEAD, Status.LEFT])
def test_new_life_begins_anew_where_one_notice_tells_the_end_of_the_linked_one_first(
    network: Network, end: Status, is_recorded: bool
) -> None:
    source, leaver = source_of(network), NodeId(LEAVER)
    life = network.hosts[leaver].node.incarnation
    record = believed(network, LEAVER)._replace(incarnation=life, status=Status.ALIVE)
    assert LEAVER in linked(network, SOURCE)
    if is_recorded:
        tell(network, (leaver, record))
    network.issue(SOURCE, BroadcastTo("t", b"for the former life", True, 5 * S))
    network.run(1e-6)
    new = record._replace(incarnation=Incarnation(2 << 32 | 7))
    tell(network, (leaver, record._replace(status=end)), (leaver, new))
    assert source.peers.by_id[leaver].skips == [Skip(leaver, 1, 1, False)]
    assert source.window.unstable[0].restarted == 1 << LEAVER


def test_broadcasts_that_a_death_lets_go_are_for_a_new_life_told_by_the_same_notice(
    network: Network,
) -> None:
    broadcast(network, b"first")
    fill_window(network)
    source = source_of(network)
    first = source.window.next
    new = believed(network, VICTIM)._replace(incarnation=Incarnation(2 << 32 | 7), version=0)
    tell(network, *held_dead(network, STOPPED), (NodeId(VICTIM), new))
    sent = [each for each in source.window.unstable if each.sequence >= first]
    assert sent
    assert all(each.missing >> VICTIM & 1 for each in sent)
    assert not any(each.restarted for each in sent)
    (skip,) = source.peers.by_id[NodeId(VICTIM)].skips
    assert skip == Skip(NodeId(VICTIM), 1, first - 1, False)


def begin_anew(network: Network) -> None:
    """Node 5 leads its second life, and reads."""
    network.kill(VICTIM)
    network.run(3)
    network.boot(VICTIM, counter=2)
    network.issue(VICTIM, Subscribe("t", 64))
    network.run(3)


def test_new_life_that_is_held_dead_soon_missed_nothing_of_before_it_began(
    network: Network,
) -> None:
    broadcast(network, b"first")
    begin_anew(network)
    tell(network, *held_dead(network, VICTIM))
    network.run(1)
    assert network.hosts[NodeId(VICTIM)].node.parts.context.version > 0
    assert_all_confirm(network, set())
    broadcast(network, b"third")
    (item,) = network.hosts[NodeId(VICTIM)].announced
    assert isinstance(item, Announce)
    assert item.payload == b"third"


def test_skips_of_a_former_life_in_a_frame_are_not_missed_by_the_next_one(network: Network) -> None:
    begin_anew(network)
    host, source = network.hosts[NodeId(VICTIM)], network.hosts[NodeId(SOURCE)]
    retention = host.node.parts.to_many.retention
    route = Route(NodeId(VICTIM), NodeId(SOURCE), source.node.incarnation, 0, 3, 9)
    skips = (Skip(NodeId(VICTIM), 1, 2, True),)
    retention.on_broadcast(ReliableBroadcast(route, "t", b"third", 0, (), SIZE, 0, skips, 0))
    skipped = Skipped(
        replace(route, destination_tag=host.node.parts.context.own_tag),
        (Skip(NodeId(VICTIM), 1, 2, False),),
        0,
    )
    retention.on_skipped(skipped)
    heard = retention.lives[NodeId(SOURCE), source.node.incarnation]
    assert heard.watermark == 3
    assert retention.delivery.missed == 0


@pytest.mark.parametrize("last", [8, 9, 12])
def test_what_was_passed_over_is_not_missed_where_its_source_says_so_later(
    network: Network, last: int
) -> None:
    begin_anew(network)
    host, source = network.hosts[NodeId(VICTIM)], network.hosts[NodeId(SOURCE)]
    retention, context = host.node.parts.to_many.retention, host.node.parts.context
    route = Route(NodeId(VICTIM), NodeId(SOURCE), source.node.incarnation, 0, 1, 9)
    without_it = SIZE, 1 << VICTIM
    for count in range(1, 10):
        copy = ReliableBroadcast(
            replace(route, sequence=count), "t", b"x", 0, (), *without_it, (), 0
        )
        retention.on_broadcast(copy)
    skip = Skip(NodeId(VICTIM), 1, last, False)
    retention.on_skipped(Skipped(replace(route, destination_tag=context.own_tag), (skip,), 0))
    retention.delivery.on_refuted(retention.lives.values())
    assert retention.delivery.missed == max(0, 9 - last)


def test_node_that_was_held_dead_often_is_waited_for_in_between(network: Network) -> None:
    """It was for it what was sent while it lived: no report says that it has what it does not have."""
    source = source_of(network)
    network.stop(VICTIM)
    requests = []
    for _ in range(SKIPS_MAX + 2):
        requests.append(network.issue(SOURCE, BroadcastTo("t", b"for it", True, 600 * S)))
        tell(network, *held_dead(network, VICTIM))
        network.issue(SOURCE, BroadcastTo("t", b"not for it", True, 600 * S))
        back = believed(network, VICTIM)
        tell(
            network, (NodeId(VICTIM), back._replace(version=back.version + 1, status=Status.ALIVE))
        )
    reports = source.reports.awaited
    assert all(reports[request].missing >> VICTIM & 1 for request in requests)
    assert len(source.peers.by_id[NodeId(VICTIM)].skips) == SKIPS_MAX + 2


def test_who_is_not_told_for_which_life_takes_what_its_source_skips(network: Network) -> None:
    host, source = network.hosts[NodeId(VICTIM)], network.hosts[NodeId(SOURCE)]
    retention = host.node.parts.to_many.retention
    route = Route(NodeId(VICTIM), NodeId(SOURCE), source.node.incarnation, 0, 5, 9)
    retention.on_skipped(Skipped(route, (Skip(NodeId(VICTIM), 1, 4, False),), 0))
    assert retention.lives[NodeId(SOURCE), source.node.incarnation].watermark == 4
    retention.on_skipped(
        Skipped(replace(route, destination_tag=1), (Skip(NodeId(VICTIM), 5, 5, False),), 0)
    )
    assert retention.lives[NodeId(SOURCE), source.node.incarnation].watermark == 4
