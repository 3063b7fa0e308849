"""Tables that a member could fill: each has a bound, and something defined happens there."""

from __future__ import annotations

from random import Random

import pytest

from bmgd.core import inbound, membership
from bmgd.core.detector import ASKS_OPEN_MAX
from bmgd.core.effects import Effect, Send, Welcome
from bmgd.core.events import DeadlineReached, Greeted, LinkDown, LinkUp, Received
from bmgd.core.links import GUESTS_MAX
from bmgd.core.node import Node
from bmgd.core.settings import Settings
from bmgd.peers import PeerList
from bmgd.types import (
    UNKNOWN_INCARNATION,
    Evidence,
    Incarnation,
    LinkId,
    NodeId,
    Record,
    Status,
    incarnation_tag,
)
from bmgd.wire.messages import Answer, Ask, Notice, Ping, Route, SegmentAck
from tests.unit.segments import segment

PEERS = PeerList(template="host{id}:1")
LIFE = Incarnation(1 << 32)
ME = NodeId(0)


def node_of(size: int) -> Node:
    """Node 0, linked to node 1."""
    node = Node(Settings(ME, size, PEERS, PEERS.address_of(ME)), LIFE, Random(0), 0)
    node.step(0, DeadlineReached())
    address = PEERS.address_of(NodeId(1))
    node.step(1, LinkUp(LinkId(1), NodeId(1), LIFE, address, UNKNOWN_INCARNATION, 1))
    return node


def route(source: int, sequence: int = 1) -> Route:
    return Route(ME, NodeId(source), LIFE, incarnation_tag(LIFE), sequence, 9)


def answers(node: Node, source: int, stream: int = 1, floor: int = 1) -> list[bool]:
    """Let the first message of a stream come; whether it was taken, for each answer."""
    came = segment(route(source), b"x", stream=stream, floor=floor)
    effects = node.step(2, Received(LinkId(1), came))
    told = [e.message for e in effects if isinstance(e, Send)]
    return [not answer.full for answer in told if isinstance(answer, SegmentAck)]


def is_answered(node: Node, source: int) -> bool:
    return answers(node, source) == [True]


def test_streams_of_all_sources_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "STREAMS_MAX", 6)
    node = node_of(64)
    assert all(answers(node, source, s) == [True] for source in (2, 3) for s in (1, 2, 3))
    # A full table refuses what is new, and forgets nothing of what it has.
    assert answers(node, 2, 4) == [False]
    assert answers(node, 4) == [False]
    assert answers(node, 3, 3) == []
    assert answers(node, 2, 4, floor=3) == [True]
    assert answers(node, 4) == [True]
    assert answers(node, 5) == [False]


def test_streams_beyond_the_span_of_the_lowest_open_one_are_not_answered() -> None:
    node = node_of(64)
    assert answers(node, 2, inbound.SPAN, floor=1) == [True]
    assert answers(node, 2, inbound.SPAN + 1, floor=1) == []
    assert answers(node, 2, inbound.SPAN + 1, floor=2) == [True]
    assert answers(node, 2, 1, floor=1) == []


def test_source_that_left_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "SOURCES_MAX", 2)
    node = node_of(64)
    assert is_answered(node, 2)
    assert is_answered(node, 3)
    assert not is_answered(node, 4)
    # Who is only held dead may refute that, and go on.
    dead = Record(LIFE, 0, Status.EXCLUDED, PEERS.address_of(NodeId(2)))
    node.step(2, Received(LinkId(1), Notice(((NodeId(2), dead),))))
    assert not is_answered(node, 4)
    left = Record(LIFE, 0, Status.LEFT, PEERS.address_of(NodeId(3)))
    node.step(2, Received(LinkId(1), Notice(((NodeId(3), left),))))
    assert is_answered(node, 4)
    assert not is_answered(node, 3)


def test_lives_met_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LIVES_MAX", 3)
    known = membership.Membership(100, PEERS)
    for number in range(10):
        known.learn_life(NodeId(number), LIFE)
    assert [i for i in range(10) if known.incarnation(NodeId(i))] == [0, 1, 2]
    later = Incarnation(2 << 32)
    known.learn_life(NodeId(1), later)
    assert known.incarnation(NodeId(1)) == later


def _guest(node: Node, number: int, now_ns: int) -> list[Effect]:
    peer, link = NodeId(number), LinkId(1000 + number)
    hello = Greeted(link, peer, LIFE, PEERS.address_of(peer), UNKNOWN_INCARNATION, 1)
    return node.step(now_ns, hello)


def test_guests_that_come_and_go_leave_no_page() -> None:
    node = node_of(4096)
    pages = len(node._dialling.peerings)
    timers = len(node._context.timers)
    for number in range(1000, 1200):
        assert any(isinstance(e, Welcome) for e in _guest(node, number, 5))
        node.step(5, LinkDown(LinkId(1000 + number), Evidence.GOODBYE))
    assert len(node._dialling.peerings) == pages
    assert len(node._context.timers) <= timers + 1


def test_guests_that_stay_are_bounded() -> None:
    node = node_of(4096)
    for number in range(1000, 1200):
        _guest(node, number, 5)
    assert len(node._links.table) <= 1 + GUESTS_MAX + len(node._dialling.wanted)


def test_asks_that_an_observer_has_open_are_bounded() -> None:
    node = node_of(64)
    pings, now_ns = 0, 1
    while now_ns < 700_000_000:
        now_ns = max(now_ns, node.deadline_ns or 0)
        node.step(now_ns, DeadlineReached())
    for number in range(3 * ASKS_OPEN_MAX):
        asker = NodeId(2 + number % 60)
        asked = Ask(Route(ME, asker, LIFE, 0, number, 9), NodeId(1), LIFE)
        effects = node.step(now_ns, Received(LinkId(999), asked))
        pings += sum(isinstance(e, Send) and isinstance(e.message, Ping) for e in effects)
    assert pings == ASKS_OPEN_MAX
    answered, until_ns = 0, now_ns + 300_000_000
    while now_ns < until_ns:
        now_ns = max(now_ns, node.deadline_ns or 0)
        effects = node.step(now_ns, DeadlineReached())
        answered += sum(isinstance(e, Send) and isinstance(e.message, Answer) for e in effects)
    assert answered == ASKS_OPEN_MAX


def test_members_cannot_be_invented_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "JOINED_MAX", 5)
    known = membership.Membership(10, PEERS)
    joined = [i for i in range(30) if known.join(NodeId(i), Record(LIFE, 0, Status.ALIVE, "a:1"))]
    assert joined == list(range(20))
    assert known.id_space == 20
