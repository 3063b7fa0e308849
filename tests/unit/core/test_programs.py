"""Registered programs, in virtual time: everybody knows those of everybody, whatever happened between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from bmgd.core.broadcast import programs as registry
from bmgd.core.broadcast.programs import KNOWN_MAX, PROGRAMS_TIMER, REGISTERED_MAX
from bmgd.core.commands import BroadcastTo, Leave, Register, ShowPrograms, Subscribe, Unregister
from bmgd.core.effects import Announce, Effect, ProgramsChanged, Send
from bmgd.core.events import DeadlineReached, Event, Received
from bmgd.core.node import Node
from bmgd.errors import LeavingError, RequestError
from bmgd.sim import Network
from bmgd.sim.host import Host
from bmgd.sim.observing import Watcher
from bmgd.types import Incarnation, LinkId, NodeId, Record, Status
from bmgd.wire.ask_messages import ProgramAsk, ProgramList
from bmgd.wire.bounds import PROGRAMS_BYTES_MAX
from bmgd.wire.broadcast_messages import ReliableBroadcast
from bmgd.wire.features import SPOKEN, Feature
from bmgd.wire.link_messages import MemberFeatures, Notice
from bmgd.wire.program_news import Started, pack_starts
from tests.unit.core.clusters import S, reply_to, settle


class Changes(Watcher):
    """What each node tells of programs, and how many lists were asked for."""

    def __init__(self) -> None:
        self.told: dict[int, list[tuple[str, int, str, int | None]]] = {}
        self.asks = 0

    def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ProgramsChanged):
                self.told.setdefault(host.id, []).extend(
                    ("start" if c.started else "end", c.id, c.name, c.exit) for c in effect.changes
                )
            elif isinstance(effect, Send) and isinstance(effect.message, ProgramAsk):
                self.asks += effect.message.route.source == host.id


def shown(network: Network, node_id: int) -> list[tuple[int, str]]:
    """The programs that a node shows."""
    result = reply_to(network, node_id, ShowPrograms()).result
    return [(row["id"], row["name"]) for row in result["programs"]]


def register(network: Network, node_id: int, *names: str) -> list[int]:
    """Register programs; returns their requests."""
    requests = [network.issue(node_id, Register(name)) for name in names]
    for request in requests:
        assert network.hosts[NodeId(node_id)].replies[request].error is None
    return requests


def watched(size: int, seed: int = 0) -> tuple[Network, Changes]:
    network, changes = Network(size, seed), Changes()
    network.watchers.append(changes)
    settle(network)
    return network, changes


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_programs_start_and_end_everywhere_in_order(size: int) -> None:
    network, changes = watched(size)
    first, second = register(network, size - 1, "a", "b")
    network.run(1)
    host, me = network.hosts[NodeId(size - 1)], size - 1
    network.issue_as(host, first, Unregister(3))
    network.issue_as(host, second, Unregister())
    network.run(1)
    wanted: list[tuple[str, int, str, int | None]]
    wanted = [("start", me, "a", None), ("start", me, "b", None)]
    wanted += [("end", me, "a", 3), ("end", me, "b", None)]
    assert changes.told == dict.fromkeys(range(size), wanted)
    assert changes.asks == 0


def test_start_of_a_cluster_asks_nobody() -> None:
    network = Network(16, 0)
    changes = Changes()
    network.watchers.append(changes)
    for node_id in range(16):
        register(network, node_id, "early")
    settle(network)
    network.run(3)
    assert shown(network, 7) == [(node_id, "early") for node_id in range(16)]
    assert changes.asks == 0


def test_programs_of_a_dead_node_end_and_those_of_its_next_life_start() -> None:
    network, changes = watched(5)
    register(network, 2, "a")
    network.run(1)
    network.kill(2)
    settle(network, [2])
    assert changes.told[0][-1] == ("end", 2, "a", None)
    network.boot(2, counter=2)
    settle(network)
    register(network, 2, "a")
    network.run(1)
    assert shown(network, 0) == shown(network, 2) == [(2, "a")]


def test_programs_of_who_was_held_dead_by_mistake_start_again() -> None:
    network, changes = watched(5)
    register(network, 2, "a")
    network.run(1)
    network.stop(2)
    settle_without(network, 2)
    register(network, 0, "meanwhile")
    network.run(1)
    network.resume(2)
    settle(network)
    network.run(3)
    for node_id in range(5):
        assert shown(network, node_id) == [(0, "meanwhile"), (2, "a")]
    told = [change for change in changes.told[1] if change[1] == 2]
    assert told == [("start", 2, "a", None), ("end", 2, "a", None), ("start", 2, "a", None)]


def settle_without(network: Network, node_id: int) -> None:
    """Run until everybody else holds a stopped node dead."""
    others = [i for i in range(5) if i != node_id]
    network.run_until(lambda: all(node_id in network.status(i)["dead"] for i in others), 30)


def test_parted_sides_know_all_again_when_they_meet() -> None:
    network, changes = watched(6)
    first = register(network, 0, "a", "b")
    register(network, 5, "c")
    network.run(1)
    for a in (0, 1, 2):
        for b in (3, 4, 5):
            network.cut(a, b)
    network.run(15)
    assert shown(network, 1) == [(0, "a"), (0, "b")]
    network.issue_as(network.hosts[NodeId(0)], first[0], Unregister(0))
    register(network, 0, "d")
    register(network, 4, "e")
    network.run(1)
    network.mend()
    settle(network)
    network.run(10)
    for node_id in range(6):
        assert shown(network, node_id) == [(0, "b"), (0, "d"), (4, "e"), (5, "c")]
    ends = [change for change in changes.told[4] if change[:3] == ("end", 0, "a")]
    # With its node, and again when the list shows that it is not there.
    assert ends == [("end", 0, "a", None)] * 2


def test_joiner_learns_of_all_programs() -> None:
    network, changes = watched(5)
    register(network, 1, "a")
    request = network.issue(3, BroadcastTo("news", b"x", True, S))
    network.run(1)
    assert network.hosts[NodeId(3)].replies[request].error is None
    network.join(NodeId(0))
    network.run(5)
    assert shown(network, 5) == [(1, "a")]
    # Of node 3, which has broadcast too, it cannot know without asking; of the others it does.
    assert 2 <= changes.asks <= 4


def test_list_of_many_long_names_comes_in_pages() -> None:
    network, _ = watched(3)
    names = [f"{number:04}".ljust(255, "x") for number in range(REGISTERED_MAX)]
    register(network, 1, *names)
    refused = network.issue(1, Register("one more"))
    error = network.hosts[NodeId(1)].replies[refused].error
    assert isinstance(error, RequestError)
    assert "more than 1024" in str(error)
    network.run(5)
    network.join(NodeId(0))
    network.run(10)
    assert shown(network, 3) == [(1, name) for name in names]


def test_a_name_is_registered_once_until_it_ends() -> None:
    network, _ = watched(2)
    (request,) = register(network, 0, "a")
    error = reply_to(network, 0, Register("a")).error
    assert isinstance(error, RequestError)
    assert "'a'" in str(error)
    register(network, 1, "a")
    network.issue_as(network.hosts[NodeId(0)], request, Unregister(0))
    register(network, 0, "a")


@pytest.mark.parametrize("name", ["", "ä" * 128])
def test_bad_names_are_refused(name: str) -> None:
    network, _ = watched(1)
    assert isinstance(reply_to(network, 0, Register(name)).error, RequestError)


def test_leaving_node_registers_nobody_and_its_programs_end_with_it() -> None:
    network, changes = watched(5)
    register(network, 2, "a")
    network.issue(2, Subscribe("t", 1))
    network.issue(1, BroadcastTo("t", b"unread", True, S))
    network.run(1)
    network.issue(2, Leave(1 * S))
    assert isinstance(reply_to(network, 2, Register("b")).error, LeavingError)
    network.run(2)
    assert changes.told[0][-1] == ("end", 2, "a", None)
    assert shown(network, 0) == []


def test_readers_of_broadcasts_see_nothing_of_programs() -> None:
    network, _ = watched(3)
    network.issue(2, Subscribe("news", 64))
    register(network, 0, "a")
    network.issue(0, BroadcastTo("news", b"x", True, S))
    register(network, 0, "b")
    network.run(1)
    announced = network.hosts[NodeId(2)].announced
    assert [each.payload for each in announced if isinstance(each, Announce)] == [b"x"]
    assert len(announced) == 1


def test_unreadable_news_are_named_and_the_list_is_asked_for() -> None:
    network, _ = watched(2)
    host = network.hosts[NodeId(1)]
    link = next(iter(host.ends))
    kept: list[ReliableBroadcast] = []

    class Keep(Watcher):
        def after(self, host: Host, event: Event, effects: Sequence[Effect]) -> None:
            for effect in effects:
                if isinstance(effect, Send) and isinstance(effect.message, ReliableBroadcast):
                    kept.append(effect.message)

    network.watchers.append(Keep())
    register(network, 0, "a")
    network.run(1)
    bad = replace(
        kept[0], route=replace(kept[0].route, sequence=2), payload=b"\x01garbage", branches=()
    )
    network._step(host, Received(LinkId(link), bad))
    assert [o.event for _, o in host.observed if o.event == "bad programs"]
    assert shown(network, 1) == [(0, "a")]


def test_list_of_an_earlier_revision_is_asked_for_again() -> None:
    """News beyond a gap came while the list was on its way."""
    network, changes = watched(2)
    host = network.hosts[NodeId(1)]
    link = LinkId(next(iter(host.ends)))
    register(network, 0, "a")
    network.run(1)
    programs = host.node.parts.to_many.programs
    programs.on_skipped(NodeId(0), network.hosts[NodeId(0)].node.incarnation)
    row = programs._rows[NodeId(0)]
    row.seen = 5
    network.run(1)
    assert row.wanted
    assert changes.asks >= 1
    row.seen = 1
    network.run(10)
    assert not row.wanted
    # What nobody has asked for is not taken.
    route = network.hosts[NodeId(0)].node.parts.forwarding.route_to(NodeId(1), tag=0)
    network._step(host, Received(link, ProgramList(route, 9, 0, True, b"")))
    assert shown(network, 1) == [(0, "a")]


def test_list_that_was_asked_for_before_a_skip_is_asked_for_again() -> None:
    """What was skipped meanwhile may be the end of a program that is still in the list."""
    network, _ = watched(2)
    host, source = network.hosts[NodeId(1)], network.hosts[NodeId(0)].node
    link = LinkId(next(iter(host.ends)))
    register(network, 0, "a")
    network.run(1)
    programs = host.node.parts.to_many.programs
    for _ in range(2):
        programs.on_skipped(NodeId(0), source.incarnation)
    starts, _ = pack_starts([Started(1, "a")], PROGRAMS_BYTES_MAX)

    def give_list(revision: int, asked_at: int) -> None:
        route = source.parts.forwarding.route_to(NodeId(1), sequence=asked_at)
        host.node.step(
            network.now_ns, Received(link, ProgramList(route, revision, 0, True, starts))
        )

    row = programs._rows[NodeId(0)]
    give_list(1, asked_at=2)
    assert row.wanted
    give_list(2, asked_at=3)
    assert not row.wanted
    assert row.revision == 2


def test_list_of_a_daemon_that_repeats_no_number_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Daemons from before asks had numbers answer with the sequence 0."""
    network, _ = watched(2)
    host, source = network.hosts[NodeId(1)], network.hosts[NodeId(0)].node
    register(network, 0, "a")
    network.run(1)
    answering = source.parts.to_many.programs
    asks: list[ProgramAsk] = []

    def answer_without_number(ask: ProgramAsk) -> None:
        asks.append(ask)
        registry.Programs.on_ask(answering, replace(ask, route=replace(ask.route, sequence=0)))

    monkeypatch.setattr(answering, "on_ask", answer_without_number)
    for _ in range(2):
        host.node.parts.to_many.programs.on_skipped(NodeId(0), source.incarnation)
    network.run(5)
    assert not host.node.parts.to_many.programs._rows[NodeId(0)].wanted
    assert len(asks) == 1


def test_list_that_came_leaves_no_deadline() -> None:
    network, changes = watched(2)
    register(network, 0, "a")
    network.run(1)
    node = network.hosts[NodeId(1)].node
    programs, timers = node.parts.to_many.programs, node.parts.context.timers
    programs.on_skipped(NodeId(0), network.hosts[NodeId(0)].node.incarnation)
    assert (PROGRAMS_TIMER, 0, 0) in timers
    for _ in range(200):
        if changes.asks:
            break
        network.run(0.01)
    # Far less than the second after which it would be asked again.
    network.run(0.2)
    assert changes.asks == 1
    assert not programs._rows[NodeId(0)].wanted
    assert (PROGRAMS_TIMER, 0, 0) not in timers


def test_list_is_asked_for_when_a_skip_is_faster_than_the_record_of_the_new_life() -> None:
    network, _ = watched(3)
    assert reply_to(network, 2, Leave(S)).error is None
    network.run(1)
    node = network.hosts[NodeId(0)].node
    former = node.parts.context.membership.get(NodeId(2))
    assert former is not None
    assert former.status is Status.LEFT
    life = Incarnation(former.incarnation + 1)
    node.parts.context.membership.meet_life(NodeId(2), life)
    node.parts.to_many.programs.on_skipped(NodeId(2), life)
    later_ns = network.now_ns + S // 100
    node.step(later_ns, DeadlineReached())
    assert (PROGRAMS_TIMER, 0, 0) not in node.parts.context.timers
    notice = Notice(((NodeId(2), Record(life, 0, Status.ALIVE, former.address)),))
    link = node.parts.links.by_peer[NodeId(1)][0]
    node.step(later_ns, Received(link.id, notice))
    assert (PROGRAMS_TIMER, 0, 0) in node.parts.context.timers


def test_wanted_list_of_a_node_that_is_held_dead_leaves_no_deadline() -> None:
    network, _ = watched(3)
    register(network, 0, "a")
    network.run(1)
    network.kill(0)
    life = network.hosts[NodeId(0)].node.incarnation
    node = network.hosts[NodeId(1)].node
    programs, timers = node.parts.to_many.programs, node.parts.context.timers
    programs.on_skipped(NodeId(0), life)
    # It is asked for later and later, and nobody answers.
    programs._rows[NodeId(0)].times = 8
    programs._rows[NodeId(0)].asked_ns = node.parts.context.now_ns
    assert (PROGRAMS_TIMER, 0, 0) in timers
    settle(network, [0])
    assert shown(network, 1) == []
    assert (PROGRAMS_TIMER, 0, 0) not in timers


def test_programs_beyond_what_a_node_can_know_come_when_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert KNOWN_MAX == 131_072
    monkeypatch.setattr(registry, "KNOWN_MAX", 2)
    network, _ = watched(3)
    requests = register(network, 0, "a", "b")
    network.run(1)
    register(network, 1, "c")
    network.run(1)
    assert shown(network, 2) == [(0, "a"), (0, "b")]
    network.issue_as(network.hosts[NodeId(0)], requests[0], Unregister(0))
    network.run(20)
    assert shown(network, 2) == [(0, "b"), (1, "c")]


def test_programs_wait_for_members_of_an_older_release_to_go() -> None:
    network, _ = watched(2)
    host = network.hosts[NodeId(0)]
    compatibility = host.node.parts.context.compatibility
    life = network.hosts[NodeId(1)].node.incarnation
    compatibility.learn(MemberFeatures(NodeId(1), life, SPOKEN & ~Feature.PROGRAMS))
    error = reply_to(network, 0, Register("a")).error
    assert isinstance(error, RequestError)
    assert "older release" in str(error)


def test_joiner_that_takes_another_id_asks_for_the_programs_that_it_knew() -> None:
    """What it had of their node's broadcasts it does not get again, and nothing new comes."""
    network, _ = watched(8)
    joiner = network.join(5)
    network.run(5)
    network.issue(joiner.id, Subscribe("news", 8))
    register(network, 2, "trainer")
    reply_to(network, 2, BroadcastTo("news", b"x", True, 5 * S))
    rival = Record(Incarnation(2**40), 0, Status.ALIVE, "rival:7400")
    network._step(joiner, Received(LinkId(10**6), Notice(((joiner.id, rival),))))
    network.run(10)
    assert joiner.id == 9
    assert shown(network, 9) == [(2, "trainer")]


@pytest.mark.parametrize("ends", [1, 3])
def test_programs_that_end_while_an_older_member_is_known_are_told_when_it_was_replaced(
    ends: int,
) -> None:
    network, changes = watched(8)
    requests = register(network, 2, "a", "b", "c", "d")
    network.run(1)
    network.kill(5)
    network.run(3)
    network.boot(5, counter=2, features=SPOKEN & ~Feature.PROGRAMS)
    network.run(5)
    for request in requests[:ends]:
        network.issue_as(network.hosts[NodeId(2)], request, Unregister(0))
    network.run(5)
    left = [(2, name) for name in "abcd"[ends:]]
    assert shown(network, 2) == left
    assert len(shown(network, 7)) == 4
    network.kill(5)
    network.run(3)
    network.boot(5, counter=3)
    network.run(10)
    assert all(shown(network, number) == left for number in range(8))
    # One end is told with its code; of several the last is, and others ask for the rest.
    assert changes.asks == (1 if ends == 1 else 7)


def test_node_that_inherits_programs_sends_nothing_before_its_first_step() -> None:
    """A recording begins with its state, which holds no orders."""
    network, _ = watched(4)
    register(network, 1, "a")
    former = network.hosts[NodeId(1)].node
    settings = replace(former.parts.context.settings, id=NodeId(2))
    now_ns = network.now_ns
    node = Node(settings, Incarnation(9 << 32), Random(1), now_ns)
    node.inherit(former)
    assert node.parts.context.effects == []
    assert node.parts.to_many.source.window.next == 1
    node.step(now_ns, DeadlineReached())
    assert node.parts.to_many.source.window.next == 2


def test_who_asks_a_former_life_for_its_programs_learns_of_the_present_one() -> None:
    """Nothing else told node 2 of a life of node 5, of which an old frame has come."""
    network = Network(6)
    settle(network)
    asker, source = network.hosts[NodeId(2)].node, network.hosts[NodeId(5)].node
    membership, programs = asker.parts.context.membership, asker.parts.to_many.programs
    assert not membership.vouched(NodeId(5))
    former = Incarnation(source.incarnation - 1)
    assert asker.parts.to_many.retention.hear(NodeId(5), former) is not None
    programs.on_skipped(NodeId(5), former)
    assert list(programs._wanted) == [5]
    network.run(5)
    assert membership.vouched(NodeId(5)) == source.incarnation
    assert not programs._wanted
