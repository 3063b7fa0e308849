"""Links and who looks after them: single steps, where one answer goes over into another."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bmgd.core.effects import Refuse, Send, Welcome
from bmgd.core.events import (
    DeadlineReached,
    Greeted,
)
from bmgd.core.forwarding import flood
from bmgd.core.neighbors.detector import LATE_NS
from bmgd.core.neighbors.dialling import JOIN_TIMER
from bmgd.core.neighbors.greeting import HELD_TIMER, _Held
from bmgd.core.neighbors.renewal import RENEW_TIMER
from bmgd.core.node import Node
from bmgd.sim import Network
from bmgd.types import (
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
)
from bmgd.wire.ask_messages import Answer, Ask
from bmgd.wire.hello import Refusal
from bmgd.wire.link_messages import Heartbeat, Notice, Ping
from bmgd.wire.routes import Route
from tests.unit.core.clusters import S
from tests.unit.core.four_nodes import PEER, life_of


def test_observer_speaks_for_one_that_is_held_dead_and_whose_link_is_fresh(
    network: Network, node: Node
) -> None:
    context, life = node.parts.context, life_of(network, PEER)
    assert context.membership.join(PEER, Record(life, 0, Status.EXCLUDED, "sim1:7400"))
    [link] = node.parts.links.by_peer[PEER]
    link.heard_ns = context.now_ns
    context.effects.clear()
    node.parts.observer.on_ask(Ask(Route(NodeId(0), NodeId(2), life_of(network, 2)), PEER, life))
    answers = [e.message for e in context.effects if isinstance(e, Send)]
    assert [a.alive for a in answers if isinstance(a, Answer)] == [True]


@pytest.mark.parametrize("is_watched", [True, False])
def test_wish_for_a_heartbeat_is_answered_where_none_goes_anyway(
    network: Network, node: Node, is_watched: bool
) -> None:
    [link] = node.parts.links.by_peer[PEER]
    link.watched_ns = int(is_watched)
    digest = node.parts.context.membership.digest
    wish = Heartbeat(link.echo + 1, 0, digest, answer=True)
    assert node.parts.detector.absorb(link, wish) == is_watched


class Lowest(Random):
    """Every lot is the lowest one."""

    def random(self) -> float:
        return 0.0


@pytest.mark.parametrize(("left", "drawn"), [([], [2, 3]), ([3], [3]), ([2, 3], [2, 3])])
def test_lot_falls_on_those_that_have_left_only_where_there_are_some(
    node: Node, left: list[int], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    redialling, context = node.parts.redialling, node.parts.context
    monkeypatch.setattr(context, "random", Lowest(1))
    monkeypatch.setattr(context.membership, "gone", [2, 3])
    monkeypatch.setattr(node.parts.links, "by_peer", {})
    assert redialling._drawn({NodeId(i) for i in left}) == drawn


def test_lot_falls_on_the_dead_most_of_the_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lowest, "random", lambda self: 0.9)
    monkeypatch.setattr(node.parts.context, "random", Lowest(1))
    monkeypatch.setattr(node.parts.context.membership, "gone", [2, 3])
    monkeypatch.setattr(node.parts.links, "by_peer", {})
    assert node.parts.redialling._drawn({NodeId(3)}) == [2]


@pytest.mark.parametrize("heard_ns", [0, 1])
def test_newcomer_is_let_in_unless_the_known_life_was_heard_meanwhile(
    network: Network, node: Node, heard_ns: int
) -> None:
    context, greeting = node.parts.context, node.parts.greeting
    [link] = node.parts.links.by_peer[PEER]
    link.heard_ns = context.now_ns - 1 + heard_ns
    later = Incarnation(life_of(network, PEER) + (1 << 32))
    greeted = Greeted(LinkId(10**6), PEER, later, "sim1:7400", Incarnation(0), 1)
    greeting._held[PEER] = _Held(greeted, 5, context.now_ns - 1)
    context.effects.clear()
    greeting.on_held_timer((HELD_TIMER, PEER, 0))
    refusals = [e.refusal for e in context.effects if isinstance(e, Refuse)]
    assert refusals == ([Refusal.BUSY] if heard_ns else [])
    assert any(isinstance(e, Welcome) for e in context.effects) == (not heard_ns)


def test_peer_that_is_waited_for_is_not_waited_for_anew(network: Network, node: Node) -> None:
    dialling, timers = node.parts.dialling, node.parts.context.timers
    key, at_ns = (JOIN_TIMER, PEER, 0), network.now_ns + 10 * S
    node.parts.links.by_peer.pop(PEER)
    timers.set(key, at_ns)
    dialling.reconcile()
    assert timers.due_ns(key) == at_ns


def test_nobody_to_renew_needs_no_pause(node: Node) -> None:
    renewal, timers = node.parts.renewal, node.parts.context.timers
    renewal._pause()
    assert (RENEW_TIMER, 0, 0) not in timers
    renewal._waiting[PEER] = None
    renewal._pause()
    assert (RENEW_TIMER, 0, 0) in timers


def test_life_that_was_met_before_and_is_linked_again_makes_no_record(node: Node) -> None:
    [link] = node.parts.links.by_peer[PEER]
    node.parts.meeting.on_link_opened(link)
    assert PEER not in node.parts.context.membership.exceptions()


@pytest.mark.parametrize("late_ns", [LATE_NS // 16, LATE_NS // 16 + 1])
def test_node_waits_longer_for_others_when_it_is_late_enough(
    network: Network, node: Node, late_ns: int
) -> None:
    due_ns = node.deadline_ns
    assert due_ns is not None
    node.parts.detector.stretch_ns = 0
    node.step(due_ns + late_ns, DeadlineReached())
    assert (node.parts.detector.stretch_ns > 0) == (late_ns > LATE_NS // 16)


def test_sender_that_is_known_takes_no_place_from_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "SENDERS_MAX", 2)
    limits, links = node.parts.flood, node.parts.links
    limits._empty_ns.clear()
    for number in (1, 2, 1):
        [link] = links.by_peer[NodeId(number)]
        assert limits.admits(link, Ping(1))
    assert [peer for peer, *_ in limits._empty_ns] == [1, 2]


def test_idle_senders_make_room_for_another(
    network: Network, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "SENDERS_MAX", 1)
    limits, links = node.parts.flood, node.parts.links
    limits._empty_ns.clear()
    for number in (1, 2):
        [link] = links.by_peer[NodeId(number)]
        assert limits.admits(link, Ping(1))
        node.parts.context.now_ns += S
    assert [peer for peer, *_ in limits._empty_ns] == [2]
    limits._empty_ns.update({(NodeId(i), NodeId(i), flood.Rate.CLUSTER): 1 for i in range(8)})
    limits._forget_idle()
    assert limits._empty_ns == {}


def test_pair_is_settled_when_the_third_link_of_it_is_lost(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, settled = node.parts.links, list[NodeId]()
    monkeypatch.setattr(type(links), "_settle_pair", lambda self, peer: settled.append(peer))
    [link] = links.by_peer[PEER]
    for number in (1, 2):
        other = replace(link, id=LinkId(10**6 + number))
        links.table[other.id] = other
        links.by_peer[PEER].append(other)
    links.lose(LinkId(10**6 + 1), Evidence.EOF)
    assert settled == [PEER]
    links.lose(LinkId(10**6 + 2), Evidence.EOF)
    assert settled == [PEER]


def test_links_of_the_former_layout_may_stay_beside_those_of_guests(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmgd.core.links.GUESTS_MAX", 0)
    links = node.parts.links
    wanted = [peer for peer in links.by_peer if peer != PEER]
    links.release_unwanted(wanted, [PEER], settled=False)
    assert PEER in links.by_peer
    links.release_unwanted(wanted, wanted, settled=False)
    assert PEER not in links.by_peer


def test_hello_whose_link_is_lost_is_held_no_more(network: Network, node: Node) -> None:
    greeting = node.parts.greeting
    for number in (1, 2):
        greeted = Greeted(LinkId(number), NodeId(number), Incarnation(1), "a:1", Incarnation(0), 1)
        greeting._held[NodeId(number)] = _Held(greeted, 5, network.now_ns)
    greeting.on_hello_lost(LinkId(2))
    assert list(greeting._held) == [1]


def test_own_record_is_told_over_a_link_that_opens(node: Node) -> None:
    context, [link] = node.parts.context, node.parts.links.by_peer[PEER]
    record = context.own_record()._replace(version=1)
    assert context.membership.join(context.id, record)
    context.effects.clear()
    node.parts.meeting.on_link_opened(link)
    told = [e.message for e in context.effects if isinstance(e, Send) and e.link == link.id]
    assert any(isinstance(m, Notice) and m.records[0][0] == context.id for m in told)


def test_link_that_the_peer_dialled_renews_none_of_the_own(node: Node) -> None:
    renewal, [link] = node.parts.renewal, node.parts.links.by_peer[PEER]
    renewal._dialled = PEER
    renewal.on_link_opened(replace(link, dialled_by=PEER))
    assert renewal._dialled == PEER
    renewal.on_link_opened(replace(link, dialled_by=NodeId(0)))
    assert renewal._dialled is None


@pytest.mark.parametrize("beyond_ns", [0, 1])
def test_id_is_given_up_when_another_has_it_beyond_the_time_of_detection(
    node: Node, beyond_ns: int
) -> None:
    context = node.parts.context
    patience_ns = context.settings.timeout_ns + context.settings.ask_ns
    own_id = node.parts.dialling.own_id
    own_id._duplicate_since_ns = context.now_ns - patience_ns - beyond_ns
    assert own_id._give_way_in_time(PEER) == bool(beyond_ns)
